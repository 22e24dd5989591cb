//! The places of those who wait on a condition, in memory: who hears of a signal.

use std::time::{Duration, Instant};

use super::*;
use crate::ground::notify::{Notifier, Wake};
use crate::store::Store;
use crate::stores::memory::tests::NAME;
use crate::stores::memory::world::{Entry, SideHold, Sides};

/// A lock whose holder signals, and threads that listen for their tickets.
struct Scene {
    state: State,
    now: BootInstant,
    notifier: Arc<Notifier>,
    condition: Arc<str>,
    lock: LockId,
}

impl Scene {
    fn new() -> Scene {
        let notifier = Arc::new(Notifier::default());
        let mut state = State::default();
        state.clients.push(Arc::downgrade(&notifier));
        Scene {
            state,
            now: BootInstant::now(),
            notifier,
            condition: "full".into(),
            lock: LockId {
                kind: Kind::Reentrant,
                name: NAME.into(),
            },
        }
    }

    /// With places for these.
    fn of(tickets: &[&str]) -> Scene {
        let mut scene = Scene::new();
        for ticket in tickets {
            assert_eq!(scene.enlist(ticket), ConditionAnswer::Waits);
        }
        scene
    }

    fn step(&mut self, ticket: &str, step: ConditionStep<'_>) -> ConditionAnswer {
        let op = ConditionOp {
            lock: &self.lock.clone(),
            condition: &self.condition.clone(),
            visitor: &VisitorId::of_field(ticket),
            step,
        };
        self.state.step(&op, self.now)
    }

    fn enlist(&mut self, ticket: &str) -> ConditionAnswer {
        let hold = VisitorId::of_field("holder");
        self.step(ticket, ConditionStep::Enlist(&hold))
    }

    fn look(&mut self, ticket: &str) -> ConditionAnswer {
        self.step(ticket, ConditionStep::Look)
    }

    fn leave(&mut self, ticket: &str) -> ConditionAnswer {
        self.step(ticket, ConditionStep::Leave)
    }

    fn signal(&mut self, most: u32) -> ConditionAnswer {
        self.step("holder", ConditionStep::Signal(most))
    }

    fn tickets(&self) -> Vec<(&str, bool)> {
        let places = self.state.places.values().flatten();
        let told = places.map(|it| (it.ticket.as_str(), it.is_signalled));
        told.collect()
    }

    fn withdraw(&mut self, ticket: &str, was_told: bool) {
        let place = PlaceInDoubt {
            condition: Arc::clone(&self.condition),
            was_told,
        };
        let ticket = VisitorId::of_field(ticket);
        let in_doubt = InDoubt::of_place(&self.lock, &ticket, place.clone(), 0);
        self.state.withdraw_place(&in_doubt, &place, self.now);
    }
}

#[test]
fn a_signal_is_that_of_the_one_that_has_waited_for_longest() {
    let mut scene = Scene::of(&["a", "b", "c"]);
    assert_eq!(scene.enlist("a"), ConditionAnswer::Waits, "once more");
    let parker = scene.notifier.parker();
    let channel = channel_of(NAME, "full", &VisitorId::of_field("a"));
    let mut place = scene.notifier.join(0, &channel, &parker);
    assert_eq!(scene.signal(0), ConditionAnswer::Signalled(0));
    assert_eq!(scene.signal(2), ConditionAnswer::Signalled(2));
    assert_eq!(place.park(Some(Instant::now())), Wake::Permit);
    assert_eq!(scene.tickets(), [("a", true), ("b", true), ("c", false)]);
    assert_eq!(scene.signal(5), ConditionAnswer::Signalled(1));
    assert_eq!(scene.signal(1), ConditionAnswer::Signalled(0));
    // Each hears of it once, and nothing stays.
    assert_eq!(scene.look("b"), ConditionAnswer::Woken);
    assert_eq!(scene.look("b"), ConditionAnswer::Woken);
    assert_eq!(scene.leave("a"), ConditionAnswer::Woken);
    assert_eq!(scene.leave("c"), ConditionAnswer::Woken);
    assert_eq!(scene.leave("c"), ConditionAnswer::Woken);
    assert!(scene.state.places.is_empty());
}

#[test]
fn one_that_leaves_takes_no_signal() {
    let mut scene = Scene::of(&["a", "b"]);
    assert_eq!(scene.leave("a"), ConditionAnswer::Left);
    assert_eq!(scene.signal(2), ConditionAnswer::Signalled(1));
    assert_eq!(scene.tickets(), [("b", true)]);
}

