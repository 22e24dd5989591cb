//! The questions of a wait to the store, and the clearing up after an answer.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use super::scene::{COMMAND, LEASE, LONG, Scene, in_doubt, no_answer, refused, silent};
use crate::engine::hold::Lease;
use crate::engine::raw_lock::RawLock;
use crate::engine::raw_lock::visit::LockVisit;
use crate::engine::wait_loop::{Visit, WaitLimit};
use crate::ground::claim::{Kind, Queueing};
use crate::ground::error::Error;
use crate::ground::loss::LossCause;
use crate::ground::time;
use crate::store::{Outcome, Refusal};

const FIXED: Lease = Lease::Fixed(LEASE);
const RENEWED: Lease = Lease::Watchdog(LEASE);

fn words(queueing: &Queueing) -> String {
    match queueing {
        Queueing::Barges => "barges".to_owned(),
        Queueing::Tries => "tries".to_owned(),
        Queueing::Waits {
            need,
            memo,
            takes_place,
            had_place,
        } => {
            let memo = memo.as_deref().unwrap_or("-");
            format!("{} {memo} {takes_place} {had_place}", need.as_millis())
        }
    }
}

/// How a wait stands among others in each of its questions, where it is refused three times, with a word in the first one.
fn asked(scene: &Scene, lock: &RawLock, limit: WaitLimit<'_>) -> Vec<String> {
    scene.answer([
        Ok(Outcome::Refused(Refusal {
            memo: Some("word".into()),
            ..refused()
        })),
        Ok(Outcome::Refused(refused())),
        Ok(Outcome::Refused(refused())),
    ]);
    lock.acquire(limit).unwrap();
    scene.store.acquires.lock().clear();
    let claims = std::mem::take(&mut *scene.store.claims.lock());
    claims.iter().map(|it| words(&it.queueing)).collect()
}

#[test]
fn one_that_waits_takes_a_place_once_it_is_refused_and_brings_the_word_of_that() {
    let of = |kind, change: fn(&mut RawLock)| {
        let scene = Scene::new();
        let mut lock = scene.lock(kind, FIXED);
        change(&mut lock);
        asked(&scene, &lock, WaitLimit::forever(None))
    };
    let placed = [
        "20 - false false",
        "20 word true false",
        "20 word true true",
        "20 word true true",
    ];
    for kind in [Kind::Reentrant, Kind::Write, Kind::Read] {
        assert_eq!(of(kind, |_| {}), placed, "{kind:?}");
    }
    assert_eq!(
        of(Kind::Fair, |_| {})[..2],
        ["20 - true false", "20 word true true"]
    );
    assert_eq!(
        of(Kind::Read, |lock| lock.prefers_readers = true),
        ["barges"; 4]
    );
    let of_parts = of(Kind::Reentrant, |lock| lock.parts = Some(Arc::default()));
    // The first question asks each part.
    assert_eq!(of_parts[..2], ["tries", "20 word true false"]);
    let scene = Scene::new();
    let lock = scene.lock(Kind::Reentrant, FIXED);
    assert_eq!(asked(&scene, &lock, WaitLimit::once()), ["tries"]);
}

#[test]
fn one_that_stands_in_line_takes_its_place_with_its_first_question() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Write, FIXED);
    let queues = &scene.inner.wait_queues;
    let parker = scene.store.facts.notifier.parker();
    let offer = crate::engine::hold::HandOffOffer {
        thread: 1,
        liveness: Default::default(),
        lease: FIXED,
    };
    let other = queues.join(&lock.key.lock, &parker, offer);
    let words = std::thread::scope(|scope| {
        let waits = scope.spawn(|| asked(&scene, &lock, WaitLimit::forever(None)));
        while queues.length(&lock.key.lock) < 2 {
            std::thread::yield_now();
        }
        drop(other);
        waits.join().unwrap()
    });
    assert_eq!(words[0], "20 - true false");
}

