//! A waiter of a quorum is woken when enough nodes are free.

use std::slice::from_ref;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Interrupt, Lock, Redlock};

use super::{SLACK, all_free, elsewhere, redlock, servers};
use crate::support::ms;

/// A waiter that was not woken polls after a second.
const POLL: Duration = ms(1000);

/// How long after the unlock of `holder` each of `waiters` acquired.
fn waits(holder: &Lock, waiters: &[Lock]) -> Vec<Duration> {
    holder.lock().unwrap();
    thread::scope(|scope| {
        let waiting: Vec<_> = waiters
            .iter()
            .map(|waiter| {
                scope.spawn(|| {
                    waiter.lock().unwrap();
                    let now = Instant::now();
                    waiter.unlock().unwrap();
                    now
                })
            })
            .collect();
        // After the query that follows the subscription, and well before the next one.
        thread::sleep(ms(250));
        let freed = Instant::now();
        holder.unlock().unwrap();
        let since = |at: Instant| at.saturating_duration_since(freed);
        waiting
            .into_iter()
            .map(|waiting| since(waiting.join().unwrap()))
            .collect()
    })
}

fn median(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    waits[waits.len() / 2]
}

#[test]
fn an_unlock_wakes_a_waiter_even_if_a_minority_is_down() {
    let servers = servers(5);
    let (holder, waiter) = (redlock(&servers).lock("a"), redlock(&servers).lock("a"));
    let healthy: Vec<_> = (0..3)
        .flat_map(|_| waits(&holder, from_ref(&waiter)))
        .collect();
    servers[0].kill();
    servers[1].freeze();
    let damaged: Vec<_> = (0..3)
        .flat_map(|_| waits(&holder, from_ref(&waiter)))
        .collect();
    for (what, waits) in [("healthy", healthy), ("damaged", damaged)] {
        let middle = median(waits.clone());
        assert!(middle < POLL / 2, "{what}: {waits:?}");
    }
    servers[1].thaw();
}

#[test]
fn the_shutdown_of_any_node_client_ends_a_wait() {
    for node in 0..3 {
        let clients: Vec<Client> = (0..3).map(|_| Client::in_memory()).collect();
        let redlock = Redlock::new(clients.clone()).unwrap();
        let lock = redlock.lock("a");
        let _guard = lock.guard().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| redlock.lock("a").try_lock_for(SLACK));
            thread::sleep(ms(300));
            clients[node].shutdown();
            let outcome = waiting.join().unwrap();
            assert!(
                matches!(outcome, Err(Error::Closed { .. })),
                "{node}: {outcome:?}"
            );
        });
    }
}

#[test]
fn interrupt_and_shutdown_end_a_wait_without_a_majority() {
    let servers = servers(3);
    let redlock = redlock(&servers);
    let lock = redlock.lock("a");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    for server in &servers[..2] {
        server.freeze();
    }
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.lock_interruptibly(&interrupt));
        let closing = scope.spawn(|| elsewhere(|| lock.lock()));
        thread::sleep(ms(300));
        let start = Instant::now();
        interrupt.raise();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
        redlock.shutdown();
        let error = closing.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    });
    for server in &servers[..2] {
        server.thaw();
    }
    all_free(&servers[2..], "a");
}
