//! The laws of the order at a fair lock, on every store that has fair locks. The laws of every lock run on them, too.
//!
//! They cover Redisson's tests of `RFairLock`; the list is at the end of this file.

mod ends;
mod processes;
mod queue;

pub(crate) use processes::{ROLE, wait};

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Lock};

use crate::backends::{Backend, LEASE, Source};
use crate::invariants::SLACK;
use crate::laws::until_queued;
use crate::support::{elsewhere, eventually, ms, timed};

/// A message wakes a waiter faster than this; without one it polls after a second.
const WAKE_UP: Duration = ms(700);

fn client(backend: &Backend) -> Client {
    match backend.client() {
        Source::Client(client, _) => client,
        Source::Redlock(_) => panic!("this store has no fair locks"),
    }
}

/// The lock in two processes.
fn locks(backend: &Backend) -> [Lock; 2] {
    [(); 2].map(|()| client(backend).fair_lock("tickets"))
}

/// Whether another thread gets the lock at once; it unlocks it.
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

fn grants_in_order_of_arrival_over_clients(backend: &Backend) {
    let both = locks(backend);
    both[0].lock().unwrap();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..12 {
            // Two of one process, two of the other, and so on.
            let (lock, order) = (&both[number / 2 % 2], &order);
            scope.spawn(move || {
                lock.run(|_| order.lock().unwrap().push(number)).unwrap();
            });
            until_queued(lock, number / 4 * 2 + number % 2 + 1);
        }
        both[0].unlock().unwrap();
    });
    let order = order.into_inner().unwrap();
    assert_eq!(order, (0..12).collect::<Vec<_>>());
}

fn returning_threads_queue_behind_the_waiters(backend: &Backend) {
    /// In these of 60 rounds each of the four acquires exactly once in four.
    const ROUNDS: std::ops::Range<usize> = 8..48;

    let both = locks(backend);
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..4 {
            let (lock, order) = (&both[number % 2], &order);
            scope.spawn(move || {
                for _ in 0..15 {
                    let had = |_: &redlatch::Guard| {
                        let mut order = order.lock().unwrap();
                        order.push(number);
                        // Towards the end some threads have finished their rounds.
                        if order.len() <= ROUNDS.end {
                            let others = || lock.waiters().unwrap() == 3;
                            eventually(SLACK, "the others wait", others);
                        }
                    };
                    lock.run(had).unwrap();
                }
            });
        }
    });
    let order = order.into_inner().unwrap();
    for four in order[ROUNDS].windows(4) {
        let mut four = four.to_vec();
        four.sort_unstable();
        assert_eq!(four, [0, 1, 2, 3], "{order:?}");
    }
}

fn try_lock_overtakes_no_waiter(backend: &Backend) {
    let both = locks(backend);
    both[0].lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let (took, ()) = timed(|| both[1].lock().unwrap());
            thread::sleep(ms(100));
            both[1].unlock().unwrap();
            took
        });
        until_queued(&both[1], 1);
        both[0].unlock().unwrap();
        // It polls, and still acquires after the waiter.
        let polls = || {
            let taken = both[0].try_lock().unwrap();
            taken.then(|| both[0].unlock().unwrap()).is_some()
        };
        let began = Instant::now();
        while !elsewhere(polls) {}
        assert!(began.elapsed() >= ms(90), "before the other");
        assert!(waits.join().unwrap() < WAKE_UP);
    });
}

fn a_re_entry_passes_the_queue(backend: &Backend) {
    let both = locks(backend);
    both[0].lock().unwrap();
    thread::scope(|scope| {
        let waits = both.each_ref().map(|lock| {
            let waits = scope.spawn(|| lock.run(|_| ()).unwrap());
            until_queued(lock, 1);
            waits
        });
        for count in 2..5 {
            let (took, ()) = timed(|| both[0].lock().unwrap());
            assert!(took < WAKE_UP, "{took:?}");
            assert_eq!(both[0].hold_count().unwrap(), count);
        }
        assert!(both[0].try_lock().unwrap());
        for _ in 0..5 {
            assert!(both[0].is_held_by_current_thread().unwrap());
            both[0].unlock().unwrap();
        }
        waits.into_iter().for_each(|wait| wait.join().unwrap());
    });
}

