//! How long a hold lasts, and which levels are renewed.

use super::*;

pub(super) fn the_watchdog_renews_past_the_lease(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let start = Instant::now();
    while start.elapsed() < LEASE * 3 {
        assert!(guard.is_valid(), "after {:?}", start.elapsed());
        assert!(lock.is_held_by_current_thread().unwrap());
        thread::sleep(ms(50));
    }
    assert!(guard.remaining_validity() > Duration::ZERO);
    guard.unlock().unwrap();
}

pub(super) fn an_unlocked_lock_is_not_renewed(backend: &Backend) {
    let (told, losses) = mpsc::channel();
    let settings = Settings::default().watchdog_timeout(LEASE);
    let client =
        backend.client_with(settings.on_lost(move |loss| told.send(loss.clone()).unwrap()));
    let lock = client.lock("orders");
    let is_quiet = || {
        lock.lock().unwrap();
        // After its first renewal, so that the next one is scheduled already.
        thread::sleep(LEASE / 2);
        lock.unlock().unwrap();
        // Requests in flight arrive.
        thread::sleep(ms(100));
        let before = backend.requests();
        thread::sleep(LEASE + ms(200));
        backend.requests() == before
    };
    // On a busy machine, a request in flight may arrive later.
    assert!((0..3).any(|_| is_quiet()), "there is nothing to renew");
    // Where requests cannot be counted, a renewal of a released lock would be reported as a loss.
    assert!(losses.try_recv().is_err(), "there is nothing to lose");
}

pub(super) fn a_nested_hold_is_renewed_until_its_last_unlock(backend: &Backend) {
    let lock = backend.client().lock("orders");
    lock.lock().unwrap();
    lock.lock().unwrap();
    lock.unlock().unwrap();
    thread::sleep(LEASE * 2);
    assert!(lock.is_valid());
    assert_eq!(lock.hold_count().unwrap(), 1);
    lock.unlock().unwrap();
    assert!(!lock.is_valid());
    // testLockReentrantRenew: earlier renewals do not affect the next holder.
    let other = backend.client().lock("orders");
    other.lock().unwrap();
    thread::sleep(LEASE * 2);
    assert!(other.is_valid());
    other.unlock().unwrap();
}

pub(super) fn a_fixed_lease_is_not_renewed_and_ends(backend: &Backend) {
    let lock = backend.client().lock("orders").with_lease_time(ms(500));
    let other = backend.client().lock("orders");
    let start = Instant::now();
    lock.lock().unwrap();
    assert!(lock.is_valid());
    assert!(other.try_lock_for(Duration::from_secs(10)).unwrap());
    // A quorum releases before the end of a lease: 1 % and 2 ms early.
    let least = if backend.is_slow() { ms(493) } else { ms(500) };
    assert!(start.elapsed() >= least, "{:?}", start.elapsed());
    assert!(start.elapsed() < ms(500) + SLACK, "{:?}", start.elapsed());
    assert!(!lock.is_valid());
    let error = lock.unlock().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(other.is_valid(), "the late unlock did it no harm");
    other.unlock().unwrap();
    let error = lock.unlock().unwrap_err();
    assert!(matches!(error, Error::NotHeld { .. }), "{error}");
}

pub(super) fn the_end_of_a_fixed_lease_is_reported(backend: &Backend) {
    let lock = backend.client().lock("orders").with_lease_time(ms(300));
    let guard = lock.guard().unwrap();
    let loss = guard.lost().recv_timeout(ms(300) + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::LeaseEnded);
    assert_eq!(&*loss.lock, lock.name());
    assert_eq!(loss.thread, current_thread_id());
    assert!(!guard.is_valid());
    assert!(guard.unlock().unwrap_err().is_lost());
}

