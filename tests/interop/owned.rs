//! An owned guard of ours, which Redisson takes for one more thread.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Instant;

use redlatch::{OwnedGuard, current_thread_id};

use crate::both_sides::{BothSides, LEASE, LONG, Turn, elsewhere, timed};
use crate::exclusion::{WAKE_UP, bounded, is_refused_for_three_leases};
use crate::jvm::is_illegal_monitor_state;
use crate::support::{eventually, ms};

#[test]
#[ignore = "needs Java: make interop"]
fn an_owned_hold_is_that_of_one_more_thread() {
    let sides = BothSides::new();
    let (rust, java) = sides.locks("orders");
    let guard = rust.owned().unwrap();
    let field = guard.visitor().as_str().to_owned();
    assert_eq!(sides.hash("orders"), [(field.clone(), "1".into())].into());
    // `uuid:thread:hold`, as for a thread.
    let number = field.split(':').nth(1).unwrap();
    assert_eq!(number, guard.owner().to_string());
    assert_ne!(number, current_thread_id().to_string());
    assert!(java.is_locked() && !java.is_held());
    assert_eq!(java.hold_count(), 0);
    assert!(!java.try_lock(ms(0)));
    assert!((1..=30_000).contains(&java.remain_time_to_live()));
    is_illegal_monitor_state(&java.try_unlock());
    assert!(guard.is_valid());
    elsewhere(|| guard.unlock().unwrap());
    java.lock();
    assert!(rust.try_owned().unwrap().is_none());
    assert!(rust.try_owned_for(ms(100)).unwrap().is_none());
    java.unlock();
    // Redisson takes it away as it does from a thread.
    let guard = rust.owned().unwrap();
    assert!(java.force_unlock());
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(sides.hash("orders").is_empty());
}

#[test]
#[ignore = "needs Java: make interop"]
fn the_end_of_an_owned_hold_wakes_redisson() {
    let sides = BothSides::with(Turn::alone(), LONG);
    let (rust, java) = sides.locks("orders");
    type End = fn(OwnedGuard);
    let ends: [End; 3] = [
        |guard| guard.unlock().unwrap(),
        drop,
        OwnedGuard::unlock_in_background,
    ];
    let times = (0..21).map(|round: usize| {
        let guard = rust.owned().unwrap();
        let waiting = java.start("lock", &[]);
        sides.until_somebody_waits("redisson_lock__channel:{orders}");
        let (took, ()) = timed(|| {
            ends[round % ends.len()](guard);
            waiting.value();
        });
        java.unlock();
        took
    });
    bounded("the end of an owned hold wakes Redisson", times.collect());
    eventually(WAKE_UP, "nothing is left", || {
        sides.hash("orders").is_empty()
    });
}

#[test]
#[ignore = "needs Java: make interop"]
fn redisson_s_unlock_wakes_who_waits_for_an_owned_hold() {
    let sides = BothSides::with(Turn::alone(), LONG);
    let (rust, java) = sides.locks("orders");
    let times = (0..21).map(|_| {
        java.lock();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let guard = rust.owned().unwrap();
                let woken = Instant::now();
                guard.unlock().unwrap();
                woken
            });
            sides.until_somebody_waits("redisson_lock__channel:{orders}");
            let start = Instant::now();
            java.unlock();
            waiting.join().unwrap().saturating_duration_since(start)
        })
    });
    bounded(
        "Redisson's unlock wakes an owner without a thread",
        times.collect(),
    );
}

#[test]
#[ignore = "needs Java: make interop"]
fn an_owned_hold_of_a_thread_that_has_ended_keeps_redisson_out() {
    let sides = BothSides::with(Turn::together(), LEASE);
    let (rust, java) = sides.locks("orders");
    let guard = elsewhere(|| rust.owned().unwrap());
    is_refused_for_three_leases(|| java.try_lock(ms(0)));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    assert!(java.try_lock(ms(0)));
    java.unlock();
}
