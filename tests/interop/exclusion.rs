//! The guarantees of either side to the other, in both directions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Lock};

use crate::driver::Exception;
use crate::fixture::{BothSides, LEASE, LONG, PATIENCE, RunLock, SLACK, elsewhere, report, timed};
use crate::jvm::{JavaLock, Jvm, Redisson, settle, version};
use crate::support::child::{arg, listen, say};
use crate::support::{Child, Monitor, RedisServer, eventually, ms};

/// A wake-up by a message is faster; the poll interval and every lease are longer.
pub(crate) const WAKE_UP: Duration = ms(500);

const CHILD: Duration = Duration::from_secs(120);

/// Runs `role` in a child process; returns false for a role of other files.
pub(crate) fn play(role: &str) -> bool {
    match role {
        "counter" => {
            let client = Client::builder().watchdog_timeout(PATIENCE);
            let client = client.open(&arg("URL")).unwrap();
            say("ready");
            listen();
            count(&client.lock("orders"), &arg("URL"), 2, 1000);
            say("counted");
        }
        "holder" => {
            let client = Client::builder().watchdog_timeout(LEASE);
            let client = client.open(&arg("URL")).unwrap();
            client.lock("orders").lock().unwrap();
            say("held");
            listen();
        }
        _ => return false,
    }
    true
}

/// Adds `times` to the counter at `url` in each of this many threads, by GET and SET under the lock.
pub(crate) fn count(lock: &Lock, url: &str, threads: usize, times: u32) {
    let add = || {
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        for _ in 0..times {
            let guard = lock.guard().unwrap();
            let value: Option<u64> = redis::cmd("GET")
                .arg("counter")
                .query(&mut connection)
                .unwrap();
            let () = redis::cmd("SET")
                .arg(&["counter", &(value.unwrap_or(0) + 1).to_string()])
                .query(&mut connection)
                .unwrap();
            guard.unlock().unwrap();
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(add);
        }
    });
}

#[test]
#[ignore = "needs Java: make interop"]
fn ten_thousand_increments_and_none_is_lost() {
    let sides = BothSides::with(RunLock::alone(), PATIENCE);
    let url = sides.server.url();
    let mut child = Child::spawn("counter", &[("URL", &url)]);
    child.expect_line("ready", CHILD);
    let (took, ()) = timed(|| {
        child.send_line("go");
        let java: Vec<_> = (0..4)
            .map(|_| {
                let thread = sides.java.thread();
                thread.start_count("orders", &sides.java, "counter", 1000)
            })
            .collect();
        count(&sides.rust.lock("orders"), &url, 4, 1000);
        child.expect_line("counted", CHILD);
        java.iter().for_each(|counting| {
            counting.value();
        });
    });
    assert_eq!(sides.server.int(&["GET", "counter"]), 10_000);
    assert!(sides.hash("orders").is_empty());
    report(&format!("10,000 increments by both sides took {took:.1?}"));
}

/// Our threads hand the lock over to each other, but not for as long as Redisson waits.
#[test]
#[ignore = "needs Java: make interop"]
fn our_queue_does_not_starve_redisson() {
    let sides = BothSides::with(RunLock::alone(), PATIENCE);
    let java = sides.java.lock("orders");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            let lock = sides.rust.lock("orders");
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    lock.lock().unwrap();
                    thread::sleep(ms(1));
                    lock.unlock().unwrap();
                }
            });
        }
        thread::sleep(ms(200));
        let times: Vec<Duration> = (0..21)
            .map(|_| {
                let (took, ()) = timed(|| {
                    java.lock();
                });
                java.unlock();
                took
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        bounded("Redisson gets in between eight threads of ours", times);
    });
    assert!(sides.hash("orders").is_empty());
}

