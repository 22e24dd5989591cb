//! The wait queue by the rules of a kind, without threads.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use crate::engine::wait_queue::{QueueNode, Turn, WaitQueues};
use crate::ground::claim::{Kind, LockId};
use crate::ground::notify::{Notifier, Wake};
use crate::ground::time;

const SECOND: Duration = Duration::from_secs(1);

fn lock(kind: Kind) -> LockId {
    LockId {
        kind,
        name: "orders".into(),
    }
}

/// The turn of the second waiter after the first one has left with the lock.
fn turn_behind_a_holder(is_shared: bool) -> Turn {
    let wait_queues = Arc::<WaitQueues<(), ()>>::default();
    let notifier = Arc::<Notifier>::default();
    let lock = lock(Kind::Reentrant);
    let first = wait_queues.join(&lock, &notifier.parker(), ());
    let second = wait_queues.join(&lock, &notifier.parker(), ());
    assert_eq!(
        (first.view().turn, second.view().turn),
        (Turn::Attempt, Turn::NotFirst)
    );
    first.leave(true, is_shared);
    second.view().turn
}

#[test]
fn the_next_waiter_asks_at_once_only_where_a_lock_is_shared() {
    assert_eq!(turn_behind_a_holder(true), Turn::Attempt);
    assert_eq!(turn_behind_a_holder(false), Turn::HeldLocally);
}

#[test]
fn two_kinds_of_a_name_have_two_queues() {
    let wait_queues = Arc::<WaitQueues<(), ()>>::default();
    let notifier = Arc::<Notifier>::default();
    let node = wait_queues.join(&lock(Kind::Reentrant), &notifier.parker(), ());
    assert!(wait_queues.is_busy(&lock(Kind::Reentrant)));
    assert!(!wait_queues.is_busy(&lock(Kind::Token)));
    let other = wait_queues.join(&lock(Kind::Token), &notifier.parker(), ());
    assert_eq!(
        (node.view().turn, other.view().turn),
        (Turn::Attempt, Turn::Attempt)
    );
    assert!(wait_queues.choose(&lock(Kind::Token), None).is_some());
}

#[test]
fn what_one_waiter_hears_all_of_its_queue_know() {
    let wait_queues = Arc::<WaitQueues<(), ()>>::default();
    let notifier = Arc::<Notifier>::default();
    let join = || wait_queues.join(&lock(Kind::Reentrant), &notifier.parker(), ());
    let (first, second) = (join(), join());
    let known = || {
        let view = second.view();
        let is_heard = view.last_usable.is_some();
        (is_heard, view.is_in_doubt, view.unreplicated_at.is_some())
    };
    assert_eq!(known(), (false, false, false));
    first.note_trouble(false);
    assert_eq!(known(), (false, true, false));
    first.note_trouble(true);
    first.note_trouble(false);
    assert_eq!(known(), (false, true, true), "it stays known");
    first.note_refused(false);
    assert_eq!(known(), (false, true, true), "that was of no use");
    first.note_refused(true);
    assert_eq!(known(), (true, false, false));
    first.note_trouble(true);
    first.note_refused_before_joining();
    assert_eq!(known(), (true, false, false));
}

#[test]
fn a_waiter_that_was_refused_relies_on_no_holder_here() {
    let wait_queues = Arc::<WaitQueues<(), ()>>::default();
    let notifier = Arc::<Notifier>::default();
    let join = || wait_queues.join(&lock(Kind::Reentrant), &notifier.parker(), ());
    let (first, second) = (join(), join());
    first.leave(true, false);
    let third = join();
    third.note_refused_before_joining();
    assert_eq!(second.view().turn, Turn::HeldLocally, "it was before that");
    second.note_refused(false);
    assert_eq!(second.view().turn, Turn::Attempt);
}

#[test]
fn the_next_is_woken_only_behind_a_first_one_that_leaves_nothing() {
    let woken = |leaves_with_the_lock: bool, leaves: usize| {
        let wait_queues = Arc::<WaitQueues<(), ()>>::default();
        let notifier = Arc::<Notifier>::default();
        let parkers = [(); 3].map(|()| notifier.parker());
        let join = |parker| wait_queues.join(&lock(Kind::Reentrant), parker, ());
        let mut nodes: Vec<_> = parkers.iter().map(join).collect();
        nodes.remove(leaves).leave(leaves_with_the_lock, false);
        let is_woken = |wake| matches!(wake, Wake::Look);
        parkers.map(|parker| is_woken(parker.park(Some(time::now()))))
    };
    assert_eq!(woken(false, 0), [false, true, false]);
    assert_eq!(woken(false, 1), [false, false, false]);
    assert_eq!(woken(true, 0), [false, false, false]);
}

#[test]
fn a_lock_without_a_queue_is_left_to_others_too() {
    let wait_queues = WaitQueues::<(), ()>::default();
    let lock = lock(Kind::Reentrant);
    wait_queues.freed(&lock, None, None);
    assert!(!wait_queues.is_busy(&lock));
    // They have a few milliseconds, in which this thread may not get to look.
    let is_left = || {
        wait_queues.freed(&lock, Some((SECOND, 1)), None);
        wait_queues.is_busy(&lock)
    };
    assert!((0..10_000).any(|_| is_left()));
    let other = LockId {
        name: "stock".into(),
        ..lock
    };
    assert!(!wait_queues.is_busy(&other));
}

type Queues = Arc<WaitQueues<u32, u32>>;

/// The queues of a client, and what a waiter for its lock is woken by.
fn queues() -> (Queues, Arc<Notifier>, LockId) {
    (Queues::default(), Arc::default(), lock(Kind::Reentrant))
}

