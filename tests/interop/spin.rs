//! One spin lock of both sides.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::Lock;

use crate::both_sides::{BothSides, LONG, PATIENCE, Turn, report};
use crate::jvm::{JavaLock, version};
use crate::support::{ms, timed};

/// Whether this generation of Redisson has no spin lock, which is told.
fn is_missing() -> bool {
    let is_missing = version() < (3, 15);
    if is_missing {
        report("there is no RSpinLock");
    }
    is_missing
}

fn locks(sides: &BothSides, name: &str) -> (Lock, JavaLock) {
    let java = sides.java.thread().lock("spin", name);
    (sides.rust.spin_lock(name), java)
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_spin_lock_is_one_lock() {
    if is_missing() {
        return;
    }
    let sides = BothSides::with(Turn::alone(), LONG);
    for name in ["orders", "{shop}:orders"] {
        let (rust, java) = locks(&sides, name);
        rust.lock().unwrap();
        assert!(!java.try_lock(ms(0)));
        let waiting = java.start("lock", &[]);
        assert!(waiting.still_runs_after(ms(200)));
        let (took, ()) = timed(|| {
            rust.unlock().unwrap();
            waiting.value();
        });
        assert!(took < ms(500), "Redisson has it after {took:?}");
        assert!(!rust.try_lock().unwrap());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                rust.lock().unwrap();
                let got = Instant::now();
                rust.unlock().unwrap();
                got
            });
            thread::sleep(ms(300));
            let start = Instant::now();
            java.unlock();
            let took = waiting.join().unwrap().saturating_duration_since(start);
            // Nobody tells us.
            assert!(took < ms(500), "we have it after {took:?}");
        });
        assert!(sides.hash(name).is_empty());
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn an_unlock_of_our_spin_lock_wakes_redisson_s_plain_waiter() {
    let sides = BothSides::with(Turn::alone(), LONG);
    let (rust, java) = (sides.rust.spin_lock("orders"), sides.java.lock("orders"));
    rust.lock().unwrap();
    let waiting = java.start("lock", &[]);
    sides.until_somebody_waits("redisson_lock__channel:{orders}");
    let (took, ()) = timed(|| {
        rust.unlock().unwrap();
        waiting.value();
    });
    assert!(took < ms(500), "{took:?}");
    java.unlock();
}

#[test]
#[ignore = "needs Java: make interop"]
fn threads_of_both_sides_spin_and_never_overlap() {
    const ROUNDS: u32 = 500;
    if is_missing() {
        return;
    }
    let sides = BothSides::with(Turn::together(), PATIENCE);
    // Read, and written later: two at a time would lose one.
    let counter = Mutex::new(0_u32);
    let add = || {
        let seen = *counter.lock().unwrap();
        thread::sleep(Duration::from_micros(50));
        *counter.lock().unwrap() = seen + 1;
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            let ((rust, java), add) = (locks(&sides, "orders"), &add);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    rust.run(|_| add()).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    java.lock();
                    add();
                    java.unlock();
                }
            });
        }
    });
    assert_eq!(*counter.lock().unwrap(), 6 * ROUNDS);
}
