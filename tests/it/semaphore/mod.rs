//! The laws of both semaphores, on every store that has them.
//!
//! They cover Redisson's tests of `RSemaphore` and `RPermitExpirableSemaphore`; the list is at the end of this file.

mod counts;
mod faults;
mod ids;
mod permitting;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Interrupt, LossCause, NoLoss, Permits};

use crate::backends::{Backend, LEASE, Source};
use crate::invariants::SLACK;
use crate::support::{elsewhere, eventually, ms, timed};

pub(crate) use permitting::Permitting;

/// A message wakes a waiter faster than this; without one it polls after a second.
const WAKE_UP: Duration = ms(700);

fn client(backend: &Backend) -> Client {
    match backend.client() {
        Source::Client(client, _) => client,
        _ => panic!("this store has no semaphores"),
    }
}

/// The semaphore in two processes, with this many permits.
fn semaphores<S: Permitting>(backend: &Backend, permits: u32) -> [S; 2] {
    let both = [(); 2].map(|()| S::of(&client(backend), "mail"));
    assert!(both[0].try_set(permits).unwrap());
    both
}

#[track_caller]
fn none<T>(taken: Option<T>) {
    assert!(taken.is_none(), "there are too few");
}

fn permits_are_acquired_and_released<S: Permitting>(backend: &Backend) {
    let [one, two] = semaphores::<S>(backend, 3);
    assert!(!two.try_set(9).unwrap(), "it is set");
    let taken = one.acquire(2).unwrap();
    assert_eq!((taken.count(), one.available().unwrap()), (2, 1));
    assert!(taken.is_valid());
    none(two.try_acquire(2).unwrap());
    let rest = two.try_acquire(1).unwrap().unwrap();
    none(one.try_acquire_for(1, ms(50)).unwrap());
    let losses = taken.lost();
    taken.release().unwrap();
    assert_eq!(losses.try_recv(), Err(NoLoss::Ended));
    drop(rest);
    assert_eq!(two.available().unwrap(), 3);
}

fn holders_never_exceed_the_capacity<S: Permitting>(backend: &Backend) {
    let both = semaphores::<S>(backend, 3);
    let inside = AtomicI64::new(0);
    thread::scope(|scope| {
        for (number, semaphore) in both.iter().cycle().take(8).enumerate() {
            let inside = &inside;
            scope.spawn(move || {
                for round in 0..12 {
                    let wanted = 1 + (number + round) % 3;
                    let wanted = i64::try_from(wanted).unwrap();
                    let taken = semaphore.acquire(u32::try_from(wanted).unwrap()).unwrap();
                    let now = inside.fetch_add(wanted, Ordering::SeqCst) + wanted;
                    assert!(now <= 3, "{now} at once");
                    thread::yield_now();
                    inside.fetch_sub(wanted, Ordering::SeqCst);
                    taken.release().unwrap();
                }
            });
        }
    });
    assert_eq!(both[0].available().unwrap(), 3);
}

fn permits_of_a_dead_holder_return<S: Permitting>(backend: &Backend) {
    let [one, two] = semaphores::<S>(backend, 2);
    // These permits are not renewed.
    let short = one.with_lease_time(LEASE);
    let taken = short.acquire(2).unwrap();
    let (took, got) = timed(|| two.acquire(2).unwrap());
    assert!(
        took > LEASE / 2 && took < LEASE + ms(1100) + SLACK,
        "{took:?}"
    );
    assert!(!taken.is_valid());
    assert_eq!(
        taken.lost().recv_timeout(SLACK).unwrap().cause,
        LossCause::LeaseEnded
    );
    // A late release adds no permit.
    assert!(taken.release().unwrap_err().is_lost());
    assert_eq!(two.available().unwrap(), 0);
    got.release().unwrap();
    assert_eq!(two.available().unwrap(), 2);
}

fn permits_are_renewed_until_dropped<S: Permitting>(backend: &Backend) {
    let [one, two] = semaphores::<S>(backend, 1);
    let taken = elsewhere(|| one.acquire(1).unwrap());
    thread::sleep(LEASE * 2);
    assert!(taken.is_valid(), "though its thread has ended");
    none(two.try_acquire(1).unwrap());
    drop(taken);
    assert!(two.try_acquire(1).unwrap().is_some());
}

