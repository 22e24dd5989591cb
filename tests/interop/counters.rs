//! Counts of both sides: latches.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use crate::both_sides::{BothSides, LONG, SLACK, Turn, timed};
use crate::exclusion::WAKE_UP;
use crate::support::ms;

const CHANNEL: &str = "redisson_countdownlatch__channel__{import}";

/// Waits on both sides, and tells how long after `open` each of them was through.
fn both_wait(sides: &BothSides, open: impl FnOnce()) -> [Duration; 2] {
    let latch = sides.rust.latch("import");
    thread::scope(|scope| {
        let rust = scope.spawn(|| latch.wait_for(Duration::from_secs(20)).unwrap());
        sides.until_somebody_waits(CHANNEL);
        let java = sides.java.latch("import", "await", &["20000"]);
        assert!(java.still_runs_after(ms(600)) && !rust.is_finished());
        let begun = std::time::Instant::now();
        open();
        assert!(rust.join().unwrap());
        let rust = begun.elapsed();
        assert_eq!(java.value(), "true");
        [rust, begun.elapsed()]
    })
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_latch_opens_for_both_sides() {
    let sides = BothSides::with(Turn::alone(), LONG);
    let latch = sides.rust.latch("import");
    let java =
        |operation: &str, words: &[&str]| sides.java.latch("import", operation, words).value();
    assert_eq!(java("getCount", &[]), "0");
    // Set there, opened here.
    assert_eq!(java("trySetCount", &["2"]), "true");
    assert!(!latch.try_set(3).unwrap());
    assert_eq!(latch.count().unwrap(), 2);
    assert_eq!(java("countDown", &[]), "counted");
    let took = both_wait(&sides, || assert_eq!(latch.count_down().unwrap(), 0));
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    assert_eq!(java("getCount", &[]), "0");
    // Set here, opened there.
    assert!(latch.try_set(2).unwrap());
    assert_eq!(java("trySetCount", &["3"]), "false");
    assert_eq!(java("getCount", &[]), "2");
    assert_eq!(latch.count_down().unwrap(), 1);
    let took = both_wait(&sides, || assert_eq!(java("countDown", &[]), "counted"));
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    assert_eq!(latch.count_down().unwrap(), 0);
    assert_eq!(java("countDown", &[]), "counted");
    assert_eq!(latch.count().unwrap(), 0);
    assert_eq!(sides.server.int(&["EXISTS", "import"]), 0);
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_latch_that_is_deleted_here_opens_there() {
    let sides = BothSides::with(Turn::alone(), LONG);
    let latch = sides.rust.latch("import");
    assert!(latch.try_set(2).unwrap());
    let took = both_wait(&sides, || assert!(latch.delete().unwrap()));
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    // Its own deletion wakes nobody; we look by ourselves.
    assert!(latch.try_set(2).unwrap());
    let (took, is_open) = thread::scope(|scope| {
        let waits = scope.spawn(|| latch.wait_for(Duration::from_secs(20)).unwrap());
        sides.until_somebody_waits(CHANNEL);
        let deleted = sides.java.latch("import", "delete", &[]);
        timed(|| {
            assert_eq!(deleted.value(), "true");
            waits.join().unwrap()
        })
    });
    assert!(is_open && took < ms(1100) + SLACK, "{took:?}");
}