pub(crate) fn bounded(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let median = times[times.len() / 2];
    let longest = times[times.len() - 1];
    report(&format!("{what}: p50 {median:.2?}, longest {longest:.2?}"));
    assert!(median < WAKE_UP, "{what}: {times:?}");
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_fixed_lease_ends_for_both() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let (rust, java) = sides.locks("orders");
    let second = ms(1000);
    java.lock_for(second);
    let (took, ()) = timed(|| rust.with_lease_time(second).lock().unwrap());
    assert!(took >= ms(500) && took < second + SLACK, "{took:?}");
    assert!((1..=1000).contains(&java.remain_time_to_live()));
    let (took, got) = timed(|| java.try_lock(second + SLACK));
    assert!(got && took >= ms(500), "{took:?}");
    assert!(rust.unlock().is_err_and(|error| error.is_lost()));
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_shorter_nested_lease_shortens_only_redisson_s_hold() {
    let sides = BothSides::new();
    let (rust, java) = sides.locks("orders");
    let second = ms(1000);
    java.lock();
    java.lock_for(second);
    assert!(rust.remaining_lease().unwrap().unwrap() <= second);
    java.unlock();
    java.unlock();
    rust.lock().unwrap();
    rust.with_lease_time(second).lock().unwrap();
    assert!(java.remain_time_to_live() > 20_000);
    rust.unlock().unwrap();
    rust.unlock().unwrap();
    assert!(!java.is_locked());
}

/// Three leases, in which one side tries repeatedly.
pub(crate) fn is_refused_for_three_leases(mut attempt: impl FnMut() -> bool) {
    let start = Instant::now();
    while start.elapsed() < 3 * LEASE + ms(200) {
        assert!(!attempt(), "after {:?}", start.elapsed());
        thread::sleep(ms(20));
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_killed_jvm_frees_the_lock_within_a_lease() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let jvm = Jvm::start();
    let redisson = Redisson::open(&jvm, &sides.server.url(), LEASE);
    redisson.lock("orders").lock();
    // After the first renewals, so that the watchdog's lease has to end.
    thread::sleep(LEASE);
    let lock = sides.rust.lock("orders");
    assert!(!lock.try_lock().unwrap());
    jvm.kill();
    let (took, got) = timed(|| lock.try_lock_for(LEASE + SLACK).unwrap());
    assert!(got, "not within {took:?}");
    report(&format!(
        "a killed JVM's lock of {LEASE:?} was free after {took:.1?}"
    ));
    lock.unlock().unwrap();
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_killed_rust_process_frees_the_lock_within_a_lease() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let mut child = Child::spawn("holder", &[("URL", &sides.server.url())]);
    child.expect_line("held", CHILD);
    thread::sleep(LEASE);
    let lock = sides.java.lock("orders");
    assert!(!lock.try_lock(ms(0)));
    child.kill();
    let (took, got) = timed(|| lock.try_lock(LEASE + SLACK));
    assert!(got, "not within {took:?}");
    lock.unlock();
}

/// Refusals and wake-ups, in both directions.
pub(crate) fn is_one_lock(rust: &Lock, java: &JavaLock) {
    let (name, mut theirs, mut ours) = (rust.name(), Vec::new(), Vec::new());
    for _ in 0..3 {
        rust.lock().unwrap();
        assert!(!java.try_lock(ms(0)), "{name}: refused");
        let waiting = java.start("lock", &[]);
        assert!(waiting.still_runs_after(ms(300)), "{name}");
        let (took, ()) = timed(|| {
            rust.unlock().unwrap();
            waiting.value();
        });
        theirs.push(took);
        assert!(!rust.try_lock().unwrap(), "{name}: refused");
        ours.push(thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                rust.lock().unwrap();
                let woken = Instant::now();
                rust.unlock().unwrap();
                woken
            });
            thread::sleep(ms(300));
            assert!(!waiting.is_finished(), "{name}");
            let start = Instant::now();
            java.unlock();
            waiting.join().unwrap().saturating_duration_since(start)
        }));
    }
    bounded(&format!("{name}: our unlock wakes Redisson"), theirs);
    bounded(&format!("{name}: Redisson's unlock wakes us"), ours);
}