fn handles_cross_threads<S: Permitting>(backend: &Backend) {
    let [one, two] = semaphores::<S>(backend, 1);
    let taken = one.acquire(1).unwrap();
    elsewhere(move || {
        assert!(taken.is_valid());
        taken.release().unwrap();
    });
    assert_eq!(two.available().unwrap(), 1);
}

/// Lets `threads` of both sides wait for `each` permits; returns when they had them after `free` was called.
fn woken<S: Permitting>(
    both: &[S; 2],
    threads: usize,
    each: u32,
    free: impl FnOnce(),
) -> Vec<Duration> {
    let (sender, through) = mpsc::channel();
    thread::scope(|scope| {
        for semaphore in both.iter().cycle().take(threads) {
            let sender = sender.clone();
            scope.spawn(move || {
                let taken = semaphore.acquire(each).unwrap();
                sender.send((Instant::now(), taken)).unwrap();
            });
        }
        drop(sender);
        assert!(through.recv_timeout(ms(400)).is_err(), "there are none");
        let freed = Instant::now();
        free();
        let through: Vec<(Instant, Permits)> = through.iter().collect();
        let took = through.iter().map(|(at, _)| at.duration_since(freed));
        took.collect()
    })
}

fn n_released_wake_n<S: Permitting>(backend: &Backend) {
    let both = semaphores::<S>(backend, 6);
    let all = both[0].acquire(6).unwrap();
    let took = woken(&both, 6, 1, || all.release().unwrap());
    assert_eq!(took.len(), 6);
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    let some = both[1].acquire(4).unwrap();
    let rest = both[0].acquire(2).unwrap();
    // Three are enough for one waiter, and the other waits for the rest.
    let took = woken(&both, 2, 3, || {
        some.release().unwrap();
        thread::sleep(ms(50));
        rest.release().unwrap();
    });
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
}

fn a_large_request_is_not_overtaken_within_its_client<S: Permitting>(backend: &Backend) {
    let [one, _] = semaphores::<S>(backend, 3);
    let first = one.acquire(1).unwrap();
    let (sender, order) = mpsc::channel();
    thread::scope(|scope| {
        let big = sender.clone();
        let semaphore = &one;
        scope.spawn(move || {
            let taken = semaphore.acquire(3).unwrap();
            big.send(3).unwrap();
            taken.release().unwrap();
        });
        thread::sleep(ms(300));
        for _ in 0..4 {
            let small = sender.clone();
            scope.spawn(move || {
                let taken = semaphore.acquire(1).unwrap();
                small.send(1).unwrap();
                taken.release().unwrap();
            });
        }
        assert!(order.recv_timeout(ms(300)).is_err(), "two are free");
        first.release().unwrap();
        let order: Vec<i32> = order.iter().take(5).collect();
        assert_eq!(order, [3, 1, 1, 1, 1]);
    });
}

fn try_acquire_bypasses_the_waiters<S: Permitting>(backend: &Backend) {
    let [one, _] = semaphores::<S>(backend, 2);
    let first = one.acquire(1).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| one.acquire(2).unwrap().release());
        thread::sleep(ms(200));
        one.try_acquire(1).unwrap().unwrap().release().unwrap();
        first.release().unwrap();
        waits.join().unwrap().unwrap();
    });
}

fn reduced_below_used_goes_negative_and_recovers<S: Permitting>(backend: &Backend) {
    let [one, two] = semaphores::<S>(backend, 3);
    let taken = one.acquire(3).unwrap();
    two.add_permits(-2).unwrap();
    assert_eq!(one.available().unwrap(), -2);
    taken.release().unwrap();
    assert_eq!(one.available().unwrap(), 1);
    none(one.try_acquire(2).unwrap());
    one.try_acquire(1).unwrap().unwrap().release().unwrap();
    two.add_permits(4).unwrap();
    assert_eq!(one.available().unwrap(), 5);
}

fn added_permits_wake_waiters<S: Permitting>(backend: &Backend) {
    let both = semaphores::<S>(backend, 0);
    let took = woken(&both, 3, 1, || both[1].add_permits(3).unwrap());
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    eventually(SLACK, "they are given back", || {
        both[0].available().unwrap() == 3
    });
}

fn an_unset_semaphore_is_waited_for<S: Permitting>(backend: &Backend) {
    let both = [(); 2].map(|()| S::of(&client(backend), "mail"));
    let [one, two] = &both;
    assert_eq!(one.available().unwrap(), 0);
    none(one.try_acquire(1).unwrap());
    assert!(!two.delete().unwrap());
    let took = woken(&both, 2, 1, || assert!(two.try_set(2).unwrap()));
    assert!(took.iter().all(|took| *took < WAKE_UP), "{took:?}");
    two.add_permits(1).unwrap();
    eventually(SLACK, "they are given back", || {
        one.available().unwrap() == 3
    });
}

