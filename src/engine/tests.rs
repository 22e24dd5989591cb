//! The wait queue by the rules of a kind, without threads.

use std::sync::Arc;

use crate::engine::wait_queue::{Turn, WaitQueues};
use crate::ground::claim::{Kind, LockId};
use crate::ground::notify::Notifier;

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
