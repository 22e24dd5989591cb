//! How a hold is given back or handed over.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use super::scene::{LEASE, Scene, in_doubt, no_answer, pause, silent, unsupported, until};
use crate::engine::hold::{HandOffOffer, Hold, Lease};
use crate::engine::raw_lock::visit::LockVisit;
use crate::engine::raw_lock::{Entry, RawLock};
use crate::engine::wait_loop::{Visit, WaitLimit};
use crate::engine::wait_queue::{QueueNode, Turn};
use crate::ground::claim::Kind;
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::time;
use crate::store::{Granted, Outcome, Refusal, Released};

pub(super) const FIXED: Lease = Lease::Fixed(LEASE);

/// A lock of the calling thread, and its hold.
pub(super) fn taken(scene: &Scene) -> (RawLock, Entry) {
    let lock = scene.lock(Kind::Reentrant, FIXED);
    let entry = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    (lock, entry)
}

fn join(scene: &Scene, lock: &RawLock) -> QueueNode<HandOffOffer, Arc<Hold>> {
    let parker = scene.store.facts.notifier.parker();
    let offer = HandOffOffer {
        thread: 7,
        liveness: Default::default(),
        lease: FIXED,
    };
    scene.inner.wait_queues.join(&lock.key.lock, &parker, offer)
}

pub(super) fn is_lost(outcome: &Result<()>) -> bool {
    matches!(outcome, Err(Error::Lost { .. }))
}

#[test]
fn a_lock_that_is_set_free_is_left_to_others_for_two_round_trips() {
    let scene = Scene::new();
    let left_for = || {
        let (lock, entry) = taken(&scene);
        let node = join(&scene, &lock);
        scene.meanwhile(|| pause(Duration::from_millis(3)));
        scene
            .store
            .releases
            .lock()
            .push_back(Ok(Outcome::Done(Released {
                others_wait: true,
                ..Released::default()
            })));
        lock.release(&entry.hold, entry.level).unwrap();
        let freed = time::now();
        match node.view().turn {
            Turn::Yield(until) => Some(until.saturating_duration_since(freed)),
            _ => None,
        }
    };
    // This thread may not get to look in time.
    let tries = (0..50).filter_map(|_| left_for());
    let longest = tries.take(3).max().unwrap();
    assert!(longest > Duration::from_millis(5), "{longest:?}");
}

#[test]
fn what_a_release_may_have_left_is_cleared_up() {
    for is_composite in [false, true] {
        let scene = Scene::with(|facts| facts.is_composite = is_composite);
        let release = |answer: Result<Outcome<Released>>| {
            let (lock, entry) = taken(&scene);
            let behind = join(&scene, &lock);
            scene.store.releases.lock().push_back(answer);
            let outcome = lock.release(&entry.hold, entry.level);
            // Whoever waits asks, whatever came of it.
            assert_eq!(behind.view().turn, Turn::Attempt);
            let visitor = entry.hold.visitor.to_string();
            let resolved = scene.resolved();
            let own = resolved.iter().filter(|it| **it == visitor).count();
            (outcome, own, resolved.len() - own)
        };
        let done = Outcome::Done(Released {
            leftover: Some(in_doubt("left", 1)),
            ..Released::default()
        });
        let (outcome, own, others) = release(Ok(done));
        assert!(outcome.is_ok() && (own, others) == (0, 1));
        let (outcome, own, others) = release(Ok(Outcome::Gone(LossCause::Gone)));
        assert!(is_lost(&outcome));
        assert_eq!((own, others), (usize::from(is_composite), 0));
        let (outcome, own, others) = release(no_answer("silent"));
        assert!(outcome.is_err() && (own, others) == (0, 1));
        let (outcome, own, others) = release(Err(silent()));
        assert!(outcome.is_err() && (own, others) == (1, 0));
    }
}

/// A lock that is held while one waits to whom the store hands it.
fn taken_before_one_who_waits(
    scene: &Scene,
) -> (RawLock, Entry, QueueNode<HandOffOffer, Arc<Hold>>) {
    let (lock, entry) = taken(scene);
    let node = join(scene, &lock);
    let granted = Ok(Outcome::Done(scene.granted()));
    scene.store.hand_offs.lock().push_back(granted);
    (lock, entry, node)
}

