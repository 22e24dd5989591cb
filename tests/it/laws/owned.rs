//! Owned guards: holds that belong to no thread.

use redlatch::OwnedGuard;

use super::*;

/// Acquires the lock on a thread that ends before the guard is used.
fn taken_elsewhere(lock: &Lock) -> OwnedGuard {
    elsewhere(|| lock.owned().unwrap())
}

pub(super) fn an_owned_guard_may_be_used_and_unlocked_by_any_thread(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    for is_dropped in [false, true] {
        let guard = lock.owned().unwrap();
        assert_eq!(guard.name(), lock.name());
        elsewhere(|| {
            assert!(guard.is_valid());
            assert!(guard.remaining_validity() > Duration::ZERO);
            assert!(lock.is_held_by_thread(guard.owner()).unwrap());
            assert!(guard.visitor().as_str().len() > 8);
        });
        let owner = guard.owner();
        thread::spawn(move || match is_dropped {
            true => drop(guard),
            false => guard.unlock().unwrap(),
        })
        .join()
        .unwrap();
        assert!(!other.is_locked().unwrap());
        assert!(!lock.is_held_by_thread(owner).unwrap());
    }
    // Also by several threads at once.
    let guard = Arc::new(lock.owned().unwrap());
    thread::scope(|scope| {
        for _ in 0..4 {
            let guard = Arc::clone(&guard);
            scope.spawn(move || assert!(guard.is_valid()));
        }
    });
    drop(guard);
    assert!(!other.is_locked().unwrap());
}

pub(super) fn owned_guards_and_threads_exclude_each_other(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    let guard = lock.owned().unwrap();
    assert!(lock.try_owned().unwrap().is_none(), "it never re-enters");
    assert!(lock.try_owned_for(ms(30)).unwrap().is_none());
    assert!(!lock.try_lock().unwrap(), "nor does its thread");
    assert!(other.try_owned().unwrap().is_none());
    assert!(!other.try_lock().unwrap());
    assert!(elsewhere(|| lock.try_owned().unwrap().is_none()));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    lock.lock().unwrap();
    assert!(lock.try_owned().unwrap().is_none(), "the thread has it");
    assert!(other.try_owned().unwrap().is_none());
    assert_eq!(lock.hold_count().unwrap(), 1);
    lock.unlock().unwrap();
    let guard = other.try_owned().unwrap().unwrap();
    let another = backend.client().lock("invoices").try_owned().unwrap();
    assert!(another.is_some(), "another name is another lock");
    assert_ne!(guard.owner(), another.unwrap().owner());
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn the_thread_that_made_an_owned_guard_holds_nothing(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.owned().unwrap();
    assert_ne!(guard.owner(), current_thread_id());
    assert_ne!(guard.owner(), elsewhere(current_thread_id));
    let error = lock.unlock().unwrap_err();
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    assert!(matches!(lock.lost(), Err(Error::NotHeld { .. })));
    assert!(!lock.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 0);
    assert!(!lock.is_held_by_current_thread().unwrap());
    assert!(lock.is_locked().unwrap());
    assert!(guard.is_valid(), "nothing of this has touched it");
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn an_owned_guard_is_renewed_past_the_end_of_its_thread(backend: &Backend) {
    // This lease outlasts the moments in which a busy machine renews nothing.
    let lease = LEASE * 2;
    let client = backend.client_with(Settings::default().watchdog_timeout(lease));
    let (lock, forgotten) = (client.lock("orders"), client.lock("invoices"));
    let guard = taken_elsewhere(&lock);
    elsewhere(|| std::mem::forget(forgotten.owned().unwrap()));
    let start = Instant::now();
    while start.elapsed() < lease + LEASE / 2 {
        assert!(guard.is_valid(), "after {:?}", start.elapsed());
        assert!(forgotten.is_locked().unwrap());
        thread::sleep(ms(50));
    }
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    client.shutdown();
    let other = backend.client().lock("invoices");
    assert!(other.try_lock_for(LEASE + SLACK).unwrap());
    other.unlock().unwrap();
}

pub(super) fn owned_guards_and_threads_share_one_queue(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let (sender, order) = mpsc::channel();
    let holder = lock.owned().unwrap();
    thread::scope(|scope| {
        for number in 0..4 {
            let (lock, sender) = (&lock, sender.clone());
            scope.spawn(move || match number % 2 {
                0 => {
                    let guard = lock.owned().unwrap();
                    sender.send(number).unwrap();
                    elsewhere(|| guard.unlock().unwrap());
                }
                _ => {
                    lock.lock().unwrap();
                    sender.send(number).unwrap();
                    lock.unlock().unwrap();
                }
            });
            let queued = usize::try_from(number).unwrap() + 1;
            until_queued(lock, queued);
            // The entry in a queue on the server is added a moment later.
            if lock.waiters().is_ok() {
                eventually(SLACK, "it has a place", || {
                    lock.waiters().unwrap() == number + 1
                });
            }
        }
        holder.unlock().unwrap();
    });
    drop(sender);
    assert_eq!(order.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn an_unlock_wakes_a_waiter_for_an_owned_guard(backend: &Backend) {
    let minute = Duration::from_secs(60);
    let lock = backend.client().lock("orders").with_lease_time(minute);
    let other = backend.client().lock("orders").with_lease_time(minute);
    type End = fn(OwnedGuard);
    let ends: [End; 2] = [drop, OwnedGuard::unlock_in_background];
    for (waiter, end) in [
        (&lock, ends[0]),
        (&other, ends[0]),
        (&lock, ends[1]),
        (&other, ends[1]),
    ] {
        let holder = lock.owned().unwrap();
        let (waited, freed) = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let guard = waiter.owned().unwrap();
                let now = Instant::now();
                guard.unlock().unwrap();
                now
            });
            until_queued(waiter, 1);
            thread::sleep(ms(200));
            let freed = Instant::now();
            thread::spawn(move || end(holder)).join().unwrap();
            (waiting.join().unwrap(), freed)
        });
        // As in the law for threads: a waiter that is not woken polls after a second.
        let took = waited.saturating_duration_since(freed);
        assert!(took < ms(600), "{took:?}");
    }
}

