//! The holds that are remembered for a thread, and for how long.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use crate::engine::owner::holds::LOSSES_KEPT;
use crate::engine::owner::{LockKey, Owner};
use crate::ground::claim::{Kind, LockId};
use crate::{Client, Error, MultiLock};

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
            assert!(matches!(parts[1].try_lock(), Err(Error::Overlap { .. })));
            both.unlock().unwrap();
        }
    });
}

/// With how many names, and with how many parts, it is looked which can be forgotten.
fn sweeps_at() -> (usize, usize) {
    let me = Owner::current(std::process::id()).unwrap();
    let names = me.held.stacks.lock().sweep_at;
    let parts = me.held.parts.lock().sweep_at;
    (names, parts)
}

/// Leaves holds until some are forgotten, and returns how many names are remembered then.
fn left_by_a_sweep(leave_one: impl Fn(usize)) -> usize {
    let mut before = 0;
    for number in 0.. {
        leave_one(number);
        let (names, _) = remembered();
        if names < before {
            return names;
        }
        before = names;
    }
    unreachable!("numbers do not end")
}

#[test]
fn what_was_unlocked_is_forgotten_at_once() {
    on_a_thread(|| {
        let client = Client::in_memory();
        for number in 0..10 {
            let lock = client.lock(&format!("{number}"));
            lock.lock().unwrap();
            lock.unlock().unwrap();
            assert_eq!(remembered(), (0, 0));
        }
    });
}

#[test]
fn a_sweep_forgets_all_of_clients_that_are_gone() {
    on_a_thread(|| {
        let left = left_by_a_sweep(|_| Client::in_memory().lock("job").lock().unwrap());
        assert_eq!(left, 1, "the one that began now");
    });
}

#[test]
fn a_sweep_forgets_the_oldest_losses_and_no_other() {
    on_a_thread(|| {
        let client = Client::in_memory();
        let lock = |number: usize| {
            let lock = client.lock(&format!("{number}"));
            lock.with_lease_time(Duration::from_millis(200))
        };
        let last = 2 * LOSSES_KEPT;
        let until_all_are_over = || thread::sleep(Duration::from_millis(250));
        let left = left_by_a_sweep(|number| {
            if number == last {
                until_all_are_over();
            }
            lock(number).lock().unwrap();
        });
        assert_eq!(left, LOSSES_KEPT + 1, "and the one that began now");
        until_all_are_over();
        for number in 0..=last {
            let error = lock(number).unlock().unwrap_err();
            assert_eq!(
                error.is_lost(),
                number + LOSSES_KEPT >= last,
                "{number}: {error}"
            );
        }
    });
}

#[test]
fn it_is_looked_for_what_can_be_forgotten_whenever_the_names_have_doubled() {
    on_a_thread(|| {
        let (client, held) = (Client::in_memory(), std::cell::RefCell::new(Vec::new()));
        let hold = |number: usize| {
            let parts = [0, 1].map(|part| client.lock(&format!("{number}-{part}")));
            let both = MultiLock::of(&parts).unwrap();
            both.lock().unwrap();
            held.borrow_mut().push(both);
        };
        hold(0);
        let first = 2 * LOSSES_KEPT;
        assert_eq!(sweeps_at(), (first, first));
        // A multi-lock has one name and two parts.
        (1..=first).for_each(hold);
        assert_eq!(sweeps_at(), (2 * first, 4 * first));
    });
}

#[test]
fn a_lock_is_kin_to_others_under_its_key() {
    let kin = |kind| {
        let name = "orders".into();
        let key = LockKey {
            client: 1,
            lock: LockId { kind, name },
        };
        key.kin().map(|it| it.lock.kind).collect::<Vec<_>>()
    };
    assert_eq!(kin(Kind::Token), []);
    assert_eq!(kin(Kind::Reentrant), [Kind::Fenced, Kind::Fair]);
    assert_eq!(kin(Kind::Fair), [Kind::Reentrant, Kind::Fenced]);
    assert_eq!(kin(Kind::Read), [Kind::Write]);
}