fn deleted_is_lost<S: Permitting>(backend: &Backend) {
    let [one, two] = semaphores::<S>(backend, 2);
    let ours = one.acquire(1).unwrap();
    let theirs = two.acquire(1).unwrap();
    assert!(two.delete().unwrap());
    for taken in [ours, theirs] {
        let loss = taken.lost().recv_timeout(LEASE + SLACK).unwrap();
        assert_eq!(loss.cause, LossCause::Gone);
        assert!(!taken.is_valid());
        assert!(taken.release().unwrap_err().is_lost());
    }
    assert_eq!(one.available().unwrap(), 0);
}

fn a_semaphore_set_again_has_no_debt<S: Permitting>(backend: &Backend) {
    let [one, two] = semaphores::<S>(backend, 2);
    let short = one.with_lease_time(Duration::from_secs(60));
    let taken = short.acquire(2).unwrap();
    assert!(two.delete().unwrap());
    assert!(two.try_set(1).unwrap());
    let error = taken.release().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(two.available().unwrap(), 1);
    two.acquire(1).unwrap().release().unwrap();
}

fn a_semaphore_with_a_ttl_ends<S: Permitting>(backend: &Backend) {
    let one = S::of(&client(backend), "mail");
    assert!(one.try_set_for(2, ms(600)).unwrap());
    let short = one.with_lease_time(Duration::from_secs(60));
    let taken = short.acquire(1).unwrap();
    assert_eq!(one.available().unwrap(), 1);
    one.add_permits(3).unwrap();
    thread::sleep(ms(700));
    assert_eq!(one.available().unwrap(), 0);
    assert!(one.try_set(1).unwrap());
    assert!(taken.release().unwrap_err().is_lost());
    assert_eq!(one.available().unwrap(), 1);
}

fn permits_of_dead_holders_are_available<S: Permitting>(backend: &Backend) {
    let [one, two] = semaphores::<S>(backend, 150);
    let short = one.with_lease_time(ms(200));
    let all: Vec<Permits> = (0..150).map(|_| short.acquire(1).unwrap()).collect();
    assert!(two.available().unwrap() <= 150);
    thread::sleep(ms(300));
    assert!(all.iter().all(|taken| !taken.is_valid()));
    // A query is enough; no acquisition is needed.
    assert_eq!(two.available().unwrap(), 150);
    let most = two.try_acquire(149).unwrap().unwrap();
    assert_eq!(two.available().unwrap(), 1);
    most.release().unwrap();
    let taken = short.acquire(2).unwrap();
    thread::sleep(ms(300));
    assert!(!taken.is_valid());
    assert!(taken.release().unwrap_err().is_lost());
    assert_eq!(two.available().unwrap(), 150);
}

fn permits_above_the_maximum_are_refused<S: Permitting>(backend: &Backend) {
    let [one, two] = semaphores::<S>(backend, 2_147_483_647);
    let taken = one.acquire(10).unwrap();
    // It counts the free permits.
    two.add_permits(10).unwrap();
    taken.release().unwrap();
    assert_eq!(one.available().unwrap(), 2_147_483_657);
    let error = two.add_permits(1).unwrap_err();
    assert!(matches!(error, Error::InvalidPermits { .. }), "{error}");
    two.add_permits(-1).unwrap();
    assert_eq!(one.available().unwrap(), 2_147_483_656);
}

fn permits_end_with_their_semaphore<S: Permitting>(backend: &Backend) {
    let [one, two] = [(); 2].map(|()| S::of(&client(backend), "mail"));
    let fixed = one.with_lease_time(Duration::from_secs(60));
    for (semaphore, is_renewed) in [(&one, true), (&fixed, false)] {
        assert!(semaphore.try_set_for(1, ms(600)).unwrap());
        let taken = semaphore.acquire(1).unwrap();
        // The next one can be set as soon as this one has ended.
        eventually(SLACK, "the semaphore ends", || two.try_set(1).unwrap());
        assert!(!taken.is_valid(), "two permits of one");
        let loss = taken.lost().recv_timeout(SLACK).unwrap();
        // A late renewal on a busy machine hides the cause.
        assert!(is_renewed || loss.cause == LossCause::Gone, "{loss:?}");
        let next = two.try_acquire(1).unwrap().unwrap();
        thread::sleep(ms(700));
        assert!(next.is_valid());
        assert!(two.delete().unwrap());
    }
    // A semaphore with a TTL beyond the lease loses no permit before its end.
    assert!(one.try_set_for(1, LEASE * 2).unwrap());
    let taken = one.acquire(1).unwrap();
    thread::sleep(LEASE + ms(300));
    assert!(taken.is_valid());
    eventually(LEASE + SLACK, "the semaphore ends", || {
        two.try_set(1).unwrap()
    });
    assert!(!taken.is_valid(), "its renewals know the end");
}

