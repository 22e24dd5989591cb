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
fn the_next_waiter_attempts_at_once_only_for_shared_locks() {
    assert_eq!(turn_behind_a_holder(true), Turn::Attempt);
    assert_eq!(turn_behind_a_holder(false), Turn::HeldLocally);
}

#[test]
fn two_kinds_with_one_name_have_two_queues() {
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
fn a_reply_to_one_waiter_is_known_to_its_whole_queue() {
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
fn a_refused_waiter_relies_on_no_local_holder() {
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
fn the_next_waiter_is_woken_only_if_the_head_gives_up() {
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
fn a_lock_without_a_queue_is_left_to_other_processes_too() {
    let wait_queues = WaitQueues::<(), ()>::default();
    let lock = lock(Kind::Reentrant);
    wait_queues.freed(&lock, None, None);
    assert!(!wait_queues.is_busy(&lock));
    // The client yields the lock for only a few milliseconds, which may end before the check. So the test tries again.
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

fn queues() -> (Queues, Arc<Notifier>, LockId) {
    (Queues::default(), Arc::default(), lock(Kind::Reentrant))
}

#[test]
fn a_hand_off_goes_to_the_head_once_and_wakes_it() {
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
fn a_leaving_waiter_takes_only_an_earlier_hand_off() {
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
fn hand_offs_end_while_other_processes_wait() {
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
fn a_free_lock_wakes_the_head_of_the_queue() {
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
fn a_yielding_waiter_attempts_once_others_have_the_lock() {
    // The client yields the lock for only a few milliseconds, which may end before the check. So the test tries again.
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
fn a_new_waiter_queues_behind_a_local_holder() {
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
fn a_release_without_other_waiters_ends_the_head_start() {
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