#[test]
fn two_round_trips_are_what_one_needs_to_come() {
    for (took, need) in [(1, 20), (30, 60), (250, 500), (9_000, 500)] {
        let scene = Scene::new();
        let lock = scene.lock(Kind::Write, FIXED);
        scene.inner.note_round_trip(Duration::from_millis(took));
        let words = asked(&scene, &lock, WaitLimit::forever(None));
        assert_eq!(words[0], format!("{need} - false false"));
    }
}

#[test]
fn an_answer_that_comes_behind_the_lease_it_grants_is_of_no_use() {
    let scene = Scene::new();
    let timeline = scene.store.facts.timeline.clone();
    scene.meanwhile(move || timeline.advance(LEASE));
    scene.answer([Ok(Outcome::Done(scene.granted()))]);
    let lock = scene.lock(Kind::Reentrant, FIXED);
    let late = lock.acquire(WaitLimit::once()).err().unwrap();
    assert!(matches!(late, Error::Unknown { .. }), "{late:?}");
    let visitor = scene.store.claims.lock()[0].visitor.to_string();
    assert_eq!(scene.resolved(), [visitor]);
}

#[test]
fn what_an_attempt_may_have_left_is_cleared_up() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Reentrant, FIXED);
    scene.answer([Ok(Outcome::Refused(Refusal {
        leftover: Some(in_doubt("left", 1)),
        ..refused()
    }))]);
    assert!(lock.acquire(WaitLimit::once()).unwrap().is_none());
    assert_eq!(scene.resolved(), ["left:1:1"]);
    for kind in [Kind::Reentrant, Kind::Permits] {
        scene.answer([no_answer("silent")]);
        let unknown = scene.lock(kind, FIXED).acquire(WaitLimit::once());
        assert!(matches!(unknown, Err(Error::Unknown { .. })));
        assert_eq!(scene.resolved(), ["silent:1:1"]);
    }
}

#[test]
fn a_place_that_is_left_without_the_lock_is_given_up() {
    for (kind, is_placed) in [
        (Kind::Fair, true),
        (Kind::Write, true),
        (Kind::Reentrant, false),
    ] {
        let scene = Scene::new();
        let lock = scene.lock(kind, FIXED);
        let limit = || lock.limit(Duration::from_millis(20), None).unwrap();
        let lasting = |_| {
            Ok(Outcome::Refused(Refusal {
                retry_after: Some(LEASE),
                ..Refusal::default()
            }))
        };
        scene.answer((0..9).map(lasting));
        assert!(lock.acquire(limit()).unwrap().is_none());
        let visitor = scene.store.claims.lock()[0].visitor.to_string();
        let placed: Vec<_> = is_placed.then_some(visitor).into_iter().collect();
        assert_eq!(scene.resolved(), placed, "{kind:?}");
        // One that has got it gives up nothing, and one that tries has no place.
        scene.store.acquires.lock().clear();
        scene.answer([
            Ok(Outcome::Refused(refused())),
            Ok(Outcome::Refused(refused())),
        ]);
        let entry = lock.acquire(WaitLimit::forever(None)).unwrap().unwrap();
        lock.release(&entry.hold, entry.level).unwrap();
        scene.answer([lasting(0)]);
        assert!(lock.acquire(WaitLimit::once()).unwrap().is_none());
        assert!(scene.resolved().is_empty(), "{kind:?}");
    }
}

#[test]
fn a_place_that_was_cleared_up_is_asked_for_by_another_visitor() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Fair, FIXED);
    scene.answer([Ok(Outcome::Refused(refused())), no_answer("silent")]);
    lock.acquire(WaitLimit::forever(None)).unwrap();
    let claims = scene.store.claims.lock();
    assert_eq!(claims[0].visitor, claims[1].visitor);
    assert_ne!(claims[1].visitor, claims[2].visitor);
    let had_place: Vec<_> = claims.iter().map(|it| words(&it.queueing)).collect();
    assert_eq!(
        had_place,
        ["20 - true false", "20 - true true", "20 - true false"]
    );
}

