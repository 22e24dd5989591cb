//! How the owner of a hold writes under it, and how counts are changed and waited for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use super::gives_back::{FIXED, is_lost, taken};
use super::scene::{COMMAND, LEASE, LONG, Scene, in_doubt, silent, until};
use crate::engine::hold::{HandOffOffer, Hold};
use crate::engine::raw_lock::RawLock;
use crate::engine::wait_loop::WaitLimit;
use crate::ground::batch::{Batch, Work};
use crate::ground::claim::Kind;
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::reply::Reply;
use crate::ground::time;
use crate::store::{CountStep, HealthWarning, Outcome};

fn write(scene: &Scene, lock: &RawLock, hold: &Hold) -> Result<Vec<Reply>> {
    let mut batch = Batch::default();
    batch.incr_by("stock", -1);
    let outcome = lock.write(hold, Work::Commands(&batch));
    assert!(scene.store.writes.lock().is_empty());
    outcome
}

#[test]
fn a_write_is_tried_again_as_long_as_it_is_put_off() {
    let scene = Scene::new();
    let (lock, entry) = taken(&scene);
    let puts_off = Duration::from_millis(10);
    scene.store.writes.lock().extend([
        Ok(Outcome::Refused(puts_off)),
        Ok(Outcome::Refused(puts_off)),
        Ok(Outcome::Done(vec![Reply::Int(5)])),
    ]);
    let began = time::now();
    assert_eq!(write(&scene, &lock, &entry.hold).unwrap(), [Reply::Int(5)]);
    assert!(time::since(began) >= puts_off * 2);
}

#[test]
fn a_write_under_a_hold_that_is_gone_is_not_done() {
    let scene = Scene::new();
    let (lock, entry) = taken(&scene);
    scene
        .store
        .writes
        .lock()
        .push_back(Ok(Outcome::Gone(LossCause::Gone)));
    assert!(is_lost(&write(&scene, &lock, &entry.hold).map(drop)));
    assert_eq!(entry.hold.loss_cause(), Some(LossCause::Gone));
    assert!(is_lost(&write(&scene, &lock, &entry.hold).map(drop)));

    let (lock, entry) = taken(&scene);
    lock.release(&entry.hold, entry.level).unwrap();
    let given_back = write(&scene, &lock, &entry.hold);
    assert!(matches!(given_back, Err(Error::NotHeld { .. })));

    let (lock, late) = taken(&scene);
    scene.store.facts.timeline.advance(LEASE);
    assert!(is_lost(&write(&scene, &lock, &late.hold).map(drop)));

    scene.inner.shut_down();
    let given_back = write(&scene, &lock, &entry.hold);
    assert!(
        matches!(given_back, Err(Error::NotHeld { .. })),
        "{given_back:?}"
    );
}

#[test]
fn what_a_server_did_or_may_have_done_is_told_though_the_hold_is_over() {
    let failed = || Error::CommandFailed {
        lock: "orders".into(),
        node: "there".into(),
        index: 1,
        reason: "it is no number".to_owned(),
        done: vec![],
    };
    let unreachable = || Error::Unreachable {
        lock: "orders".into(),
        node: "there".into(),
        reason: "it is silent".to_owned(),
        source: None,
    };
    let errors: [fn() -> Error; 3] = [silent, failed, unreachable];
    // Whether it is over by then, and whether the watchdog has found that.
    for (is_over, is_watched) in [(false, true), (true, true), (true, false)] {
        for (index, error) in errors.into_iter().enumerate() {
            let scene = Scene::new();
            let (lock, entry) = taken(&scene);
            let timeline = scene.store.facts.timeline.clone();
            if is_over {
                scene.meanwhile(move || timeline.advance(LEASE));
            }
            if !is_watched {
                scene.inner.watchdog.unwatch(&entry.hold);
            }
            scene.store.writes.lock().push_back(Err(error()));
            let told = write(&scene, &lock, &entry.hold).map(drop);
            // Nothing was done, as it came too late.
            let is_told_lost = is_over && index == 2;
            assert_eq!(
                is_lost(&told),
                is_told_lost,
                "{is_over} {is_watched} {told:?}"
            );
        }
    }
}

#[test]
fn a_write_of_a_client_whose_thread_has_died_tells_that() {
    let scene = Scene::new();
    let (lock, entry) = taken(&scene);
    scene.inner.watchdog.unwatch(&entry.hold);
    scene.inner.watchdog.die();
    until(|| !scene.inner.watchdog.client().has_watchdog());
    let died = write(&scene, &lock, &entry.hold);
    assert!(matches!(died, Err(Error::WatchdogDied { .. })), "{died:?}");
}

