//! The wait queue by the rules of a kind, without threads.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::wait_queue::{Turn, WaitQueues, Yield};
use crate::ground::claim::{Kind, LockId};
use crate::ground::notify::{Notifier, Wake};
use crate::ground::time;

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
fn those_who_came_before_the_question_are_let_in_by_its_answer() {
    let wait_queues = Arc::<WaitQueues<(), ()>>::default();
    let notifier = Arc::<Notifier>::default();
    let join = || wait_queues.join(&lock(Kind::Latch), &notifier.parker(), ());
    let (first, early) = (join(), join());
    let newest = first.newest();
    let late = join();
    first.tell(newest);
    assert!(early.view().is_told && !late.view().is_told);
    first.let_in(newest);
    assert!(early.is_let_in() && early.is_granted() && !late.is_let_in());
    first.leave(true, true);
    drop(early);
    assert_eq!(late.view().turn, Turn::Attempt, "it asks by itself");
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
        (is_heard, view.is_in_doubt, view.is_undone)
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
        let is_woken = |wake| matches!(wake, Wake::Permit);
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
        let yields = Yield::new(Duration::from_secs(1), None);
        wait_queues.freed(&lock, Some(yields), None);
        wait_queues.is_busy(&lock)
    };
    assert!((0..10_000).any(|_| is_left()));
    let other = LockId {
        name: "stock".into(),
        ..lock
    };
    assert!(!wait_queues.is_busy(&other));
}