pub(super) fn a_wait_for_an_owned_guard_times_out_or_is_interrupted(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    let holder = lock.owned().unwrap();
    for wait in [ms(0), ms(300)] {
        let start = Instant::now();
        assert!(other.try_owned_for(wait).unwrap().is_none());
        let took = start.elapsed();
        assert!(took >= wait && took < wait + SLACK, "{took:?} for {wait:?}");
    }
    let interrupt = Interrupt::new();
    let wait = || other.owned_interruptibly(&interrupt).map(drop);
    thread::scope(|scope| {
        let waiting = scope.spawn(wait);
        until_queued(&other, 1);
        let raised = Instant::now();
        interrupt.raise();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        assert!(raised.elapsed() < SLACK);
    });
    // An interrupt that was raised before.
    assert!(matches!(wait(), Err(Error::Interrupted { .. })));
    assert!(holder.is_valid());
    holder.unlock().unwrap();
    // The entry in a queue on the server is removed in the background.
    assert!(lock.try_owned_for(SLACK).unwrap().is_some());
}

pub(super) fn the_end_of_an_owned_fixed_lease_is_reported(backend: &Backend) {
    let lock = backend.client().lock("orders").with_lease_time(ms(500));
    let other = backend.client().lock("orders");
    let guard = taken_elsewhere(&lock);
    let next = other.try_owned_for(LEASE + SLACK).unwrap().unwrap();
    let loss = guard.lost().recv_timeout(SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::LeaseEnded);
    assert_eq!(loss.thread, guard.owner());
    assert!(!guard.is_valid());
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(next.is_valid(), "the late unlock did it no harm");
    next.unlock().unwrap();
}

pub(super) fn the_loss_of_an_owned_guard_is_reported(backend: &Backend) {
    let (sender, told) = mpsc::channel();
    let client = backend.client_with(Settings::default().on_lost(move |loss| {
        sender.send(loss.clone()).unwrap();
    }));
    let lock = client.lock("orders");
    type End = fn(OwnedGuard);
    let ends: [End; 3] = [
        |guard| assert!(guard.unlock().unwrap_err().is_lost()),
        drop,
        OwnedGuard::unlock_in_background,
    ];
    for end in ends {
        let guard = taken_elsewhere(&lock);
        assert!(lock.force_unlock().unwrap());
        let loss = guard.lost().recv_timeout(SLACK).unwrap();
        assert_eq!(loss.cause, LossCause::Gone);
        assert_eq!(loss.visitor, *guard.visitor());
        assert_eq!(told.recv_timeout(SLACK).unwrap(), loss);
        assert!(!guard.is_valid() && guard.remaining_validity().is_zero());
        let next = lock.owned().unwrap();
        end(guard);
        thread::sleep(ms(30));
        assert!(next.is_valid(), "its end touches no later hold");
        assert!(!lock.try_lock().unwrap());
        next.unlock().unwrap();
    }
    assert!(told.try_recv().is_err(), "each loss is told once");
}

pub(super) fn an_unlock_in_the_background_frees_the_lock(backend: &Backend) {
    let client = backend.client_with(Settings::default());
    let lock = client.lock("orders");
    let other = backend.client().lock("orders");
    for waiter in [&lock, &other] {
        let guard = lock.owned().unwrap();
        let lost = guard.lost();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.try_owned_for(SLACK).unwrap().is_some());
            until_queued(waiter, 1);
            guard.unlock_in_background();
            assert_eq!(lost.recv(), Err(NoLoss::Ended));
            assert!(waiting.join().unwrap());
        });
    }
    // The next hold of the same name is unaffected.
    for _ in 0..20 {
        let guard = lock.owned().unwrap();
        guard.unlock_in_background();
        let next = lock.try_owned_for(SLACK).unwrap().unwrap();
        assert!(next.is_valid());
        assert!(!other.try_lock().unwrap());
    }
    assert!(other.try_lock_for(SLACK).unwrap());
    other.unlock().unwrap();
}

