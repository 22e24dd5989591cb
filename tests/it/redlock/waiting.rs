//! Who waits for a quorum is woken by enough of its nodes.

use std::slice::from_ref;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Error, Interrupt, Lock, Redlock};

use super::{LONG, NODE_TIMEOUT, SLACK, all_free, clients, elsewhere, redlock, servers};
use crate::support::{RedisServer, ms};

/// Whoever was not woken looks again after a second.
const POLL: Duration = ms(1000);

/// How long after the unlock of `holder` each of `waiters` has had the lock.
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
        // Past the look that follows the subscription, and not near the next one.
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

/// Two quorums of one process that use the same clients of the nodes.
#[test]
fn waiters_that_share_the_nodes_clients_are_woken_too() {
    let servers = servers(5);
    let nodes = clients(servers.iter().map(RedisServer::url));
    let shared = || {
        let builder = Redlock::builder().nodes(nodes.clone()).max_lease(LONG);
        let builder = builder.node_timeout(NODE_TIMEOUT).trust_new_nodes();
        builder.build().unwrap().lock("a")
    };
    let waiters: Vec<Lock> = (0..4).map(|_| shared()).collect();
    let holder = redlock(&servers).lock("a");
    let mut all = Vec::new();
    for _ in 0..6 {
        // The one that waits longest comes after three others.
        all.push(*waits(&holder, &waiters).iter().max().unwrap());
    }
    assert!(median(all.clone()) < POLL / 2, "{all:?}");
}

#[test]
fn an_interrupt_and_a_shutdown_end_a_wait_that_a_majority_does_not_answer() {
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
