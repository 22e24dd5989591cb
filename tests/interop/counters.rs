//! Counters of both sides: latches and semaphores.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use crate::exclusion::WAKE_UP;
use crate::fixture::{BothSides, LONG, RunLock, SLACK, timed};
use crate::jvm::version;
use crate::support::ms;

const CHANNEL: &str = "redisson_countdownlatch__channel__{import}";

/// Waits on both sides, and returns how long after `open` each wait ended.
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
    let sides = BothSides::with(RunLock::alone(), LONG);
    let latch = sides.rust.latch("import");
    let java =
        |operation: &str, words: &[&str]| sides.java.latch("import", operation, words).value();
    assert_eq!(java("getCount", &[]), "0");
    // Set by Redisson, opened by us.
    assert_eq!(java("trySetCount", &["2"]), "true");
    assert!(!latch.try_set(3).unwrap());
    assert_eq!(latch.count().unwrap(), 2);
    assert_eq!(java("countDown", &[]), "counted");
    let took = both_wait(&sides, || assert_eq!(latch.count_down().unwrap(), 0));
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    assert_eq!(java("getCount", &[]), "0");
    // Set by us, opened by Redisson.
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
fn a_deleted_latch_opens_for_the_other_side() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let latch = sides.rust.latch("import");
    assert!(latch.try_set(2).unwrap());
    let took = both_wait(&sides, || assert!(latch.delete().unwrap()));
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    // Deletion by Redisson publishes nothing; our waiter polls.
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

#[test]
#[ignore = "needs Java: make interop"]
fn permits_exclude_and_wake_both_sides() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let semaphore = sides.rust.semaphore("mail");
    let java = |operation: &str, words: &[&str]| {
        let started = sides.java.semaphore("mail", operation, words);
        started.value()
    };
    assert_eq!(java("trySetPermits", &["3"]), "true");
    assert!(!semaphore.try_set(5).unwrap());
    // Each side counts the permits of the other.
    let taken = semaphore.acquire(2).unwrap();
    assert_eq!(java("availablePermits", &[]), "1");
    assert_eq!(java("tryAcquire", &["2", "100"]), "false");
    assert_eq!(java("tryAcquire", &["1", "0"]), "true");
    assert_eq!(semaphore.available().unwrap(), 0);
    assert!(semaphore.try_acquire(1).unwrap().is_none());
    // We wake Redisson.
    let waits = sides.java.semaphore("mail", "acquire", &["2"]);
    assert!(waits.still_runs_after(ms(600)));
    let (took, ()) = timed(|| {
        taken.release().unwrap();
        waits.value();
    });
    assert!(took < WAKE_UP, "{took:?}");
    // Redisson wakes us, several threads at once.
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| semaphore.acquire(1).unwrap()))
            .collect();
        sides.until_somebody_waits("redisson_sc:{mail}");
        let (took, taken) = timed(|| {
            java("release", &["3"]);
            let taken = waiting.into_iter().map(|waits| waits.join().unwrap());
            taken.collect::<Vec<_>>()
        });
        assert!(took < WAKE_UP, "{took:?}");
        drop(taken);
    });
    assert_eq!(java("availablePermits", &[]), "3");
    // Permits without owners, on either side.
    assert_eq!(java("drainPermits", &[]), "3");
    assert_eq!(semaphore.available().unwrap(), 0);
    semaphore.add_permits(4).unwrap();
    assert_eq!(java("availablePermits", &[]), "4");
    java("addPermits", &["-3"]);
    assert_eq!(semaphore.drain().unwrap(), 1);
    java("release", &["2"]);
    semaphore.acquire(2).unwrap().forget().unwrap();
    java("release", &["2"]);
    assert_eq!(semaphore.available().unwrap(), 2);
    assert_eq!(sides.server.int(&["EXISTS", "redlatch_sc:{mail}"]), 0);
}