fn an_interrupt_and_a_shutdown_end_the_wait<S: Permitting>(backend: &Backend) {
    let [one, _] = semaphores::<S>(backend, 0);
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let waits = scope.spawn(|| one.acquire_interruptibly(1, &interrupt).map(drop));
        thread::sleep(ms(100));
        interrupt.raise();
        let ended = waits.join().unwrap();
        assert!(matches!(ended, Err(Error::Interrupted { .. })), "{ended:?}");
    });
    let client = client(backend);
    let semaphore = S::of(&client, "mail");
    thread::scope(|scope| {
        let waits = scope.spawn(|| semaphore.acquire(1).map(drop));
        thread::sleep(ms(100));
        client.shutdown();
        let ended = waits.join().unwrap();
        assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
    });
}

fn bad_input_is_refused_and_changes_nothing<S: Permitting>(backend: &Backend) {
    let [one, _] = semaphores::<S>(backend, 2_147_483_640);
    let invalid = |error: Error, number: i64| match &error {
        Error::InvalidPermits { name, permits, .. } => {
            assert_eq!((&**name, *permits), (one.name(), number));
            assert!(!error.is_retryable() && !error.is_ambiguous(), "{error}");
        }
        error => panic!("{number}: {error}"),
    };
    for permits in [0, 2_147_483_648] {
        invalid(one.acquire(permits).unwrap_err(), permits.into());
        invalid(one.try_acquire(permits).unwrap_err(), permits.into());
        invalid(one.add_permits(permits.into()).unwrap_err(), permits.into());
    }
    invalid(one.try_set(u32::MAX).unwrap_err(), u32::MAX.into());
    // A sum too large for Redisson.
    invalid(one.add_permits(8).unwrap_err(), 8);
    for far in [i64::MIN, i64::MAX] {
        invalid(one.add_permits(far).unwrap_err(), far);
    }
    assert_eq!(one.available().unwrap(), 2_147_483_640);
    one.add_permits(7).unwrap();
    let lease = one.with_lease_time(ms(1)).try_acquire(1).unwrap_err();
    assert!(matches!(lease, Error::InvalidLease { .. }), "{lease}");
    for life in [Duration::ZERO, Duration::MAX] {
        let error = one.try_set_for(1, life).unwrap_err();
        assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
    }
    let client = client(backend);
    for name in ["", "x{y", "a\nb"] {
        let semaphore = S::of(&client, name);
        for error in [
            semaphore.try_set(1).unwrap_err(),
            semaphore.acquire(1).unwrap_err(),
            semaphore.available().unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        }
    }
    let tagged = S::of(&client, "{shop}:mail");
    assert!(tagged.try_set(1).unwrap());
    tagged.acquire(1).unwrap().release().unwrap();
}

