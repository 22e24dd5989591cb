//! Faults of the server itself, and bad input that only a real server can refuse: F16 .. F33 and F42 of the catalogue.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Guard, Lock, LossCause};

use crate::invariants::{
    ACQUIRE, CANARY, Class, INSPECT, Log, RELEASE, SCRIPTS, SLACK, TIMEOUT, connections, counts,
    ends_within, every_key_expires, fails, is_empty, keys, leaves_nothing, no_connection_is_left,
    no_secret, not_heard_of, quick, sha, somebody_waits, teach, told, written,
};
use crate::support::{Fault, Monitor, Proxy, RedisServer, eventually, ms};

/// A lease that is long enough to be kept on a busy machine.
const LEASE: Duration = ms(1500);

/// A lease that is to be lost.
const SHORT: Duration = ms(900);

fn client(server: &RedisServer) -> Client {
    quick().open(&server.url()).unwrap()
}

fn keeping(server: &RedisServer) -> Client {
    quick().watchdog_timeout(LEASE).open(&server.url()).unwrap()
}

fn losing(server: &RedisServer) -> Client {
    quick().watchdog_timeout(SHORT).open(&server.url()).unwrap()
}

fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Each operation once: all work.
fn all_works(lock: &Lock, between: &dyn Fn()) {
    let step = |work: &dyn Fn()| {
        between();
        work();
    };
    step(&|| assert!(!lock.is_locked().unwrap()));
    step(&|| assert!(lock.try_lock().unwrap()));
    step(&|| assert!(lock.try_lock().unwrap()));
    step(&|| assert_eq!(lock.hold_count().unwrap(), 2));
    step(&|| assert!(!elsewhere(|| lock.try_lock().unwrap())));
    step(&|| lock.unlock().unwrap());
    step(&|| lock.unlock().unwrap());
    step(&|| lock.lock().unwrap());
    step(&|| assert!(lock.force_unlock().unwrap()));
    step(&|| assert!(lock.unlock().unwrap_err().is_lost()));
    step(&|| assert!(lock.try_lock_for(ms(200)).unwrap()));
    step(&|| lock.unlock().unwrap());
}

// F16

#[test]
fn a_server_that_has_forgotten_the_scripts_is_told_them_again() {
    let server = RedisServer::start();
    let client = keeping(&server);
    let lock = client.lock("orders");
    all_works(&lock, &|| {
        server.cmd(&["SCRIPT", "FLUSH"]);
    });
    is_empty(&server);
    // More holds than one call renews.
    let locks: Vec<_> = (0..250).map(|n| client.lock(&format!("n{n}"))).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.guard().unwrap()).collect();
    let start = Instant::now();
    while start.elapsed() < LEASE * 2 {
        server.cmd(&["SCRIPT", "FLUSH"]);
        assert!(guards.iter().all(|guard| guard.is_valid()));
        thread::sleep(ms(20));
    }
    for guard in guards {
        guard.unlock().unwrap();
    }
    is_empty(&server);
}

// F17

#[test]
fn a_server_without_evalsha_is_no_worse() {
    let server = RedisServer::with(&["--rename-command", "EVALSHA", ""]);
    let client = keeping(&server);
    all_works(&client.lock("orders"), &|| {});
    let guard = client.lock("orders").guard().unwrap();
    thread::sleep(LEASE + ms(300));
    assert!(guard.is_valid(), "renewals go by the text, too");
    guard.unlock().unwrap();
    is_empty(&server);
}

#[test]
fn a_server_without_scripts_is_refused_with_the_reason() {
    let server = RedisServer::with(&[
        "--rename-command",
        "EVALSHA",
        "",
        "--rename-command",
        "EVAL",
        "",
    ]);
    let lock = client(&server).lock("orders");
    let error = ends_within(TIMEOUT, || fails(lock.lock(), Class::Permission));
    assert!(
        error.to_string().to_lowercase().contains("eval"),
        "what is missing is said: {error}"
    );
    is_empty(&server);
}

// F18

/// Runs a script that does not end by itself, until [`Busy::end`].
struct Busy<'a> {
    server: &'a RedisServer,
    script: std::net::TcpStream,
}

impl Busy<'_> {
    fn start(server: &RedisServer) -> Busy<'_> {
        server.cmd(&["CONFIG", "SET", "busy-reply-threshold", "20"]);
        let mut script = std::net::TcpStream::connect(server.addr()).unwrap();
        script
            .write_all(b"EVAL \"while true do end\" 0\r\n")
            .unwrap();
        eventually(ms(5000), "the server is busy", || {
            server
                .try_cmd(&["PING"])
                .is_err_and(|error| error.to_string().contains("BUSY"))
        });
        Busy { server, script }
    }

    fn end(self) {
        self.server.cmd(&["SCRIPT", "KILL"]);
        drop(self.script);
    }
}

#[test]
fn a_busy_server_is_waited_for_and_never_interrupted() {
    let server = RedisServer::start();
    teach(&server);
    let client = client(&server);
    let lock = client.lock("orders");
    let other = losing(&server);
    let held = other.lock("invoices").guard().unwrap();
    let lost = held.lost();
    let start = Instant::now();
    let busy = Busy::start(&server);
    let error = ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unavailable));
    assert!(error.to_string().contains("BUSY"), "{error}");
    fails(lock.is_locked(), Class::Unavailable);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            let now = Instant::now();
            lock.unlock().unwrap();
            now
        });
        let loss = told(&lost, SHORT);
        let LossCause::Unreachable { reason, .. } = &loss.cause else {
            panic!("{loss}");
        };
        assert!(reason.contains("BUSY"), "{reason}");
        assert!(!held.is_valid());
        assert!(start.elapsed() >= SHORT / 2, "before its time");
        let freed = Instant::now();
        busy.end();
        let granted = waiting.join().unwrap().saturating_duration_since(freed);
        assert!(granted < ms(750) + SLACK, "{granted:?}");
    });
    let info = server.text(&["INFO", "commandstats"]).unwrap();
    let kills = info
        .lines()
        .find(|line| line.contains("script|kill"))
        .unwrap();
    assert!(kills.contains("calls=1,"), "only the test kills: {kills}");
    fails(held.unlock(), Class::Lost);
    leaves_nothing(&server);
}

// F19

#[test]
fn a_server_that_loads_its_data_is_waited_for() {
    let server = RedisServer::start();
    let client = client(&server);
    let lock = client.lock("orders");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    for key in 0..1000 {
        server.cmd(&["SET", &format!("key{key}"), "x"]);
    }
    server.cmd(&[
        "CONFIG",
        "SET",
        "loading-process-events-interval-bytes",
        "1024",
    ]);
    // A thousand times this long, in microseconds.
    server.cmd(&["CONFIG", "SET", "key-load-delay", "1500"]);
    thread::scope(|scope| {
        let mut admin = server.admin();
        scope.spawn(move || {
            let reloaded = redis::cmd("DEBUG").arg("RELOAD").exec(&mut admin);
            reloaded.unwrap();
        });
        eventually(ms(5000), "the server loads", || {
            server
                .try_cmd(&["GET", "key1"])
                .is_err_and(|error| error.code() == Some("LOADING"))
        });
        let error = ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unavailable));
        assert!(error.to_string().contains("LOADING"), "{error}");
        let got = ends_within(ms(2000), || {
            lock.try_lock_for(Duration::from_secs(20)).unwrap()
        });
        assert!(got);
    });
    lock.unlock().unwrap();
    assert_eq!(server.int(&["EXISTS", "orders"]), 0);
}