#[test]
fn a_hold_is_handed_to_the_first_who_waits() {
    let scene = Scene::new();
    let (lock, entry, node) = taken_before_one_who_waits(&scene);
    lock.release(&entry.hold, entry.level).unwrap();
    let handed = node.take().unwrap();
    assert!(handed.is_valid() && handed.visitor != entry.hold.visitor);
    assert!(scene.store.released.lock().is_empty());
    assert_eq!(scene.inner.watchdog.holds().len(), 1);
}

#[test]
fn a_hold_whose_successor_has_left_is_given_back() {
    let scene = Scene::new();
    let (lock, entry, node) = taken_before_one_who_waits(&scene);
    scene.meanwhile(move || drop(node.leave(false, false)));
    lock.release(&entry.hold, entry.level).unwrap();
    let released = scene.store.released.lock();
    let (claim, keep) = &released[0];
    assert!(claim.visitor != entry.hold.visitor);
    assert_eq!((released.len(), claim.count, *keep), (1, 1, 0));
    assert!(scene.inner.watchdog.holds().is_empty());
}

#[test]
fn a_hand_off_that_fails_leaves_the_lock_to_those_who_ask() {
    let hand_off = |answer| {
        let scene = Scene::new();
        let (lock, entry) = taken(&scene);
        let node = join(&scene, &lock);
        scene.store.hand_offs.lock().push_back(answer);
        let outcome = lock.release(&entry.hold, entry.level);
        assert!(node.take().is_none() && node.view().turn == Turn::Attempt);
        let released = scene.store.released.lock().len();
        (outcome, released, scene.resolved())
    };
    let (outcome, released, resolved) = hand_off(Ok(Outcome::Gone(LossCause::Gone)));
    assert!(is_lost(&outcome) && released == 0 && resolved.is_empty());
    let (outcome, released, mut resolved) = hand_off(Ok(Outcome::Unknown {
        in_doubt: in_doubt("one", 1),
        successor: Some(Box::new(in_doubt("other", 1))),
        error: silent(),
    }));
    resolved.sort();
    assert!(matches!(outcome, Err(Error::Unknown { .. })) && released == 0);
    assert_eq!(resolved, ["one:1:1", "other:1:1"]);
    // Nothing was changed.
    let (outcome, released, _) = hand_off(Err(unsupported(&"orders".into())));
    assert!(outcome.is_ok() && released == 1);
}

#[test]
fn what_is_made_of_several_locks_or_shared_is_handed_to_nobody() {
    let handed = |kind, is_composite| {
        let scene = Scene::with(|facts| facts.is_composite = is_composite);
        let lock = scene.lock(kind, FIXED);
        let entry = lock.acquire(WaitLimit::once()).unwrap().unwrap();
        let node = join(&scene, &lock);
        let granted = scene.granted();
        scene
            .store
            .hand_offs
            .lock()
            .push_back(Ok(Outcome::Done(granted)));
        lock.release(&entry.hold, entry.level).unwrap();
        node.is_granted()
    };
    assert!(handed(Kind::Reentrant, false));
    assert!(!handed(Kind::Reentrant, true) && !handed(Kind::Write, false));
}

#[test]
fn a_level_is_given_back_with_the_lease_of_those_that_stay() {
    let scene = Scene::new();
    let (lock, _) = taken(&scene);
    let second = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    lock.release(&second.hold, second.level).unwrap();
    assert_eq!(scene.store.released.lock()[0].1, 1);
    assert!(second.hold.is_valid() && second.hold.count() == 1);
    let again = lock.release(&second.hold, second.level);
    assert!(matches!(again, Err(Error::NotHeld { .. })));
    let third = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    scene
        .store
        .releases
        .lock()
        .push_back(Ok(Outcome::Gone(LossCause::Gone)));
    assert!(is_lost(&lock.release(&third.hold, third.level)));
    assert_eq!(third.hold.loss_cause(), Some(LossCause::Gone));
}

