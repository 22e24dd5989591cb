//! What either side may expect of the other, each way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on has failed"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Lock, LossCause};

use crate::both_sides::{BothSides, LEASE, LONG, PATIENCE, SLACK, Turn, elsewhere, report, timed};
use crate::driver::Exception;
use crate::jvm::{Jvm, Redisson, is_illegal_monitor_state, settle, version};
use crate::support::child::{arg, listen, say};
use crate::support::{Child, Monitor, RedisServer, eventually, ms};

/// A wake-up by a message takes less; the cap of our sleep and every lease are longer.
pub(crate) const WAKE_UP: Duration = ms(500);

const CHILD: Duration = Duration::from_secs(120);

/// Plays `role` in a child process; false if it is not one of this file.
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

/// Adds `times` to the counter at `url` in each of so many threads, by GET and SET under the lock.
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
    let sides = BothSides::with(Turn::alone(), PATIENCE);
    let url = sides.server.url();
    let mut child = Child::spawn("counter", &[("URL", &url)]);
    child.expect_line("ready", CHILD);
    let (took, ()) = timed(|| {
        child.tell("go");
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

#[test]
#[ignore = "needs Java: make interop"]
fn our_unlock_wakes_redisson() {
    let sides = BothSides::with(Turn::alone(), LONG);
    let (rust, java) = sides.locks("orders");
    let times = (0..21).map(|_| {
        rust.lock().unwrap();
        let waiting = java.start("lock", &[]);
        sides.until_somebody_waits("redisson_lock__channel:{orders}");
        let (took, ()) = timed(|| {
            rust.unlock().unwrap();
            waiting.value();
        });
        java.unlock();
        took
    });
    bounded("our unlock wakes Redisson", times.collect());
}

#[test]
#[ignore = "needs Java: make interop"]
fn redisson_s_unlock_wakes_us() {
    let sides = BothSides::with(Turn::alone(), LONG);
    let (rust, java) = sides.locks("orders");
    let times = (0..21).map(|_| {
        java.lock();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                rust.lock().unwrap();
                let woken = Instant::now();
                rust.unlock().unwrap();
                woken
            });
            sides.until_somebody_waits("redisson_lock__channel:{orders}");
            let start = Instant::now();
            java.unlock();
            waiting.join().unwrap().duration_since(start)
        })
    });
    bounded("Redisson's unlock wakes us", times.collect());
}