// F20, F21

#[test]
fn a_replica_takes_no_lock_and_is_left() {
    let master = RedisServer::with(&["--repl-diskless-sync-delay", "0"]);
    let server = RedisServer::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    eventually(ms(5000), "the replica is linked", || {
        server.info("master_link_status").as_deref() == Some("up")
    });
    let client = client(&server);
    let lock = client.lock("orders");
    let error = ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unavailable));
    assert!(error.to_string().contains("READONLY"), "{error}");
    let warnings = client.check().unwrap();
    assert!(
        warnings.iter().any(|one| one.message.contains("replica")),
        "{warnings:?}"
    );
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            lock.unlock().unwrap();
        });
        thread::sleep(ms(200));
        let before = received(&server);
        thread::sleep(ms(1200));
        // Another connection may find the master.
        let more = received(&server) - before;
        assert!((2..100).contains(&more), "{more} connections");
        server.cmd(&["REPLICAOF", "NO", "ONE"]);
        ends_within(ms(750), || waiting.join().unwrap());
    });
    is_empty(&server);
}

/// How many connections the server has accepted since its start.
fn received(server: &RedisServer) -> u64 {
    let total = server.info("total_connections_received");
    total.unwrap().parse().unwrap()
}

#[test]
fn a_master_without_its_replicas_grants_nothing() {
    let server = RedisServer::start();
    let client = client(&server);
    let lock = client.lock("orders");
    let held = client.lock("invoices");
    held.lock().unwrap();
    server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let error = fails(lock.try_lock(), Class::Unavailable);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    let error = fails(lock.try_lock_for(ms(100)), Class::Unavailable);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    fails(held.unlock(), Class::Unavailable);
    server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    // What could not be unlocked is released in the background.
    leaves_nothing(&server);
}

// F22

#[test]
fn a_server_that_cannot_save_ends_holds_and_grants_none() {
    let server = RedisServer::start();
    let client = losing(&server);
    let guard = client.lock("orders").guard().unwrap();
    let fixed = client.lock("parcels").with_lease_time(LEASE * 20);
    fixed.lock().unwrap();
    let lost = guard.lost();
    let gone = tempfile::tempdir().unwrap();
    server.cmd(&["CONFIG", "SET", "dir", gone.path().to_str().unwrap()]);
    server.cmd(&["CONFIG", "SET", "save", "1000 1"]);
    drop(gone);
    let start = Instant::now();
    let _ = server.try_cmd(&["BGSAVE"]);
    eventually(ms(5000), "a save fails", || {
        server
            .try_cmd(&["SET", "x", "y"])
            .is_err_and(|error| error.to_string().contains("MISCONF"))
    });
    let _ = server.try_cmd(&["DEL", "x"]);
    let error = fails(client.lock("invoices").try_lock(), Class::Unavailable);
    assert!(error.to_string().contains("MISCONF"), "{error}");
    let loss = told(&lost, SHORT);
    assert!(start.elapsed() >= SHORT / 2);
    assert!(!guard.is_valid());
    let LossCause::Unreachable { reason, .. } = &loss.cause else {
        panic!("{loss}");
    };
    assert!(reason.contains("MISCONF"), "{reason}");
    let error = ends_within(TIMEOUT, || fails(fixed.unlock(), Class::Unavailable));
    assert!(error.to_string().contains("MISCONF"), "{error}");
    server.cmd(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    server.cmd(&["DEL", "x"]);
    leaves_nothing(&server);
}

// F23

#[test]
fn a_full_server_grants_nothing_and_frees_and_renews_all_the_same() {
    let server = RedisServer::start();
    teach(&server);
    let client = keeping(&server);
    let lock = client.lock("orders");
    lock.lock().unwrap();
    lock.lock().unwrap();
    lock.lock().unwrap();
    let once = client.lock("invoices");
    once.lock().unwrap();
    let forced = client.lock("parcels").with_lease_time(LEASE * 20);
    forced.lock().unwrap();
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = fails(client.lock("other").try_lock(), Class::Unavailable);
    assert!(error.to_string().contains("OOM"), "{error}");
    let error = fails(
        client.lock("other").try_lock_for(ms(100)),
        Class::Unavailable,
    );
    assert!(error.to_string().contains("OOM"), "{error}");
    assert_eq!(server.int(&["EXISTS", "other"]), 0);
    assert!(lock.try_lock().unwrap(), "it has its place already");
    lock.unlock().unwrap();
    thread::sleep(LEASE + ms(300));
    assert!(lock.is_valid(), "it is renewed");
    assert!(once.is_valid());
    lock.unlock().unwrap();
    lock.unlock().unwrap();
    assert!(lock.is_valid());
    assert!(lock.is_held_by_current_thread().unwrap());
    lock.unlock().unwrap();
    once.unlock().unwrap();
    assert!(forced.force_unlock().unwrap());
    is_empty(&server);
    // A script that the server does not know yet needs memory, too.
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    lock.lock().unwrap();
    server.cmd(&["SCRIPT", "FLUSH"]);
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    lock.unlock().unwrap();
    is_empty(&server);
}

// F24

#[test]
fn a_server_that_takes_no_more_clients_is_waited_for() {
    let server = RedisServer::start();
    let old = client(&server);
    let held = old.lock("invoices");
    held.lock().unwrap();
    let new = client(&server);
    // The look at the server's settings is to be over: the slot of a connection that could not be made is used first.
    thread::sleep(ms(300));
    server.cmd(&["CONFIG", "SET", "maxclients", "1"]);
    let lock = new.lock("orders");
    let error = ends_within(TIMEOUT, || lock.try_lock()).unwrap_err();
    // It says so and closes, and the kernel may throw away what it said.
    assert!(error.is_retryable() && !error.is_ambiguous(), "{error}");
    if let Error::Unavailable { reason, .. } = &error {
        assert!(reason.contains("max number of clients"), "{reason}");
    }
    assert!(held.is_held_by_current_thread().unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            lock.unlock().unwrap();
        });
        thread::sleep(ms(200));
        held.unlock().unwrap();
        server.cmd(&["CONFIG", "SET", "maxclients", "1000"]);
        ends_within(ms(750), || waiting.join().unwrap());
    });
    is_empty(&server);
    drop((old, new, held, lock));
    no_connection_is_left(&server);
}

#[test]
fn a_thread_alone_needs_no_more_than_two_connections_or_three() {
    let server = RedisServer::start();
    for _ in 0..20 {
        let client = client(&server);
        let lock = client.lock("orders");
        for _ in 0..20 {
            assert!(!lock.is_locked().unwrap());
        }
        lock.lock().unwrap();
        lock.unlock().unwrap();
        // The second one is for renewals, and the third for the look at the server's settings, which may happen at the
        // same time, and closes one that has listened.
        eventually(ms(5000), "it has three connections at most", || {
            connections(&server).len() <= 3
        });
        drop((client, lock));
        no_connection_is_left(&server);
    }
}