#[test]
#[ignore = "needs Java: make interop"]
fn permits_of_a_killed_client_return_to_both_sides() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let semaphore = sides.rust.semaphore("mail");
    assert!(semaphore.try_set(2).unwrap());
    // These permits are neither renewed nor released.
    let short = semaphore.with_lease_time(ms(800));
    std::mem::forget(short.acquire(2).unwrap());
    let waits = sides.java.semaphore("mail", "acquire", &["1"]);
    assert!(waits.still_runs_after(ms(1500)), "it does not look");
    let (took, taken) = timed(|| semaphore.acquire(1).unwrap());
    assert!(took < SLACK, "{took:?}");
    waits.value();
    taken.release().unwrap();
    // Deletion by Redisson is reported here as a loss.
    let taken = semaphore.acquire(1).unwrap();
    assert_eq!(sides.java.semaphore("mail", "delete", &[]).value(), "true");
    assert!(taken.release().unwrap_err().is_lost());
    assert_eq!(semaphore.available().unwrap(), 0);
}

/// Whether it stores ids as bytes, as later versions do: 3.14 stores their digits.
fn knows_ids() -> bool {
    version() >= (3, 27)
}

/// The JVM's reply without a permit.
const NONE: &str = "null";

#[test]
#[ignore = "needs Java: make interop"]
fn permits_with_ids_exclude_and_wake_both_sides() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let semaphore = sides.rust.permit_semaphore("mail");
    let java = |operation: &str, words: &[&str]| {
        let started = sides.java.permits("mail", operation, words);
        started.value()
    };
    assert_eq!(java("trySetPermits", &["3"]), "true");
    assert!(!semaphore.try_set(5).unwrap());
    let taken = semaphore.acquire(2).unwrap();
    assert_eq!(java("availablePermits", &[]), "1");
    let theirs = java("acquire", &[]);
    assert_eq!(java("tryAcquire", &["100"]), NONE);
    assert!(semaphore.try_acquire(1).unwrap().is_none());
    assert_eq!(semaphore.acquired().unwrap(), 3);
    // We wake Redisson.
    let waits = sides.java.permits("mail", "acquire", &[]);
    assert!(waits.still_runs_after(ms(600)));
    let (took, second) = timed(|| {
        taken.release().unwrap();
        waits.value()
    });
    assert!(took < WAKE_UP, "{took:?}");
    // Redisson wakes us, also with one of its ids.
    let rest = semaphore.acquire(1).unwrap();
    let mut waited = Vec::new();
    for by_ours in [false, knows_ids()] {
        thread::scope(|scope| {
            let waits = scope.spawn(|| semaphore.acquire(1).unwrap());
            sides.until_somebody_waits("redisson_sc:{mail}");
            let id = if waited.is_empty() { &theirs } else { &second };
            waited.push(by_ours);
            let (took, taken) = timed(|| {
                if by_ours {
                    let id = redlatch::PermitId::parse(id).unwrap();
                    assert!(semaphore.release_id(&id).unwrap());
                } else {
                    assert_eq!(java("release", &[id]), "true");
                }
                waits.join().unwrap()
            });
            assert!(took < WAKE_UP, "{took:?}");
            drop(taken);
        });
    }
    drop(rest);
    assert_eq!(java("availablePermits", &[]), "3");
    assert_eq!(java("release", &[&theirs]), "false", "once");
    java("addPermits", &["2"]);
    assert_eq!(semaphore.available().unwrap(), 5);
    assert_eq!(sides.server.int(&["EXISTS", "{mail}:timeout"]), 0);
}

