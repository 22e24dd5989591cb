//! One read-write lock of both sides.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Lock, ReadWriteLock};

use crate::exclusion::WAKE_UP;
use crate::fixture::{BothSides, LEASE, LONG, RunLock, SLACK, elsewhere, report, timed};
use crate::jvm::{JavaLock, JavaThread, Jvm, Redisson, version};
use crate::support::{eventually, ms};

const CHANNEL: &str = "redisson_rwlock:{prices}";

/// The first generation that renews only its own holds.
const RENEWS_ITS_OWN: (u32, u32) = (4, 4);

/// Generations before this one do not report a reader inside a writer.
const LOOKS_INSIDE: (u32, u32) = (3, 27);

/// The sides of the lock in one thread of the JVM.
fn java(thread: &JavaThread, name: &str) -> [JavaLock; 2] {
    ["read", "write"].map(|side| thread.lock(side, name))
}

/// Whether another thread of ours could acquire at once; it releases.
#[track_caller]
fn is_free(lock: &Lock) -> bool {
    elsewhere(|| {
        let is_free = lock.try_lock().unwrap();
        if is_free {
            lock.unlock().unwrap();
        }
        is_free
    })
}

/// Which sides each library could acquire: ours to read and to write, then Redisson's.
#[track_caller]
fn free(sides: &BothSides, lock: &ReadWriteLock) -> [bool; 4] {
    let [read, write] = java(&sides.java.thread(), lock.name());
    let theirs = |lock: &JavaLock| {
        let is_free = lock.try_lock(ms(0));
        if is_free {
            lock.unlock();
        }
        is_free
    };
    [
        is_free(&lock.read()),
        is_free(&lock.write()),
        theirs(&read),
        theirs(&write),
    ]
}

/// No key is left but our notes on former waiters, which have a TTL.
#[track_caller]
fn nothing_is_left(sides: &BothSides) {
    let notes = ["redlatch_rw:{prices}", "redlatch_rw:{shop}:prices"];
    let notes = sides.server.int(&["EXISTS", notes[0], notes[1]]);
    assert_eq!(sides.server.int(&["DBSIZE"]), notes);
}

const ALL: [bool; 4] = [true; 4];
const READERS: [bool; 4] = [true, false, true, false];
const NOBODY: [bool; 4] = [false; 4];

#[test]
#[ignore = "needs Java: make interop"]
fn a_read_write_lock_is_one_lock() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    for name in ["prices", "{shop}:prices"] {
        let lock = sides.rust.read_write_lock(name);
        let [read, write] = java(&sides.java.thread(), name);
        assert_eq!(free(&sides, &lock), ALL);
        lock.read().lock().unwrap();
        assert_eq!(free(&sides, &lock), READERS);
        assert!(read.is_locked() && !write.is_locked());
        // Readers of both.
        read.lock();
        assert_eq!(free(&sides, &lock), READERS);
        assert_eq!(
            (read.hold_count(), lock.read().hold_count().unwrap()),
            (1, 1)
        );
        lock.read().unlock().unwrap();
        assert_eq!(free(&sides, &lock), READERS);
        assert!(lock.read().is_locked().unwrap());
        read.unlock();
        assert_eq!(free(&sides, &lock), ALL);
        nothing_is_left(&sides);
        // A writer that reads inside, on either side, and downgrades to a reader.
        lock.write().lock().unwrap();
        assert_eq!(free(&sides, &lock), NOBODY);
        lock.read().lock().unwrap();
        assert!(write.is_locked() && (read.is_locked() || version() < LOOKS_INSIDE));
        assert_eq!(free(&sides, &lock), NOBODY);
        lock.write().unlock().unwrap();
        assert_eq!(free(&sides, &lock), READERS);
        lock.read().unlock().unwrap();
        nothing_is_left(&sides);
        write.lock();
        read.lock();
        assert_eq!(free(&sides, &lock), NOBODY);
        assert!(lock.write().is_locked().unwrap() && lock.read().is_locked().unwrap());
        write.unlock();
        assert_eq!(free(&sides, &lock), READERS);
        read.unlock();
        assert_eq!(free(&sides, &lock), ALL);
        nothing_is_left(&sides);
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn readers_and_writers_of_both_sides_wake_each_other() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let lock = sides.rust.read_write_lock("prices");
    let [read, write] = java(&sides.java.thread(), "prices");
    // We wait for Redisson.
    for (held, wanted) in [
        (&read, lock.write()),
        (&write, lock.write()),
        (&write, lock.read()),
    ] {
        held.lock();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                wanted.lock().unwrap();
                let now = Instant::now();
                wanted.unlock().unwrap();
                now
            });
            sides.until_somebody_waits(CHANNEL);
            thread::sleep(ms(300));
            assert!(!waits.is_finished(), "it is held");
            let freed = Instant::now();
            held.unlock();
            let took = waits.join().unwrap().saturating_duration_since(freed);
            assert!(took < WAKE_UP, "{took:?}");
        });
    }
    // Redisson waits for us.
    let wakes = |held: Lock, wanted: &JavaLock| {
        held.lock().unwrap();
        let waits = wanted.start("lock", &[]);
        assert!(waits.still_runs_after(ms(600)), "it is held");
        let (took, ()) = timed(|| {
            held.unlock().unwrap();
            waits.value();
        });
        assert!(took < WAKE_UP, "{took:?}");
        wanted.unlock();
    };
    wakes(lock.read(), &write);
    wakes(lock.write(), &write);
    wakes(lock.write(), &read);
    // Our downgrade wakes Redisson's readers.
    lock.write().lock().unwrap();
    lock.read().lock().unwrap();
    let waits = read.start("lock", &[]);
    assert!(waits.still_runs_after(ms(600)));
    let (took, ()) = timed(|| {
        lock.write().unlock().unwrap();
        waits.value();
    });
    assert!(took < WAKE_UP, "{took:?}");
    read.unlock();
    lock.read().unlock().unwrap();
    nothing_is_left(&sides);
}