// F25, F26

/// The commands that scripts call, but for those that are only the last resort of one, or for another kind of lock.
fn needed() -> Vec<String> {
    let mut commands: Vec<_> = SCRIPTS
        .iter()
        .flat_map(|script| script.split("call('").skip(1))
        .filter_map(|rest| rest.split_once('\''))
        .map(|(command, _)| command.to_lowercase())
        // Of these the first undoes, the second is for token locks, and the third for the nodes of a quorum.
        .filter(|command| !["del", "get", "info"].contains(&&**command))
        .collect();
    commands.sort();
    commands.dedup();
    assert!(commands.len() >= 9, "{commands:?}");
    commands
}

/// Makes a user with these rules, and returns a URL for it.
fn user(server: &RedisServer, name: &str, rules: &[&str]) -> String {
    let password = format!(">{CANARY}");
    let mut words = vec![
        "ACL", "SETUSER", name, "reset", "on", &password, "~*", "&*", "+@all",
    ];
    words.extend(rules);
    server.cmd(&words);
    server
        .url()
        .replace("redis://", &format!("redis://{name}:{CANARY}@"))
}

#[test]
fn each_right_that_lacks_is_named_and_nothing_stays() {
    let server = RedisServer::start();
    for command in needed() {
        let url = user(&server, "app", &[&format!("-{command}")]);
        let client = quick().watchdog_timeout(LEASE).open(&url).unwrap();
        let lock = client.lock("orders");
        let stranger = self::client(&server).lock("orders");
        let mut errors = Vec::new();
        let mut note = |error: Option<Error>| {
            every_key_expires(&server);
            errors.extend(error);
        };
        note(lock.is_locked().err());
        note(lock.try_lock().err());
        note(lock.try_lock().err());
        note(lock.unlock().err());
        note(lock.unlock().err());
        server.cmd(&["DEL", "orders"]);
        stranger.lock().unwrap();
        note(ends_within(ms(200), || lock.try_lock_for(ms(100))).err());
        note(lock.force_unlock().err());
        let _ = stranger.unlock();
        server.cmd(&["DEL", "orders"]);
        // A re-entry, and an unlock, of what was taken away.
        note(lock.try_lock().err());
        server.cmd(&["DEL", "orders"]);
        note(lock.try_lock().err());
        server.cmd(&["DEL", "orders"]);
        note(lock.unlock().err());
        note(lock.unlock().err());
        let mut named = 0;
        for error in errors {
            no_secret(&error);
            no_secret(&error.to_string());
            match error {
                Error::Permission { missing, .. } => {
                    assert_eq!(missing, [format!("+{command}")]);
                    named += 1;
                }
                // What follows from it.
                Error::NotHeld { .. } | Error::Lost { .. } => {}
                error => panic!("without {command}: {error}"),
            }
        }
        // Waiters look for themselves, so it is a loss of speed only. Renewals and hand-overs alone need HEXISTS.
        let is_spared = matches!(&*command, "publish" | "hexists" | "hlen");
        assert!(named > 0 || is_spared, "{command}");
        let said = match client.check() {
            Ok(warnings) => format!("{warnings:?}"),
            // Without TIME there is no connection.
            Err(error) => error.to_string(),
        };
        assert!(said.contains(&format!("+{command}")), "{command}: {said}");
    }
    server.cmd(&["DEL", "orders"]);
}

#[test]
fn two_rights_that_lack_leave_no_key_without_an_end() {
    let server = RedisServer::start();
    let url = user(&server, "app", &["-pexpire", "-hdel"]);
    let client = quick().open(&url).unwrap();
    let error = fails(client.lock("orders").try_lock(), Class::Permission);
    let Error::Permission { missing, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*missing, ["+hdel", "+pexpire"]);
    is_empty(&server);
}

#[test]
fn a_user_without_evalsha_or_channels_can_lock_all_the_same() {
    let server = RedisServer::start();
    for rules in [&["-evalsha"][..], &["resetchannels"], &["-subscribe"]] {
        let url = user(&server, "app", rules);
        let client = quick().watchdog_timeout(LEASE).open(&url).unwrap();
        let lock = client.lock("orders");
        all_works(&lock, &|| {});
        lock.lock().unwrap();
        let got = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
                let now = Instant::now();
                lock.unlock().unwrap();
                now
            });
            thread::sleep(ms(200));
            let freed = Instant::now();
            lock.unlock().unwrap();
            waiting.join().unwrap().duration_since(freed)
        });
        assert!(got < ms(1100) + SLACK, "{got:?}");
        is_empty(&server);
    }
    let url = user(&server, "app", &["-eval", "-evalsha"]);
    let error = fails(
        quick().open(&url).unwrap().lock("orders").lock(),
        Class::Permission,
    );
    assert!(error.to_string().contains("eval"), "{error}");
}

#[test]
fn a_user_of_other_keys_is_told_which_one_it_lacks() {
    let server = RedisServer::start();
    let url = user(&server, "app", &["resetkeys", "~invoices:*"]);
    let client = quick().open(&url).unwrap();
    all_works(&client.lock("invoices:1"), &|| {});
    for result in [
        client.lock("orders").try_lock(),
        client.lock("orders").is_locked(),
        client.lock("orders").force_unlock(),
    ] {
        let error = fails(result, Class::Permission);
        assert!(error.to_string().contains("~orders"), "{error}");
    }
    is_empty(&server);
}

#[test]
fn a_user_without_a_name_for_its_connection_can_lock_all_the_same() {
    let server = RedisServer::start();
    let url = user(&server, "app", &["-client", "-info"]);
    let client = quick().open(&url).unwrap();
    all_works(&client.lock("orders"), &|| {});
    client.check().unwrap();
}

#[test]
fn a_wrong_password_and_an_unknown_user_are_refused_at_once() {
    let server = RedisServer::start();
    let good = user(&server, "app", &[]);
    let proxy = Proxy::to(server.addr());
    let to_proxy = |url: &str| url.replace(&server.addr().to_string(), &proxy.addr().to_string());
    let urls = [
        to_proxy(&good.replace(":canary", ":wrong-canary")),
        to_proxy(&good.replace("app", "stranger")),
    ];
    for url in &urls {
        let client = quick().open(url).unwrap();
        let lock = client.lock("orders");
        let accepted = proxy.counters().accepted;
        ends_within(ms(0), || fails(lock.try_lock(), Class::Permission));
        ends_within(ms(0), || {
            fails(
                lock.try_lock_for(Duration::from_secs(60)),
                Class::Permission,
            )
        });
        ends_within(ms(0), || fails(lock.lock(), Class::Permission));
        fails(lock.is_locked(), Class::Permission);
        fails(lock.force_unlock(), Class::Permission);
        fails(client.check(), Class::Permission);
        // With a second one to find out what is missing, and one of the look at the start.
        let tries = proxy.counters().accepted - accepted;
        assert!(tries <= 16, "{tries} connections for 6 calls");
    }
    // A server that wants a password of whoever has none.
    server.cmd(&["CONFIG", "SET", "requirepass", CANARY]);
    let error = fails(client(&server).lock("orders").lock(), Class::Permission);
    assert!(error.to_string().contains("NOAUTH"), "{error}");
    let url = server.url().replace("://", &format!("://:{CANARY}@"));
    all_works(&quick().open(&url).unwrap().lock("orders"), &|| {});
    all_works(
        &quick().open(&to_proxy(&good)).unwrap().lock("orders"),
        &|| {},
    );
}