#[test]
fn what_renewals_need_is_made_ready_where_they_are_counted_on() {
    for (lease, each) in [(RENEWED, 1), (FIXED, 0)] {
        let scene = Scene::new();
        let lock = scene.lock(Kind::Reentrant, lease);
        for times in 1..=2 {
            lock.acquire(WaitLimit::once()).unwrap().unwrap();
            assert_eq!(*scene.store.prepared.lock(), each * times);
        }
    }
}

#[test]
fn a_hold_that_turns_out_to_be_gone_when_it_is_entered_again_is_lost_and_begins_anew() {
    let answers = [
        Outcome::Gone(LossCause::HeldBy("another".to_owned())),
        Outcome::Refused(refused()),
    ];
    for answer in answers {
        let scene = Scene::new();
        let lock = scene.lock(Kind::Reentrant, FIXED);
        let first = lock.acquire(WaitLimit::once()).unwrap().unwrap();
        scene.answer([Ok(answer)]);
        let second = lock.acquire(WaitLimit::once()).unwrap().unwrap();
        assert!(first.hold.loss_cause().is_some());
        assert!(second.level == 0 && second.hold.is_valid());
        assert!(!Arc::ptr_eq(&first.hold, &second.hold));
    }
}

#[test]
fn a_re_entry_without_an_answer_leaves_the_hold_as_it_was() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Reentrant, FIXED);
    let first = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    scene.answer([no_answer("silent"), Err(silent())]);
    for _ in 0..2 {
        let error = lock.acquire(WaitLimit::once()).err();
        assert!(matches!(error, Some(Error::Unknown { .. })));
        assert!(first.hold.is_valid() && first.hold.count() == 1);
    }
    let second = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    assert!(Arc::ptr_eq(&first.hold, &second.hold) && second.level == 1);
    assert_eq!(first.hold.count(), 2);
    let token = scene.lock(Kind::Token, FIXED);
    token.acquire(WaitLimit::once()).unwrap().unwrap();
    let again = token.acquire(WaitLimit::once()).err();
    assert!(matches!(again, Some(Error::NotReentrant { .. })));
}

#[test]
fn a_hold_whose_lease_is_over_is_not_entered_again() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Reentrant, FIXED);
    let first = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    scene.store.facts.timeline.advance(LEASE);
    let second = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    assert_eq!(first.hold.loss_cause(), Some(LossCause::LeaseEnded));
    assert_eq!((second.level, second.hold.count()), (0, 1));
}

#[test]
fn a_hold_that_ends_while_it_is_entered_again_does_not_last_on_in_the_store() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Reentrant, FIXED);
    let first = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    let timeline = scene.store.facts.timeline.clone();
    scene.meanwhile(move || timeline.advance(LEASE));
    let second = lock.acquire(WaitLimit::once()).unwrap().unwrap();
    assert_ne!(first.hold.visitor, second.hold.visitor);
    assert_eq!(scene.resolved(), [first.hold.visitor.to_string()]);
}

#[test]
fn a_lease_out_of_range_is_refused_and_one_without_end_taken_by_permits_alone() {
    let scene = Scene::new();
    let outcome = |kind, lease| {
        let lock = scene.lock(kind, Lease::Fixed(lease));
        lock.acquire(WaitLimit::once()).map(|entry| entry.is_some())
    };
    let endless = crate::ground::claim::ENDLESS;
    for kind in [Kind::Reentrant, Kind::PermitIds] {
        let short = outcome(kind, Duration::from_millis(1));
        assert!(matches!(short, Err(Error::InvalidLease { .. })));
    }
    let refused = outcome(Kind::Reentrant, endless);
    assert!(matches!(refused, Err(Error::InvalidLease { .. })));
    assert!(matches!(outcome(Kind::PermitIds, endless), Ok(true)));
    assert!(matches!(outcome(Kind::Reentrant, COMMAND), Ok(true)));
}

