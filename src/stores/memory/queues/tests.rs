//! The line at a fair lock in memory: who is passed over, and when the others look.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Instant;

use super::*;
use crate::ground::claim::Kind;
use crate::ground::notify::{Notifier, Wake};
use crate::stores::memory::tests::{NAME, claim_for, ms};

fn claim(visitor: &str) -> Claim {
    waiting(visitor, false)
}

fn waiting(visitor: &str, had_place: bool) -> Claim {
    Claim {
        queueing: Queueing::Waits {
            need: ms(300),
            memo: None,
            takes_place: true,
            had_place,
        },
        ..claim_for(Kind::Fair, visitor, 9_000)
    }
}

/// A line of these, none of whom listens.
fn line(visitors: &[&str]) -> (State, BootInstant) {
    let mut state = State::default();
    for visitor in visitors {
        state.join_line(&claim(visitor));
    }
    (state, BootInstant::now())
}

fn stand(state: &State) -> Vec<String> {
    let line = state.lines.get(NAME).into_iter().flatten();
    line.map(|it| it.visitor.to_string()).collect()
}

#[test]
fn each_has_a_place_behind_those_who_came_before_and_keeps_it() {
    let (mut state, _) = line(&["a", "b"]);
    assert_eq!(state.join_line(&claim("c")), Some(2));
    assert_eq!(state.join_line(&claim("b")), Some(1));
    // One that was passed over comes back to the front.
    assert_eq!(state.join_line(&waiting("d", true)), Some(0));
    assert_eq!(stand(&state), ["d", "a", "b", "c"]);
    let tries = Claim {
        queueing: Queueing::Tries,
        ..claim("e")
    };
    assert_eq!(state.join_line(&tries), None);
    assert!(state.leave_line(NAME, &VisitorId::of_field("d")));
    assert!(!state.leave_line(NAME, &VisitorId::of_field("b")));
    assert!(!state.leave_line("other", &VisitorId::of_field("a")));
    assert_eq!(stand(&state), ["a", "c"]);
    state.leave_line(NAME, &VisitorId::of_field("a"));
    state.leave_line(NAME, &VisitorId::of_field("c"));
    assert!(state.lines.is_empty());
}

#[test]
fn those_who_do_not_come_are_passed_over_after_their_time() {
    let (mut state, now) = line(&["a", "b", "c"]);
    let look = |state: &mut State, is_held, at| {
        let pause = state.look_at_line(&claim("c"), is_held, now + ms(at));
        pause.as_millis()
    };
    // While the lock is held nobody is missed.
    assert_eq!(look(&mut state, true, 0), 1_000);
    assert_eq!(look(&mut state, true, 9_000), 1_000);
    assert_eq!(stand(&state), ["a", "b", "c"]);
    // From the first look at the free lock on.
    assert_eq!(look(&mut state, false, 10_000), 1_000);
    assert_eq!(look(&mut state, false, 11_000), 500);
    assert_eq!(look(&mut state, false, 11_490), 50);
    assert_eq!(look(&mut state, false, 11_499), 50);
    assert_eq!(stand(&state), ["a", "b", "c"]);
    assert_eq!(look(&mut state, false, 11_500), 1_000);
    assert_eq!(stand(&state), ["c"]);
}

#[test]
fn one_that_looks_or_listens_is_there() {
    let (mut state, now) = line(&["a", "b", "c"]);
    let notifier = Arc::new(Notifier::default());
    state.clients.push(Arc::downgrade(&notifier));
    let parker = notifier.parker();
    let channel = channel_of(NAME, &VisitorId::of_field("a"));
    let mut place = notifier.join(0, &channel, &parker);
    assert!(state.is_heard(&channel) && !state.is_heard("a"));
    state.look_at_line(&claim("c"), false, now);
    assert_eq!(place.park(Some(Instant::now())), Wake::Permit, "it is told");
    state.look_at_line(&claim("c"), false, now + ms(1_500));
    assert_eq!(stand(&state), ["a", "b", "c"], "the first listens");
    drop(place);
    // From now on it is missed; the one behind it has looked meanwhile.
    state.look_at_line(&claim("b"), true, now + ms(1_600));
    state.look_at_line(&claim("c"), false, now + ms(1_600));
    let missed = state.lines[NAME].iter().map(|it| it.absent_since.is_some());
    assert_eq!(missed.collect::<Vec<_>>(), [true, true, false]);
    state.look_at_line(&claim("c"), false, now + ms(3_100));
    assert_eq!(stand(&state), ["c"]);
}

