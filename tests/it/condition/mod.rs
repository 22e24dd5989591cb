//! The laws of conditions, for each kind of lock that has them, on every store.
#![allow(clippy::unwrap_used, reason = "a law that cannot be tried is broken")]

mod faults;
mod refusals;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use redlatch::{Condition, Error, Interrupt, Lock};

use crate::backends::{Backend, Source};
use crate::invariants::SLACK;
use crate::support::{ms, timed};

pub(crate) use faults::play;

/// A message wakes a waiter faster than this; without one it polls after a second.
const WAKE_UP: Duration = ms(700);

/// Longer than any wait of these tests may take.
const LONG: Duration = Duration::from_secs(30);

type Pair = (Lock, Condition);

/// The same lock and condition in two processes.
fn pairs(backend: &Backend) -> [(Source, Pair); 2] {
    [(); 2].map(|()| {
        let source = backend.client();
        let lock = source.lock("basket");
        let condition = lock.condition("filled");
        (source, (lock, condition))
    })
}

/// Starts a thread that acquires the lock `levels` times, waits by `wait`, and sends `number` when it has the lock
/// again. Its queue entry exists when this returns.
fn start<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    (lock, condition): &'env Pair,
    levels: u32,
    woken: &Sender<u32>,
    number: u32,
    wait: impl FnOnce(&Condition) + Send + 'scope,
) {
    let (woken, (sender, holds)) = (woken.clone(), mpsc::channel());
    scope.spawn(move || {
        for _ in 0..levels {
            lock.lock().unwrap();
        }
        sender.send(()).unwrap();
        wait(condition);
        assert_eq!(lock.hold_count().unwrap(), levels, "it is held again");
        assert!(lock.is_valid());
        woken.send(number).unwrap();
        for _ in 0..levels {
            lock.unlock().unwrap();
        }
    });
    holds.recv_timeout(LONG).unwrap();
    // It releases the lock once its queue entry exists.
    lock.lock().unwrap();
    lock.unlock().unwrap();
}

/// Waits for a wake-up, with a bound, so that a failed test does not hang.
fn is_woken(condition: &Condition) {
    assert!(condition.wait_for(LONG * 2).unwrap(), "nobody has woken it");
}

fn next(woken: &Receiver<u32>) -> u32 {
    woken.recv_timeout(LONG).unwrap()
}

fn signal_wakes_the_longest_waiting(backend: &Backend) {
    let sides = pairs(backend);
    let [(_, one), (_, two)] = &sides;
    let (sender, woken) = mpsc::channel();
    thread::scope(|scope| {
        for (number, pair) in [one, two, one, two].into_iter().enumerate() {
            let number = u32::try_from(number).unwrap();
            start(scope, pair, 1, &sender, number, is_woken);
        }
        for number in 0..4 {
            let (lock, condition) = two;
            lock.lock().unwrap();
            assert!(condition.signal().unwrap());
            thread::sleep(ms(20));
            assert!(woken.try_recv().is_err(), "the lock is held");
            lock.unlock().unwrap();
            let (took, first) = timed(|| next(&woken));
            assert_eq!(first, number);
            assert!(took < WAKE_UP, "{took:?}");
        }
        let (lock, condition) = one;
        lock.lock().unwrap();
        assert!(!condition.signal().unwrap(), "nobody waits any more");
        lock.unlock().unwrap();
    });
}

fn signal_all_wakes_all(backend: &Backend) {
    let sides = pairs(backend);
    let [(_, one), (_, two)] = &sides;
    let (sender, woken) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..6 {
            let pair = if number % 2 == 0 { one } else { two };
            start(scope, pair, 1, &sender, number, is_woken);
        }
        let (lock, condition) = one;
        let other = lock.condition("emptied");
        lock.lock().unwrap();
        assert_eq!(other.signal_all().unwrap(), 0, "that is another one");
        assert_eq!(condition.signal_all().unwrap(), 6);
        assert_eq!(condition.signal_all().unwrap(), 0);
        lock.unlock().unwrap();
        let mut all: Vec<_> = (0..6).map(|_| next(&woken)).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    });
}

fn a_signal_without_waiters_is_dropped(backend: &Backend) {
    let sides = pairs(backend);
    let [(_, one), (_, (lock, condition))] = &sides;
    lock.lock().unwrap();
    assert!(!condition.signal().unwrap());
    assert_eq!(condition.signal_all().unwrap(), 0);
    lock.unlock().unwrap();
    let (lock, condition) = one;
    lock.lock().unwrap();
    let (took, woken) = timed(|| condition.wait_for(ms(300)).unwrap());
    assert!(!woken && took >= ms(300), "{took:?}");
    lock.unlock().unwrap();
}

