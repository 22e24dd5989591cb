//! How a wait ends: by an unlock, by its timeout, by an interrupt.

use super::*;

pub(super) fn a_wait_ends_between_its_timeout_and_the_slack(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    lock.lock().unwrap();
    for wait in [ms(0), ms(1000)] {
        let start = Instant::now();
        assert!(!other.try_lock_for(wait).unwrap());
        assert!(
            start.elapsed() >= wait,
            "{:?} for {wait:?}",
            start.elapsed()
        );
        assert!(
            start.elapsed() < wait + SLACK,
            "{:?} for {wait:?}",
            start.elapsed()
        );
    }
    lock.unlock().unwrap();
}

fn an_unlock_wakes_a_waiter(holder: &Lock, waiter: &Lock) {
    holder.lock().unwrap();
    let (waited, freed) = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            waiter.lock().unwrap();
            let now = Instant::now();
            waiter.unlock().unwrap();
            now
        });
        thread::sleep(ms(300));
        let freed = Instant::now();
        holder.unlock().unwrap();
        (waiting.join().unwrap(), freed)
    });
    // A waiter that was not woken polls after a second, or when a lease of a minute ends.
    assert!(
        waited.duration_since(freed) < ms(600),
        "{:?}",
        waited.duration_since(freed)
    );
}

pub(super) fn an_unlock_wakes_a_waiter_of_another_client(backend: &Backend) {
    let minute = Duration::from_secs(60);
    let holder = backend.client().lock("orders").with_lease_time(minute);
    let waiter = backend.client().lock("orders").with_lease_time(minute);
    an_unlock_wakes_a_waiter(&holder, &waiter);
}

pub(super) fn an_unlock_wakes_a_waiter_of_the_same_client(backend: &Backend) {
    let lock = backend
        .client()
        .lock("orders")
        .with_lease_time(Duration::from_secs(60));
    an_unlock_wakes_a_waiter(&lock, &lock);
}

pub(super) fn an_interrupt_ends_the_wait_and_leaves_nothing(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    lock.lock().unwrap();
    let minute = Duration::from_secs(60);
    type Wait<'a> = &'a (dyn Fn(&Interrupt) -> Result<(), Error> + Sync);
    let waits: [Wait<'_>; 4] = [
        &|interrupt| other.lock_interruptibly(interrupt),
        &|interrupt| other.guard_interruptibly(interrupt).map(drop),
        &|interrupt| {
            let got = other.try_lock_for_interruptibly(minute, interrupt);
            got.map(drop)
        },
        &|interrupt| {
            let got = other.try_guard_for_interruptibly(minute, interrupt);
            got.map(drop)
        },
    ];
    for wait in waits {
        let interrupt = Interrupt::new();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&interrupt));
            until_queued(&other, 1);
            let raised = Instant::now();
            interrupt.raise();
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Interrupted { .. }), "{error}");
            assert!(raised.elapsed() < SLACK);
        });
    }
    assert_eq!(lock.hold_count().unwrap(), 1);
    lock.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    // The queue entry, which makes `try_lock` fail, is removed in the background.
    eventually(SLACK, "nobody waits", || {
        elsewhere(|| {
            let got = lock.try_lock().unwrap();
            if got {
                lock.unlock().unwrap();
            }
            got
        })
    });
}

/// A waiter that missed the interrupt would poll within a second, and end then.
pub(super) fn an_interrupt_wakes_a_sleeper(backend: &Backend) {
    const WAITS: u32 = 12;
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    lock.lock().unwrap();
    let mut taken = Duration::ZERO;
    for _ in 0..WAITS {
        let interrupt = Interrupt::new();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| other.lock_interruptibly(&interrupt));
            until_queued(&other, 1);
            let raised = Instant::now();
            interrupt.raise();
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Interrupted { .. }), "{error}");
            taken += raised.elapsed();
        });
    }
    assert!(taken < WAITS * ms(400), "{WAITS} waits end in {taken:?}");
    lock.unlock().unwrap();
}

pub(super) fn an_interrupt_that_was_raised_before_ends_the_wait_at_once(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let interrupt = Interrupt::new();
    interrupt.raise();
    let error = lock.lock_interruptibly(&interrupt).unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }));
    let error = lock.guard_interruptibly(&interrupt).unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }));
    let error = lock
        .try_guard_for_interruptibly(ms(10), &interrupt)
        .unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }));
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn a_guard_can_be_waited_for_interruptibly(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let interrupt = Interrupt::new();
    let guard = lock.guard_interruptibly(&interrupt).unwrap();
    let got = lock.try_guard_for_interruptibly(ms(10), &interrupt);
    match got {
        Ok(inner) => inner.unwrap().unlock().unwrap(),
        Err(error) => assert!(matches!(error, Error::NotReentrant { .. }), "{error}"),
    }
    let other = backend.client().lock("orders");
    let got = elsewhere(|| {
        let got = other.try_guard_for_interruptibly(ms(1000), &interrupt);
        got.unwrap().is_some()
    });
    assert!(!got);
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

/// Unlocks and interrupts the waiter at about the same time: the interrupt comes first in the first round, last in the
/// last round, and close to the unlock in between. The waiter gets the lock, or leaves nothing.
pub(super) fn an_interrupted_try_is_not_renewed(backend: &Backend) {
    const ROUNDS: u64 = 24;
    let client = backend.client();
    let (holder, same) = (client.lock("orders"), client.lock("orders"));
    let other = backend.client().lock("orders");
    let (mut got, mut interrupted) = (0, 0);
    for round in 0..ROUNDS {
        let waiter = if round % 2 == 0 { &same } else { &other };
        let interrupt = Interrupt::new();
        holder.lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                match waiter.try_lock_for_interruptibly(Duration::from_secs(20), &interrupt) {
                    Ok(true) => {
                        assert!(waiter.is_valid());
                        waiter.unlock().unwrap();
                        true
                    }
                    Ok(false) => panic!("the lock was free for long"),
                    Err(error) => {
                        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
                        false
                    }
                }
            });
            until_queued(waiter, 1);
            match round {
                0 | 1 => {
                    interrupt.raise();
                    thread::sleep(ms(20));
                    holder.unlock().unwrap();
                }
                _ => {
                    scope.spawn(|| {
                        thread::sleep(Duration::from_micros(round / 2 * 100));
                        if round < ROUNDS - 2 {
                            interrupt.raise();
                        }
                    });
                    holder.unlock().unwrap();
                }
            }
            match waiting.join().unwrap() {
                true => got += 1,
                false => interrupted += 1,
            }
        });
        // An unknown hold would last until its lease ends, or forever if it were renewed.
        eventually(LEASE / 3, "the lock is free", || {
            !holder.is_locked().unwrap()
        });
    }
    assert!(
        got >= 2 && interrupted >= 2,
        "{got} got it, {interrupted} did not"
    );
}