fn a_leaving_waiter_passes_its_turn_on(backend: &Backend) {
    let both = locks(backend);
    for leaves in 0..3 {
        both[0].lock().unwrap();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let mut waits = Vec::new();
            for number in 0..3 {
                let (lock, order) = (&both[number % 2], &order);
                waits.push(scope.spawn(move || {
                    let wait = if number == leaves {
                        ms(400)
                    } else {
                        ms(30_000)
                    };
                    if lock.try_lock_for(wait).unwrap() {
                        order.lock().unwrap().push(number);
                        lock.unlock().unwrap();
                    }
                }));
                until_queued(lock, number / 2 + 1);
            }
            waits.remove(leaves).join().unwrap();
            let (took, ()) = timed(|| {
                both[0].unlock().unwrap();
                waits.into_iter().for_each(|wait| wait.join().unwrap());
            });
            assert!(took < WAKE_UP * 2, "{took:?} without the {leaves}. one");
        });
        let rest: Vec<_> = (0..3).filter(|it| *it != leaves).collect();
        assert_eq!(order.into_inner().unwrap(), rest);
        eventually(SLACK, "it has left", || is_free(&both[0]));
    }
}

fn an_expired_holder_wakes_the_first(backend: &Backend) {
    let both = locks(backend);
    let short = both[0].with_lease_time(ms(600));
    let holding = short.guard().unwrap();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..4 {
            let (lock, order) = (&both[number % 2], &order);
            scope.spawn(move || {
                // As in Redisson's tests, no thread unlocks.
                let lock = lock.with_lease_time(ms(300));
                std::mem::forget(lock.guard().unwrap());
                order.lock().unwrap().push(number);
            });
            until_queued(lock, number / 2 + 1);
        }
    });
    assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3]);
    assert!(holding.unlock().unwrap_err().is_lost());
}

fn a_forced_unlock_wakes_the_first(backend: &Backend) {
    let both = locks(backend);
    both[0].lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| both[1].run(|_| ()).unwrap());
        until_queued(&both[1], 1);
        let (took, ()) = timed(|| {
            assert!(both[1].force_unlock().unwrap());
            waits.join().unwrap();
        });
        assert!(took < WAKE_UP, "{took:?}");
    });
    assert!(both[0].unlock().unwrap_err().is_lost());
}

fn a_plain_lock_of_the_name_is_excluded(backend: &Backend) {
    let client = client(backend);
    let (plain, fair) = (client.lock("tickets"), client.fair_lock("tickets"));
    plain.lock().unwrap();
    assert!(!is_free(&fair));
    plain.unlock().unwrap();
    fair.lock().unwrap();
    assert!(!is_free(&plain));
    fair.unlock().unwrap();
    let fenced = client.fenced_lock("tickets");
    fenced.run(|_| assert!(!is_free(&fair))).unwrap();
    // Neither kind wakes the waiters of the other kind, which poll.
    for [held, wanted] in [[&plain, &fair], [&fair, &plain]] {
        held.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| wanted.run(|_| ()).unwrap());
            until_queued(wanted, 1);
            held.unlock().unwrap();
            let (took, ()) = timed(|| waits.join().unwrap());
            assert!(took < ms(1100) + SLACK, "{took:?}");
        });
    }
}

fn another_kind_under_the_name_is_left_alone(backend: &Backend) {
    let client = client(backend);
    let fair = client.fair_lock("tickets");
    for other in [
        client.token_lock("tickets"),
        client.read_write_lock("tickets").write(),
    ] {
        other.lock().unwrap();
        for error in [
            fair.try_lock().unwrap_err(),
            fair.try_lock_for(ms(100)).unwrap_err(),
            fair.is_locked().unwrap_err(),
            fair.force_unlock().unwrap_err(),
        ] {
            assert!(matches!(error, Error::WrongType { .. }), "{error}");
        }
        assert!(other.is_held_by_current_thread().unwrap());
        other.unlock().unwrap();
    }
    for name in ["", "x{y", "a\nb"] {
        let error = client.fair_lock(name).try_lock().unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    }
    let tagged = client.fair_lock("{shop}:tickets");
    tagged.run(|_| assert!(!is_free(&tagged))).unwrap();
}