fn the_lock_is_held_again_in_every_outcome_with_its_count(backend: &Backend) {
    let sides = pairs(backend);
    let [(_, pair), (_, (lock, condition))] = &sides;
    let (sender, woken) = mpsc::channel();
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        start(scope, pair, 3, &sender, 1, is_woken);
        lock.lock().unwrap();
        assert!(condition.signal().unwrap());
        lock.unlock().unwrap();
        assert_eq!(next(&woken), 1);
        // Its timeout ends while another thread holds the lock.
        let waits = |it: &Condition| assert!(!it.wait_for(ms(1500)).unwrap());
        start(scope, pair, 2, &sender, 2, waits);
        lock.lock().unwrap();
        thread::sleep(ms(2000));
        assert!(woken.try_recv().is_err(), "the lock is held");
        lock.unlock().unwrap();
        assert_eq!(next(&woken), 2);
        // A timeout of zero.
        let waits = |it: &Condition| assert!(!it.wait_for(Duration::ZERO).unwrap());
        start(scope, pair, 2, &sender, 3, waits);
        assert_eq!(next(&woken), 3);
        let waits = |it: &Condition| {
            let ended = it.wait_interruptibly(&interrupt);
            assert!(matches!(ended, Err(Error::Interrupted { .. })), "{ended:?}");
        };
        start(scope, pair, 2, &sender, 4, waits);
        lock.lock().unwrap();
        interrupt.raise();
        thread::sleep(ms(50));
        assert!(woken.try_recv().is_err(), "the lock is held");
        lock.unlock().unwrap();
        assert_eq!(next(&woken), 4);
        // Interrupted before: it does not wait.
        let waits = |it: &Condition| {
            let (took, ended) = timed(|| it.wait_for_interruptibly(LONG, &interrupt));
            assert!(matches!(ended, Err(Error::Interrupted { .. })), "{ended:?}");
            assert!(took < SLACK, "{took:?}");
        };
        start(scope, pair, 2, &sender, 5, waits);
        assert_eq!(next(&woken), 5);
        // None of these waits left a queue entry.
        lock.lock().unwrap();
        assert!(!condition.signal().unwrap());
        lock.unlock().unwrap();
    });
}

fn an_interrupt_after_the_signal_counts_as_the_signal(backend: &Backend) {
    let sides = pairs(backend);
    let [(_, pair), (_, (lock, condition))] = &sides;
    let (sender, woken) = mpsc::channel();
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let waits = |it: &Condition| it.wait_interruptibly(&interrupt).unwrap();
        start(scope, pair, 1, &sender, 1, waits);
        start(scope, pair, 1, &sender, 2, is_woken);
        lock.lock().unwrap();
        assert!(condition.signal().unwrap());
        interrupt.raise();
        lock.unlock().unwrap();
        assert_eq!(next(&woken), 1);
        assert!(woken.recv_timeout(ms(100)).is_err(), "there was one signal");
        lock.lock().unwrap();
        assert!(condition.signal().unwrap());
        lock.unlock().unwrap();
        assert_eq!(next(&woken), 2);
    });
}

fn needs_the_lock(backend: &Backend) {
    let [(_, (lock, condition)), (_, (of_other, _))] = pairs(backend);
    let refused = || {
        let errors = [
            condition.wait().unwrap_err(),
            condition.wait_for(ms(1)).unwrap_err(),
            condition.signal().unwrap_err(),
            condition.signal_all().unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::NotHeld { .. }), "{error}");
        }
    };
    refused();
    of_other.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(refused);
    });
    of_other.unlock().unwrap();
    lock.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(refused);
    });
    // The lock is lost, and its levels still have to be unlocked.
    assert!(of_other.force_unlock().unwrap());
    for error in [
        condition.signal().unwrap_err(),
        condition.wait().unwrap_err(),
        lock.unlock().unwrap_err(),
    ] {
        assert!(error.is_lost(), "{error}");
    }
    refused();
}

fn a_guard_waits_and_is_replaced(backend: &Backend) {
    let sides = pairs(backend);
    let [(_, (lock, condition)), (_, (other, signals))] = &sides;
    let guard = lock.guard().unwrap();
    let before = guard.visitor().clone();
    let lost = guard.lost();
    let (guard, woken) = condition.wait_with_for(guard, ms(10)).unwrap();
    assert!(!woken && guard.is_valid());
    assert_ne!(*guard.visitor(), before, "it is a new hold");
    assert!(lost.recv_timeout(ms(10)).is_err(), "the former ended well");
    thread::scope(|scope| {
        scope.spawn(|| {
            other.lock().unwrap();
            assert!(signals.signal().unwrap());
            other.unlock().unwrap();
        });
        let guard = condition.wait_with(guard).unwrap();
        assert!(guard.is_valid());
        // Levels of guards and of `lock` cannot be mixed.
        lock.lock().unwrap();
        let error = condition.wait().unwrap_err();
        assert!(matches!(error, Error::Nested { .. }), "{error}");
        assert_eq!(lock.hold_count().unwrap(), 2, "nothing was changed");
        let error = condition.wait_with(guard).unwrap_err();
        assert!(matches!(error, Error::Nested { .. }), "{error}");
        assert_eq!(lock.hold_count().unwrap(), 1, "the guard is gone");
        let error = condition.wait_with(lock.guard().unwrap()).unwrap_err();
        assert!(matches!(error, Error::Nested { .. }), "{error}");
        lock.unlock().unwrap();
        let error = lock.unlock().unwrap_err();
        assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    });
}