#[test]
fn rights_that_are_taken_away_meanwhile_end_waits_and_holds() {
    let server = RedisServer::start();
    let url = user(&server, "app", &[]);
    let client = quick().watchdog_timeout(SHORT).open(&url).unwrap();
    let lock = client.lock("orders");
    let stranger = self::client(&server);
    stranger.lock("orders").lock().unwrap();
    let guard = client.lock("invoices").guard().unwrap();
    let lost = guard.lost();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.try_lock_for(Duration::from_secs(60)));
        somebody_waits(&server, "orders");
        // Connections that are open stay open.
        server.cmd(&["ACL", "SETUSER", "app", "off"]);
        assert!(guard.is_valid());
        let start = Instant::now();
        server.cmd(&["ACL", "DELUSER", "app"]);
        fails(waiting.join().unwrap(), Class::Permission);
        assert!(start.elapsed() < ms(1100) + SLACK, "{:?}", start.elapsed());
        told(&lost, SHORT);
        assert!(!guard.is_valid());
    });
    fails(guard.unlock(), Class::Lost);
    fails(client.lock("other").try_lock(), Class::Permission);
    stranger.lock("orders").unlock().unwrap();
    leaves_nothing(&server);
}

// F27

#[test]
fn a_name_that_is_used_by_something_else_is_left_alone() {
    let server = RedisServer::start();
    let client = losing(&server);
    for make in [
        &["SET", "orders", "somebody's"][..],
        &["HSET", "orders", "mode", "read", "uuid:1", "1"],
        // An order of an application, not a lock of it.
        &["HSET", "orders", "customer", "17", "status", "paid"],
        &["HSET", "orders", "customer", "17"],
        &["HSET", "orders", "customer:17", "paid"],
        &["HSET", "orders", "customer:17", "1", "customer:18", "1"],
    ] {
        server.cmd(make);
        let before = server.cmd(&["DUMP", "orders"]);
        let lock = client.lock("orders");
        fails(lock.try_lock(), Class::WrongType);
        ends_within(ms(0), || {
            fails(lock.try_lock_for(Duration::from_secs(60)), Class::WrongType)
        });
        let error = ends_within(ms(0), || fails(lock.lock(), Class::WrongType));
        assert_eq!(error.lock_name(), Some("orders"));
        fails(lock.unlock(), Class::NotHeld);
        fails(lock.force_unlock(), Class::WrongType);
        fails(lock.is_locked(), Class::WrongType);
        fails(lock.remaining_lease(), Class::WrongType);
        assert_eq!(server.cmd(&["DUMP", "orders"]), before);
        assert_eq!(server.int(&["PTTL", "orders"]), -1);
        server.cmd(&["DEL", "orders"]);
    }

    // Somebody writes over a lock that is held.
    for make in [
        &["SET", "orders", "somebody's"][..],
        &["HSET", "orders", "customer", "17"],
    ] {
        let guard = client.lock("orders").guard().unwrap();
        let again = client.lock("orders").guard().unwrap();
        let lost = guard.lost();
        server.cmd(&["DEL", "orders"]);
        server.cmd(make);
        let before = server.cmd(&["DUMP", "orders"]);
        fails(again.unlock(), Class::Lost);
        fails(client.lock("orders").try_lock(), Class::WrongType);
        let loss = told(&lost, SHORT / 3 + TIMEOUT);
        assert!(
            matches!(&loss.cause, LossCause::HeldBy(what) if what.contains("another type")),
            "{loss}"
        );
        fails(guard.unlock(), Class::Lost);
        assert_eq!(server.cmd(&["DUMP", "orders"]), before);
        assert_eq!(server.int(&["PTTL", "orders"]), -1);
        server.cmd(&["DEL", "orders"]);
    }
}

#[test]
fn a_lock_that_something_else_was_written_over_is_a_loss_to_all_that_its_holder_does() {
    type Step = fn(&Lock, Guard);
    let unlock: Step = |_, guard| drop(fails(guard.unlock(), Class::Lost));
    let give_level_back: Step = |lock, guard| {
        fails(lock.unlock(), Class::Lost);
        fails(guard.unlock(), Class::Lost);
    };
    let enter_again: Step = |lock, guard| {
        fails(lock.try_lock(), Class::WrongType);
        assert!(!guard.is_valid());
        fails(guard.unlock(), Class::Lost);
    };
    let hand_over: Step = |lock, guard| {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.try_lock_for(ms(300)));
            thread::sleep(ms(100));
            fails(guard.unlock(), Class::Lost);
            fails(waiter.join().unwrap(), Class::WrongType);
        });
    };
    let server = RedisServer::start();
    let told_of = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told_of);
    let client = quick()
        .watchdog_timeout(Duration::from_secs(60))
        .on_lost(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
    let client = client.open(&server.url()).unwrap();
    let fixed = client
        .lock("orders")
        .with_lease_time(Duration::from_secs(60));
    let mut losses = 0;
    for make in [
        &["LPUSH", "orders", "somebody's"][..],
        &["HSET", "orders", "customer", "17", "status", "paid"],
    ] {
        for lock in [&client.lock("orders"), &fixed, &client.token_lock("orders")] {
            let is_token = !lock.guard().unwrap().visitor().as_str().contains(':');
            for (levels, step) in [
                (1, unlock),
                (2, give_level_back),
                (1, enter_again),
                (1, hand_over),
            ] {
                if is_token && (levels > 1 || std::ptr::fn_addr_eq(step, enter_again)) {
                    continue;
                }
                let guard = lock.guard().unwrap();
                (1..levels).for_each(|_| lock.lock().unwrap());
                let lost = guard.lost();
                server.cmd(&["DEL", "orders"]);
                server.cmd(make);
                step(lock, guard);
                let loss = told(&lost, ms(100));
                assert!(matches!(&loss.cause, LossCause::HeldBy(_)), "{loss}");
                losses += 1;
                eventually(SLACK, "the hook", || {
                    told_of.load(Ordering::SeqCst) == losses
                });
                assert_eq!(server.int(&["PTTL", "orders"]), -1);
                server.cmd(&["DEL", "orders"]);
            }
        }
    }
}

#[test]
fn a_long_field_is_freed_by_force_only_if_it_looks_like_a_visitor() {
    let server = RedisServer::start();
    let lock = losing(&server).lock("orders");
    let long = "customer".repeat(40);
    server.cmd(&["HSET", "orders", &long, "17"]);
    server.cmd(&["PEXPIRE", "orders", "60000"]);
    assert!(!lock.try_lock().unwrap());
    fails(lock.force_unlock(), Class::WrongType);
    assert_eq!(server.int(&["HLEN", "orders"]), 1);
    for visitor in [
        format!("{long}:7"),
        format!("{long}:7:8"),
        format!("a:7:{long}"),
    ] {
        server.cmd(&["DEL", "orders"]);
        server.cmd(&["HSET", "orders", &visitor, "17"]);
        assert!(lock.force_unlock().unwrap(), "{visitor}");
    }
    is_empty(&server);
}