/// Runs laws of one kind in memory and on a server; laws of both kinds are listed with the kind.
macro_rules! semaphore_laws {
    ($kind:ty: $($law:ident)*) => {
        semaphore_laws! { @memory $($law::<$kind>)* }
        semaphore_laws! { @redis $($law::<$kind>)* }
    };
    ($($law:ident)*) => {
        semaphore_laws! { @memory $($law)* }
        semaphore_laws! { @redis $($law)* }
    };
    (@$backend:ident $($law:ident $(::<$kind:ty>)?)*) => {
        mod $backend {
            $(#[test] fn $law() { super::$law$(::<$kind>)?(&crate::backends::Backend::$backend()); })*
        }
    };
}
use semaphore_laws;

macro_rules! laws_of_both {
    ($($law:ident)*) => {
        mod of_counts {
            use super::*;
            semaphore_laws! { redlatch::Semaphore: $($law)* }
        }
        mod of_ids {
            use super::*;
            semaphore_laws! { redlatch::PermitSemaphore: $($law)* }
        }
    };
}

laws_of_both! {
    permits_are_acquired_and_released
    holders_never_exceed_the_capacity
    permits_of_a_dead_holder_return
    permits_are_renewed_until_dropped
    handles_cross_threads
    n_released_wake_n
    a_large_request_is_not_overtaken_within_its_client
    try_acquire_bypasses_the_waiters
    reduced_below_used_goes_negative_and_recovers
    added_permits_wake_waiters
    an_unset_semaphore_is_waited_for
    deleted_is_lost
    a_semaphore_set_again_has_no_debt
    a_semaphore_with_a_ttl_ends
    permits_of_dead_holders_are_available
    permits_above_the_maximum_are_refused
    permits_end_with_their_semaphore
    an_interrupt_and_a_shutdown_end_the_wait
    bad_input_is_refused_and_changes_nothing
}

#[cfg(feature = "test-util")]
fn a_lost_answer<S: Permitting>() {
    use redlatch::testing::Controls;

    let client = Client::in_memory();
    let semaphore = S::of(&client, "mail");
    semaphore.try_set(3).unwrap();
    let controls = Controls::of(&client);
    controls.lose_answers(1);
    let error = semaphore.try_acquire(2).unwrap_err();
    assert!(error.is_ambiguous(), "{error}");
    eventually(SLACK, "it is given back", || {
        semaphore.available().unwrap() == 3
    });
    let taken = semaphore.acquire(2).unwrap();
    controls.lose_answers(1);
    assert!(taken.release().unwrap_err().is_ambiguous());
    eventually(SLACK, "once", || semaphore.available().unwrap() == 3);
    controls.lose_answers(1);
    assert!(semaphore.add_permits(2).unwrap_err().is_ambiguous());
    assert_eq!(semaphore.available().unwrap(), 5);
    // The clock of the world ends fixed leases.
    let hour = Duration::from_secs(3600);
    let taken = semaphore.with_lease_time(hour).acquire(5).unwrap();
    controls.advance(hour);
    assert_eq!(
        taken.lost().try_recv().unwrap().cause,
        LossCause::LeaseEnded
    );
    assert!(semaphore.try_acquire(5).unwrap().is_some());
}

#[cfg(feature = "test-util")]
#[test]
fn permits_of_a_lost_reply_are_released() {
    a_lost_answer::<redlatch::Semaphore>();
    a_lost_answer::<redlatch::PermitSemaphore>();
}

// Redisson's tests of RSemaphore, and where their meaning stands here:
//
// testAcquireAfterAddPermits, testAddPermits       added_permits_wake_waiters
// testZero                                         bad_input_is_refused_and_changes_nothing: none is no wish here
// testAcquireWithoutSetPermits                     an_unset_semaphore_is_waited_for
// testTrySetPermits                                permits_are_acquired_and_released, a_semaphore_with_a_ttl_ends
// testReducePermits                                reduced_below_used_goes_negative_and_recovers
// testBlockingAcquire, testBlockingNAcquire        n_released_wake_n
// testTryNAcquire                                  permits_are_acquired_and_released
// testReleaseWithoutPermits                        added_permits_wake_waiters
// testDrainPermits                                 drained_permits_have_no_owner
// testReleaseAcquire, testReleaseIfExists          an_unset_semaphore_is_waited_for
// testConcurrency…                                 holders_never_exceed_the_capacity
//
// Redisson's tests of RPermitExpirableSemaphore, and where their meaning stands here:
//
// testUpdateLeaseTime, testGetLeaseTime        an_id_ends_with_its_lease
// testNotExistent, testReleaseWithoutPermits   any_client_can_release_an_id
// testAvailablePermits, testGetPermits, testAcquiredPermits
//                                              any_client_can_release_an_id, the_number_of_permits_can_be_set_again
// testExpire, testExpireTryAcquire, testReleaseExpired
//                                              an_id_ends_with_its_lease, permits_of_a_dead_holder_return
// testTrySetPermits, testSetPermits            permits_are_acquired_and_released, the_number_of_permits_can_be_set_again
// testReducePermits                            reduced_below_used_goes_negative_and_recovers
// testBlockingAcquire, testBlockingNAcquire    n_released_wake_n
// testTryNAcquire, testTryAcquire              permits_are_acquired_and_released
// testReleaseAcquire, testAcquireWithoutSetPermits
//                                              an_unset_semaphore_is_waited_for
// testConcurrency…                             holders_never_exceed_the_capacity