#[test]
#[ignore = "needs Java: make interop"]
fn both_watchdogs_keep_both_sides_of_a_read_write_lock() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let lock = sides.rust.read_write_lock("prices");
    let [read, write] = java(&sides.java.thread(), "prices");
    let reading = lock.read().guard().unwrap();
    read.lock();
    thread::sleep(LEASE * 3);
    assert!(reading.is_valid() && read.is_held());
    assert_eq!(free(&sides, &lock), READERS);
    reading.unlock().unwrap();
    thread::sleep(LEASE * 2);
    assert_eq!(free(&sides, &lock), READERS);
    read.unlock();
    let (writing, reading) = (lock.write().guard().unwrap(), lock.read().guard().unwrap());
    thread::sleep(LEASE * 3);
    assert!(writing.is_valid() && reading.is_valid());
    assert_eq!(free(&sides, &lock), NOBODY);
    drop((writing, reading));
    write.lock();
    thread::sleep(LEASE * 3);
    assert_eq!(free(&sides, &lock), NOBODY);
    write.unlock();
    assert_eq!(free(&sides, &lock), ALL);
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_long_read_survives_the_renewals_of_redisson() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let lock = sides.rust.read_write_lock("prices");
    let [read, _] = java(&sides.java.thread(), "prices");
    let hour = Duration::from_secs(3600);
    let reading = lock.read().with_lease_time(hour).guard().unwrap();
    read.lock();
    // Redisson's renewal sets the hash's TTL to its lease; ours is renewed in between.
    thread::sleep(LEASE * 4);
    read.unlock();
    assert!(reading.is_valid());
    assert_eq!(free(&sides, &lock), READERS);
    eventually(SLACK, "its life is restored", || {
        sides.server.int(&["PTTL", "prices"]) > 3_000_000
    });
    reading.unlock().unwrap();
    assert_eq!(free(&sides, &lock), ALL);
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_killed_reader_or_writer_of_either_side_ends_with_its_lease() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let lock = sides.rust.read_write_lock("prices");
    for side in 0..2 {
        // A JVM that is killed.
        let jvm = Jvm::start();
        let doomed = Redisson::open(&jvm, &sides.server.url(), LEASE);
        java(&doomed.thread(), "prices")[side].lock();
        jvm.kill();
        let (took, ()) = timed(|| lock.write().lock().unwrap());
        assert!(took < LEASE + ms(1100) + SLACK, "{took:?}");
        lock.write().unlock().unwrap();
        // A client of ours that neither renews nor releases.
        let dead = sides.another(
            redlatch::Client::builder().watchdog_timeout(LEASE),
            &sides.server.url(),
        );
        let left = dead.read_write_lock("prices");
        let left = [left.read(), left.write()][side].guard().unwrap();
        dead.shutdown();
        std::mem::forget(left);
        let [_, write] = java(&sides.java.thread(), "prices");
        let (took, ()) = timed(|| write.lock());
        assert!(took < LEASE * 2 + SLACK, "{took:?}");
        write.unlock();
    }
    assert_eq!(free(&sides, &lock), ALL);
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_dead_redisson_reader_ends_with_its_lease() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    let lock = sides.rust.read_write_lock("prices");
    let jvm = Jvm::start();
    let doomed = Redisson::open(&jvm, &sides.server.url(), LEASE);
    java(&doomed.thread(), "prices")[0].lock();
    let reading = lock.read().guard().unwrap();
    jvm.kill();
    thread::sleep(LEASE * 2);
    assert!(reading.is_valid());
    reading.unlock().unwrap();
    // Only our own holds are renewed.
    assert_eq!(free(&sides, &lock), ALL);
    // A dead reader of ours beside a live one of Redisson, which before 4.4 renews it, too.
    let dead = sides.another(
        redlatch::Client::builder().watchdog_timeout(LEASE),
        &sides.server.url(),
    );
    let left = dead.read_write_lock("prices").read().guard().unwrap();
    let [read, _] = java(&sides.java.thread(), "prices");
    read.lock();
    dead.shutdown();
    std::mem::forget(left);
    thread::sleep(LEASE * 2);
    read.unlock();
    if version() >= RENEWS_ITS_OWN {
        assert_eq!(free(&sides, &lock), ALL);
    }
    let (took, ()) = timed(|| lock.write().lock().unwrap());
    assert!(took < LEASE + ms(1100) + SLACK, "{took:?}");
    lock.write().unlock().unwrap();
}