#[test]
fn a_large_hash_is_told_from_a_lock_by_its_length() {
    let server = RedisServer::start();
    let fill = "for i = 1, 5000 do redis.call('HSET', KEYS[1], i, i) end";
    let lock = losing(&server).lock("orders");
    let guard = lock.guard().unwrap();
    let again = lock.guard().unwrap();
    let lost = guard.lost();
    if cfg!(feature = "tracing") {
        // It tries each right, this one on a key of its own.
        let is_over = || server.info("cmdstat_hkeys").is_some();
        eventually(SLACK, "the look at the settings is over", is_over);
    }
    server.cmd(&["DEL", "orders"]);
    server.cmd(&["EVAL", fill, "1", "orders"]);
    server.cmd(&["CONFIG", "RESETSTAT"]);
    fails(again.unlock(), Class::Lost);
    told(&lost, SHORT / 3 + TIMEOUT);
    fails(guard.unlock(), Class::Lost);
    fails(lock.try_lock(), Class::WrongType);
    fails(lock.try_lock_for(ms(100)), Class::WrongType);
    fails(lock.is_locked(), Class::WrongType);
    fails(lock.force_unlock(), Class::WrongType);
    assert_eq!(
        server.info("cmdstat_hkeys"),
        None,
        "all its names were read"
    );
    assert_eq!(server.int(&["HLEN", "orders"]), 5_000);
}

#[test]
fn what_others_write_is_short_and_printable_in_what_we_say() {
    let server = RedisServer::start();
    let lock = losing(&server).lock("orders");
    let long = format!("{}:1", "x".repeat(2_000_000));
    let forged = "a\r\nERROR all locks are lost\u{1b}[2J\u{2028}\u{202e}:1";
    for field in [&long, forged] {
        let guard = lock.guard().unwrap();
        let inner = lock.guard().unwrap();
        let lost = guard.lost();
        server.cmd(&["DEL", "orders"]);
        server.cmd(&["HSET", "orders", field, "1"]);
        server.cmd(&["PEXPIRE", "orders", "60000"]);
        let mut said = vec![fails(inner.unlock(), Class::Lost).to_string()];
        let loss = told(&lost, SHORT / 3 + TIMEOUT);
        assert!(matches!(loss.cause, LossCause::HeldBy(_)), "{loss}");
        said.extend([loss.to_string(), format!("{:?}", loss.cause)]);
        said.push(fails(guard.unlock(), Class::Lost).to_string());
        for said in said {
            assert!(said.len() < 500, "{} bytes", said.len());
            let is_plain = |sign: char| !sign.is_control() && !"\u{2028}\u{202e}".contains(sign);
            assert!(said.chars().all(is_plain), "{said:?}");
        }
        assert!(!lock.try_lock().unwrap());
        assert!(!lock.try_lock_for(ms(100)).unwrap());
        assert!(lock.is_locked().unwrap());
        assert!(lock.force_unlock().unwrap());
        assert!(!lock.is_locked().unwrap());
    }
    // A count of our own that somebody wrote over.
    let guard = lock.guard().unwrap();
    let count = "1".repeat(2_000_000);
    server.cmd(&["HSET", "orders", &guard.visitor().to_string(), &count]);
    fails(lock.try_lock(), Class::Corrupt);
    fails(lock.hold_count(), Class::Corrupt);
    guard.unlock().unwrap();
}

// F28

#[test]
fn a_count_that_is_no_number_is_an_error_without_a_loop() {
    let server = RedisServer::start();
    let client = client(&server);
    let lock = client.lock("orders");
    for count in ["abc", "9223372036854775807", "-1", "1.5", ""] {
        let outer = lock.guard().unwrap();
        let inner = lock.guard().unwrap();
        let visitor = outer.visitor().to_string();
        server.cmd(&["HSET", "orders", &visitor, count]);
        let evals = server.eval_count();
        ends_within(ms(0), || fails(lock.lock(), Class::Corrupt));
        ends_within(ms(0), || {
            fails(lock.try_lock_for(Duration::from_secs(60)), Class::Corrupt)
        });
        if !count.is_empty() {
            let error = fails(lock.hold_count(), Class::Corrupt);
            assert!(error.to_string().contains(&visitor), "{error}");
        }
        fails(inner.unlock(), Class::Corrupt);
        assert!(server.eval_count() - evals < 20, "it goes round in circles");
        every_key_expires(&server);
        outer.unlock().unwrap();
        is_empty(&server);
    }
}

// F29

#[test]
fn a_server_that_pauses_longer_than_the_lease_ends_the_hold() {
    let server = RedisServer::start();
    let client = losing(&server);
    for mode in ["WRITE", "ALL"] {
        let guard = client.lock("orders").guard().unwrap();
        let renewed = client.lock("invoices").guard().unwrap();
        let lost = guard.lost();
        let start = Instant::now();
        server.cmd(&["CLIENT", "PAUSE", "1400", mode]);
        ends_within(TIMEOUT, || fails(renewed.unlock(), Class::Unknown));
        while guard.is_valid() {
            assert!(start.elapsed() < SHORT, "nothing was confirmed since");
            thread::sleep(ms(1));
        }
        let loss = told(&lost, ms(100));
        assert!(
            matches!(loss.cause, LossCause::Unreachable { .. }),
            "{loss}"
        );
        fails(guard.unlock(), Class::Lost);
        let lock = client.lock("orders");
        let got = ends_within(ms(1400), || {
            lock.try_lock_for(Duration::from_secs(20)).unwrap()
        });
        assert!(got);
        assert!(lock.is_valid());
        lock.unlock().unwrap();
        leaves_nothing(&server);
    }
}

// F30

#[test]
fn a_server_that_stops_longer_than_the_lease_ends_the_hold_and_grants_nothing_late() {
    let server = RedisServer::start();
    teach(&server);
    let client = losing(&server);
    let other = self::client(&server);
    let waiter = other.lock("orders");
    let guard = client.lock("orders").guard().unwrap();
    assert!(!waiter.try_lock().unwrap());
    let lost = guard.lost();
    let monitor = Monitor::start(&server);
    let start = Instant::now();
    server.freeze();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let result = ends_within(ms(700), || waiter.try_lock_for(ms(700)));
            let error = result.unwrap_err();
            assert!(error.is_ambiguous() || error.is_retryable(), "{error}");
        });
        while guard.is_valid() {
            assert!(start.elapsed() < SHORT, "nothing was confirmed since");
            thread::sleep(ms(1));
        }
        told(&lost, ms(100));
        waiting.join().unwrap();
    });
    let left = SHORT.saturating_sub(start.elapsed());
    thread::sleep(left + ms(50));
    server.thaw();
    leaves_nothing(&server);
    thread::sleep(ms(200));
    is_empty(&server);
    assert_eq!(
        written(&monitor, other.id()),
        Vec::<String>::new(),
        "a grant to a caller that has left"
    );
    assert!(waiter.try_lock().unwrap());
    waiter.unlock().unwrap();
}

