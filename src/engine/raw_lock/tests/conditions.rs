//! How a thread waits on a condition, and in which state it comes back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use super::gives_back::{FIXED, is_lost, taken};
use super::scene::{LEASE, Scene, no_answer, silent, unsupported};
use crate::engine::hold::Lease;
use crate::engine::raw_lock::{Entry, RawLock, condition::Waited};
use crate::engine::wait_loop::{Polling, WaitLimit};
use crate::ground::claim::Kind;
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::ground::loss::LossCause;
use crate::store::ConditionAnswer::{Left, Signalled, Waits, Woken};
use crate::store::{ConditionAnswer, Outcome};

const SOON: Duration = Duration::from_millis(20);

type Answer = Result<Outcome<ConditionAnswer>>;

fn done(answer: ConditionAnswer) -> Answer {
    Ok(Outcome::Done(answer))
}

fn unreachable() -> Error {
    Error::Unreachable {
        lock: "orders".into(),
        node: "there".into(),
        reason: "it is silent".to_owned(),
        source: None,
    }
}

fn wait(lock: &RawLock, limit: WaitLimit<'_>) -> Result<Waited> {
    lock.wait_on(&"filled".into(), limit, None)
}

/// Waits for so long at most, where the store answers so behind the place that was taken.
fn waited(scene: &Scene, answers: impl IntoIterator<Item = Answer>) -> Result<bool> {
    let (lock, _) = taken(scene);
    scene.store.conditions.lock().push_back(done(Waits));
    scene.store.conditions.lock().extend(answers);
    let limit = lock.limit(SOON, None).unwrap();
    let waited = wait(&lock, limit);
    scene.store.conditions.lock().clear();
    waited.map(|it| it.was_woken)
}

fn steps(scene: &Scene) -> Vec<&'static str> {
    std::mem::take(&mut *scene.store.steps.lock())
}

#[test]
fn all_levels_are_given_back_for_a_wait_and_taken_again_with_their_leases() {
    let scene = Scene::new();
    let leases = [LEASE, LEASE / 2];
    let lock = scene.lock(Kind::Reentrant, Lease::Fixed(leases[0]));
    let second = scene.lock(Kind::Reentrant, Lease::Fixed(leases[1]));
    lock.acquire(WaitLimit::once()).unwrap().unwrap();
    second.acquire(WaitLimit::once()).unwrap().unwrap();
    scene.store.claims.lock().clear();
    let Waited { entry, was_woken } = wait(&lock, WaitLimit::forever(None)).unwrap();
    assert!(was_woken && entry.level == 1 && entry.hold.count() == 2);
    assert_eq!(steps(&scene), ["wait", "look"]);
    assert_eq!(scene.store.released.lock()[0].1, 0);
    let claims = scene.store.claims.lock();
    let asked: Vec<_> = claims.iter().map(|it| (it.count, it.lease)).collect();
    assert_eq!(asked[0], (0, leases[0]));
    assert!(asked.len() == 2 && asked[1].0 == 1);
    // The longer lease of the first level is over by then: the second one counts on its own.
    lock.release(&entry.hold, 0).unwrap();
    let released = scene.store.released.lock();
    assert!(released[1].0.lease <= leases[1]);
}

#[test]
fn a_wait_tells_whether_it_was_signalled_also_at_its_end() {
    let scene = Scene::new();
    assert!(waited(&scene, [done(Woken)]).unwrap());
    let waits = || (0..3).map(|_| done(Waits));
    assert!(!waited(&scene, waits().chain([done(Left)])).unwrap());
    assert!(waited(&scene, waits().chain([done(Woken)])).unwrap());
    assert!(waited(&scene, [Ok(Outcome::Gone(LossCause::Gone))]).unwrap());
    assert!(scene.resolved().is_empty());
    // Somebody else gets the signal, if there was one.
    for doubt in [Err(silent()), no_answer("silent")] {
        assert!(!waited(&scene, waits().chain([doubt])).unwrap());
        assert_eq!(scene.resolved().len(), 1);
    }
    assert_eq!(*scene.store.told.lock(), [true, true]);
}

