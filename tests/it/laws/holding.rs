//! Holds: levels, counts, guards and the threads they belong to.

use super::*;

pub(super) fn re_enters_and_counts(backend: &Backend) {
    let lock = backend.client().lock("orders");
    assert_eq!(lock.hold_count().unwrap(), 0);
    lock.lock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(lock.try_lock().unwrap());
    assert_eq!(lock.hold_count().unwrap(), 2);
    assert!(lock.try_lock_for(ms(50)).unwrap());
    assert_eq!(lock.hold_count().unwrap(), 3);
    lock.unlock().unwrap();
    lock.unlock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(!elsewhere(|| lock.try_lock().unwrap()), "one level is left");
    lock.unlock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 0);
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn locks_and_unlocks_twice_in_a_row(backend: &Backend) {
    let lock = backend.client().lock("orders");
    for _ in 0..2 {
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn excludes_other_threads_and_other_clients(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    lock.lock().unwrap();
    assert!(!elsewhere(|| lock.try_lock().unwrap()));
    assert!(
        !other.try_lock().unwrap(),
        "the same thread, but another client"
    );
    assert!(other.is_locked().unwrap());
    assert!(!other.is_held_by_current_thread().unwrap());
    assert!(
        backend.client().lock("invoices").try_lock().unwrap(),
        "another name is another lock"
    );
    lock.unlock().unwrap();
    assert!(other.try_lock().unwrap());
    assert!(!lock.try_lock().unwrap());
    other.unlock().unwrap();
}

pub(super) fn a_foreign_unlock_is_refused(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let error = lock.unlock().unwrap_err();
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    lock.lock().unwrap();
    let error = elsewhere(|| lock.unlock().unwrap_err());
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    assert!(error.to_string().contains("orders"), "{error}");
    let error = backend.client().lock("orders").unlock().unwrap_err();
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
    assert!(lock.is_held_by_current_thread().unwrap());
    lock.unlock().unwrap();
}

pub(super) fn locking_after_a_loss_is_a_fresh_hold(backend: &Backend) {
    let lock = backend.client().lock("orders");
    lock.lock().unwrap();
    lock.lock().unwrap();
    let other = backend.client();
    assert!(other.lock("orders").force_unlock().unwrap());
    // The next acquisition finds the loss, unless it was reported before.
    lock.lock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(lock.is_valid());
    lock.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    for _ in 0..2 {
        assert!(
            lock.unlock().unwrap_err().is_lost(),
            "the older levels stay lost"
        );
    }
    assert!(matches!(lock.unlock().unwrap_err(), Error::NotHeld { .. }));
}

pub(super) fn a_forced_unlock_notifies_a_fixed_lease_at_once(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let guard = lock.with_lease_time(Duration::from_secs(60));
    let guard = guard.guard().unwrap();
    let lost = guard.lost();
    assert!(lock.force_unlock().unwrap());
    assert_eq!(lost.recv_timeout(SLACK).unwrap().cause, LossCause::Gone);
    assert!(!guard.is_valid());
}

pub(super) fn a_stale_guard_cannot_release_a_newer_hold(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let stale = lock.guard().unwrap();
    assert!(backend.client().lock("orders").force_unlock().unwrap());
    let fresh = lock.guard().unwrap();
    assert!(!stale.is_valid());
    drop(stale);
    assert!(fresh.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 1);
    fresh.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn guards_may_be_dropped_in_any_order(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let outer = lock.guard().unwrap();
    let inner = lock.try_guard().unwrap().unwrap();
    assert_eq!(outer.visitor(), inner.visitor());
    drop(outer);
    assert!(inner.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 1);
    drop(inner);
    assert!(!lock.is_locked().unwrap());
    assert!(lock.try_guard_for(ms(10)).unwrap().is_some());
}

pub(super) fn a_guard_unlocked_by_hand_reports_no_loss(backend: &Backend) {
    let losses = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&losses);
    let client = backend.client_with(Settings::default().on_lost(move |_| {
        told.fetch_add(1, Ordering::SeqCst);
    }));
    let lock = client.lock("orders");
    for is_dropped in [false, true] {
        let guard = lock.guard().unwrap();
        let lost = guard.lost();
        lock.unlock().unwrap();
        assert!(!guard.is_valid());
        if is_dropped {
            drop(guard);
        } else {
            let error = guard.unlock().unwrap_err();
            assert!(matches!(error, Error::NotHeld { .. }), "{error}");
        }
        assert!(lost.recv().is_err(), "it ended well");
        assert!(!lock.is_locked().unwrap());
        // Nor does it affect the next hold.
        let guard = lock.guard().unwrap();
        lock.unlock().unwrap();
        let next = lock.guard().unwrap();
        drop(guard);
        assert!(next.is_valid());
        next.unlock().unwrap();
    }
    client.shutdown();
    assert_eq!(losses.load(Ordering::SeqCst), 0);
}

pub(super) fn an_unlock_by_hand_leaves_the_levels_of_guards(backend: &Backend) {
    let lock = backend.client().lock("orders");
    lock.lock().unwrap();
    let guard = lock.guard().unwrap();
    lock.unlock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    // Two guards, and one unlock by hand: the outer guard still has its level.
    let outer = lock.guard().unwrap();
    let inner = lock.guard().unwrap();
    lock.unlock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(matches!(inner.unlock(), Err(Error::NotHeld { .. })));
    assert!(outer.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 1);
    outer.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn a_guard_unlocks_when_its_thread_panics(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let thread = thread::spawn({
        let lock = lock.clone();
        move || {
            let _guard = lock.guard().unwrap();
            std::panic::panic_any("as planned");
        }
    });
    assert!(thread.join().is_err());
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn run_keeps_the_value_when_the_hold_is_lost(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    let error = lock
        .run(|guard| {
            assert!(other.force_unlock().unwrap());
            guard.lost().recv_timeout(LEASE + SLACK).unwrap();
            assert!(!guard.is_valid());
            "value"
        })
        .unwrap_err();
    assert!(error.error().is_lost(), "{error}");
    assert_eq!(error.into_value(), Some("value"));
}

pub(super) fn run_unlocks_on_return_error_and_panic(backend: &Backend) {
    let lock = backend.client().lock("orders");
    assert_eq!(lock.run(|_| 42).unwrap(), 42);
    let inner: Result<(), &str> = lock.run(|_| Err("refused")).unwrap();
    assert_eq!(inner, Err("refused"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        lock.run(|_| std::panic::panic_any("as planned"))
    }));
    assert!(panicked.is_err());
    assert!(!lock.is_locked().unwrap());
}

pub(super) fn try_run_for_gives_up(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let other = backend.client().lock("orders");
    assert_eq!(lock.try_run_for(SLACK, |_| 1).unwrap(), Some(1));
    lock.lock().unwrap();
    assert_eq!(other.try_run_for(ms(1000), |_| 1).unwrap(), None);
    let error = backend
        .client()
        .lock("")
        .try_run_for(ms(10), |_| 1)
        .unwrap_err();
    assert!(matches!(error, RunError::NotRun(Error::InvalidName { .. })));
    lock.unlock().unwrap();
}

pub(super) fn counts_are_per_thread(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let here = current_thread_id();
    lock.lock().unwrap();
    lock.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(lock.hold_count().unwrap(), 0);
            assert!(!lock.is_held_by_current_thread().unwrap());
            assert!(!lock.is_valid());
            assert!(lock.is_locked().unwrap());
            assert!(lock.is_held_by_thread(here).unwrap());
            assert!(!lock.is_held_by_thread(current_thread_id()).unwrap());
        });
    });
    assert!(!lock.is_held_by_thread(u64::MAX).unwrap());
    assert!(lock.is_held_by_current_thread().unwrap());
    lock.unlock().unwrap();
    lock.unlock().unwrap();
    assert!(!lock.is_held_by_thread(here).unwrap());
}

