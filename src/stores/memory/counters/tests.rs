//! Counts in memory: the very ends of leases, and who is woken.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::time::Instant;

use super::*;
use crate::ground::claim::{Kind, LockId};
use crate::ground::error::Error;
use crate::ground::notify::{Notifier, Parker, Wake};
use crate::store::Store;
use crate::stores::memory::tests::{NAME, claim_for, ms};

fn id(kind: Kind) -> LockId {
    LockId {
        kind,
        name: NAME.into(),
    }
}

/// A claim of these permits for a second.
fn claim(kind: Kind, visitor: &str) -> Claim {
    claim_for(kind, visitor, 1_000)
}

/// A state with a count, and waiters that hear of it.
struct Scene {
    state: State,
    now: BootInstant,
    /// Kept for the state, which has it as long as its client lives.
    notifier: Arc<Notifier>,
    waiters: Vec<Arc<Parker>>,
}

impl Scene {
    fn new(count: i64) -> Scene {
        let notifier = Arc::new(Notifier::default());
        let mut state = State::default();
        state.set(&NAME.into(), count, None);
        state.clients.push(Arc::downgrade(&notifier));
        Scene {
            state,
            now: BootInstant::now(),
            notifier,
            waiters: Vec::new(),
        }
    }

    fn step(&mut self, step: CountStep) -> Option<i64> {
        let counter = id(Kind::Permits);
        let op = CountOp {
            counter: &counter,
            request: VisitorId::of_field("request"),
            permit: None,
            step,
        };
        self.state.count(&op, self.now)
    }

    fn take(&mut self, visitor: &str) -> Result<Option<Duration>, Option<BootInstant>> {
        self.state.take(&claim(Kind::Permits, visitor), self.now)
    }

    fn give_back(&mut self, visitor: &str) -> bool {
        let (visitor, now) = (VisitorId::of_field(visitor), Some(self.now));
        self.state.give_back(NAME, &visitor, now)
    }

    /// How many of four waiters are woken by this.
    fn wakes<T>(&mut self, act: impl FnOnce(&mut Scene) -> T) -> usize {
        self.waiters = (0..4).map(|_| self.notifier.parker()).collect();
        let channel = NAME.into();
        let notifier = Arc::clone(&self.notifier);
        let join = |parker| notifier.join(0, &channel, parker);
        let places: Vec<_> = self.waiters.iter().map(join).collect();
        act(self);
        let is_woken = |it: &&Arc<Parker>| it.park(Some(Instant::now())) == Wake::Permit;
        let woken = self.waiters.iter().filter(is_woken).count();
        drop(places);
        woken
    }
}

#[test]
fn an_answer_that_is_lost_leaves_a_change_unknown_and_a_question_unasked() {
    let store = Memory::new(Arc::default());
    let counter = id(Kind::Permits);
    let ask = |step| {
        store.world.state.lock().faults.answers_to_lose = 1;
        let op = CountOp {
            counter: &counter,
            request: VisitorId::of_field("request"),
            permit: None,
            step,
        };
        store.count(&op, Instant::now()).unwrap_err()
    };
    for step in [CountStep::Get, CountStep::Taken, CountStep::Lease] {
        assert!(matches!(ask(step), Error::Unreachable { .. }), "{step:?}");
    }
    for step in [CountStep::Add(1), CountStep::CountDown, CountStep::Drain] {
        assert!(matches!(ask(step), Error::Unknown { .. }), "{step:?}");
    }
}

