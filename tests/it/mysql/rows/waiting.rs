//! How a wait for a row ends.

use super::*;

pub(super) fn a_wait_ends_at_its_timeout_or_when_the_row_is_free(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let client = client(&database);
    let lock = client.row_lock(&accounts, 1);
    let guard = lock.lock(Wait::Never).unwrap();
    for wait in [ms(0), ms(150), ms(1000), ms(1500), ms(2300)] {
        let start = Instant::now();
        let refused = lock.lock(Wait::For(wait));
        assert!(is_timeout(&refused), "{refused:?}");
        let took = start.elapsed();
        assert!(
            took >= wait && took < wait + ms(900),
            "{took:?} for {wait:?}"
        );
    }
    let error = lock.lock(Wait::Never).unwrap_err();
    assert!(error.to_string().contains("accounts[1]"), "{error}");
    thread::scope(|scope| {
        let forever = scope.spawn(|| lock.lock(Wait::Forever).map(drop));
        let timed = scope.spawn(|| lock.lock(Wait::For(Duration::from_secs(20))).map(drop));
        thread::sleep(ms(1200));
        assert!(!forever.is_finished() && !timed.is_finished());
        let freed = Instant::now();
        drop(guard);
        forever.join().unwrap().unwrap();
        timed.join().unwrap().unwrap();
        assert!(freed.elapsed() < ms(900), "{:?}", freed.elapsed());
    });
}

pub(super) fn an_interrupt_and_a_shutdown_end_a_wait(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let holder = client(&database);
    let guard = holder.lock_many(&accounts, [1, 2], Wait::Forever).unwrap();
    let waiting = client(&database);
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let lock = waiting.row_lock(&accounts, 1);
        let (waiting, accounts, interrupt) = (&waiting, &accounts, &interrupt);
        let one = scope.spawn({
            let lock = lock.clone();
            move || lock.lock_interruptibly(Wait::Forever, interrupt)
        });
        let timed = scope.spawn({
            let lock = lock.clone();
            move || lock.lock_interruptibly(Wait::For(ms(30_000)), interrupt)
        });
        let closed = [
            scope.spawn({
                let lock = lock.clone();
                move || lock.lock(Wait::Forever)
            }),
            scope.spawn(move || waiting.lock_many(accounts, [2], Wait::For(ms(30_000)))),
        ];
        thread::sleep(ms(300));
        let start = Instant::now();
        interrupt.raise();
        for waiter in [one, timed] {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        }
        assert!(start.elapsed() < ms(6000), "{:?}", start.elapsed());
        assert!(closed.iter().all(|waiter| !waiter.is_finished()));
        let start = Instant::now();
        waiting.shutdown();
        for waiter in closed {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Closed { .. }), "{error}");
        }
        assert!(start.elapsed() < ms(6000), "{:?}", start.elapsed());
        // Returns at once, whatever the row is.
        let free = holder.row_lock(accounts, 3);
        let error = free.lock_interruptibly(Wait::Never, interrupt).unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        let error = waiting.row_lock(accounts, 3).try_lock().unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error}");
    });
    guard.commit().unwrap();
    let all = holder.lock_many(&accounts, [1, 2, 3], Wait::Never);
    all.unwrap().commit().unwrap();
}

pub(super) fn a_wait_for_a_connection_ends_like_any_other(server: &'static MariaDb) {
    let (database, accounts) = with_accounts(server);
    let few = Client::builder()
        .command_timeout(Duration::from_secs(30))
        .pool_size(1);
    let client = client_with(&database, few);
    let guard = client.row_lock(&accounts, 1).lock(Wait::Never).unwrap();
    let other = client.row_lock(&accounts, 2);
    for wait in [Wait::Never, Wait::For(ms(500))] {
        let start = Instant::now();
        let error = other.lock(wait).unwrap_err();
        assert!(
            matches!(error, Error::Exhausted { connections: 1, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("row lock"), "{error}");
        let took = start.elapsed();
        assert!(took < ms(6000), "{took:?}");
        assert!(wait == Wait::Never || took >= ms(500), "{took:?}");
    }
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let (other, interrupt) = (&other, &interrupt);
        let waiter = scope.spawn(move || other.lock_interruptibly(Wait::Forever, interrupt));
        let closed = scope.spawn(move || other.lock(Wait::Forever).map(drop));
        thread::sleep(ms(300));
        let start = Instant::now();
        interrupt.raise();
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        assert!(!closed.is_finished());
        // It continues as soon as a connection is free.
        let next = scope.spawn(move || other.lock(Wait::For(Duration::from_secs(20))).map(drop));
        guard.commit().unwrap();
        next.join().unwrap().unwrap();
        closed.join().unwrap().unwrap();
        let guard = other.lock(Wait::Never).unwrap();
        let closed = scope.spawn(move || other.lock(Wait::Forever));
        thread::sleep(ms(300));
        client.shutdown();
        let error = closed.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        assert!(start.elapsed() < ms(15_000), "{:?}", start.elapsed());
        drop(guard);
    });
}
