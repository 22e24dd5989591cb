//! The laws of the two sides of a read-write lock, on every store that has it. The laws of every lock run on the write
//! side, too.
//!
//! They cover Redisson's tests of `RReadWriteLock`; the list is at the end of this file.

mod lifetimes;
mod notes;
mod turns;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Lock, LossCause, ReadWriteLock};

use crate::backends::{Backend, LEASE, Source};
use crate::invariants::SLACK;
use crate::support::{elsewhere, ms, timed};

/// A message wakes a waiter faster than this; without one it polls after a second.
const WAKE_UP: Duration = ms(700);

fn client(backend: &Backend) -> Client {
    match backend.client() {
        Source::Client(client, _) => client,
        Source::Redlock(_) => panic!("this store has no read-write locks"),
    }
}

/// The lock in two processes.
fn locks(backend: &Backend) -> [ReadWriteLock; 2] {
    [(); 2].map(|()| client(backend).read_write_lock("prices"))
}

/// Whether another thread could acquire the lock at once; it unlocks it.
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

fn readers_share_and_a_writer_is_alone(backend: &Backend) {
    let [one, two] = locks(backend);
    let reading = one.read().guard().unwrap();
    for lock in [&one, &two] {
        assert!(is_free(&lock.read()), "readers share");
        assert!(!is_free(&lock.write()), "a reader keeps writers out");
    }
    assert!(one.read().is_locked().unwrap() && !one.write().is_locked().unwrap());
    reading.unlock().unwrap();
    let writing = two.write().guard().unwrap();
    for lock in [&one, &two] {
        assert!(!is_free(&lock.read()) && !is_free(&lock.write()), "alone");
    }
    assert!(!one.read().is_locked().unwrap() && one.write().is_locked().unwrap());
    writing.unlock().unwrap();
    assert!(is_free(&one.write()) && is_free(&two.read()));
    assert!(!one.read().is_locked().unwrap() && !one.write().is_locked().unwrap());
}