pub(super) fn a_shorter_inner_lease_does_not_shorten_the_outer(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let other = backend.client().lock("orders");
    lock.lock().unwrap();
    lock.with_lease_time(ms(100)).lock().unwrap();
    assert!(lock.remaining_lease().unwrap().unwrap() > ms(150));
    thread::sleep(ms(300));
    assert!(lock.is_valid());
    assert!(!other.try_lock().unwrap());
    lock.unlock().unwrap();
    thread::sleep(LEASE);
    assert!(lock.is_valid());
    assert!(!other.try_lock().unwrap());
    lock.unlock().unwrap();

    let long = client.lock("long").with_lease_time(Duration::from_secs(60));
    long.lock().unwrap();
    // The watchdog of the inner level must not shorten it either.
    client.lock("long").lock().unwrap();
    thread::sleep(LEASE);
    assert!(long.remaining_lease().unwrap().unwrap() > Duration::from_secs(50));
    long.unlock().unwrap();
    assert!(long.remaining_lease().unwrap().unwrap() > Duration::from_secs(50));
    long.unlock().unwrap();
}

pub(super) fn a_long_level_counts_behind_a_short_one(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let short = lock.with_lease_time(ms(5_000));
    let outer = short.guard().unwrap();
    short.guard().unwrap().unlock().unwrap();
    let inner = lock.with_lease_time(Duration::from_secs(60)).guard();
    let inner = inner.unwrap();
    assert!(inner.remaining_validity() > Duration::from_secs(50));
    inner.unlock().unwrap();
    outer.unlock().unwrap();
}

pub(super) fn a_longer_inner_lease_ends_with_its_unlock(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders").with_lease_time(ms(800));
    lock.lock().unwrap();
    let long = lock.with_lease_time(Duration::from_secs(60));
    long.lock().unwrap();
    assert!(lock.remaining_lease().unwrap().unwrap() > Duration::from_secs(50));
    long.unlock().unwrap();
    assert!(lock.remaining_lease().unwrap().unwrap() <= ms(800));
    assert!(lock.is_valid());
    thread::sleep(ms(850));
    assert!(!lock.is_valid());
    assert!(!lock.is_locked().unwrap());

    // If the outer lease has ended when the inner one is unlocked, the hold has ended.
    lock.lock().unwrap();
    let guard = long.guard().unwrap();
    thread::sleep(ms(850));
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    assert!(!lock.is_valid());
    assert!(!lock.is_locked().unwrap());
    assert!(lock.unlock().unwrap_err().is_lost());
}

pub(super) fn the_end_of_a_thread_ends_the_renewal(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    let (sender, losses) = mpsc::channel::<Loss>();
    thread::spawn({
        let lock = lock.clone();
        move || {
            lock.lock().unwrap();
            let lost = lock.lost().unwrap();
            thread::spawn(move || sender.send(lost.recv().unwrap()));
        }
    })
    .join()
    .unwrap();
    let start = Instant::now();
    assert!(lock.is_locked().unwrap());
    assert!(lock.try_lock_for(LEASE + SLACK).unwrap());
    assert!(
        start.elapsed() > LEASE / 3,
        "it is not freed under the feet of the others"
    );
    lock.unlock().unwrap();
    assert_eq!(
        losses.recv_timeout(SLACK).unwrap().cause,
        LossCause::ThreadEnded
    );
}

pub(super) fn a_forgotten_guard_is_renewed_until_its_thread_ends(backend: &Backend) {
    let lock = backend.client().lock("orders");
    elsewhere(|| {
        std::mem::forget(lock.guard().unwrap());
        thread::sleep(LEASE + ms(300));
        assert!(lock.is_valid(), "it is renewed");
    });
    assert!(lock.try_lock_for(LEASE + SLACK).unwrap());
    lock.unlock().unwrap();
}

pub(super) fn the_remaining_lease_is_reported(backend: &Backend) {
    let lock = backend.client().lock("orders");
    assert_eq!(lock.remaining_lease().unwrap(), None);
    let ten = lock.with_lease_time(Duration::from_secs(10));
    for _ in 0..3 {
        ten.lock().unwrap();
    }
    ten.unlock().unwrap();
    ten.unlock().unwrap();
    let left = ten.remaining_lease().unwrap().unwrap();
    assert!(
        left > Duration::from_secs(7) && left <= Duration::from_secs(10),
        "{left:?}"
    );
    ten.unlock().unwrap();
    assert_eq!(lock.remaining_lease().unwrap(), None);
    lock.lock().unwrap();
    assert!(
        backend
            .client()
            .lock("orders")
            .remaining_lease()
            .unwrap()
            .unwrap()
            <= LEASE
    );
    lock.unlock().unwrap();
}
