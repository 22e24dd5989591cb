//! Servers that are not ready, or refuse requests: F16 to F24.

use super::*;

#[test]
fn a_server_without_the_scripts_is_sent_them_again() {
    let server = RedisServer::start();
    let client = keeping(&server);
    let lock = client.lock("orders");
    all_works(&lock, &|| {
        server.cmd(&["SCRIPT", "FLUSH"]);
    });
    is_empty(&server);
    // More holds than one renewal request has.
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

/// Runs an endless script until [`Busy::end`].
struct Busy<'a> {
    server: &'a RedisServer,
    script: std::net::TcpStream,
}

impl Busy<'_> {
    fn start(server: &RedisServer) -> Busy<'_> {
        server.cmd(&["CONFIG", "SET", "lua-time-limit", "20"]);
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

/// How often `SCRIPT KILL` was called; before Redis 7 any `SCRIPT` command.
fn kills(server: &RedisServer) -> u64 {
    let name = match product().is_before_7() {
        true => "cmdstat_script",
        false => "cmdstat_script|kill",
    };
    let calls = server.info(name).unwrap_or_default();
    let calls = calls.strip_prefix("calls=").unwrap_or("0");
    calls.split(',').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_busy_server_is_waited_for_and_never_interrupted() {
    let server = RedisServer::start();
    teach(&server);
    let client = client(&server);
    let lock = client.lock("orders");
    let other = losing(&server);
    let held = other.lock("invoices").guard().unwrap();
    let lost = held.lost();
    let start = Instant::now();
    let kills_before = kills(&server);
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
        let loss = next_loss(&lost, SHORT);
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
    assert_eq!(kills(&server) - kills_before, 1, "only the test kills");
    fails(held.unlock(), Class::Lost);
    leaves_nothing(&server);
}

#[test]
fn a_server_that_loads_its_data_is_waited_for() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    // It replies once per 2 MiB read, which Redis 7 makes configurable: every 80 ms for 4 s.
    server.cmd(&["CONFIG", "SET", "rdbcompression", "no"]);
    server.cmd(&["DEBUG", "POPULATE", "1000", "key", "100000"]);
    server.cmd(&["CONFIG", "SET", "key-load-delay", "4000"]);
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
        let error = ends_within(ms(2000), || fails(lock.try_lock(), Class::Unavailable));
        assert!(error.to_string().contains("LOADING"), "{error}");
        let got = ends_within(ms(4000), || {
            lock.try_lock_for(Duration::from_secs(20)).unwrap()
        });
        assert!(got);
    });
    lock.unlock().unwrap();
    assert_eq!(server.int(&["EXISTS", "orders"]), 0);
}

#[test]
fn a_replica_grants_no_lock_and_is_left() {
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
    if product().is_before_7() {
        // Scripts can still write, and the check reports it.
        assert!(lock.try_lock().unwrap());
        let told = client.check().unwrap();
        let is_told =
            |it: &HealthWarning| it.message.contains("scripts ignore min-replicas-to-write");
        assert!(told.iter().any(is_told), "{told:?}");
        assert!(
            told.iter()
                .all(|it| !it.message.contains("grants no locks")),
            "{told:?}"
        );
        lock.unlock().unwrap();
        held.unlock().unwrap();
        return leaves_nothing(&server);
    }
    let error = fails(lock.try_lock(), Class::Unavailable);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    let error = fails(lock.try_lock_for(ms(100)), Class::Unavailable);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    fails(held.unlock(), Class::Unavailable);
    server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    // A failed unlock is repeated in the background.
    leaves_nothing(&server);
}

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
    let loss = next_loss(&lost, SHORT);
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

#[test]
fn a_server_at_maxmemory_grants_nothing_but_renews_and_unlocks() {
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
    // A script that the server does not have yet needs memory, too.
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    lock.lock().unwrap();
    server.cmd(&["SCRIPT", "FLUSH"]);
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    lock.unlock().unwrap();
    is_empty(&server);
}

#[test]
fn a_server_at_maxclients_is_waited_for() {
    let server = RedisServer::start();
    let old = client(&server);
    let held = old.lock("invoices");
    held.lock().unwrap();
    let new = client(&server);
    // Waits for the end of the check of the server's settings, because a failed connection's slot is used first.
    thread::sleep(ms(300));
    server.cmd(&["CONFIG", "SET", "maxclients", "1"]);
    let lock = new.lock("orders");
    let error = ends_within(TIMEOUT, || lock.try_lock()).unwrap_err();
    // The server closes after its error, and the kernel may discard the error.
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