pub(super) fn bad_input_is_refused_and_leaves_nothing(backend: &Backend) {
    let client = backend.client();
    let long = "x".repeat(513);
    for name in ["", long.as_str(), "a\nb", "a\u{7f}b", "x{y", "p}q", "x{}y"] {
        let lock = client.lock(name);
        let error = lock.lock().unwrap_err();
        assert!(
            matches!(error, Error::InvalidName { .. }),
            "{name:?}: {error}"
        );
        assert!(matches!(lock.unlock(), Err(Error::InvalidName { .. })));
        assert!(matches!(lock.is_locked(), Err(Error::InvalidName { .. })));
        assert!(matches!(
            lock.force_unlock(),
            Err(Error::InvalidName { .. })
        ));
        assert!(matches!(lock.hold_count(), Err(Error::InvalidName { .. })));
    }
    let lock = client.lock("orders");
    let day = Duration::from_secs(24 * 60 * 60);
    for lease in [Duration::ZERO, ms(9), day * 366, Duration::MAX] {
        let error = lock.with_lease_time(lease).lock().unwrap_err();
        assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
        assert!(error.to_string().contains("orders"), "{error}");
    }
    for wait in [Duration::MAX, Duration::from_secs(u64::MAX)] {
        let error = lock.try_lock_for(wait).unwrap_err();
        assert!(matches!(error, Error::InvalidWait { .. }), "{error}");
    }
    assert!(!lock.is_locked().unwrap());
    for lease in [ms(10), day * 365] {
        lock.with_lease_time(lease).lock().unwrap();
        lock.force_unlock().unwrap();
    }
    for builder in [
        Client::builder().watchdog_timeout(Duration::ZERO),
        Client::builder().watchdog_timeout(Duration::MAX),
        Client::builder().command_timeout(Duration::ZERO),
        Client::builder().command_timeout(Duration::MAX),
        Client::builder().connect_timeout(Duration::ZERO),
        Client::builder().outage_timeout(Duration::MAX),
        Client::builder().pool_size(0),
        Client::builder().pool_size(u32::MAX),
    ] {
        let error = builder.in_memory().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    }
}