fn writers_never_overlap_with_any_holder(backend: &Backend) {
    let both = locks(backend);
    let (readers, writers) = (AtomicI64::new(0), AtomicI64::new(0));
    let most = AtomicI64::new(0);
    thread::scope(|scope| {
        for (number, lock) in both.iter().cycle().take(8).enumerate() {
            let (readers, writers, most) = (&readers, &writers, &most);
            scope.spawn(move || {
                for round in 0..25 {
                    if (number + round) % 4 == 0 {
                        let _writing = lock.write().guard().unwrap();
                        assert_eq!(writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
                        assert_eq!(readers.load(Ordering::SeqCst), 0, "beside a reader");
                        thread::yield_now();
                        writers.fetch_sub(1, Ordering::SeqCst);
                    } else {
                        let _reading = lock.read().guard().unwrap();
                        let now = readers.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        assert_eq!(writers.load(Ordering::SeqCst), 0, "beside a writer");
                        thread::sleep(ms(1));
                        readers.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(most.into_inner() > 1, "readers share");
    assert!(is_free(&both[0].write()));
}

fn each_side_is_entered_again(backend: &Backend) {
    let [one, two] = locks(backend);
    for lock in [one.read(), one.write()] {
        for count in 1..4 {
            lock.lock().unwrap();
            assert_eq!(lock.hold_count().unwrap(), count);
        }
        assert!(lock.is_held_by_current_thread().unwrap());
        assert!(!elsewhere(|| lock.is_held_by_current_thread().unwrap()));
        for _ in 0..3 {
            assert!(!is_free(&two.write()));
            lock.unlock().unwrap();
        }
        let error = lock.unlock().unwrap_err();
        assert!(matches!(error, Error::NotHeld { .. }), "{error}");
        assert!(is_free(&two.write()));
    }
}

fn a_writer_may_read(backend: &Backend) {
    let [one, two] = locks(backend);
    let (read, write) = (one.read(), one.write());
    write.lock().unwrap();
    assert_eq!(read.hold_count().unwrap(), 0);
    read.lock().unwrap();
    assert!(read.try_lock().unwrap(), "and again");
    write.lock().unwrap();
    assert_eq!(read.hold_count().unwrap(), 2);
    assert_eq!(write.hold_count().unwrap(), 2);
    assert!(read.is_locked().unwrap() && write.is_locked().unwrap());
    assert!(!is_free(&two.read()), "others do not");
    assert!(!is_free(&one.read()), "though they have the same client");
    for lock in [&read, &read, &write] {
        lock.unlock().unwrap();
        assert!(write.is_valid() && !is_free(&two.read()) && !is_free(&two.write()));
    }
    assert!(!read.is_locked().unwrap());
    write.unlock().unwrap();
    assert!(is_free(&two.write()));
}

/// When this many threads of both processes have read after `free` was called.
fn readers_woken(both: &[ReadWriteLock; 2], count: usize, free: impl FnOnce()) -> Vec<Duration> {
    let (sender, through) = mpsc::channel();
    thread::scope(|scope| {
        for lock in both.iter().cycle().take(count) {
            let sender = sender.clone();
            scope.spawn(move || {
                let reading = lock.read().guard().unwrap();
                sender.send(Instant::now()).unwrap();
                thread::sleep(ms(100));
                reading.unlock().unwrap();
            });
        }
        drop(sender);
        assert!(through.recv_timeout(ms(400)).is_err(), "it is written");
        let freed = Instant::now();
        free();
        let through = through.iter();
        through.map(|at| at.duration_since(freed)).collect()
    })
}

fn a_downgrade_wakes_readers(backend: &Backend) {
    let both = locks(backend);
    let (read, write) = (both[0].read(), both[0].write());
    write.lock().unwrap();
    read.lock().unwrap();
    let took = readers_woken(&both, 6, || write.unlock().unwrap());
    assert_eq!(took.len(), 6);
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    assert!(read.is_valid() && !write.is_valid());
    assert!(!is_free(&both[1].write()));
    read.unlock().unwrap();
    assert!(is_free(&both[1].write()));
}

fn twenty_readers_enter_at_once(backend: &Backend) {
    let both = locks(backend);
    let write = both[1].write();
    write.lock().unwrap();
    let took = readers_woken(&both, 20, || write.unlock().unwrap());
    assert_eq!(took.len(), 20);
    // Each reads for a tenth of a second, so one after another would take two seconds.
    assert!(took.iter().all(|took| *took < ms(1200)), "{took:?}");
}

fn the_last_reader_wakes_a_writer_at_once(backend: &Backend) {
    let both = locks(backend);
    for waiter in &both {
        let (first, second) = (both[0].read(), both[1].read());
        first.lock().unwrap();
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                second.lock().unwrap();
                barrier.wait();
                barrier.wait();
                second.unlock().unwrap();
            });
            barrier.wait();
            let waits = scope.spawn(|| {
                let writing = waiter.write().guard().unwrap();
                (Instant::now(), writing.unlock().unwrap()).0
            });
            thread::sleep(ms(300));
            first.unlock().unwrap();
            thread::sleep(ms(300));
            assert!(!waits.is_finished(), "one still reads");
            let freed = Instant::now();
            barrier.wait();
            let took = waits.join().unwrap().duration_since(freed);
            assert!(took < WAKE_UP, "{took:?}");
        });
    }
}

fn an_upgrade_is_an_error(backend: &Backend) {
    let [one, two] = locks(backend);
    let (read, write) = (one.read(), one.write());
    let refused = |taken: Result<bool, Error>| {
        let error = taken.unwrap_err();
        assert!(matches!(error, Error::Upgrade { .. }), "{error}");
        assert!(!error.is_retryable() && !error.is_ambiguous());
        assert_eq!(error.lock_name(), Some(one.name()));
    };
    read.lock().unwrap();
    let (took, ()) = timed(|| {
        refused(write.try_lock());
        refused(write.try_lock_for(LEASE * 4));
        refused(write.lock().map(|()| true));
        refused(write.guard().map(|_| true));
        refused(write.with_lease_time(LEASE).lock().map(|()| true));
    });
    assert!(took < LEASE * 4, "{took:?}");
    // Waiting writers do not block it.
    thread::scope(|scope| {
        let waits = scope.spawn(|| write.guard().unwrap().unlock());
        thread::sleep(ms(200));
        refused(write.try_lock_for(LEASE * 20));
        read.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
    read.lock().unwrap();
    assert!(read.is_valid() && !write.is_locked().unwrap());
    assert!(is_free(&two.read()), "nothing was changed");
    read.unlock().unwrap();
    // A writer that reads inside may write again; a thread that only reads may not.
    write.lock().unwrap();
    read.lock().unwrap();
    write.lock().unwrap();
    for lock in [&write, &write] {
        lock.unlock().unwrap();
    }
    refused(write.try_lock());
    read.unlock().unwrap();
    assert!(is_free(&one.write()));
}

fn a_reader_that_was_lost_may_write(backend: &Backend) {
    let [one, _] = locks(backend);
    let read = one.read().with_lease_time(ms(300));
    read.lock().unwrap();
    thread::sleep(ms(500));
    let (took, ()) = timed(|| one.write().lock().unwrap());
    assert!(took < WAKE_UP, "{took:?}");
    assert!(read.unlock().unwrap_err().is_lost());
    one.write().unlock().unwrap();
}

fn each_side_is_freed_by_force_alone(backend: &Backend) {
    let [one, two] = locks(backend);
    let reading = one.read().guard().unwrap();
    assert!(!two.write().force_unlock().unwrap(), "nobody writes");
    assert!(reading.is_valid() && !is_free(&two.write()));
    assert!(two.read().force_unlock().unwrap());
    assert!(is_free(&two.write()));
    assert!(reading.unlock().unwrap_err().is_lost());
    let writing = one.write().guard().unwrap();
    assert!(!two.read().force_unlock().unwrap(), "nobody reads");
    assert!(!is_free(&two.write()));
    let took = readers_woken(&[one, two.clone()], 4, || {
        assert!(two.write().force_unlock().unwrap());
    });
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    assert!(writing.unlock().unwrap_err().is_lost());
}

fn the_end_of_a_reader_is_reported(backend: &Backend) {
    let [one, two] = locks(backend);
    let reading = one.read().guard().unwrap();
    let losses = reading.lost();
    assert!(two.read().force_unlock().unwrap());
    let loss = losses.recv_timeout(LEASE + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
    assert!(!reading.is_valid());
    assert!(reading.unlock().unwrap_err().is_lost());
}

fn a_write_under_a_lost_side_names_the_holder(backend: &Backend) {
    let [one, two] = locks(backend);
    let sides = |lock: &ReadWriteLock| [lock.read(), lock.write()];
    for side in 0..2 {
        for (holder, ours) in sides(&two).into_iter().zip(["", ":write"]) {
            let lost = sides(&one)[side].guard().unwrap();
            assert!(sides(&two)[side].force_unlock().unwrap());
            let holder = holder.guard().unwrap();
            let error = lost.write(|_| ()).unwrap_err();
            let Error::Lost { cause, .. } = error else {
                panic!("{error}");
            };
            let visitor = holder.visitor().to_string();
            let field = format!("{}{ours}", visitor.trim_end_matches(":write"));
            assert_eq!(cause, LossCause::HeldBy(field));
        }
    }
}

fn another_kind_under_the_name_is_left_alone(backend: &Backend) {
    let client = client(backend);
    let (plain, sides) = (client.lock("prices"), client.read_write_lock("prices"));
    plain.lock().unwrap();
    for side in [sides.read(), sides.write()] {
        for error in [
            side.try_lock().unwrap_err(),
            side.lock().unwrap_err(),
            side.is_locked().unwrap_err(),
            side.force_unlock().unwrap_err(),
        ] {
            assert!(matches!(error, Error::WrongType { .. }), "{error}");
        }
    }
    assert!(plain.is_valid() && plain.is_held_by_current_thread().unwrap());
    plain.unlock().unwrap();
    for side in [sides.read(), sides.write()] {
        side.lock().unwrap();
        let error = elsewhere(|| plain.try_lock()).unwrap_err();
        assert!(matches!(error, Error::WrongType { .. }), "{error}");
        assert!(side.is_held_by_current_thread().unwrap());
        side.unlock().unwrap();
    }
    for name in ["", "x{y", "a\nb"] {
        let sides = client.read_write_lock(name);
        for error in [
            sides.read().try_lock().unwrap_err(),
            sides.write().lock().unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        }
    }
    let tagged = client.read_write_lock("{shop}:prices");
    tagged
        .write()
        .run(|_| assert!(!is_free(&tagged.read())))
        .unwrap();
    tagged
        .read()
        .run(|_| assert!(is_free(&tagged.read())))
        .unwrap();
}

laws! {
    kind {
        readers_share_and_a_writer_is_alone
        writers_never_overlap_with_any_holder
        each_side_is_entered_again
        a_writer_may_read
        a_downgrade_wakes_readers
        twenty_readers_enter_at_once
        the_last_reader_wakes_a_writer_at_once
        an_upgrade_is_an_error
        a_reader_that_was_lost_may_write
        each_side_is_freed_by_force_alone
        the_end_of_a_reader_is_reported
        a_write_under_a_lost_side_names_the_holder
        another_kind_under_the_name_is_left_alone
    }
}

// Redisson's tests of RReadWriteLock, and where their meaning stands here:
//
// testReadLockExpiration, testExpireRead           lifetimes: each_read_hold_ends_on_its_own
// testReadLockIsLocked                             a_writer_may_read
// testReadLockExpirationRenewal, testReadWriteTTL  lifetimes: both_sides_are_renewed
// testName                                         another_kind_under_the_name_is_left_alone
// testWriteLockExpiration                          a lease is not added to another here
// testInCluster                                    tests/interop, tests/topologies
// testReadLockLeaseTimeout…                        lifetimes: each_read_hold_ends_on_its_own
// testWR, testWriteReadReentrancy                  a_writer_may_read, a_downgrade_wakes_readers
// testWriteRead                                    twenty_readers_enter_at_once
// testWriteLock, testMultiRead                     readers_share_and_a_writer_is_alone
// testForceUnlock                                  each_side_is_freed_by_force_alone
// testExpireWrite, testAutoExpire, testUnlockFail  the laws of every lock, on the write side
// testHoldCount, testIsHeld…, testReentrancy       each_side_is_entered_again
// testConcurrency_…                                writers_never_overlap_with_any_holder
// testMultiInstanceReadLockZombieCleanup           lifetimes: a_dead_reader_ends_with_its_lease
