//! Waiters that poll instead of subscribing.

use super::*;

laws! {
    spin {
        its_unlock_wakes_plain_waiters
        a_waiter_that_polls_is_not_late
        it_enters_the_plain_lock_again
        a_backoff_that_is_none_is_refused
    }
}

/// The same lock, polled like a spin lock.
fn polled(lock: &Lock) -> Lock {
    lock.with_backoff(ms(1), ms(128))
}

/// How long after the unlock the other waiter acquires.
fn takes_over(holder: &Lock, waiter: &Lock) -> Duration {
    let minute = Duration::from_secs(60);
    let (holder, waiter) = (
        holder.with_lease_time(minute),
        waiter.with_lease_time(minute),
    );
    holder.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            waiter.lock().unwrap();
            let now = Instant::now();
            waiter.unlock().unwrap();
            now
        });
        thread::sleep(ms(300));
        let freed = Instant::now();
        holder.unlock().unwrap();
        waiting.join().unwrap().saturating_duration_since(freed)
    })
}

fn its_unlock_wakes_plain_waiters(backend: &Backend) {
    let (one, two) = (
        backend.client().lock("orders"),
        backend.client().lock("orders"),
    );
    // A waiter that was not woken polls after a second.
    for (holder, waiter) in [(polled(&one), &two), (polled(&one), &one)] {
        let took = takes_over(&holder, waiter);
        assert!(took < ms(600), "{took:?}");
    }
}

fn a_waiter_that_polls_is_not_late(backend: &Backend) {
    let (one, two) = (
        backend.client().lock("orders"),
        backend.client().lock("orders"),
    );
    for (holder, waiter) in [
        (&one, polled(&two)),
        (&one, polled(&one)),
        (&polled(&one), polled(&two)),
    ] {
        let took = takes_over(holder, &waiter);
        assert!(took < ms(600), "{took:?}");
    }
    // Its wait ends in time, or by an interrupt.
    one.lock().unwrap();
    let (waiter, start) = (polled(&two), Instant::now());
    assert!(!waiter.try_lock_for(ms(300)).unwrap());
    assert!(start.elapsed() >= ms(300) && start.elapsed() < ms(300) + SLACK);
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.lock_interruptibly(&interrupt));
        until_queued(&waiter, 1);
        interrupt.raise();
        assert!(matches!(
            waits.join().unwrap(),
            Err(Error::Interrupted { .. })
        ));
    });
    one.unlock().unwrap();
}

fn it_enters_the_plain_lock_again(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let spin = polled(&lock);
    lock.lock().unwrap();
    assert!(spin.try_lock().unwrap());
    assert_eq!(
        (lock.hold_count().unwrap(), spin.hold_count().unwrap()),
        (2, 2)
    );
    spin.unlock().unwrap();
    assert!(lock.is_valid());
    spin.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

fn a_backoff_that_is_none_is_refused(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let wrong = [
        (Duration::ZERO, ms(1)),
        (Duration::from_micros(99), ms(1)),
        (ms(2), ms(1)),
        (ms(1), ms(1001)),
        (Duration::MAX, Duration::MAX),
    ];
    for (first, longest) in wrong {
        let error = lock.with_backoff(first, longest).try_lock().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    }
    for (first, longest) in [
        (Duration::from_micros(100), Duration::from_micros(100)),
        (ms(1000), ms(1000)),
    ] {
        lock.with_backoff(first, longest).run(|_| ()).unwrap();
    }
}
