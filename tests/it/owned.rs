//! Owned guards beyond the laws: forks, ends of threads and processes, silent servers, other kinds.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use fork::Fork;
use redlatch::{Client, Error, Lock, LossCause, MultiLock, OwnedGuard};

use crate::invariants::{SLACK, teach};
use crate::laws::until_queued;
use crate::support::child::{arg, listen, say};
use crate::support::{
    Child, End, Fault, Monitor, Proxy, RedisServer, delayed_url, elsewhere, eventually, ms, timed,
};

const CHILD: Duration = Duration::from_secs(30);

/// Runs `role` in a child process; returns false for a role of other files.
pub(crate) fn play(role: &str) -> bool {
    match role {
        "forking owner" => forking_owner(),
        "owner that ends" => owner_that_ends(),
        "many owners" => many_owners(),
        _ => return false,
    }
    true
}

fn outcome<T>(result: redlatch::Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.kind().to_owned(),
    }
}

#[test]
fn a_forked_child_neither_releases_nor_renews_what_it_inherits() {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let mut child = Child::spawn("forking owner", &[("URL", &server.url())]);
    let client = child.expect_line("client", CHILD)["client ".len()..].to_owned();
    let sent = || {
        let mut lines = monitor.lines_containing(&client);
        // The parent checks the server's settings once, on a connection named after it.
        lines.retain(|line| !line.contains(" lua] ") && !line.contains("\"SETNAME\""));
        lines.len()
    };
    let before = sent();
    assert!(before > 0);
    child.send_line("fork");
    assert_eq!(
        child.expect_line("forked", CHILD),
        "forked valid=false remaining=0ns lost=Forked unlock=forked try_owned=forked write=forked"
    );
    child.expect_line("joined", CHILD);
    assert_eq!(sent(), before, "the child has sent nothing of its parent's");
    assert_eq!(server.int(&["DBSIZE"]), 3);
    child.send_line("go on");
    assert_eq!(child.expect_line("parent", CHILD), "parent valid=true ok");
    assert!(child.wait(CHILD).success());
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

fn forking_owner() {
    let url = arg("URL");
    // No renewal happens during the life of the forked child.
    let client = Client::builder().watchdog_timeout(Duration::from_secs(45));
    let client = client.open(&url).unwrap();
    let [first, second, third] =
        ["first", "second", "third"].map(|name| client.lock(name).owned().unwrap());
    let visitor = first.visitor().as_str();
    say(&format!("client {}", visitor.split(':').next().unwrap()));
    listen();
    match fork::fork().unwrap() {
        Fork::Child => {
            let valid = first.is_valid();
            let remaining = first.remaining_validity();
            let lost = first.lost().recv_timeout(SLACK).unwrap().cause;
            assert_eq!(lost, LossCause::Forked);
            let written = outcome(first.write(|_| ()));
            let unlocked = outcome(first.unlock());
            second.unlock_in_background();
            drop(third);
            let tried = outcome(client.lock("fourth").try_owned());
            client.shutdown();
            drop(client);
            say(&format!(
                "forked valid={valid} remaining={remaining:?} lost={lost:?} unlock={unlocked} \
                 try_owned={tried} write={written}"
            ));
            std::process::exit(0);
        }
        Fork::Parent(pid) => {
            fork::waitpid(pid).unwrap();
            say("joined");
            listen();
            let valid = [&first, &second, &third].map(OwnedGuard::is_valid) == [true; 3];
            let ends = [first, second, third].map(|guard| outcome(guard.unlock()));
            assert_eq!(ends, ["ok"; 3]);
            say(&format!("parent valid={valid} ok"));
        }
    }
}

#[test]
fn a_program_that_drops_its_client_leaves_no_lock_behind() {
    let server = RedisServer::start();
    for how in ["drop", "shutdown"] {
        let mut child = Child::spawn("owner that ends", &[("URL", &server.url()), ("HOW", how)]);
        assert!(child.wait(CHILD).success());
        assert_eq!(server.int(&["DBSIZE"]), 0, "{how}");
    }
}

fn owner_that_ends() {
    let client = Client::open(&arg("URL")).unwrap();
    for number in 0..20 {
        let lock = client.lock(&format!("orders:{number}"));
        lock.owned().unwrap().unlock_in_background();
    }
    match &*arg("HOW") {
        "drop" => drop(client),
        _ => client.shutdown(),
    }
    // From here on no code runs.
    std::process::exit(0);
}

/// The memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.unwrap().split_whitespace().next();
    words.unwrap().parse().unwrap()
}