// F32

#[test]
fn a_hold_that_is_wiped_out_is_lost_and_never_heard_of_again() {
    let server = RedisServer::start();
    let client = losing(&server);
    let lock = client.lock("orders");
    let monitor = Monitor::start(&server);
    for wipe in [&["FLUSHALL"][..], &["DEL", "orders"]] {
        let guard = lock.guard().unwrap();
        let nested = lock.guard().unwrap();
        let visitor = guard.visitor().to_string();
        let lost = guard.lost();
        server.cmd(wipe);
        let loss = told(&lost, SHORT / 3 + TIMEOUT);
        assert_eq!(loss.cause, LossCause::Gone);
        assert!(!guard.is_valid() && !nested.is_valid());
        not_heard_of(&monitor, &visitor, SHORT);
        fails(nested.unlock(), Class::Lost);
        fails(guard.unlock(), Class::Lost);
        not_heard_of(&monitor, &visitor, ms(100));
        is_empty(&server);
    }
    // Somebody else has it by now, and keeps it.
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    server.cmd(&["DEL", "orders"]);
    let other = self::client(&server).lock("orders");
    assert!(other.try_lock().unwrap());
    let loss = told(&lost, SHORT / 3 + TIMEOUT);
    assert!(matches!(loss.cause, LossCause::HeldBy(_)), "{loss}");
    fails(guard.unlock(), Class::Lost);
    assert!(other.is_held_by_current_thread().unwrap());
    other.unlock().unwrap();
    is_empty(&server);
}

// F33

#[test]
fn a_hold_that_is_evicted_is_lost_and_the_policy_was_warned_of() {
    let server = RedisServer::with(&["--maxmemory", "3mb", "--maxmemory-policy", "volatile-lru"]);
    let client = losing(&server);
    let warnings = client.check().unwrap();
    assert!(
        warnings
            .iter()
            .any(|one| one.message.contains("volatile-lru")),
        "{warnings:?}"
    );
    let guard = client.lock("orders").guard().unwrap();
    let lost = guard.lost();
    let big = "x".repeat(10_000);
    for key in 0..1000 {
        if server.int(&["EXISTS", "orders"]) == 0 {
            break;
        }
        let _ = server.try_cmd(&["SET", &format!("cache{key}"), &big]);
    }
    assert_eq!(server.int(&["EXISTS", "orders"]), 0, "it was not evicted");
    let loss = told(&lost, SHORT / 3 + TIMEOUT);
    assert_eq!(loss.cause, LossCause::Gone);
    fails(guard.unlock(), Class::Lost);
}

// F42

#[test]
fn a_restart_loses_what_was_not_saved_and_nothing_else() {
    let server = RedisServer::start();
    let client = losing(&server);
    let guard = client.lock("orders").guard().unwrap();
    let visitor = guard.visitor().to_string();
    let lost = guard.lost();
    server.restart();
    let monitor = Monitor::start(&server);
    let loss = told(&lost, SHORT / 3 + TIMEOUT);
    assert_eq!(loss.cause, LossCause::Gone);
    assert!(!guard.is_valid());
    fails(guard.unlock(), Class::Lost);
    not_heard_of(&monitor, &visitor, SHORT);
    is_empty(&server);

    let server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let client = quick()
        .watchdog_timeout(Duration::from_secs(3))
        .open(&server.url())
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let again = lock.guard().unwrap();
    server.restart();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        assert!(guard.is_valid(), "after {:?}", start.elapsed());
        thread::sleep(ms(50));
    }
    assert_eq!(counts(&server, "orders"), ["2"]);
    again.unlock().unwrap();
    assert_eq!(counts(&server, "orders"), ["1"]);
    guard.unlock().unwrap();
    is_empty(&server);
}

// Bad input

/// URLs that cannot be used, with a password in most of them.
fn bad_urls() -> Vec<String> {
    [
        "",
        "p",
        "p@",
        "redis:",
        "redis://",
        "redis:///0",
        "redis://app:p@",
        "redis://app:p@host:port",
        "redis://app:p@host:99999999",
        "redis://app:p@:6379",
        "redis://app:p@[::1",
        "redis://app:p@[p]:6379",
        "redis://app:p/x@host:6379",
        "redis://app:p?x@host:6379",
        "redis://app:p#x@host:6379",
        "redis://app:p x@host name:6379",
        "redis://app:p@host:6379/p",
        "redis://app:p@host:6379/-1",
        "redis://app:p@host:6379/99999999999999999999",
        "redis://app:p@host:6379/0?protocol=p",
        "redis://app:p%zz%ff@host/x",
        "redis://ap%ffp:p@host/x",
        "http://app:p@host",
        "rediss://app:p@host:6379",
        "rediss://app:p@host:6379/#insecure",
        "valkeys://app:p@host:6379",
        "redis-sentinel://app:p@host:26379",
        "redis+unix://app:p@host/x?db=p",
        "redis+unix:///x?db=p&pass=p",
        "unix:///x?db=0&protocol=p&pass=p",
        "://app:p@host",
        "app:p@host:6379",
        "host:6379",
    ]
    .iter()
    .map(|url| {
        url.replace(":p", &format!(":{CANARY}"))
            .replace("=p", &format!("={CANARY}"))
            .replace("/p", &format!("/{CANARY}"))
            .replace("[p", &format!("[{CANARY}"))
    })
    .map(|url| {
        if url.starts_with('p') {
            url.replacen('p', CANARY, 1)
        } else {
            url
        }
    })
    .collect()
}

#[test]
fn a_url_that_cannot_be_used_is_refused_without_a_word_of_it() {
    let mut refused = 0;
    for url in bad_urls() {
        match Client::open(&url) {
            Err(error) => {
                assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
                no_secret(&error);
                no_secret(&error.to_string());
                refused += 1;
            }
            // Odd, but it can be read.
            Ok(client) => {
                no_secret(&client);
                no_secret(&client.lock("orders"));
            }
        }
    }
    assert!(refused >= 20, "{refused}");
}

#[test]
fn nothing_in_a_url_is_passed_over() {
    for (url, word) in [
        ("redis://host?db=1", "redis://host/1"),
        ("redis://host/1?timeout=5", "redis://host/1"),
        ("redis://host?protocol=resp3", "redis://host/1"),
        ("redis://canary-7f3a@host", "without a password"),
        ("redis://app:@host", "without a password"),
        ("redis://host/1#x", "#"),
        ("redis://host/-1", "number"),
        ("redis://host/1/2", "number"),
        ("redis://host/db1", "redis://"),
        ("redis://host:0", "port 0"),
        (
            "redis+unix:///run/redis.sock?database=1",
            "db, user and pass",
        ),
        ("redis+unix:///run/redis.sock?db=1&db=2", "each once"),
        ("redis+unix:///run/redis.sock?db=-1", "number"),
        (
            "redis+unix:///run/redis.sock?user=app",
            "without a password",
        ),
        ("unix:///run/redis.sock#1", "#"),
        (
            "unix://app:canary-7f3a@localhost/run/redis.sock",
            "behind the path",
        ),
        ("valkey://app@host", "without a password"),
    ] {
        let error = fails(Client::open(url), Class::Config);
        assert!(error.to_string().contains(word), "{url}: {error}");
        let replicas = [url, "redis://other"];
        fails(Client::builder().master_replicas(replicas), Class::Config);
    }
    for url in [
        "redis://host",
        "redis://host/",
        "redis://host:6380/3/",
        "redis://app:secret@host/1",
        "redis://:secret@host",
        "redis+unix:///run/redis.sock?db=1&user=app&pass=secret",
        "unix:///run/redis.sock?pass=secret",
        "valkey://[::1]:6379/0",
    ] {
        Client::open(url).unwrap();
    }
}