#[test]
fn trouble_ends_a_wait_as_its_time_does_and_wakes_one_without_an_end() {
    let scene = Scene::new();
    let trouble = |answers: usize| (0..answers).map(|_| Err(unreachable()));
    assert!(!waited(&scene, trouble(9)).unwrap());
    let (lock, _) = taken(&scene);
    scene.store.conditions.lock().push_back(done(Waits));
    scene.store.conditions.lock().extend(trouble(500));
    let limit = WaitLimit::forever(None);
    let patience = scene.inner.timeouts.outage_timeout;
    let began = crate::ground::time::now();
    let outcome = wait(&lock, limit).unwrap();
    assert_eq!(scene.resolved().len(), 2);
    assert_eq!(
        *scene.store.told.lock(),
        [true, false],
        "it goes on as if told"
    );
    assert!(outcome.was_woken && crate::ground::time::since(began) >= patience);
}

#[test]
fn an_error_that_waiting_cannot_help_is_told_with_the_lock_held() {
    let scene = Scene::new();
    let error = waited(&scene, [Err(unsupported(&"orders".into()))]);
    assert!(matches!(error, Err(Error::Unsupported { .. })));
    assert_eq!(scene.resolved().len(), 1);
    let lock = scene.lock(Kind::Reentrant, FIXED);
    assert_eq!(lock.signal(&"filled".into(), 3).unwrap(), 3);
}

#[test]
fn one_that_is_interrupted_has_the_lock_again_unless_a_guard_had_it() {
    for of_guard in [false, true] {
        let scene = Scene::new();
        let (lock, entry) = taken(&scene);
        if of_guard {
            entry.hold.guard(entry.level);
        }
        let guard = of_guard.then_some(&entry.hold);
        let interrupt = Interrupt::new();
        let limit = WaitLimit::forever(Some(&interrupt));
        scene
            .store
            .conditions
            .lock()
            .extend([done(Waits), done(Waits), done(Waits)]);
        let raises = interrupt.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(SOON);
                raises.raise();
            });
            let outcome = lock.wait_on(&"filled".into(), limit, guard);
            assert!(matches!(outcome, Err(Error::Interrupted { .. })));
        });
        assert_eq!(steps(&scene).last(), Some(&"end of a wait"));
        let signalled = lock.signal(&"filled".into(), 1);
        assert_eq!(signalled.is_ok(), !of_guard);
        // Before it has begun, nothing is given back.
        let (lock, entry) = taken(&scene);
        steps(&scene);
        let outcome = wait(&lock, limit);
        assert!(matches!(outcome, Err(Error::Interrupted { .. })));
        assert!(entry.hold.is_valid() && steps(&scene).is_empty());
    }
}

#[test]
fn a_place_that_cannot_be_taken_leaves_the_hold_as_it_is() {
    let scene = Scene::new();
    let (lock, entry) = taken(&scene);
    scene.store.conditions.lock().push_back(no_answer("silent"));
    assert!(matches!(
        wait(&lock, WaitLimit::once()),
        Err(Error::Unknown { .. })
    ));
    assert_eq!(scene.resolved(), ["silent:1:1"]);
    assert!(entry.hold.is_valid());
    scene
        .store
        .conditions
        .lock()
        .push_back(Ok(Outcome::Gone(LossCause::Gone)));
    assert!(is_lost(&wait(&lock, WaitLimit::once()).map(drop)));
    assert_eq!(entry.hold.loss_cause(), Some(LossCause::Gone));
}

#[test]
fn an_unlock_without_an_answer_does_not_end_a_wait_and_a_loss_does() {
    let scene = Scene::new();
    let (lock, _) = taken(&scene);
    scene.store.releases.lock().push_back(Err(unreachable()));
    assert!(wait(&lock, WaitLimit::forever(None)).unwrap().was_woken);
    scene.resolved();
    scene
        .store
        .releases
        .lock()
        .push_back(Ok(Outcome::Gone(LossCause::Gone)));
    assert!(is_lost(&wait(&lock, WaitLimit::forever(None)).map(drop)));
    assert_eq!(scene.resolved().len(), 1, "its place is given up");
}

#[test]
fn one_that_cannot_come_back_passes_its_signal_on() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Reentrant, FIXED);
    for _ in 0..2 {
        lock.acquire(WaitLimit::once()).unwrap().unwrap();
    }
    scene.answer([
        Ok(Outcome::Done(scene.granted())),
        Err(unsupported(&"orders".into())),
    ]);
    let outcome = wait(&lock, WaitLimit::forever(None));
    assert!(matches!(outcome, Err(Error::Unsupported { .. })));
    assert_eq!(scene.resolved().len(), 1);
    let released = scene.store.released.lock().len();
    assert_eq!(released, 2, "the level that it had by then is given back");
    assert!(matches!(
        lock.signal(&"filled".into(), 1),
        Err(Error::NotHeld { .. })
    ));
}

