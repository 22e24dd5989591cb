//! The end of a client.

use super::*;

pub(super) fn a_shutdown_ends_every_wait_and_lets_holders_unlock(backend: &Backend) {
    let client = backend.client();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    let lost = lock.lost().unwrap();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..20).map(|_| scope.spawn(|| lock.lock())).collect();
        until_queued(&lock, 20);
        let start = Instant::now();
        client.shutdown();
        for waiter in waiting {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Closed { .. }), "{error}");
        }
        assert!(start.elapsed() < SLACK);
    });
    assert_eq!(lost.try_recv().unwrap().cause, LossCause::Closed);
    assert!(lock.is_valid(), "its lease has not ended");
    lock.unlock().unwrap();
    assert!(!backend.client().lock("orders").is_locked().unwrap());
    assert!(matches!(lock.try_lock(), Err(Error::Closed { .. })));
    client.shutdown();
}

pub(super) fn dropping_the_last_handle_joins_the_threads(backend: &Backend) {
    let alive = Arc::new(());
    let hook = Arc::clone(&alive);
    let client = backend.client_with(Settings::default().on_lost(move |_| {
        let _ = &hook;
    }));
    let lock = client.lock("orders");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    backend.forget_clients();
    drop(client);
    let threads = || Arc::strong_count(&alive) - 1;
    assert!(threads() > 0, "the lock keeps the client alive");
    drop(lock);
    assert_eq!(threads(), 0, "all threads have ended");
}

pub(super) fn a_lock_of_a_dead_client_is_free_after_its_lease(backend: &Backend) {
    let client = backend.client();
    client.lock("orders").lock().unwrap();
    client.shutdown();
    let other = backend.client().lock("orders");
    assert!(!other.try_lock().unwrap());
    assert!(other.try_lock_for(LEASE + SLACK).unwrap());
    other.unlock().unwrap();
}