fn a_shutdown_ends_the_wait_and_passes_the_signal_on(backend: &Backend) {
    let [(source, (lock, condition)), (_, pair)] = pairs(backend);
    let (sender, woken) = mpsc::channel();
    let (waits, holds) = mpsc::channel();
    thread::scope(|scope| {
        let ended = scope.spawn(|| {
            lock.lock().unwrap();
            waits.send(()).unwrap();
            (condition.wait(), lock.is_valid())
        });
        holds.recv_timeout(LONG).unwrap();
        start(scope, &pair, 1, &sender, 1, is_woken);
        source.shutdown();
        let (ended, is_valid) = ended.join().unwrap();
        assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
        assert!(!is_valid, "it could not come back");
        let (lock, condition) = &pair;
        lock.lock().unwrap();
        assert!(condition.signal().unwrap());
        lock.unlock().unwrap();
        assert_eq!(next(&woken), 1, "the place of the other is gone");
    });
}

/// Two clients with producers and consumers of a basket that holds three.
fn producers_and_consumers_over_clients(backend: &Backend) {
    const ITEMS: u32 = 40;
    let sides = [backend.client(), backend.client()];
    // Real programs keep the basket on the server; here only the lock protects it.
    let (basket, produced, eaten) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let started = Instant::now();
    thread::scope(|scope| {
        for source in &sides {
            let lock = source.lock("basket");
            let conditions = [lock.condition("filled"), lock.condition("emptied")];
            for _ in 0..2 {
                let (lock, [filled, emptied]) = (lock.clone(), conditions.clone());
                let (basket, produced) = (&basket, &produced);
                scope.spawn(move || {
                    loop {
                        lock.lock().unwrap();
                        if produced.load(Ordering::SeqCst) == ITEMS {
                            return lock.unlock().unwrap();
                        }
                        while basket.load(Ordering::SeqCst) == 3 {
                            emptied.wait().unwrap();
                        }
                        if produced.load(Ordering::SeqCst) < ITEMS {
                            produced.fetch_add(1, Ordering::SeqCst);
                            basket.fetch_add(1, Ordering::SeqCst);
                            filled.signal().unwrap();
                        }
                        lock.unlock().unwrap();
                    }
                });
                let (lock, [filled, emptied]) = (source.lock("basket"), conditions.clone());
                let eaten = &eaten;
                scope.spawn(move || {
                    loop {
                        lock.lock().unwrap();
                        while basket.load(Ordering::SeqCst) == 0
                            && eaten.load(Ordering::SeqCst) < ITEMS
                        {
                            filled.wait().unwrap();
                        }
                        if eaten.load(Ordering::SeqCst) == ITEMS {
                            filled.signal_all().unwrap();
                            emptied.signal_all().unwrap();
                            return lock.unlock().unwrap();
                        }
                        basket.fetch_sub(1, Ordering::SeqCst);
                        if eaten.fetch_add(1, Ordering::SeqCst) + 1 == ITEMS {
                            filled.signal_all().unwrap();
                        }
                        emptied.signal().unwrap();
                        lock.unlock().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(eaten.load(Ordering::SeqCst), ITEMS);
    assert_eq!(basket.load(Ordering::SeqCst), 0);
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
}

fn an_invalid_name_is_refused_and_changes_nothing(backend: &Backend) {
    let source = backend.client();
    let lock = source.lock("basket");
    lock.lock().unwrap();
    for name in ["", "a:b", "a\nb", &"x".repeat(129)] {
        let condition = lock.condition(name);
        for error in [
            condition.wait().unwrap_err(),
            condition.signal().unwrap_err(),
        ] {
            assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        }
    }
    let condition = lock.condition("filled");
    assert_eq!(condition.name(), "filled");
    let error = condition.wait_for(Duration::MAX).unwrap_err();
    assert!(matches!(error, Error::InvalidWait { .. }), "{error}");
    for name in [" ", "ünïcode", "{a}", "}{"] {
        assert!(!lock.condition(name).wait_for(Duration::ZERO).unwrap());
    }
    assert_eq!(lock.hold_count().unwrap(), 1);
    lock.unlock().unwrap();
}

laws! {
    conditions {
        signal_wakes_the_longest_waiting
        signal_all_wakes_all
        a_signal_without_waiters_is_dropped
        the_lock_is_held_again_in_every_outcome_with_its_count
        an_interrupt_after_the_signal_counts_as_the_signal
        needs_the_lock
        a_guard_waits_and_is_replaced
        a_shutdown_ends_the_wait_and_passes_the_signal_on
        producers_and_consumers_over_clients
        an_invalid_name_is_refused_and_changes_nothing
    }
}