#[test]
fn the_first_in_the_queue_is_handed_the_lock_once_and_woken() {
    let (queues, notifier, lock) = queues();
    assert!(queues.choose(&lock, None).is_none(), "nobody waits");
    let parkers = [(); 2].map(|()| notifier.parker());
    let [first, second] = [0, 1].map(|at| queues.join(&lock, &parkers[at], 7 + at as u32));
    let chosen = queues.choose(&lock, None).unwrap();
    assert_eq!(*chosen.offer(), 7);
    assert!(queues.choose(&lock, None).is_none(), "it was chosen before");
    drop(chosen);
    assert!(first.take().is_none() && !first.is_granted());
    let chosen = queues.choose(&lock, None).unwrap();
    assert_eq!(chosen.grant(3, false), Ok(()));
    assert!(first.is_granted() && !second.is_granted());
    assert_eq!(parkers[0].park(Some(time::now())), Wake::Look);
    assert_eq!(parkers[1].park(Some(time::now())), Wake::TimedOut);
    assert_eq!((first.take(), first.take()), (Some(3), None));
    assert_eq!(first.view().turn, Turn::HeldLocally);
    assert!(second.view().last_usable.is_some());
    assert_eq!(first.leave(true, false), None);
    assert_eq!(second.view().turn, Turn::HeldLocally);
}

#[test]
fn a_waiter_that_leaves_takes_what_it_was_handed_before_and_nothing_after() {
    let (queues, notifier, lock) = queues();
    let node = queues.join(&lock, &notifier.parker(), 0);
    let chosen = queues.choose(&lock, None).unwrap();
    assert_eq!(node.leave(false, false), None);
    assert_eq!(chosen.grant(3, false), Err(3));
    let node = queues.join(&lock, &notifier.parker(), 0);
    let chosen = queues.choose(&lock, None).unwrap();
    assert_eq!(chosen.grant(4, false), Ok(()));
    assert_eq!(node.leave(false, false), Some(4));
}

#[test]
fn after_some_hand_overs_the_lock_is_set_free_for_others_who_listen() {
    let (queues, notifier, lock) = queues();
    let mut handed = 0;
    loop {
        let node = queues.join(&lock, &notifier.parker(), 0);
        let behind = queues.join(&lock, &notifier.parker(), 0);
        let Some(chosen) = queues.choose(&lock, None) else {
            break;
        };
        assert_eq!(chosen.grant(handed, true), Ok(()));
        assert_eq!(node.leave(true, false), Some(handed));
        drop(behind);
        handed += 1;
        assert!(handed < 100);
    }
    assert!(handed > 1);
}

#[test]
fn the_first_in_the_queue_hears_that_the_lock_is_free() {
    let (queues, notifier, lock) = queues();
    let parkers = [(); 3].map(|()| notifier.parker());
    let join = |at: usize| queues.join(&lock, &parkers[at], 0);
    let (holder, first, second) = (join(0), join(1), join(2));
    holder.leave(true, false);
    assert_eq!(first.view().turn, Turn::HeldLocally);
    queues.freed(&lock, None, None);
    let turns = (first.view().turn, second.view().turn);
    assert_eq!(turns, (Turn::Attempt, Turn::NotFirst));
    let woken = parkers.map(|parker| parker.park(Some(time::now())));
    assert_eq!(woken, [Wake::TimedOut, Wake::Look, Wake::TimedOut]);
}

#[test]
fn a_lock_that_is_left_to_others_is_asked_for_once_one_of_them_has_it() {
    // They have a few milliseconds, in which this thread may not get to look.
    let is_left_after = |told: fn(&Queues, &QueueNode<u32, u32>)| {
        (0..1_000).any(|_| {
            let (queues, notifier, lock) = queues();
            let node = queues.join(&lock, &notifier.parker(), 0);
            let is_left = || matches!(node.view().turn, Turn::Yield(_));
            queues.freed(&lock, Some((SECOND, 1)), None);
            let was_left = is_left();
            told(&queues, &node);
            was_left && is_left()
        })
    };
    assert!(is_left_after(|_, _| {}));
    assert!(is_left_after(|_, node| node.note_refused_before_joining()));
    assert!(!is_left_after(|_, node| node.note_refused(true)));
    assert!(!is_left_after(|_, node| node.note_refused(false)));
    assert!(!is_left_after(|queues, _| {
        queues.freed(&lock(Kind::Reentrant), None, None)
    }));
}

#[test]
fn one_who_comes_waits_for_a_holder_here_who_had_to_wait() {
    let (queues, notifier, lock) = queues();
    let after = |has_the_lock, is_shared| {
        let node = queues.join(&lock, &notifier.parker(), 0);
        node.leave(has_the_lock, is_shared);
        let is_busy = queues.is_busy(&lock);
        let next = queues.join(&lock, &notifier.parker(), 0);
        assert!(queues.is_busy(&lock));
        (is_busy, next.view().turn)
    };
    assert_eq!(after(true, false), (true, Turn::HeldLocally));
    assert_eq!(after(true, true), (false, Turn::Attempt));
    assert_eq!(after(false, false), (false, Turn::Attempt));
    let node = queues.join(&lock, &notifier.parker(), 0);
    node.leave(true, false);
    assert!(queues.is_busy(&lock));
    queues.freed(&lock, None, None);
    assert!(!queues.is_busy(&lock), "it was set free");
}

#[test]
fn a_lock_that_is_left_to_others_is_left_to_nobody_once_it_is_freed_without_them() {
    let (queues, _, lock) = queues();
    let is_left = |then: &dyn Fn()| {
        (0..10_000).any(|_| {
            queues.freed(&lock, Some((SECOND, 1)), None);
            then();
            queues.is_busy(&lock)
        })
    };
    assert!(is_left(&|| {}));
    assert!(!is_left(&|| queues.freed(&lock, None, None)));
}