#[test]
fn the_end_of_a_client_ends_a_wait_without_the_lock() {
    let scene = Scene::new();
    let (lock, _) = taken(&scene);
    let notifier = Arc::clone(&scene.store.facts.notifier);
    scene
        .store
        .conditions
        .lock()
        .extend([done(Waits), done(Waits), done(Waits)]);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(SOON);
            notifier.close();
        });
        wait(&lock, WaitLimit::forever(None))
    });
    assert!(matches!(outcome, Err(Error::Closed { .. })));
    assert_eq!(scene.store.claims.lock().len(), 1);
    // At once, as nothing is done in the background any more.
    assert_eq!(scene.store.resolved.lock().len(), 1);
}

#[test]
fn a_signal_is_given_by_one_who_has_the_lock() {
    let scene = Scene::new();
    let (lock, entry) = taken(&scene);
    let signal = |answer: Answer| {
        scene.store.conditions.lock().push_back(answer);
        lock.signal(&"filled".into(), 9)
    };
    assert_eq!(signal(done(Signalled(3))).unwrap(), 3);
    assert_eq!(signal(done(Left)).unwrap(), 0);
    assert!(matches!(
        signal(no_answer("silent")),
        Err(Error::Unknown { .. })
    ));
    assert!(entry.hold.is_valid());
    assert!(is_lost(
        &signal(Ok(Outcome::Gone(LossCause::Gone))).map(drop)
    ));
    assert!(is_lost(&lock.signal(&"filled".into(), 9).map(drop)));
}

/// Whether one who has a lock may signal there.
fn may_signal(scene: &Scene, kind: Kind, change: fn(&mut RawLock)) -> Result<u32> {
    let mut lock = scene.lock(kind, FIXED);
    change(&mut lock);
    let _: Entry = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    lock.signal(&"filled".into(), 1)
}

#[test]
fn conditions_are_those_of_a_lock_of_one_thread_that_listens() {
    let scene = Scene::new();
    assert_eq!(may_signal(&scene, Kind::Write, |_| {}).unwrap(), 1);
    let refused = [
        may_signal(&Scene::new(), Kind::Read, |_| {}),
        may_signal(
            &Scene::with(|facts| facts.keeps_no_conditions = Some("no")),
            Kind::Write,
            |_| {},
        ),
        may_signal(&Scene::new(), Kind::Reentrant, |lock| {
            lock.polling = Some(Polling {
                first: SOON,
                longest: SOON,
            });
        }),
    ];
    for refused in refused {
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
    let lock = Scene::new().lock(Kind::Reentrant, FIXED);
    assert!(matches!(
        lock.signal(&"filled".into(), 1),
        Err(Error::NotHeld { .. })
    ));
    let scene = Scene::new();
    let (lock, entry) = taken(&scene);
    scene.inner.watchdog.unwatch(&entry.hold);
    scene.store.facts.timeline.advance(LEASE);
    assert!(is_lost(&lock.signal(&"filled".into(), 1).map(drop)));
    // Another thread may have given it back.
    let (lock, entry) = taken(&Scene::new());
    let give_back = || lock.release(&entry.hold, entry.level);
    let given_back = std::thread::scope(|scope| scope.spawn(give_back).join().unwrap());
    assert!(given_back.is_ok());
    assert!(matches!(
        lock.signal(&"filled".into(), 1),
        Err(Error::NotHeld { .. })
    ));
}

#[test]
fn a_guard_waits_with_its_own_hold_alone() {
    let scene = Scene::new();
    let (lock, entry) = taken(&scene);
    let other = Scene::new();
    let (_, foreign) = taken(&other);
    let outcome = lock.wait_on(&"filled".into(), WaitLimit::once(), Some(&foreign.hold));
    assert!(matches!(outcome, Err(Error::NotHeld { .. })));
    entry.hold.guard(entry.level);
    let by_hand = wait(&lock, WaitLimit::once());
    assert!(matches!(by_hand, Err(Error::Nested { .. })));
    let of_guard = lock.wait_on(&"filled".into(), WaitLimit::once(), Some(&entry.hold));
    assert!(of_guard.unwrap().was_woken);
    // A writer that reads could not come back.
    let write = scene.lock(Kind::Write, FIXED);
    write.acquire(WaitLimit::once()).unwrap().unwrap();
    let read = scene.lock(Kind::Read, FIXED);
    read.acquire(WaitLimit::once()).unwrap().unwrap();
    let outcome = wait(&write, WaitLimit::once());
    assert!(
        matches!(outcome, Err(Error::Upgrade { .. })),
        "{:?}",
        outcome.err()
    );
}