#[test]
fn a_server_that_is_no_redis_is_told_so_at_once() {
    let greetings: [(&[u8], &str); 4] = [
        (
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            "it answered HTTP/1.1 400 Bad Request",
        ),
        (
            b"SSH-2.0-OpenSSH_9.6\r\n",
            "it answered SSH-2.0-OpenSSH_9.6",
        ),
        (b"\x15\x03\x01\x00\x02\x02\x46", "rediss://"),
        (b"J\0\0\0\n8.0.36\x1b[1m", "it answered J"),
    ];
    for (greeting, word) in greetings {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let asked = std::sync::Arc::new(AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&asked);
        let answering = thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if count.fetch_add(1, Ordering::Relaxed) == 99 {
                    return;
                }
                let _ = std::io::Read::read(&mut stream, &mut [0; 512]);
                let _ = std::io::Write::write_all(&mut stream, greeting);
            }
        });
        let client = quick().open(&url).unwrap();
        let lock = client.lock("orders");
        let error = fails(lock.lock(), Class::Unexpected);
        assert!(error.to_string().contains(word), "{error}");
        assert!(!error.to_string().contains(char::is_control), "{error}");
        assert!(
            asked.load(Ordering::Relaxed) <= 3,
            "it is not asked again and again"
        );
        drop(client);
        asked.store(99, Ordering::Relaxed);
        let _ = std::net::TcpStream::connect(url.trim_start_matches("redis://"));
        answering.join().unwrap();
    }
}

#[test]
fn errors_do_not_speak_of_scripts() {
    let server = RedisServer::start();
    server.cmd(&["SET", "orders", "1"]);
    let lock = quick().open(&server.url()).unwrap().lock("orders");
    for error in [
        fails(lock.try_lock(), Class::WrongType),
        fails(
            lock.is_locked().and_then(|_| lock.force_unlock()),
            Class::WrongType,
        ),
    ] {
        let text = error.to_string();
        assert!(
            !text.contains("script") && !text.contains(&sha(ACQUIRE)[..8]),
            "{text}"
        );
    }
}

#[test]
fn an_encrypted_connection_is_never_replaced_by_a_plain_one() {
    let server = RedisServer::start();
    for scheme in ["rediss", "valkeys", "Rediss"] {
        let url = server.url().replace("redis://", &format!("{scheme}://"));
        for url in [url.clone(), format!("{url}/#insecure")] {
            let result = quick().open(&url);
            if cfg!(feature = "tls") && !url.contains('#') {
                if let Ok(client) = result {
                    client.lock("orders").try_lock().unwrap_err();
                }
            } else {
                let error = fails(result, Class::Config);
                assert!(
                    cfg!(feature = "tls") || error.to_string().contains("feature `tls`"),
                    "{error}"
                );
            }
        }
    }
    assert!(connections(&server).is_empty());
    is_empty(&server);
}

#[test]
fn a_port_that_refuses_is_unreachable_and_a_hold_of_it_is_none() {
    let port = crate::support::free_port();
    let client = quick().open(&format!("redis://127.0.0.1:{port}")).unwrap();
    let lock = client.lock("orders");
    let error = ends_within(ms(0), || fails(lock.try_lock(), Class::Unreachable));
    assert!(error.to_string().contains(&port.to_string()), "{error}");
    let start = Instant::now();
    ends_within(ms(300), || {
        fails(lock.try_lock_for(ms(300)), Class::Unreachable)
    });
    assert!(start.elapsed() >= ms(300));
    let start = Instant::now();
    ends_within(ms(800), || fails(lock.lock(), Class::Unreachable));
    assert!(start.elapsed() >= ms(800), "the outage time-out");
    fails(lock.is_locked(), Class::Unreachable);
    fails(lock.unlock(), Class::NotHeld);
    fails(client.check(), Class::Unreachable);
    assert!(!lock.is_valid());
}

#[test]
fn a_host_that_does_not_exist_is_unreachable() {
    let client = quick().open("redis://no-such-host.invalid:6379").unwrap();
    let error = fails(client.lock("orders").try_lock(), Class::Unreachable);
    assert!(error.to_string().contains("no-such-host"), "{error}");
}

#[test]
fn a_lock_without_an_end_is_told_and_can_be_freed() {
    let server = RedisServer::start();
    let client = client(&server);
    let lock = client.lock("orders");
    server.cmd(&["HSET", "orders", "somebody:1", "1"]);
    fails(lock.try_lock(), Class::NoTtl);
    let start = Instant::now();
    ends_within(ms(300), || fails(lock.try_lock_for(ms(300)), Class::NoTtl));
    assert!(start.elapsed() >= ms(300));
    let start = Instant::now();
    ends_within(ms(800) + ms(1100), || fails(lock.lock(), Class::NoTtl));
    assert!(start.elapsed() >= ms(800), "the outage time-out");
    fails(lock.remaining_lease(), Class::NoTtl);
    assert!(lock.is_locked().unwrap());
    assert_eq!(counts(&server, "orders"), ["1"], "it is left as it is");
    // A waiter hears of it.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(lock.try_lock_for(Duration::from_secs(20)).unwrap());
            lock.unlock().unwrap();
        });
        somebody_waits(&server, "orders");
        assert!(lock.force_unlock().unwrap());
        ends_within(ms(1100), || waiting.join().unwrap());
    });
    assert!(!lock.force_unlock().unwrap());
    is_empty(&server);
}

#[test]
fn a_unix_socket_does_as_well() {
    let server = RedisServer::start();
    let client = quick().open(&server.unix_url()).unwrap();
    let lock = client.lock("orders");
    all_works(&lock, &|| {});
    assert!(!connections(&server).is_empty());
    lock.lock().unwrap();
    let tcp = self::client(&server).lock("orders");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            lock.try_lock_for(Duration::from_secs(20)).unwrap();
            lock.unlock().unwrap();
        });
        somebody_waits(&server, "orders");
        assert!(!tcp.try_lock().unwrap());
        lock.unlock().unwrap();
        waiting.join().unwrap();
    });
    server.freeze();
    ends_within(TIMEOUT, || lock.try_lock().unwrap_err());
    server.thaw();
    leaves_nothing(&server);
    server.kill();
    let error = ends_within(TIMEOUT, || lock.is_locked().unwrap_err());
    assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
    let path = server.unix_path();
    let _ = fs::remove_file(&path);
    let error = fails(
        quick()
            .open(&server.unix_url())
            .unwrap()
            .lock("x")
            .try_lock(),
        Class::Unreachable,
    );
    assert!(error.to_string().contains("redis.sock"), "{error}");
}