#[test]
fn a_hold_that_is_given_back_without_a_wait_is_released_in_the_background() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Permits, FIXED);
    let take = || lock.acquire_owned(WaitLimit::once()).unwrap().unwrap();
    let give_back = |entry: &Entry| {
        lock.release_in_background(&entry.owner, &entry.hold, entry.level);
        assert!(scene.inner.watchdog.holds().is_empty() && !entry.hold.is_held());
    };
    let entry = take();
    give_back(&entry);
    assert_eq!(scene.resolved(), [entry.hold.visitor.to_string()]);
    assert!(scene.store.released.lock().is_empty());
    let entry = take();
    scene.inner.shut_down();
    // A client that has ended does it at once.
    lock.release_in_background(&entry.owner, &entry.hold, entry.level);
    assert_eq!(scene.store.released.lock().len(), 1);
}

#[test]
fn a_lock_of_a_store_that_is_polled_rests_as_one_that_waiters_poll() {
    let rest = |is_polled: fn(Kind) -> bool| {
        let scene = Scene::with(|facts| facts.is_polled = is_polled);
        scene.lock(Kind::Reentrant, FIXED).rest_for_pollers()
    };
    let longest = Duration::from_millis(100 + 50 + 10);
    assert_eq!(rest(|kind| kind == Kind::Reentrant), Some(longest));
    assert_eq!(rest(|kind| kind != Kind::Reentrant), None);
}

/// A thread waits that is handed the lock, which `arrives` comes before: what it has then, and how often it asked.
fn handed_to_one_that_waits(arrives: impl FnOnce(&Scene)) -> (Scene, Entry, usize) {
    let scene = Scene::new();
    let (lock, entry) = taken(&scene);
    let refused = |_| {
        Ok(Outcome::Refused(Refusal {
            retry_after: Some(LEASE),
            ..Refusal::default()
        }))
    };
    scene.answer((0..2).map(refused));
    let handed = std::thread::scope(|scope| {
        let waits = scope.spawn(|| lock.acquire(WaitLimit::forever(None)).unwrap().unwrap());
        // It listens, and was refused again.
        until(|| scene.store.claims.lock().len() == 3);
        let granted = scene.granted();
        scene
            .store
            .hand_offs
            .lock()
            .push_back(Ok(Outcome::Done(granted)));
        arrives(&scene);
        lock.release(&entry.hold, entry.level).unwrap();
        waits.join().unwrap()
    });
    let asked = scene.store.claims.lock().len() - 1;
    (scene, handed, asked)
}

#[test]
fn one_that_is_handed_the_lock_has_it_without_another_question() {
    let (scene, handed, asked) = handed_to_one_that_waits(|_| {});
    assert!(handed.hold.is_valid() && handed.level == 0 && asked == 2);
    assert!(scene.resolved().is_empty());
    assert_eq!(scene.inner.watchdog.holds().len(), 1);
}

#[test]
fn one_that_is_handed_what_is_over_gives_it_back_and_asks() {
    let (_, handed, asked) = handed_to_one_that_waits(|scene| {
        let timeline = scene.store.facts.timeline.clone();
        scene.meanwhile(move || timeline.advance(LEASE));
    });
    assert!(handed.hold.is_valid() && asked == 3);
}

#[test]
fn a_second_hold_of_one_that_has_the_lock_is_given_back() {
    let scene = Scene::new();
    let (lock, entry) = taken(&scene);
    let visit = LockVisit::new(&lock, Arc::clone(&entry.owner), true);
    visit.discard(&entry.hold);
    assert!(!entry.hold.is_held() && scene.inner.watchdog.holds().is_empty());
    assert_eq!(scene.resolved(), [entry.hold.visitor.to_string()]);
    // Nor is one of use that has ended by the time it is handed over.
    let ended = visit.accept(Arc::clone(&entry.hold), time::now());
    assert!(ended.is_none());
    // Nor one that has ended, which nobody has noticed yet.
    let claim = scene.store.claims.lock().last().cloned().unwrap();
    let long_ago = scene.store.facts.timeline.now().earlier(2 * LEASE);
    let me = (entry.owner.id, entry.owner.liveness());
    let over = lock.hold_of(&claim, me, FIXED, &Granted::at(long_ago), time::now());
    assert!(over.is_held() && visit.accept(Arc::new(over), time::now()).is_none());
}
