#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::engine::owner::holds::LEAST_SWEPT;

const LOSSES_KEPT: usize = LEAST_SWEPT / 2;
use crate::engine::owner::{LockKey, Owner, current_thread_id};
use crate::ground::claim::{Kind, LockId};
use crate::{Client, Error, Guard, Lock, MultiLock};

/// Returns what the owner of the calling thread has stored: the number of lock names, and of members of `MultiLock`s.
fn remembered() -> (usize, usize) {
    let me = Owner::current(crate::ground::process::id()).unwrap();
    let names = me.held.stacks.lock().stacks.len();
    let parts = me.held.parts.lock().len();
    (names, parts)
}

fn on_a_thread(work: impl FnOnce() + Send + 'static) {
    thread::spawn(work).join().unwrap();
}

#[test]
fn a_current_hold_is_never_forgotten() {
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

/// Calls `leave_one` until a sweep removes names of locks from the owner. Returns how many names remain.
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
fn an_unlocked_hold_is_forgotten_at_once() {
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
fn kinds_under_one_key_exclude_each_other() {
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

fn taken_anew(client: &Client) -> (Lock, Guard) {
    let lock = client.lock("orders");
    let short = lock.with_lease_time(Duration::from_millis(200));
    let lost = short.guard().unwrap();
    while lost.is_valid() {
        thread::yield_now();
    }
    lock.lock().unwrap();
    (lock, lost)
}

#[test]
fn unlock_releases_held_levels_before_lost_ones() {
    on_a_thread(|| {
        let (lock, lost) = taken_anew(&Client::in_memory());
        std::mem::forget(lost);
        lock.lock().unwrap();
        for _ in 0..2 {
            assert!(lock.is_held_by_current_thread().unwrap());
            lock.unlock().unwrap();
        }
        assert!(!lock.is_held_by_current_thread().unwrap() && lock.unlock().unwrap_err().is_lost());
        assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
        assert_eq!(remembered(), (0, 0));
    });
}

#[test]
fn a_guard_of_a_lost_hold_releases_no_later_hold() {
    on_a_thread(|| {
        let (lock, lost) = taken_anew(&Client::in_memory());
        assert!(lost.unlock().unwrap_err().is_lost());
        assert_eq!(lock.hold_count().unwrap(), 1);
        lock.unlock().unwrap();
        assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
        assert_eq!(remembered(), (0, 0));
    });
}

#[test]
fn a_loss_is_remembered_until_its_unlock() {
    on_a_thread(|| {
        let (lock, lost) = taken_anew(&Client::in_memory());
        std::mem::forget(lost);
        lock.unlock().unwrap();
        assert_eq!(remembered(), (1, 0));
        assert!(lock.unlock().unwrap_err().is_lost());
        assert_eq!(remembered(), (0, 0));
    });
}

fn overlaps(outcome: Result<bool, Error>, with: &str) -> bool {
    matches!(outcome, Err(Error::Overlap { held, .. }) if &*held == with)
}

#[test]
fn a_multi_lock_is_reentrant_and_refuses_overlaps() {
    on_a_thread(|| {
        let client = Client::in_memory();
        let [a, b, c] = ["a", "b", "c"].map(|name| client.lock(name));
        let both = MultiLock::of([&a, &b]).unwrap();
        both.lock().unwrap();
        both.lock().unwrap();
        assert_eq!(both.hold_count().unwrap(), 2);
        let others = MultiLock::of([&b, &c]).unwrap();
        assert!(overlaps(others.try_lock(), both.name()));
        assert!(overlaps(a.try_lock(), both.name()));
        assert!(c.try_lock().unwrap());
        assert!(overlaps(MultiLock::of([&c]).unwrap().try_lock(), "c"));
        c.unlock().unwrap();
        both.unlock().unwrap();
        both.unlock().unwrap();
        // All levels of `both` are released. The owner remembers that `both` held `a`, but `a` can be locked alone.
        assert!(others.try_lock().unwrap());
        others.unlock().unwrap();
        assert!(a.try_lock().unwrap());
    });
}

#[test]
fn a_living_thread_is_found_by_its_number() {
    let pid = crate::ground::process::id();
    let numbers = [(); 3].map(|()| thread::spawn(current_thread_id).join().unwrap());
    let mine = current_thread_id();
    assert_eq!(mine, current_thread_id());
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert!(mine > 0 && !numbers.contains(&mine));
    let found = Owner::current(pid).unwrap();
    assert!(Arc::ptr_eq(&Owner::find(pid, mine).unwrap(), &found));
    drop(Owner::of_handle(pid));
    assert!(
        Owner::find(pid, mine).is_some(),
        "a handle has its number, too"
    );
    for ended in numbers {
        assert!(Owner::find(pid, ended).is_none());
    }
    assert_eq!(Client::in_memory().inner.pid, pid);
}