/// How often a side was acquired within the time, and the longest wait.
type Acquisitions = (u32, Duration);

/// Lets threads of both libraries acquire sides for some ms without a pause, with writers exclusive: our readers, our
/// writers, Redisson's readers, Redisson's writers. Returns for each kind the fewest turns of a thread and the longest
/// wait.
fn contend(
    sides: &BothSides,
    counts: [usize; 4],
    hold: Duration,
    span: Duration,
) -> [Acquisitions; 4] {
    let other = sides.another(
        redlatch::Client::builder().watchdog_timeout(LONG),
        &sides.server.url(),
    );
    let locks = [&sides.rust, &other].map(|client| client.read_write_lock("prices"));
    let ends = Instant::now() + span;
    let inside = AtomicI64::new(0);
    let several = |writes: bool, take: &dyn Fn(), free: &dyn Fn()| -> Acquisitions {
        let weight = if writes { 1000 } else { 1 };
        let (mut turns, mut longest) = (0, Duration::ZERO);
        while Instant::now() < ends {
            let (took, ()) = timed(take);
            let others = inside.fetch_add(weight, Ordering::SeqCst);
            let is_alone = others == 0 || !writes && others < 1000;
            assert!(is_alone, "a writer beside somebody");
            thread::sleep(hold);
            inside.fetch_sub(weight, Ordering::SeqCst);
            free();
            (turns, longest) = (turns + 1, longest.max(took));
        }
        (turns, longest)
    };
    thread::scope(|scope| {
        let (locks, several) = (&locks, &several);
        let begun = [0, 1, 2, 3].map(|kind| {
            let threads = (0..counts[kind]).map(|number| {
                scope.spawn(move || {
                    // So that readers overlap.
                    thread::sleep(hold * u32::try_from(number).unwrap() / 3);
                    if kind < 2 {
                        let lock = &locks[number % 2];
                        let side = if kind == 0 { lock.read() } else { lock.write() };
                        return several(kind == 1, &|| side.lock().unwrap(), &|| {
                            side.unlock().unwrap()
                        });
                    }
                    let [read, write] = java(&sides.java.thread(), "prices");
                    let side = if kind == 2 { read } else { write };
                    several(kind == 3, &|| side.lock(), &|| side.unlock())
                })
            });
            threads.collect::<Vec<_>>()
        });
        begun.map(|threads| {
            let turns = threads.into_iter().map(|it| it.join().unwrap());
            let turns = turns.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
            turns.unwrap_or_default()
        })
    })
}

#[test]
#[ignore = "needs Java: make interop"]
fn readers_and_writers_exclude_and_none_starves() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let span = Duration::from_secs(5);
    // A reader and a writer of Redisson, beside writers of ours that never pause.
    for counts in [[0, 2, 1, 0], [0, 2, 0, 1], [2, 2, 1, 1]] {
        let found = contend(&sides, counts, ms(20), span);
        report(&format!("{counts:?} of both libraries: {found:?}"));
        for (kind, (turns, longest)) in found.into_iter().enumerate() {
            // Redisson's writers wait for a moment without readers.
            let is_kept = kind == 3 && counts[0] + counts[2] > 0;
            let (least, bound) = if is_kept { (1, span) } else { (5, ms(3000)) };
            assert!(counts[kind] == 0 || turns >= least, "{counts:?}: {found:?}");
            assert!(longest < bound + SLACK, "{counts:?}: {found:?}");
        }
    }
    assert_eq!(free(&sides, &sides.rust.read_write_lock("prices")), ALL);
    nothing_is_left(&sides);
}

#[test]
#[ignore = "needs Java: make interop"]
fn constant_redisson_readers_starve_no_reader_of_ours() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    let lock = sides.rust.read_write_lock("prices");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..4 {
            let (sides, is_over) = (&sides, &is_over);
            scope.spawn(move || {
                let [read, _] = java(&sides.java.thread(), "prices");
                thread::sleep(ms(100) * number);
                while !is_over.load(Ordering::SeqCst) {
                    read.lock();
                    thread::sleep(ms(400));
                    read.unlock();
                }
            });
        }
        thread::sleep(ms(600));
        // A writer of ours waits for a moment without readers, like Redisson's.
        let waits = scope.spawn(|| lock.write().lock().map(|()| lock.write().unlock()));
        thread::sleep(ms(300));
        for bound in [ms(5000), ms(1200)] {
            let (took, ()) = timed(|| elsewhere(|| lock.read().run(|_| ()).unwrap()));
            report(&format!(
                "a reader of ours beside readers of theirs: {took:?}"
            ));
            assert!(took < bound + SLACK, "{took:?}");
        }
        is_over.store(true, Ordering::SeqCst);
        waits.join().unwrap().unwrap().unwrap();
    });
    assert_eq!(free(&sides, &lock), ALL);
}