#[test]
fn the_dead_are_passed_over_and_what_they_were_told_goes_on() {
    let mut scene = Scene::of(&["a", "b", "c"]);
    assert_eq!(scene.signal(1), ConditionAnswer::Signalled(1));
    scene.now = scene.now + (PLACE_LIFE - Duration::from_millis(1));
    assert_eq!(scene.look("c"), ConditionAnswer::Waits);
    assert_eq!(scene.tickets().len(), 3);
    scene.now = scene.now + Duration::from_millis(1);
    // The signal of the first goes past the second, which is dead, too.
    assert_eq!(scene.look("c"), ConditionAnswer::Woken);
    assert!(scene.state.places.is_empty());

    let mut scene = Scene::of(&["a"]);
    scene.now = scene.now + PLACE_LIFE;
    assert_eq!(scene.enlist("b"), ConditionAnswer::Waits);
    assert_eq!(scene.signal(1), ConditionAnswer::Signalled(1));
    assert_eq!(scene.tickets(), [("b", true)]);

    // One that looks late is alive.
    let mut scene = Scene::of(&["a"]);
    scene.now = scene.now + PLACE_LIFE;
    assert_eq!(scene.look("a"), ConditionAnswer::Waits);
    assert_eq!(scene.signal(1), ConditionAnswer::Signalled(1));
}

#[test]
fn a_wait_that_failed_passes_its_signal_on() {
    let passed_on = |is_signalled: bool, was_told: bool| {
        let mut scene = Scene::of(&["a", "b"]);
        if is_signalled {
            scene.signal(1);
        }
        scene.withdraw("a", was_told);
        let told = scene.tickets() == [("b", true)];
        assert_eq!(scene.tickets().len(), 1);
        told
    };
    assert!(passed_on(true, true) && passed_on(true, false));
    assert!(!passed_on(false, true) && !passed_on(false, false));
    // Where its place is gone, what it may have been told counts.
    for (was_told, expected) in [(true, true), (false, false)] {
        let mut scene = Scene::of(&["b"]);
        scene.withdraw("a", was_told);
        assert_eq!(scene.tickets(), [("b", expected)]);
    }
}

#[test]
fn a_place_needs_a_hold_that_writes() {
    let mut scene = Scene::new();
    let hold = VisitorId::of_field("holder");
    let ends = scene.now + Duration::from_secs(9);
    let has = |scene: &mut Scene, kind| {
        let lock = LockId {
            kind,
            ..scene.lock.clone()
        };
        scene.state.has(&lock, &hold)
    };
    assert_eq!(has(&mut scene, Kind::Reentrant), Err(LossCause::Gone));
    assert_eq!(has(&mut scene, Kind::Write), Err(LossCause::Gone));
    let entry = Entry {
        kind: Kind::Reentrant,
        visitor: hold.clone(),
        count: 1,
        ends,
    };
    scene.state.holds.insert(NAME.into(), entry);
    assert_eq!(has(&mut scene, Kind::Reentrant), Ok(()));
    for (kind, visitor, expected) in [
        (Kind::Write, "holder", Ok(())),
        (Kind::Read, "holder", Err(LossCause::Gone)),
        (Kind::Write, "another", Err(LossCause::Gone)),
    ] {
        let side = SideHold {
            kind,
            visitor: VisitorId::of_field(visitor),
            count: 1,
            ends,
        };
        let sides = Sides {
            is_written: kind == Kind::Write,
            ends,
            holds: vec![side],
        };
        scene.state.sides.insert(NAME.into(), sides);
        assert_eq!(has(&mut scene, Kind::Write), expected, "{kind:?} {visitor}");
    }
}

#[test]
fn one_that_does_not_hold_the_lock_has_no_place() {
    let store = Memory::new(Arc::default());
    let lock = LockId {
        kind: Kind::Reentrant,
        name: NAME.into(),
    };
    let (hold, condition) = (VisitorId::of_field("nobody"), "full".into());
    let by = Instant::now() + Duration::from_secs(20);
    let op = |step| ConditionOp {
        lock: &lock,
        condition: &condition,
        visitor: &hold,
        step,
    };
    let enlisted = store.condition(&op(ConditionStep::Enlist(&hold)), by);
    assert!(
        matches!(enlisted, Ok(Outcome::Gone(LossCause::Gone))),
        "{enlisted:?}"
    );
    let signalled = store.condition(&op(ConditionStep::Signal(1)), by);
    assert!(
        matches!(signalled, Ok(Outcome::Gone(LossCause::Gone))),
        "{signalled:?}"
    );
    let looked = store.condition(&op(ConditionStep::Look), by);
    assert!(matches!(looked, Ok(Outcome::Done(_))), "{looked:?}");
}