#[test]
#[ignore = "needs Java: make interop"]
fn each_side_releases_and_extends_the_others_permits() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let semaphore = sides.rust.permit_semaphore("mail");
    let java = |operation: &str, words: &[&str]| {
        let started = sides.java.permits("mail", operation, words);
        started.value()
    };
    assert!(semaphore.try_set(2).unwrap());
    let parse = |id: &str| redlatch::PermitId::parse(id).unwrap();
    // Permits without a lease, on either side.
    let ours = semaphore.acquire_id(None).unwrap();
    if !knows_ids() {
        assert_eq!(java("release", &[ours.as_str()]), "false");
        assert!(!semaphore.release_id(&parse(&java("acquire", &[]))).unwrap());
        assert_eq!(semaphore.acquired().unwrap(), 2);
        return;
    }
    let theirs = parse(&java("acquire", &[]));
    for id in [&ours, &theirs] {
        assert_eq!(semaphore.lease_of(id).unwrap(), Some(Duration::MAX));
    }
    assert_eq!(java("release", &[ours.as_str()]), "true");
    assert!(!semaphore.release_id(&ours).unwrap());
    assert!(semaphore.set_lease(&theirs, Some(ms(600))).unwrap());
    // It ends for both.
    thread::sleep(ms(700));
    assert_eq!(java("availablePermits", &[]), "2");
    assert!(!semaphore.release_id(&theirs).unwrap());
    // Each waits for the end of the other's lease.
    let both = [1, 2].map(|_| semaphore.acquire_id(Some(ms(900))).unwrap());
    let waits = sides.java.permits("mail", "acquireFor", &["900"]);
    let (took, id) = timed(|| waits.value());
    assert!(took > ms(600) && took < ms(2500) + SLACK, "{took:?}");
    assert!(!semaphore.release_id(&both[0]).unwrap());
    let all = semaphore.with_lease_time(ms(60_000));
    let (took, taken) = timed(|| all.acquire(2).unwrap());
    assert!(took < ms(2500) + SLACK, "{took:?}");
    assert_eq!(java("release", &[&id]), "false");
    // A permit of a handle that the other side extends or releases.
    let ids = taken.ids();
    assert_eq!(java("updateLeaseTime", &[ids[0].as_str(), "90000"]), "true");
    assert!(semaphore.lease_of(&ids[0]).unwrap().unwrap() > ms(80_000));
    assert_eq!(java("release", &[ids[1].as_str()]), "true");
    assert!(taken.release().unwrap_err().is_lost());
    assert_eq!(java("availablePermits", &[]), "2");
    let taken = semaphore.acquire(1).unwrap();
    assert_eq!(java("delete", &[]), "true");
    assert!(taken.release().unwrap_err().is_lost());
}

#[test]
#[ignore = "needs Java: make interop"]
fn acquired_permits_never_exceed_the_capacity() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let plain = sides.rust.semaphore("mail");
    let with_ids = sides.rust.permit_semaphore("mails");
    assert!(plain.try_set(3).unwrap() && with_ids.try_set(3).unwrap());
    let least = std::sync::atomic::AtomicI64::new(3);
    let note = |free: i64| least.fetch_min(free, std::sync::atomic::Ordering::SeqCst);
    thread::scope(|scope| {
        for permits in 1..4 {
            let (plain, with_ids, java, note) = (&plain, &with_ids, &sides.java, &note);
            scope.spawn(move || {
                for _ in 0..30 {
                    let taken = plain.acquire(permits).unwrap();
                    note(plain.available().unwrap());
                    taken.release().unwrap();
                    let taken = with_ids.acquire(permits).unwrap();
                    note(with_ids.available().unwrap());
                    taken.release().unwrap();
                }
            });
            let words = permits.to_string();
            scope.spawn(move || {
                for _ in 0..15 {
                    java.semaphore("mail", "acquire", &[&words]).value();
                    java.semaphore("mail", "release", &[&words]).value();
                    let id = java.permits("mails", "acquire", &[]).value();
                    let released = java.permits("mails", "release", &[&id]);
                    assert_eq!(released.value(), "true");
                }
            });
        }
    });
    assert!(least.into_inner() >= 0, "more were taken than there are");
    assert_eq!(plain.available().unwrap(), 3);
    assert_eq!(with_ids.available().unwrap(), 3);
}