#[test]
fn what_a_hold_has_taken_from_a_count_stays_taken_once_it_is_forgotten() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Permits, FIXED);
    let forget = |answer: Option<Result<i64>>, before: &dyn Fn(&Hold)| {
        let entry = lock.acquire_owned(WaitLimit::once()).unwrap().unwrap();
        before(&entry.hold);
        scene.store.counts.lock().extend(answer);
        let outcome = lock.forget(&entry.hold);
        assert!(scene.inner.watchdog.holds().is_empty());
        outcome
    };
    let nothing = |_: &Hold| {};
    assert!(forget(Some(Ok(1)), &nothing).is_ok());
    assert!(matches!(
        scene.store.counted.lock()[..],
        [CountStep::Forget]
    ));
    assert!(is_lost(&forget(Some(Ok(0)), &nothing)));
    assert!(matches!(
        forget(Some(Err(silent())), &nothing),
        Err(Error::Unknown { .. })
    ));
    let loses = |hold: &Hold| scene.inner.watchdog.end(hold, LossCause::Gone);
    assert!(is_lost(&forget(None, &loses)));
    let entry = lock.acquire_owned(WaitLimit::once()).unwrap().unwrap();
    lock.release(&entry.hold, entry.level).unwrap();
    assert!(matches!(
        lock.forget(&entry.hold),
        Err(Error::NotHeld { .. })
    ));
    let ids = scene.lock(Kind::PermitIds, FIXED);
    let asked = scene.store.counted.lock().len();
    let entry = ids.acquire_owned(WaitLimit::once()).unwrap().unwrap();
    ids.forget(&entry.hold).unwrap();
    assert_eq!(
        scene.store.counted.lock().len(),
        asked,
        "its ids go on without it"
    );
}

#[test]
fn one_who_waits_for_a_count_of_zero_looks_until_it_is() {
    let scene = Scene::new();
    let latch = scene.lock(Kind::Latch, FIXED);
    scene.store.counts.lock().extend([2, 1].map(Ok));
    let limit = latch.limit(Duration::from_millis(20), None).unwrap();
    assert!(!latch.wait_for_zero(WaitLimit::once()).unwrap());
    scene.store.counts.lock().extend([2, 1, 1].map(Ok));
    assert!(!latch.wait_for_zero(limit).unwrap());
    for open in [0, -1] {
        scene.store.counts.lock().clear();
        scene.store.counts.lock().push_back(Ok(open));
        assert!(latch.wait_for_zero(WaitLimit::once()).unwrap());
    }
    scene.store.counts.lock().extend([Ok(7), Err(silent())]);
    assert_eq!(latch.count(CountStep::Get).unwrap(), 7);
    assert!(latch.count(CountStep::Get).is_err());
    let permit = in_doubt("permit", 1).visitor;
    scene.store.counts.lock().push_back(Ok(9));
    assert_eq!(latch.count_permit(CountStep::Get, &permit).unwrap(), 9);
}

#[test]
fn one_asks_for_all_who_wait_for_a_count_and_lets_them_in() {
    let scene = Scene::new();
    let latch = scene.lock(Kind::Latch, FIXED);
    scene.store.counts.lock().extend((0..100).map(|_| Ok(1)));
    let queues = &scene.inner.wait_queues;
    let limit = latch.limit(LONG, None).unwrap();
    let is_open = std::thread::scope(|scope| {
        let waits = scope.spawn(|| latch.wait_for_zero(limit));
        until(|| queues.is_busy(&latch.key.lock));
        let parker = scene.store.facts.notifier.parker();
        let offer = HandOffOffer {
            thread: 7,
            liveness: Default::default(),
            lease: FIXED,
        };
        let other = queues.join(&latch.key.lock, &parker, offer);
        other.let_in(other.newest());
        waits.join().unwrap()
    });
    assert!(is_open.unwrap());
    assert!(scene.store.counted.lock().len() < 10);
}

#[test]
fn a_handle_that_goes_waits_for_nothing() {
    let Scene { store, inner } = Scene::new();
    let closed = store.closed.lock();
    let began = time::now();
    inner.let_go();
    assert!(time::since(began) < COMMAND / 2);
    drop(closed);
    until(|| *store.closed.lock() == 1);
}

#[test]
fn a_client_tells_what_endangers_locks_and_ends_once() {
    let scene = Scene::new();
    let before = time::now();
    let deadline = scene.inner.deadline();
    let request = scene.inner.timeouts.request();
    assert!(deadline >= before + request && deadline <= time::now() + request);
    assert!(request < COMMAND);
    assert_eq!(scene.inner.without_prefix("app:orders"), "orders");
    assert_eq!(scene.inner.without_prefix("orders"), "orders");
    let node = "there".into();
    let warnings = [
        HealthWarning::ok(&node, "one", "it is well"),
        HealthWarning::note(&node, "two", "it may end", "look at it"),
        HealthWarning::danger(&node, "three", "it is ill", "see to it"),
    ];
    scene.store.found.lock().extend(warnings);
    assert_eq!(scene.inner.examine().unwrap().len(), 3);
    assert_eq!(scene.inner.check().unwrap().len(), 2);
    for _ in 0..2 {
        scene.inner.shut_down();
    }
    assert_eq!(*scene.store.closed.lock(), 1);
    assert!(time::since(before) < request / 2, "nobody waits");
}
