//! The holds that are remembered for a thread, and for how long.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use crate::engine::owner::Owner;
use crate::engine::owner::holds::LOSSES_KEPT;
use crate::{Client, MultiLock};

/// How many names of locks, and of parts, are remembered for the calling thread.
fn remembered() -> (usize, usize) {
    let me = Owner::current(std::process::id()).unwrap();
    let names = me.held.stacks.lock().stacks.len();
    let parts = me.held.parts.lock().of.len();
    (names, parts)
}

/// Leaves holds behind, and looks whether more and more of them are remembered.
fn leave(what: &str, leave_one: impl Fn(usize)) {
    // A thread of its own has nothing yet.
    let most = 4 * LOSSES_KEPT;
    (0..2 * most).for_each(leave_one);
    let (names, parts) = remembered();
    assert!(names <= most, "{what}: {names} names are remembered");
    assert!(parts <= most, "{what}: {parts} parts are remembered");
}

fn on_a_thread(work: impl FnOnce() + Send + 'static) {
    thread::spawn(work).join().unwrap();
}

#[test]
fn holds_of_clients_that_are_gone_do_not_pile_up() {
    on_a_thread(|| {
        leave("renewed", |_| {
            Client::in_memory().lock("job").lock().unwrap();
        });
    });
    on_a_thread(|| {
        let lease = Duration::from_millis(10);
        leave("with fixed leases", |_| {
            let lock = Client::in_memory().lock("job").with_lease_time(lease);
            lock.lock().unwrap();
        });
    });
}

#[test]
fn multi_locks_that_were_dropped_do_not_pile_up() {
    on_a_thread(|| {
        let client = Client::in_memory();
        leave("multi-locks", |number| {
            let parts = [0, 1].map(|part| client.lock(&format!("{number}-{part}")));
            MultiLock::of(&parts).unwrap().lock().unwrap();
        });
    });
}

#[test]
fn holds_of_clients_that_were_shut_down_do_not_pile_up() {
    on_a_thread(|| {
        let lease = Duration::from_millis(10);
        let clients = std::cell::RefCell::new(Vec::new());
        leave("of clients that were shut down", |_| {
            let client = Client::in_memory();
            client.lock("job").with_lease_time(lease).lock().unwrap();
            client.shutdown();
            clients.borrow_mut().push(client);
        });
    });
}

#[test]
fn what_is_held_is_never_forgotten() {
    on_a_thread(|| {
        let client = Client::in_memory();
        let pairs = LOSSES_KEPT + 10;
        let singles: Vec<_> = (0..LOSSES_KEPT)
            .map(|number| client.lock(&format!("single-{number}")))
            .collect();
        singles.iter().for_each(|lock| lock.lock().unwrap());
        let locks: Vec<_> = (0..pairs)
            .map(|number| {
                let parts = [0, 1].map(|part| client.lock(&format!("{number}-{part}")));
                let both = MultiLock::of(&parts).unwrap();
                both.lock().unwrap();
                (parts, both)
            })
            .collect();
        let (names, parts) = remembered();
        assert_eq!((names, parts), (pairs + singles.len(), 2 * pairs));
        singles.iter().for_each(|lock| lock.unlock().unwrap());
        for (parts, both) in &locks {
            assert!(matches!(
                parts[1].try_lock(),
                Err(crate::Error::Overlap { .. })
            ));
            both.unlock().unwrap();
        }
    });
}