fn waiters_are_counted(backend: &Backend) {
    let both = locks(backend);
    let are = |count| {
        eventually(SLACK, "they are counted", || {
            both.iter().all(|it| it.waiters().unwrap() == count)
        });
    };
    are(0);
    both[0].lock().unwrap();
    assert_eq!(both[0].waiters().unwrap(), 0, "the holder waits no more");
    assert!(!is_free(&both[1]));
    assert_eq!(both[1].waiters().unwrap(), 0, "a try leaves nothing");
    thread::scope(|scope| {
        for (place, lock) in both.iter().enumerate() {
            scope.spawn(|| lock.run(|_| ()).unwrap());
            are(u32::try_from(place).unwrap() + 1);
        }
        let leaves = scope.spawn(|| both[1].try_lock_for(ms(1000)).unwrap());
        are(3);
        assert!(!leaves.join().unwrap());
        are(2);
        both[0].unlock().unwrap();
    });
    are(0);
}

laws! {
    kind {
        grants_in_order_of_arrival_over_clients
        returning_threads_queue_behind_the_waiters
        try_lock_overtakes_no_waiter
        a_re_entry_passes_the_queue
        a_leaving_waiter_passes_its_turn_on
        an_expired_holder_wakes_the_first
        a_forced_unlock_wakes_the_first
        a_plain_lock_of_the_name_is_excluded
        another_kind_under_the_name_is_left_alone
        waiters_are_counted
    }
}

#[test]
fn the_wait_timeout_has_a_range() {
    let open = |timeout| {
        Client::builder()
            .fair_lock_wait_timeout(timeout)
            .in_memory()
    };
    assert!(open(Duration::from_secs(10)).is_ok());
    for timeout in [ms(9_999), Duration::from_secs(24 * 60 * 60 + 1)] {
        let error = open(timeout).unwrap_err();
        assert!(
            error.to_string().contains("fair_lock_wait_timeout"),
            "{error}"
        );
    }
}

#[test]
fn a_client_that_shuts_down_leaves_the_queue_to_the_next() {
    for backend in [Backend::memory(), Backend::redis()] {
        let [one, two] = locks(&backend);
        one.lock().unwrap();
        let leaving = client(&backend);
        let third = leaving.fair_lock("tickets");
        thread::scope(|scope| {
            let first = scope.spawn(|| third.lock());
            until_queued(&third, 1);
            let waits = scope.spawn(|| two.run(|_| ()).unwrap());
            until_queued(&two, 1);
            leaving.shutdown();
            assert!(first.join().unwrap().is_err());
            eventually(SLACK, "its place is gone", || one.waiters().unwrap() == 1);
            let (took, ()) = timed(|| {
                one.unlock().unwrap();
                waits.join().unwrap();
            });
            assert!(took < WAKE_UP + SLACK, "{took:?}");
        });
        let (took, ()) = timed(|| one.run(|_| ()).unwrap());
        assert!(took < WAKE_UP + LEASE, "{took:?}");
    }
}

// Redisson's tests of RFairLock, and where their meaning stands here:
//
// testLeaseTimeout                                 an_expired_holder_wakes_the_first
// testMultipleLocks                                laws: many_threads_on_few_names_all_acquire
// test…TimeoutDrift(_Descrete)                     queue: scores_stay_within_the_timeout_of_each_entry
// testFirstThreadDeathTimeoutDrift                 queue: a_dead_first_waiter_costs_1_5_s
// testAbandonedTimeoutDrift_Descrete               queue: scores_stay_within_the_timeout_of_each_entry
// testTryLockNonDelayed                            queue: try_lock_leaves_no_queue_entry
// testTryLockWait, testForceUnlock, testExpire     the laws of every lock
// testAutoExpire, testGetHoldCount, testIsHeld…    the laws of every lock
// testIsLocked…, testUnlockFail, testReentrancy    the laws of every lock
// testConcurrency_…                                the laws of every lock
// testConcurrency_MultiInstance_Ordering           grants_in_order_of_arrival_over_clients
// testNameMapper                                   acl: all kinds have a key prefix
// testAcquireFailedNotCalledOnRedisTimeout         ends: a_silent_server_does_not_block_the_shutdown
