//! The fencing tokens of holds.

use std::sync::Mutex;

use super::*;

laws! {
    fenced {
        tokens_rise_over_grants_and_clients
        a_re_entry_keeps_its_token
        a_hand_off_draws_a_new_token
        only_the_holder_gets_its_token
        tokens_rise_over_losses
        owned_guards_draw_tokens_like_threads
    }
}

/// Acquires the lock for a moment, and returns the token of that hold.
fn token_of(lock: &Lock) -> u64 {
    lock.guard().unwrap().fencing_token().unwrap()
}

fn tokens_rise_over_grants_and_clients(backend: &Backend) {
    const ROUNDS: usize = 25;
    let clients: Vec<_> = (0..4).map(|_| backend.client()).collect();
    // In the order of their holds.
    let tokens = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for client in &clients {
            for _ in 0..2 {
                let (lock, tokens) = (client.lock("orders"), &tokens);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let guard = lock.guard().unwrap();
                        tokens.lock().unwrap().push(guard.fencing_token().unwrap());
                        guard.unlock().unwrap();
                    }
                });
            }
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert_eq!(tokens.len(), 8 * ROUNDS);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

fn a_re_entry_keeps_its_token(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let outer = lock.guard().unwrap();
    let token = outer.fencing_token();
    assert!(token.is_some());
    let inner = lock.with_lease_time(LEASE * 3).guard().unwrap();
    assert!(lock.try_lock().unwrap());
    assert_eq!(
        [inner.fencing_token(), lock.fencing_token().unwrap()],
        [token; 2]
    );
    lock.unlock().unwrap();
    drop(inner);
    thread::sleep(LEASE);
    assert!(outer.is_valid(), "it is renewed");
    assert_eq!(outer.fencing_token(), token);
    outer.unlock().unwrap();
    assert!(Some(token_of(&lock)) > token);
}

fn a_hand_off_draws_a_new_token(backend: &Backend) {
    let lock = backend.client().lock("orders");
    for _ in 0..5 {
        let guard = lock.guard().unwrap();
        let first = guard.fencing_token().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| token_of(&lock));
            until_queued(&lock, 1);
            guard.unlock().unwrap();
            let next = waits.join().unwrap();
            assert!(next > first, "{next} after {first}");
        });
    }
}

fn only_the_holder_gets_its_token(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let is_not_held = || matches!(lock.fencing_token(), Err(Error::NotHeld { .. }));
    assert!(is_not_held());
    lock.lock().unwrap();
    assert!(lock.fencing_token().unwrap().is_some());
    assert!(elsewhere(is_not_held));
    lock.unlock().unwrap();
    assert!(is_not_held());
    let error = backend.client().lock("").fencing_token().unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
}

fn tokens_rise_over_losses(backend: &Backend) {
    let (lock, other) = (
        backend.client().lock("orders"),
        backend.client().lock("orders"),
    );
    let mut last = 0;
    let mut rises = |next: u64| {
        assert!(next > last, "{next} after {last}");
        last = next;
    };
    rises(token_of(&lock));
    lock.lock().unwrap();
    rises(lock.fencing_token().unwrap().unwrap());
    assert!(other.force_unlock().unwrap());
    rises(token_of(&other));
    assert!(lock.unlock().unwrap_err().is_lost());
    let short = lock.with_lease_time(ms(50));
    short.lock().unwrap();
    rises(short.fencing_token().unwrap().unwrap());
    thread::sleep(ms(80));
    rises(token_of(&other));
    rises(token_of(&lock));
}

fn owned_guards_draw_tokens_like_threads(backend: &Backend) {
    let lock = backend.client().lock("orders");
    let mut last = token_of(&lock);
    for _ in 0..5 {
        let guard = lock.owned().unwrap();
        assert!(matches!(lock.fencing_token(), Err(Error::NotHeld { .. })));
        let (of_guard, of_thread) = thread::scope(|scope| {
            let waits = scope.spawn(|| token_of(&lock));
            until_queued(&lock, 1);
            let of_guard = elsewhere(|| {
                let token = guard.fencing_token().unwrap();
                guard.unlock().unwrap();
                token
            });
            (of_guard, waits.join().unwrap())
        });
        assert!(last < of_guard && of_guard < of_thread);
        last = of_thread;
    }
}