#[test]
fn a_refusal_looks_again_when_a_lease_ends_or_after_a_second() {
    let store = Memory::new(Arc::default());
    let take = |visitor: &str, lease| {
        let claim = Claim {
            lease,
            ..claim(Kind::Permits, visitor)
        };
        store.acquire(&claim, Instant::now()).unwrap()
    };
    let refusal = |outcome| match outcome {
        Outcome::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    let none = refusal(take("1*a", ms(500)));
    assert_eq!(none.retry_after, Some(ms(1_000)), "nobody has any");
    assert!(none.holder.is_some(), "others have them, whoever they are");
    store.world.state.lock().set(&NAME.into(), 1, None);
    assert!(matches!(take("1*a", ms(500)), Outcome::Done(_)));
    let left = refusal(take("1*b", ms(500))).retry_after.unwrap();
    assert!(left <= ms(500) && left > ms(0), "{left:?}");
}

#[test]
fn permits_come_back_once_at_the_very_end_of_their_lease() {
    let mut scene = Scene::new(3);
    scene.take("2*a").unwrap();
    let counter = &mut scene.state.counters.get_mut(NAME).unwrap();
    let end = scene.now + ms(1_000);
    assert_eq!(counter.reclaim(end.earlier(ms(1))), 0);
    assert_eq!(counter.over(end), 2);
    assert_eq!(counter.reclaim(end), 2);
    assert_eq!((counter.count, counter.owners.len()), (3, 0));
    assert_eq!(counter.reclaim(end), 0);
}

#[test]
fn a_count_stays_in_its_range_but_for_what_comes_back() {
    let most = i64::from(LARGEST_COUNT);
    let mut scene = Scene::new(0);
    assert_eq!(scene.step(CountStep::Add(-most)), Some(-most));
    assert_eq!(scene.step(CountStep::Add(-1)), None);
    assert_eq!(scene.step(CountStep::Add(0)), Some(-most));
    assert_eq!(scene.step(CountStep::Get), Some(-most));
    let mut scene = Scene::new(most);
    assert_eq!(scene.step(CountStep::Add(1)), None);
    assert_eq!(scene.step(CountStep::Get), Some(most));
    // What was owned may come back to as many as there may be.
    scene.state.add(NAME, 2);
    assert_eq!(scene.step(CountStep::Add(0)), Some(most + 2));
    assert_eq!(scene.step(CountStep::Add(-1)), Some(most + 1));
}

#[test]
fn the_end_of_a_permit_is_no_part_of_its_lease() {
    let mut scene = Scene::new(1);
    let permit = VisitorId::of_field("0123456789abcdef0123456789abcdef");
    let claim = claim(Kind::PermitIds, permit.as_str());
    scene.state.take(&claim, scene.now).unwrap();
    let counter = id(Kind::PermitIds);
    let op = CountOp {
        counter: &counter,
        request: VisitorId::of_field("request"),
        permit: Some(&permit),
        step: CountStep::Lease,
    };
    let end = scene.now + ms(1_000);
    assert_eq!(scene.state.count(&op, end.earlier(ms(1))), Some(1));
    assert_eq!(scene.state.count(&op, end), Some(0));
    let set = CountOp {
        step: CountStep::SetLease(ms(9)),
        ..op
    };
    assert_eq!(scene.state.count(&set, end), Some(0));
    assert!(!scene.state.give_back(NAME, &permit, Some(end)));
    let before = Some(end.earlier(ms(1)));
    assert!(scene.state.give_back(NAME, &permit, before));
}

#[test]
fn a_copy_of_a_request_lengthens_a_lease_but_not_that_of_an_id() {
    for (kind, visitor, lasts) in [
        (Kind::Permits, "1*a", ms(1_200)),
        (
            Kind::PermitIds,
            "0123456789abcdef0123456789abcdef",
            ms(1_000),
        ),
    ] {
        let mut scene = Scene::new(2);
        let claim = claim(kind, visitor);
        scene.state.take(&claim, scene.now).unwrap();
        scene.state.take(&claim, scene.now + ms(200)).unwrap();
        let counter = &scene.state.counters[NAME];
        assert_eq!(counter.count, 1, "{kind:?}");
        assert_eq!(scene.now.until(counter.owners[0].1), lasts, "{kind:?}");
    }
}

#[test]
fn as_many_waiters_are_woken_as_there_are_free_permits() {
    let mut scene = Scene::new(0);
    let set = |scene: &mut Scene| scene.step(CountStep::Add(2));
    assert_eq!(scene.wakes(set), 2);
    assert_eq!(scene.wakes(|it| it.step(CountStep::Add(-2))), 0);
    let replace = |scene: &mut Scene| scene.step(CountStep::Replace(3));
    assert_eq!(scene.wakes(replace), 3);
    assert_eq!(scene.wakes(|it| it.take("2*a").unwrap()), 0);
    assert_eq!(scene.wakes(|it| assert!(it.give_back("2*a"))), 3);
    // Nothing comes back of what nobody owns.
    assert_eq!(scene.wakes(|it| assert!(!it.give_back("2*b"))), 0);
}

#[test]
fn a_request_that_finds_ended_leases_wakes_those_who_can_have_the_permits() {
    let mut scene = Scene::new(4);
    scene.take("2*a").unwrap();
    assert_eq!(scene.wakes(|it| it.take("3*b")), 0);
    scene.now = scene.now + ms(1_000);
    assert_eq!(scene.wakes(|it| it.take("1*b").unwrap()), 3);
    assert_eq!(scene.wakes(|it| it.take("1*c").unwrap()), 0);
}

#[test]
fn a_hold_that_may_have_been_left_is_withdrawn_with_its_word_to_the_next() {
    let mut scene = Scene::new(1);
    scene.take("1*a").unwrap();
    let in_doubt = claim(Kind::Permits, "1*a").in_doubt(0);
    assert_eq!(scene.wakes(|it| it.state.withdraw(&in_doubt)), 1);
    assert_eq!(scene.wakes(|it| it.state.withdraw(&in_doubt)), 0);
}

#[test]
fn permits_that_are_taken_count_as_long_as_their_leases() {
    let mut scene = Scene::new(3);
    scene.take("2*a").unwrap();
    assert_eq!(scene.step(CountStep::Taken), Some(2));
    assert_eq!(scene.step(CountStep::Replace(7)), Some(1));
    assert_eq!(
        scene.state.counters[NAME].count, 5,
        "two of seven are taken"
    );
    scene.now = scene.now + ms(1_000);
    assert_eq!(scene.step(CountStep::Taken), Some(0));
    assert_eq!(scene.step(CountStep::Get), Some(7));
}

#[test]
fn a_count_down_to_nothing_leaves_nothing() {
    let mut scene = Scene::new(2);
    assert_eq!(scene.step(CountStep::CountDown), Some(1));
    assert_eq!(scene.step(CountStep::CountDown), Some(0));
    assert!(scene.state.counters.is_empty());
    assert_eq!(scene.step(CountStep::CountDown), Some(0));
}

#[test]
fn an_owner_is_forgotten_once_and_alone() {
    let mut scene = Scene::new(3);
    let end = scene.now + ms(1_000);
    for owner in ["other", "request"] {
        assert_eq!(scene.step(CountStep::Forget), Some(0));
        let counter = scene.state.counters.get_mut(NAME).unwrap();
        counter.owners.push((VisitorId::of_field(owner), end));
    }
    assert_eq!(scene.step(CountStep::Forget), Some(1));
    assert_eq!(scene.step(CountStep::Forget), Some(0));
    let owners = &scene.state.counters[NAME].owners;
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0].0.as_str(), "other");
}

#[test]
fn nothing_is_taken_that_ends_in_a_moment() {
    for (life, is_taken) in [(ms(2), false), (TOO_SHORT, true), (ms(4), true)] {
        let mut scene = Scene::new(1);
        let ends = scene.now + life;
        scene.state.counters.get_mut(NAME).unwrap().ends = Some(ends);
        assert_eq!(scene.take("a").is_ok(), is_taken, "{life:?}");
    }
}