fn many_owners() {
    let client = Client::in_memory();
    let hold = |number: u32| {
        let lock = client.lock(&format!("orders:{}", number % 7));
        let guard = lock.owned().unwrap();
        match number % 3 {
            0 => guard.unlock_in_background(),
            1 => guard.unlock().unwrap(),
            _ => drop(guard),
        }
    };
    (0..20_000).for_each(hold);
    let before = resident();
    (0..100_000).for_each(hold);
    say(&format!("grown {}", resident().saturating_sub(before)));
}

#[test]
fn a_guard_that_ends_with_its_thread_or_its_panic_unlocks() {
    thread_local! {
        static KEPT: RefCell<Option<OwnedGuard>> = const { RefCell::new(None) };
    }
    let client = Client::in_memory();
    let lock = client.lock("orders");
    // At the end of a thread, when its other thread-locals are gone.
    elsewhere(|| {
        let guard = lock.owned().unwrap();
        KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
    });
    eventually(SLACK, "its destructor has run", || {
        !lock.is_locked().unwrap()
    });
    let taker = lock.clone();
    let panicked = thread::spawn(move || {
        let _guard = taker.owned().unwrap();
        std::panic::panic_any("as planned");
    });
    assert!(panicked.join().is_err());
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn a_silent_server_bounds_waits_and_the_end_of_the_client() {
    let server = RedisServer::start();
    teach(&server);
    let proxy = Proxy::to(server.addr());
    let timeout = ms(1000);
    let client = Client::builder().command_timeout(timeout);
    let client = client.open(&proxy.url()).unwrap();
    let (lock, other) = (client.lock("orders"), client.lock("invoices"));
    let guards = [lock.owned().unwrap(), other.owned().unwrap()];
    proxy.black_hole();
    let (took, got) = timed(|| client.lock("stock").try_owned_for(ms(300)));
    assert!(got.is_err() && took < ms(300) + SLACK, "{took:?} {got:?}");
    let [first, second] = guards;
    let (took, error) = timed(|| first.unlock().unwrap_err());
    assert!(took < timeout + SLACK, "{took:?}");
    assert!(error.is_ambiguous() || error.is_retryable(), "{error}");
    let (took, ()) = timed(|| second.unlock_in_background());
    assert!(took < timeout, "{took:?}");
    let (took, ()) = timed(|| client.shutdown());
    assert!(took < timeout + SLACK, "{took:?}");
}

/// Unlocks 20 locks in the background. The proxy, which is returned, loses one of the requests.
fn unlock_with_a_lost_request(server: &RedisServer) -> (Client, Proxy) {
    teach(server);
    let proxy = Proxy::to(server.addr());
    let client = Client::builder().command_timeout(ms(5000));
    let client = client.open(&proxy.url()).unwrap();
    let lock = |number| client.lock(&format!("job:{number}")).owned().unwrap();
    let guards: Vec<_> = (0..20).map(lock).collect();
    let lost = proxy.next(1, None, Fault::SwallowRequest(End::Silent));
    guards
        .into_iter()
        .for_each(OwnedGuard::unlock_in_background);
    eventually(ms(2500), "a request is lost", || lost.hits() == 1);
    (client, proxy)
}

#[test]
fn a_silent_background_release_holds_back_no_other() {
    let server = RedisServer::start();
    let (client, proxy) = unlock_with_a_lost_request(&server);
    eventually(ms(2500), "all others are free", || {
        server.int(&["DBSIZE"]) <= 1
    });
    proxy.cut();
    client.shutdown();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

#[test]
fn a_release_that_is_cut_at_the_shutdown_is_sent_again() {
    let server = RedisServer::start();
    let (client, proxy) = unlock_with_a_lost_request(&server);
    thread::scope(|scope| {
        scope.spawn(|| client.shutdown());
        thread::sleep(ms(300));
        proxy.cut();
    });
    assert_eq!(server.int(&["DBSIZE"]), 0);
}

/// The first copy of the release is lost on the way to the server, or its reply on the way back.
#[test]
fn a_background_release_without_a_reply_is_sent_again() {
    let server = RedisServer::start();
    teach(&server);
    let proxy = Proxy::to(server.addr());
    let client = Client::builder().command_timeout(ms(500));
    let client = client.open(&proxy.url()).unwrap();
    let direct = Client::open(&server.url()).unwrap().lock("orders");
    for fault in [
        Fault::SwallowRequest(End::Reset),
        Fault::SwallowReply(End::Silent),
    ] {
        let guard = client.lock("orders").owned().unwrap();
        let rule = proxy.next(1, None, fault);
        guard.unlock_in_background();
        assert!(direct.try_lock_for(CHILD).unwrap(), "{fault:?}");
        assert_eq!(rule.hits(), 1);
        // Late requests do not touch the next hold.
        thread::sleep(ms(700));
        assert!(direct.is_held_by_current_thread().unwrap());
        direct.unlock().unwrap();
    }
}

#[test]
fn a_condition_needs_a_thread_that_holds_the_lock() {
    let client = Client::in_memory();
    let lock = client.lock("orders");
    let condition = lock.condition("full");
    let guard = lock.owned().unwrap();
    assert!(matches!(condition.signal(), Err(Error::NotHeld { .. })));
    let waited = condition.wait_for(ms(10));
    assert!(matches!(waited, Err(Error::NotHeld { .. })), "{waited:?}");
    assert!(guard.is_valid());
    // A waiter for the condition returns when the owned guard is released.
    guard.unlock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            lock.lock().unwrap();
            let was_woken = condition.wait_for(CHILD).unwrap();
            lock.unlock().unwrap();
            was_woken
        });
        eventually(CHILD, "it waits", || {
            lock.lock().unwrap();
            let woken = condition.signal().unwrap();
            lock.unlock().unwrap();
            woken
        });
        let guard = lock.owned().unwrap();
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn an_owned_multi_lock_is_one_hold() {
    let client = Client::in_memory();
    let (one, two) = (client.lock("one"), client.lock("two"));
    let both = MultiLock::of([&one, &two]).unwrap();
    let guard = both.owned().unwrap();
    assert!(both.try_owned().unwrap().is_none());
    assert!(one.try_owned().unwrap().is_none());
    assert!(!two.try_lock().unwrap(), "refused, as to any other thread");
    elsewhere(|| guard.unlock().unwrap());
    let part = one.owned().unwrap();
    assert!(both.try_owned_for(ms(50)).unwrap().is_none());
    thread::scope(|scope| {
        let whole = scope.spawn(|| both.owned().unwrap());
        until_queued(&both, 1);
        part.unlock().unwrap();
        whole.join().unwrap().unlock_in_background();
    });
    assert!(both.try_owned_for(SLACK).unwrap().is_some());
    assert!(one.try_lock().unwrap() && two.try_lock().unwrap());
}

/// Ten threads acquire this many locks each, and unlock them in the background.
pub(crate) fn unlock_in_background(locks: usize, lock: impl Fn(&str) -> Lock + Sync) {
    thread::scope(|scope| {
        for thread in 0..10 {
            let lock = &lock;
            scope.spawn(move || {
                for number in 0..locks {
                    let lock = lock(&format!("job:{thread}:{number}"));
                    lock.owned().unwrap().unlock_in_background();
                }
            });
        }
    });
}

#[test]
fn unlocks_in_the_background_keep_pace_with_acquisitions_from_afar() {
    let server = RedisServer::start();
    let client = Client::open(&delayed_url(server.addr(), ms(10))).unwrap();
    unlock_in_background(50, |name| client.lock(name));
    // One after the other they would take 10 s.
    client.shutdown();
    assert_eq!(server.int(&["DBSIZE"]), 0);
}