/// Threads of ours hand the lock on among themselves, but not for as long as Redisson waits.
#[test]
#[ignore = "needs Java: make interop"]
fn our_line_does_not_starve_redisson() {
    let sides = BothSides::with(Turn::alone(), PATIENCE);
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
fn redisson_sees_our_counts() {
    let sides = BothSides::new();
    let (rust, java) = sides.locks("orders");
    assert!(!java.is_locked());
    assert_eq!(java.remain_time_to_live(), -2);
    for count in 1..=3 {
        let guard = rust.guard().unwrap();
        let field = guard.visitor().as_str().to_owned();
        assert_eq!(
            sides.hash("orders"),
            [(field, count.to_string())].into(),
            "one field, the count as text"
        );
        std::mem::forget(guard);
        assert!(java.is_locked());
        assert!(!java.is_held());
        assert_eq!(java.hold_count(), 0);
        assert!((1..=30_000).contains(&java.remain_time_to_live()));
        assert!(!java.try_lock(ms(0)));
    }
    is_illegal_monitor_state(&java.try_unlock());
    for left in [2, 1, 0] {
        rust.unlock().unwrap();
        assert_eq!(rust.hold_count().unwrap(), left);
        assert_eq!(java.is_locked(), left > 0);
    }
    assert!(java.try_lock(ms(0)));
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn we_see_redisson_s_counts() {
    let sides = BothSides::new();
    let (rust, java) = sides.locks("orders");
    for count in 1..=3 {
        java.lock();
        assert_eq!(
            sides.hash("orders"),
            [(java.field(), count.to_string())].into()
        );
        assert!(rust.is_locked().unwrap());
        assert!(!rust.is_held_by_current_thread().unwrap());
        assert_eq!(rust.hold_count().unwrap(), 0);
        let left = rust.remaining_lease().unwrap().unwrap();
        assert!(left > Duration::ZERO && left <= LONG, "{left:?}");
        assert!(!rust.try_lock().unwrap());
    }
    assert!(matches!(rust.unlock(), Err(Error::NotHeld { .. })));
    for left in [2, 1, 0] {
        java.unlock();
        assert_eq!(java.hold_count(), left);
        assert_eq!(rust.is_locked().unwrap(), left > 0);
    }
    assert_eq!(rust.remaining_lease().unwrap(), None);
    rust.lock().unwrap();
    rust.unlock().unwrap();
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_fixed_lease_ends_for_both() {
    let sides = BothSides::with(Turn::together(), LEASE);
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

/// Three leases, in which one side tries again and again.
pub(crate) fn is_refused_for_three_leases(mut attempt: impl FnMut() -> bool) {
    let start = Instant::now();
    while start.elapsed() < 3 * LEASE + ms(200) {
        assert!(!attempt(), "after {:?}", start.elapsed());
        thread::sleep(ms(20));
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn our_watchdog_keeps_redisson_out() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let (rust, java) = sides.locks("orders");
    let guard = rust.guard().unwrap();
    is_refused_for_three_leases(|| java.try_lock(ms(0)));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    assert!(java.try_lock(ms(0)));
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn redisson_s_watchdog_keeps_us_out() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let (rust, java) = sides.locks("orders");
    java.lock();
    is_refused_for_three_leases(|| rust.try_lock().unwrap());
    assert!(java.is_held());
    java.unlock();
    assert!(rust.try_lock().unwrap());
    rust.unlock().unwrap();
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_killed_jvm_frees_the_lock_within_a_lease() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let jvm = Jvm::start();
    let redisson = Redisson::open(&jvm, &sides.server.url(), LEASE);
    redisson.lock("orders").lock();
    // Past the first renewals, so that it is the watchdog's lease that has to end.
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
    let sides = BothSides::with(Turn::together(), LEASE);
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

#[test]
#[ignore = "needs Java: make interop"]
fn redisson_s_force_unlock_tells_our_holder() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let (rust, java) = sides.locks("orders");
    let told = LEASE + SLACK;

    let guard = rust.guard().unwrap();
    let lost = guard.lost();
    assert!(java.force_unlock());
    assert_eq!(lost.recv_timeout(told).unwrap().cause, LossCause::Gone);
    assert!(!guard.is_valid());
    assert!(guard.unlock().is_err_and(|error| error.is_lost()));
    assert!(!java.force_unlock(), "nobody holds it any more");

    let guard = rust.guard().unwrap();
    let lost = guard.lost();
    assert!(java.force_unlock());
    java.lock();
    let cause = lost.recv_timeout(told).unwrap().cause;
    assert_eq!(cause, LossCause::HeldBy(java.field()));
    assert!(guard.unlock().is_err_and(|error| error.is_lost()));
    assert!(java.is_held(), "the loser has touched nothing");
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn our_force_unlock_tells_redisson_s_holder() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let (rust, java) = sides.locks("orders");
    java.lock();
    let second = sides.java.lock("orders");
    let waiting = second.start("lock", &[]);
    assert!(waiting.still_runs_after(ms(200)));
    let (took, ()) = timed(|| {
        assert!(rust.force_unlock().unwrap());
        waiting.value();
    });
    assert!(took < WAKE_UP, "woken by the message: {took:?}");
    is_illegal_monitor_state(&java.try_unlock());
    // Its watchdog has learnt it, too: what is held now is the second thread's.
    thread::sleep(LEASE);
    assert!(!java.is_held());
    assert!(second.is_held());
    second.unlock();
    assert!(!rust.force_unlock().unwrap());
}

/// Refusal and wake-up, each way.
pub(crate) fn is_one_lock(
    sides: &BothSides,
    rust: &redlatch::Lock,
    java: &crate::jvm::JavaLock,
    channel: &str,
) {
    rust.lock().unwrap();
    assert!(!java.try_lock(ms(0)), "{channel}: refused");
    let waiting = java.start("lock", &[]);
    sides.until_somebody_waits(channel);
    let (took, ()) = timed(|| {
        rust.unlock().unwrap();
        waiting.value();
    });
    assert!(took < WAKE_UP, "{channel}: Redisson woke after {took:?}");

    assert!(!rust.try_lock().unwrap(), "{channel}: refused");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            rust.lock().unwrap();
            let woken = Instant::now();
            rust.unlock().unwrap();
            woken
        });
        sides.until_somebody_waits(channel);
        let start = Instant::now();
        java.unlock();
        let took = waiting.join().unwrap().duration_since(start);
        assert!(took < WAKE_UP, "{channel}: we woke after {took:?}");
    });
}

#[test]
#[ignore = "needs Java: make interop"]
fn names_of_every_form_are_one_lock() {
    let sides = BothSides::with(Turn::alone(), LONG);
    for (name, channel) in [
        ("{shop}:orders", "redisson_lock__channel:{shop}:orders"),
        ("orders:{42}", "redisson_lock__channel:orders:{42}"),
        ("a:b::c:", "redisson_lock__channel:{a:b::c:}"),
        (
            "заказ-注文-ördèr-🔒",
            "redisson_lock__channel:{заказ-注文-ördèr-🔒}",
        ),
        (" two words ", "redisson_lock__channel:{ two words }"),
    ] {
        let (rust, java) = sides.locks(name);
        is_one_lock(&sides, &rust, &java, channel);
        assert!(sides.hash(name).is_empty());
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_key_prefix_is_a_name_mapper() {
    let sides = BothSides::with(Turn::alone(), LONG);
    let prefixed = sides.another(Client::builder().key_prefix("shop:"), &sides.server.url());
    let rust = prefixed.lock("orders");
    let channel = "redisson_lock__channel:{shop:orders}";
    // In every generation the whole name is the same lock.
    is_one_lock(&sides, &rust, &sides.java.lock("shop:orders"), channel);

    let mapped = Redisson::open_with_prefix(&Jvm::shared(), &sides.server.url(), LONG, "shop:");
    match mapped {
        Ok(redisson) => {
            assert!(version() >= (3, 16));
            is_one_lock(&sides, &rust, &redisson.lock("orders"), channel);
        }
        Err(Exception { class, message }) => {
            assert_eq!(class, "UnsupportedOperationException", "{message}");
            assert!(version() < (3, 16));
            report("there is no NameMapper");
        }
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_key_prefix_once_is_a_prefix_name_mapper() {
    if version() < (3, 16) {
        return report("there is no NameMapper");
    }
    let sides = BothSides::with(Turn::alone(), LONG);
    let url = sides.server.url();
    let prefixed = sides.another(Client::builder().key_prefix_once("shop:"), &url);
    let mapped = Redisson::open_with_prefix(&Jvm::shared(), &url, LONG, "once=shop:").unwrap();
    let channel = "redisson_lock__channel:{shop:orders}";
    for (ours, its) in [("orders", "shop:orders"), ("shop:orders", "orders")] {
        is_one_lock(&sides, &prefixed.lock(ours), &mapped.lock(its), channel);
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
        // The thread that got it has ended with its lock.
        assert!(!java.try_lock(ms(0)), "{kind}");
        assert!(rust.force_unlock().unwrap());
        assert!(java.try_lock(ms(0)), "{kind}");
        java.unlock();
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn the_layout_of_jedis_distributed_lock_excludes_us_and_redisson() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let (rust, java) = sides.locks("orders");
    let server = &sides.server;
    let theirs = "5e0f35f6-6f5b-4f0c-9d5a-3f3f7b3cf2a1:1";
    // Its acquire: the key is free.
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
        // Its unlock: another channel and message, on which nobody of us listens.
        server.cmd(&["DEL", "orders"]);
        assert_eq!(server.int(&["PUBLISH", "orders", "1"]), 0);
        let (took, got) = waiting.join().unwrap();
        assert!(got && took < SLACK, "the cap of our sleep: {took:?}");
    });
    // What it asks before it takes a lock, while one of us has it.
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

/// How the unlock of a generation of Redisson differs.
#[test]
#[ignore = "needs Java: make interop"]
fn what_a_generation_sends_is_as_documented() {
    let server = RedisServer::start();
    let _turn = Turn::together();
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
        // These delete another key than the one they made, which goes by itself.
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