#[test]
fn a_name_with_a_flaw_is_told_before_anything_is_sent() {
    let scene = Scene::new();
    let mut lock = scene.lock(Kind::Reentrant, FIXED);
    lock.flaw = Some(Box::new(silent()));
    assert!(lock.acquire(WaitLimit::once()).is_err());
    assert!(lock.acquire_owned(WaitLimit::once()).is_err());
    assert!(scene.store.claims.lock().is_empty());
    lock.flaw = None;
    assert!(lock.acquire_owned(WaitLimit::once()).unwrap().is_some());
    assert!(
        lock.acquire_owned(WaitLimit::once()).unwrap().is_some(),
        "it holds nothing else"
    );
}

#[test]
fn one_that_waits_in_the_store_listens_for_its_place_and_stands_in_no_queue_here() {
    for (kind, is_placed) in [
        (Kind::Fair, true),
        (Kind::Write, false),
        (Kind::Reentrant, false),
    ] {
        let scene = Scene::new();
        let lock = scene.lock(kind, FIXED);
        scene.answer([(); 2].map(|()| Ok(Outcome::Refused(refused()))));
        lock.acquire(WaitLimit::forever(None)).unwrap().unwrap();
        let visitor = scene.store.claims.lock()[0].visitor.clone();
        let places = scene.store.places.lock();
        assert_eq!(places[..], [is_placed.then_some(visitor)], "{kind:?}");
    }
    let scene = Scene::new();
    let lock = scene.lock(Kind::Fair, FIXED);
    scene.answer([Ok(Outcome::Refused(refused()))]);
    let (inner, id) = (Arc::clone(&scene.inner), lock.key.lock.clone());
    let was_busy = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let told = Arc::clone(&was_busy);
    scene.meanwhile_second(move || {
        told.store(
            inner.wait_queues.is_busy(&id),
            std::sync::atomic::Ordering::Relaxed,
        );
    });
    lock.acquire(WaitLimit::forever(None)).unwrap().unwrap();
    assert!(!was_busy.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn a_visitor_that_nobody_knows_yet_is_refused_where_it_is_gone() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Reentrant, FIXED);
    scene.answer([Ok(Outcome::Gone(LossCause::Gone))]);
    assert!(lock.acquire(WaitLimit::once()).unwrap().is_none());
}

#[test]
fn a_writer_that_reads_names_the_hold_inside_which_it_does() {
    let scene = Scene::new();
    let write = scene.lock(Kind::Write, FIXED).acquire(WaitLimit::once());
    let read = scene.lock(Kind::Read, FIXED).acquire(WaitLimit::once());
    let (write, _read) = (write.unwrap().unwrap(), read.unwrap().unwrap());
    let claims = scene.store.claims.lock();
    assert_eq!(
        (&claims[0].inside, &claims[1].inside),
        (&None, &Some(write.hold.visitor.clone()))
    );
}

#[test]
fn a_wait_knows_how_often_it_asked_and_who_refused_it_first() {
    let scene = Scene::new();
    let lock = scene.lock(Kind::Reentrant, RENEWED);
    let me = scene.inner.thread(&lock.key.lock.name).unwrap();
    let mut visit = LockVisit::new(&lock, me, true);
    let deadline = time::now() + LONG;
    for holder in ["first", "second"] {
        scene.answer([Ok(Outcome::Refused(Refusal {
            holder: Some(holder.into()),
            ..refused()
        }))]);
        assert!(visit.attempt(deadline).unwrap().is_continue());
    }
    assert_eq!(visit.attempts, 2);
    let first = cfg!(feature = "tracing").then_some("first");
    assert_eq!(visit.first_holder.as_deref(), first);
    // That it lasts for long is told once.
    let told = || scene.inner.counters.class(lock.class).read().long_waits;
    visit.waits();
    visit.still_waits(time::now());
    assert_eq!(told(), 0);
    let long = scene.inner.counters.settings().long_wait;
    visit.still_waits(time::now() + long + LONG);
    visit.still_waits(time::now() + long + LONG);
    assert_eq!(told(), 1);
}