#[test]
fn only_those_before_one_that_looks_are_missed() {
    let (mut state, now) = line(&["a", "b", "c"]);
    state.look_at_line(&claim("a"), false, now);
    let is_missed = |it: &InLine| it.absent_since.is_some();
    assert!(!state.lines[NAME].iter().any(is_missed));
    state.look_at_line(&claim("b"), false, now);
    let missed: Vec<bool> = state.lines[NAME].iter().map(is_missed).collect();
    assert_eq!(missed, [true, false, false]);
    // One that is in no line misses all.
    state.look_at_line(&claim("d"), false, now);
    assert!(state.lines[NAME].iter().all(is_missed));
}

#[test]
fn one_far_from_the_front_looks_rarely_if_it_listens() {
    use crate::store::Store;
    let store = Memory::new(Arc::default());
    let now = Instant::now();
    let ask = |visitor: &str| match store.acquire(&claim(visitor), now).unwrap() {
        Outcome::Refused(refusal) => refusal.recheck_after,
        _ => None,
    };
    assert_eq!(ask("holder"), None);
    for visitor in ["a", "b", "c"] {
        assert_eq!(ask(visitor), Some(LOOKS_AGAIN), "{visitor}");
    }
    let lock = LockId {
        kind: Kind::Fair,
        name: NAME.into(),
    };
    let parker = store.facts().notifier.parker();
    let listens = |it: &str| store.subscribe(&lock, Some(&VisitorId::of_field(it)), 0, &parker);
    let _places = ["a", "b", "c"].map(listens);
    assert_eq!(ask("a"), Some(LOOKS_AGAIN));
    assert_eq!(ask("b"), Some(LOOKS_AGAIN));
    assert_eq!(ask("c"), Some(LOOKS_RARELY));
    assert_eq!(store.waiters(&lock, now).unwrap(), 3);
    // The lock is free, and it is the turn of the first.
    store.release(&claim("holder"), 0, now).unwrap();
    assert_eq!(parker.park(Some(now)), Wake::Permit);
    assert_eq!(ask("c"), Some(LOOKS_AGAIN));
    assert_eq!(ask("a"), None);
    assert_eq!(store.waiters(&lock, now).unwrap(), 2);
}

#[test]
fn a_place_that_is_withdrawn_passes_its_turn_on_where_the_lock_is_free() {
    let (mut state, now) = line(&["a", "b", "c"]);
    let notifier = Arc::new(Notifier::default());
    state.clients.push(Arc::downgrade(&notifier));
    let withdraw = |state: &mut State, visitor: &str, next: &str| {
        let channel = channel_of(NAME, &VisitorId::of_field(next));
        let mut place = notifier.join(0, &channel, &notifier.parker());
        state.withdraw(&claim(visitor).in_doubt(0));
        place.park(Some(Instant::now())) == Wake::Permit
    };
    assert!(!withdraw(&mut state, "b", "a"), "it was not the first");
    assert!(withdraw(&mut state, "a", "c"));
    let entry = Entry {
        kind: Kind::Fair,
        visitor: VisitorId::of_field("holder"),
        count: 1,
        ends: now + ms(9_000),
    };
    state.put(&NAME.into(), entry, now);
    state.join_line(&claim("d"));
    assert!(!withdraw(&mut state, "c", "d"), "the lock is held");
    assert!(withdraw(&mut state, "holder", "d"));
    assert!(state.holds.is_empty());
}