pub(super) fn a_background_unlock_finishes_before_its_client_ends(backend: &Backend) {
    let other = backend.client();
    for is_shut_down in [true, false] {
        let client = backend.client_with(Settings::default());
        let guards: Vec<_> = (0..30)
            .map(|number| client.lock(&format!("orders:{number}")).owned().unwrap())
            .collect();
        guards
            .into_iter()
            .for_each(OwnedGuard::unlock_in_background);
        if is_shut_down {
            client.shutdown();
        }
        drop(client);
        for number in 0..30 {
            let lock = other.lock(&format!("orders:{number}"));
            assert!(!lock.is_locked().unwrap(), "{number}");
        }
    }
}

pub(super) fn an_owned_guard_outlives_a_shutdown_like_any_other(backend: &Backend) {
    let other = backend.client().lock("orders");
    type End = fn(OwnedGuard);
    let ends: [End; 3] = [
        |guard| guard.unlock().unwrap(),
        drop,
        OwnedGuard::unlock_in_background,
    ];
    for end in ends {
        let client = backend.client_with(Settings::default());
        let lock = client.lock("orders");
        let guard = taken_elsewhere(&lock);
        let lost = guard.lost();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.owned());
            until_queued(&lock, 1);
            client.shutdown();
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Closed { .. }), "{error}");
        });
        assert_eq!(lost.recv_timeout(SLACK).unwrap().cause, LossCause::Closed);
        assert!(guard.is_valid(), "its lease has not ended");
        assert!(matches!(lock.try_owned(), Err(Error::Closed { .. })));
        end(guard);
        // No background request is left, so it is free when the call returns.
        assert!(!other.is_locked().unwrap());
    }
}

pub(super) fn owned_guards_and_threads_never_overlap(backend: &Backend) {
    let client = backend.client_with(Settings::default());
    let mut locks = vec![client.lock("orders"); 12];
    let others = (0..4).map(|_| backend.client_with(Settings::default()));
    let others: Vec<_> = others.collect();
    locks.extend(others.iter().map(|client| client.lock("orders")));
    let turn = AtomicU32::new(0);
    let enter = |lock: &Lock| match turn.fetch_add(1, Ordering::Relaxed) % 3 {
        0 => {
            lock.lock().unwrap();
            None
        }
        1 => Some(lock.owned().unwrap()),
        _ => loop {
            match lock.try_owned_for(ms(20)) {
                Ok(Some(guard)) => break Some(guard),
                // On a busy machine, replies may be too late for so short a wait.
                Ok(None) | Err(Error::Unknown { .. } | Error::Unreachable { .. }) => {}
                Err(error) => assert!(matches!(error, Error::NoQuorum { .. }), "{error}"),
            }
        },
    };
    exclusion::hammer(locks, 30, enter, |lock, guard| match guard {
        None => lock.unlock().unwrap(),
        Some(guard) => guard.unlock().unwrap(),
    });
}

pub(super) fn a_write_under_an_owned_guard_runs_from_any_thread(backend: &Backend) {
    let lock = backend.client().lock("{orders}:lock");
    let guard = taken_elsewhere(&lock);
    let replies = elsewhere(|| {
        guard.write(|batch| {
            batch.incr_by("{orders}:stock", 5);
        })
    });
    assert_eq!(replies.unwrap()[0].as_int(), Some(5));
    assert!(matches!(lock.write(|_| ()), Err(Error::NotHeld { .. })));
    assert!(lock.force_unlock().unwrap());
    let error = guard
        .write(|batch| {
            batch.incr_by("{orders}:stock", 5);
        })
        .unwrap_err();
    assert!(error.is_lost(), "{error}");
}

laws! {
    every {
        an_owned_guard_may_be_used_and_unlocked_by_any_thread
        owned_guards_and_threads_exclude_each_other
        the_thread_that_made_an_owned_guard_holds_nothing
        an_owned_guard_is_renewed_past_the_end_of_its_thread
        owned_guards_and_threads_share_one_queue
        an_unlock_wakes_a_waiter_for_an_owned_guard
        a_wait_for_an_owned_guard_times_out_or_is_interrupted
        the_end_of_an_owned_fixed_lease_is_reported
        the_loss_of_an_owned_guard_is_reported
        an_unlock_in_the_background_frees_the_lock
        a_background_unlock_finishes_before_its_client_ends
        an_owned_guard_outlives_a_shutdown_like_any_other
        owned_guards_and_threads_never_overlap
    }
    reentrant {}
    with_data { a_write_under_an_owned_guard_runs_from_any_thread }
    without_data {}
}