#[test]
#[ignore = "needs Java: make interop"]
fn names_of_every_form_are_one_lock() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    for name in [
        "{shop}:orders",
        "orders:{42}",
        "a:b::c:",
        "заказ-注文-ördèr-🔒",
        " two words ",
    ] {
        let (rust, java) = sides.locks(name);
        is_one_lock(&rust, &java);
        assert!(sides.hash(name).is_empty());
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_key_prefix_is_a_name_mapper() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let url = sides.server.url();
    let builders = [
        Client::builder().key_prefix("shop:"),
        Client::builder().key_prefix_once("shop:"),
    ];
    for (builder, mapper) in builders.into_iter().zip(["shop:", "once=shop:"]) {
        let prefixed = sides.another(builder, &url);
        // In every generation the full name is the same lock.
        let (rust, whole) = (prefixed.lock("orders"), sides.java.lock("shop:orders"));
        is_one_lock(&rust, &whole);
        match Redisson::open_with_prefix(&Jvm::shared(), &url, LONG, mapper) {
            Ok(mapped) => {
                assert!(version() >= (3, 16));
                is_one_lock(&rust, &mapped.lock("orders"));
                if mapper.starts_with("once") {
                    is_one_lock(&prefixed.lock("shop:orders"), &mapped.lock("orders"));
                }
            }
            Err(Exception { class, message }) => {
                assert_eq!(class, "UnsupportedOperationException", "{message}");
                assert!(version() < (3, 16));
                report("there is no NameMapper");
            }
        }
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn redisson_s_other_exclusive_locks_exclude_us() {
    let sides = BothSides::new();
    for (kind, since) in [("fair", (0, 0)), ("spin", (3, 15)), ("fenced", (3, 19))] {
        let name = format!("orders-{kind}");
        let (rust, java) = (
            sides.rust.lock(&name),
            sides.java.thread().lock(kind, &name),
        );
        if version() < since {
            let outcome = java.start("tryLock", &["0", "-1"]).outcome();
            assert_eq!(outcome.unwrap_err().class, "NoSuchMethodException");
            continue;
        }
        assert!(java.try_lock(ms(0)), "{kind}");
        assert!(!rust.try_lock().unwrap(), "{kind}");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| timed(|| rust.try_lock_for(LONG).unwrap()));
            thread::sleep(ms(200));
            java.unlock();
            let (took, got) = waiting.join().unwrap();
            assert!(
                got && took < SLACK,
                "{kind}: the cap of our sleep: {took:?}"
            );
        });
        // The thread that acquired it has ended with its lock.
        assert!(!java.try_lock(ms(0)), "{kind}");
        assert!(rust.force_unlock().unwrap());
        assert!(java.try_lock(ms(0)), "{kind}");
        java.unlock();
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn the_layout_of_jedis_distributed_lock_excludes_both_sides() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let (rust, java) = sides.locks("orders");
    let server = &sides.server;
    let theirs = "5e0f35f6-6f5b-4f0c-9d5a-3f3f7b3cf2a1:1";
    // Its acquisition: the key is free.
    server.cmd(&["HINCRBY", "orders", theirs, "1"]);
    server.cmd(&["PEXPIRE", "orders", "30000"]);
    assert!(!java.try_lock(ms(0)));
    assert!(!rust.try_lock().unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let (took, got) = timed(|| rust.try_lock_for(LONG).unwrap());
            rust.unlock().unwrap();
            (took, got)
        });
        thread::sleep(ms(200));
        // Its unlock uses another channel and message, which our waiters do not receive.
        server.cmd(&["DEL", "orders"]);
        assert_eq!(server.int(&["PUBLISH", "orders", "1"]), 0);
        let (took, got) = waiting.join().unwrap();
        assert!(got && took < SLACK, "the cap of our sleep: {took:?}");
    });
    // Its query before an acquisition, while one of us holds the lock.
    let is_refused = || {
        server.int(&["EXISTS", "orders"]) == 1
            && server.int(&["HEXISTS", "orders", theirs]) == 0
            && server.int(&["PTTL", "orders"]) > 0
    };
    elsewhere(|| {
        let _guard = rust.guard().unwrap();
        assert!(is_refused());
    });
    java.lock();
    assert!(is_refused());
    java.unlock();
    assert!(!is_refused());
}

/// The unlock of this generation of Redisson.
#[test]
#[ignore = "needs Java: make interop"]
fn each_generation_sends_the_documented_commands() {
    let server = RedisServer::start();
    let _run_lock = RunLock::together();
    let redisson = Redisson::open(&Jvm::shared(), &server.url(), LONG);
    let java = redisson.lock("orders");
    java.lock();
    settle();
    let monitor = Monitor::start(&server);
    java.unlock();
    let latched = !monitor.lines_containing("redisson_unlock_latch").is_empty();
    assert_eq!(latched, version() >= (3, 24));
    assert_eq!(
        monitor.lines_containing("\"PUBLISH\"").len().min(1),
        usize::from(latched)
    );
    if ((3, 52)..(4, 3)).contains(&version()) {
        // These delete another key than they made; that key ends by its TTL.
        let left: Vec<String> = redis::from_redis_value(server.cmd(&["KEYS", "*"])).unwrap();
        assert!(left.iter().all(|key| key.contains("latch")), "{left:?}");
        for key in left {
            let ttl = server.int(&["PTTL", &key]);
            assert!((1..=20_000).contains(&ttl) || ttl == -2, "{key}: {ttl}");
        }
    } else {
        eventually(SLACK, "the latch is gone", || server.int(&["DBSIZE"]) == 0);
    }
}