#[test]
fn a_socket_path_with_a_password_shows_none() {
    let server = RedisServer::start();
    user(&server, "app", &[]);
    let url = format!("{}?db=2&user=app&pass={CANARY}", server.unix_url());
    let client = quick().open(&url).unwrap();
    no_secret(&client);
    let lock = client.lock("orders");
    all_works(&lock, &|| {});
    lock.lock().unwrap();
    server.cmd(&["SELECT", "2"]);
    assert_eq!(keys(&server), ["orders"]);
    lock.unlock().unwrap();
    server.kill();
    let error = lock.is_locked().unwrap_err();
    no_secret(&error);
    no_secret(&error.to_string());
}

#[test]
fn two_databases_are_two_locks() {
    let server = RedisServer::start();
    let one = quick().open(&(server.url() + "/1")).unwrap();
    let two = quick().open(&(server.url() + "/2")).unwrap();
    let (one, two) = (one.lock("orders"), two.lock("orders"));
    one.lock().unwrap();
    assert!(two.try_lock().unwrap());
    let zero = client(&server).lock("orders");
    assert!(!zero.is_locked().unwrap());
    // A message of the other database is a hint that leads to nothing.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            assert!(one.try_lock_for(Duration::from_secs(20)).unwrap());
            let now = Instant::now();
            one.unlock().unwrap();
            now
        });
        somebody_waits(&server, "orders");
        two.unlock().unwrap();
        thread::sleep(ms(200));
        let freed = Instant::now();
        one.unlock().unwrap();
        assert!(waiting.join().unwrap() >= freed);
    });
    let none = quick().open(&(server.url() + "/99")).unwrap();
    let error = ends_within(ms(0), || none.lock("orders").lock().unwrap_err());
    assert!(!error.is_retryable(), "{error}");
    assert!(error.to_string().contains("DB index"), "{error}");
}

#[test]
fn a_user_and_a_password_with_odd_characters_work() {
    let server = RedisServer::start();
    server.cmd(&[
        "ACL",
        "SETUSER",
        "ap:p",
        "on",
        ">p@ss/w#rd ü",
        "~*",
        "&*",
        "+@all",
    ]);
    let url = server
        .url()
        .replace("://", "://ap%3Ap:p%40ss%2Fw%23rd%20%C3%BC@");
    let client = quick().open(&url).unwrap();
    all_works(&client.lock("orders"), &|| {});
    assert!(
        connections(&server)
            .iter()
            .all(|one| one.contains(" user=ap:p ")),
    );
}

#[test]
fn ipv6_works() {
    if TcpListener::bind(("::1", 0)).is_err() {
        // There is no such loopback on this machine.
        return;
    }
    let server = RedisServer::with(&["--bind", "127.0.0.1", "::1"]);
    let client = quick()
        .open(&format!("redis://[::1]:{}", server.port()))
        .unwrap();
    all_works(&client.lock("orders"), &|| {});
    assert!(
        connections(&server)
            .iter()
            .any(|one| one.contains("addr=[::1]")),
    );
    server.kill();
    let error = client.lock("orders").is_locked().unwrap_err();
    assert!(error.to_string().contains("[::1]:"), "{error}");
}

// Secrets

#[test]
fn a_password_is_never_shown() {
    let log = Log::listen();
    let before = log.events();
    let server = RedisServer::start();
    teach(&server);
    let proxy = Proxy::to(server.addr());
    let url =
        user(&server, "app", &[]).replace(&server.addr().to_string(), &proxy.addr().to_string());
    let hook = |loss: &redlatch::Loss| no_secret(loss);
    let builder = || quick().watchdog_timeout(SHORT).on_lost(hook);
    no_secret(&builder());
    let client = builder().open(&url).unwrap();
    let lock = client.lock("orders");
    let shows = |error: Error| {
        no_secret(&error);
        no_secret(&error.to_string());
        if let Some(source) = std::error::Error::source(&error) {
            no_secret(&source);
            no_secret(&source.to_string());
        }
    };
    no_secret(&client);
    no_secret(&lock);
    let guard = lock.guard().unwrap();
    no_secret(&guard);
    no_secret(&guard.visitor());
    no_secret(&client.check());
    let lost = guard.lost();
    let end = crate::support::End::Reset;
    for script in [ACQUIRE, INSPECT, RELEASE] {
        proxy.next(2, Some(sha(script).as_bytes()), Fault::SwallowReply(end));
    }
    let _ = lock.is_locked().map_err(shows);
    let _ = client.lock("other").try_lock().map_err(shows);
    // Handshakes that break off, behind the password.
    for fault in [
        Fault::SwallowReply(end),
        Fault::SwallowRequest(end),
        Fault::TruncateReply(3),
    ] {
        let fresh = builder().open(&url).unwrap();
        // The look at the server's settings has a connection of its own.
        let rule = proxy.next(usize::MAX, Some(b"AUTH"), fault);
        shows(fresh.lock("other").try_lock().unwrap_err());
        rule.lift();
    }
    server.cmd(&["ACL", "SETUSER", "app", "-hset"]);
    shows(client.lock("more").try_lock().unwrap_err());
    server.cmd(&["ACL", "SETUSER", "app", "resetpass"]);
    shows(builder().open(&url).unwrap().lock("x").lock().unwrap_err());
    server.cmd(&["ACL", "DELUSER", "app"]);
    told(&lost, SHORT);
    shows(lock.try_lock().unwrap_err());
    shows(guard.unlock().unwrap_err());
    proxy.refuse();
    shows(lock.try_lock().unwrap_err());
    no_secret(&lock.run(|_| ()).unwrap_err());
    for url in bad_urls() {
        let _ = Client::open(&url).map_err(shows);
    }
    if cfg!(feature = "tracing") {
        assert!(log.events() > before, "nothing was heard");
    }
    assert_eq!(log.leaks(), Vec::<String>::new());
}

#[test]
fn a_server_that_repeats_the_password_does_not_make_it_known() {
    let log = Log::listen();
    // The error text of an unknown command has its arguments in it.
    let server = RedisServer::with(&["--rename-command", "AUTH", ""]);
    for user in ["app", ""] {
        let url = server.url().replace("://", &format!("://{user}:{CANARY}@"));
        let client = quick().open(&url).unwrap();
        let lock = client.lock("orders");
        fails(lock.try_lock(), Class::Permission);
        fails(lock.lock(), Class::Permission);
        fails(lock.is_locked(), Class::Permission);
        fails(client.check(), Class::Permission);
    }
    // A service that speaks something else altogether.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || echo(stream));
        }
    });
    let url = format!("redis://app:{CANARY}@{address}");
    let client = quick().open(&url).unwrap();
    let error = client.lock("orders").try_lock().unwrap_err();
    no_secret(&error);
    no_secret(&error.to_string());
    no_secret(&client.check());
    assert_eq!(log.leaks(), Vec::<String>::new());
}

/// Sends back what comes in.
fn echo(mut stream: std::net::TcpStream) {
    let mut back = stream.try_clone().unwrap();
    let _ = std::io::copy(&mut stream, &mut back);
}
