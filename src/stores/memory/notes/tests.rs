//! The turns of readers and writers, step by step.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::stores::memory::tests::{NAME, claim_for, ms};
use crate::stores::memory::world::{SideHold, Sides};

fn reader(visitor: &str, memo: Option<&str>, need: Duration) -> Claim {
    Claim {
        queueing: Queueing::Waits {
            need,
            memo: memo.map(Box::from),
            takes_place: true,
            had_place: false,
        },
        ..claim_for(Kind::Read, visitor, 10_000)
    }
}

fn writer(visitor: &str) -> Claim {
    Claim {
        kind: Kind::Write,
        ..reader(visitor, None, ms(300))
    }
}

fn with(claim: Claim, queueing: Queueing) -> Claim {
    Claim { queueing, ..claim }
}

fn notes(window: Option<(u64, u64)>, turned: Option<(u64, u64)>, now: BootInstant) -> Notes {
    Notes {
        window: window.map(|(behind, due)| Window {
            ends: now + ms(500),
            behind,
            due,
        }),
        turned: turned.map(|(need, count)| (ms(need), count)),
        ends: Some(now + ms(1)),
        ..Notes::default()
    }
}

/// Has somebody hold the lock.
fn held(state: &mut State, is_written: bool, now: BootInstant) {
    let hold = SideHold {
        kind: if is_written { Kind::Write } else { Kind::Read },
        visitor: VisitorId::of_field("holder"),
        count: 1,
        ends: now + ms(60_000),
    };
    let sides = Sides {
        is_written,
        ends: hold.ends,
        holds: vec![hold],
    };
    state.sides.insert(NAME.into(), sides);
}

#[test]
fn a_reader_that_is_turned_away_is_counted_once_behind_a_writer() {
    let now = BootInstant::now();
    let turned = |window, before, memo, behind| {
        let mut notes = notes(window, before, now);
        notes.turn_away(&reader("a", memo, ms(300)), now, behind);
        assert!(notes.ends == Some(now + KEPT_FOR_READERS));
        notes.turned.map(|(need, count)| (need.as_millis(), count))
    };
    assert_eq!(turned(None, None, None, 3), Some((300, 1)));
    // The first that is noted counts, whatever it was told.
    assert_eq!(turned(None, None, Some("3"), 3), Some((300, 1)));
    assert_eq!(turned(None, Some((100, 1)), None, 3), Some((300, 2)));
    assert_eq!(turned(None, Some((500, 1)), None, 3), Some((500, 2)));
    assert_eq!(turned(None, Some((100, 1)), Some("3"), 3), Some((300, 1)));
    assert_eq!(turned(None, Some((100, 1)), Some("2"), 3), Some((300, 1)));
    assert_eq!(turned(None, Some((100, 1)), Some("-"), 3), Some((300, 2)));
    // Behind the window it was told before the last writer left the lock.
    let window = Some((2, 1));
    assert_eq!(turned(window, Some((100, 1)), Some("1"), 3), Some((300, 2)));
    assert_eq!(turned(window, Some((100, 1)), Some("2"), 3), Some((300, 2)));
    assert_eq!(turned(window, Some((100, 1)), Some("3"), 4), Some((300, 1)));
    assert_eq!(turned(window, Some((100, 1)), Some("2"), 2), Some((300, 1)));
    // One that does not wait is not waited for.
    let mut notes = notes(None, None, now);
    notes.turn_away(&with(reader("a", None, ms(1)), Queueing::Tries), now, 3);
    assert!(notes.turned.is_none() && notes.ends == Some(now + ms(1)));
}

#[test]
fn a_reader_that_comes_is_waited_for_no_longer() {
    let now = BootInstant::now();
    let come = |window, turned, behind| {
        let mut notes = notes(window, turned, now);
        notes.has_come(behind);
        (
            notes.window.map(|it| it.due),
            notes.turned.map(|(_, count)| count),
        )
    };
    let (window, turned) = (Some((5, 2)), Some((300, 3)));
    assert_eq!(come(window, turned, 5), (Some(1), Some(3)));
    assert_eq!(come(window, turned, 4), (Some(2), Some(3)), "too late");
    assert_eq!(come(window, turned, 6), (Some(2), Some(2)));
    // All have come of those behind this writer.
    assert_eq!(come(Some((5, 0)), turned, 5), (Some(0), Some(2)));
    assert_eq!(come(None, turned, 5), (None, Some(2)));
    assert_eq!(come(None, Some((300, 2)), 5), (None, Some(1)));
    assert_eq!(come(None, Some((300, 1)), 5), (None, None));
    assert_eq!(come(None, None, 5), (None, None));
}

#[test]
fn a_lock_is_kept_for_readers_until_the_last_has_come_or_the_window_ends() {
    let now = BootInstant::now();
    let end = now + ms(500);
    assert!(notes(Some((1, 1)), None, now).kept_until(now) == Some(end));
    assert!(notes(Some((1, 1)), None, now).kept_until(end).is_none());
    assert!(notes(Some((1, 0)), None, now).kept_until(now).is_none());
    assert!(notes(None, None, now).kept_until(now).is_none());
}

#[test]
fn notes_are_empty_without_anything_that_counts_later() {
    let now = BootInstant::now();
    assert!(notes(None, None, now).are_empty());
    assert!(!notes(Some((0, 0)), None, now).are_empty());
    assert!(!notes(None, Some((1, 1)), now).are_empty());
    let phase = Notes {
        phase: 1,
        ..Notes::default()
    };
    assert!(!phase.are_empty());
    assert!(Notes::default().are_over(now));
    assert!(!notes(None, None, now).are_over(now));
    assert!(notes(None, None, now).are_over(now + ms(1)));
}

#[test]
fn writers_have_their_turns_in_the_order_in_which_they_came() {
    let (mut state, now) = (State::default(), BootInstant::now());
    let first_before = |state: &mut State, claim: &Claim, now| {
        let turned_away = state.waits_its_turn(claim, now)?;
        turned_away.holder.map(|it| it.to_string())
    };
    let first = |it: &str| Some(it.to_owned());
    held(&mut state, true, now);
    for visitor in ["a", "b", "c"] {
        assert!(state.note_waiting(&writer(visitor), now).is_none());
    }
    state.sides.clear();
    assert_eq!(first_before(&mut state, &writer("a"), now), None);
    assert_eq!(first_before(&mut state, &writer("b"), now), first("a"));
    assert_eq!(first_before(&mut state, &writer("d"), now), first("a"));
    let barges = with(writer("d"), Queueing::Barges);
    assert_eq!(first_before(&mut state, &barges, now), None);
    let tries = with(writer("d"), Queueing::Tries);
    assert_eq!(first_before(&mut state, &tries, now), first("a"));
    // One that has not looked for three seconds is passed over.
    let later = now + ms(2_000);
    state.note_waiting(&writer("b"), later);
    let over = now + COUNTS_AS_WAITING;
    assert_eq!(first_before(&mut state, &writer("c"), over), first("b"));
    assert_eq!(first_before(&mut state, &writer("b"), over), None);
    // It is noted once, and keeps its place.
    assert_eq!(state.notes[NAME].writers.len(), 3);
    state.note_writer(&writer("b"), over);
    assert_eq!(
        (state.notes[NAME].writers.len(), state.notes[NAME].phase),
        (0, 1)
    );
}

#[test]
fn a_writer_without_a_place_leaves_no_note() {
    let (mut state, now) = (State::default(), BootInstant::now());
    let without = |need| Queueing::Waits {
        need,
        memo: None,
        takes_place: false,
        had_place: false,
    };
    state.note_waiting(&with(writer("a"), without(ms(300))), now);
    state.note_waiting(&with(writer("a"), Queueing::Tries), now);
    assert!(state.notes.is_empty());
    let memo = state.note_waiting(&with(reader("b", None, ms(1)), without(ms(300))), now);
    assert_eq!(memo.as_deref(), Some("0"), "a reader needs none");
}

#[test]
fn a_writer_that_leaves_opens_the_lock_to_readers_for_as_long_as_they_need() {
    let (mut state, now) = (State::default(), BootInstant::now());
    held(&mut state, true, now);
    state.note_waiting(&writer("w"), now);
    assert_eq!(
        state
            .note_waiting(&reader("a", None, ms(300)), now)
            .as_deref(),
        Some("0")
    );
    state.note_waiting(&reader("b", None, ms(700)), now);
    state.sides.clear();
    state.open_window(NAME, now);
    let window = state.notes[NAME].window.unwrap();
    assert_eq!((window.due, window.behind), (2, 0));
    assert!(window.ends == now + ms(700));
    // Readers come in, a writer waits until the window is over; one that only tries does not.
    assert!(
        state
            .waits_its_turn(&reader("a", Some("0"), ms(300)), now)
            .is_none()
    );
    let away = state.waits_its_turn(&writer("w"), now).unwrap();
    assert!(away.holder.is_none() && away.ends == window.ends);
    let tries = with(writer("x"), Queueing::Tries);
    state.forget_writer(NAME, &VisitorId::of_field("w"));
    assert!(state.waits_its_turn(&tries, now).is_none());
    state.note_reader(&reader("a", Some("0"), ms(300)));
    state.note_reader(&reader("b", Some("0"), ms(300)));
    assert!(state.waits_its_turn(&writer("w"), now).is_none());
}

#[test]
fn a_reader_is_turned_away_once_behind_the_writer_that_waits() {
    let (mut state, now) = (State::default(), BootInstant::now());
    held(&mut state, false, now);
    state.note_waiting(&writer("w"), now);
    let away = state
        .waits_its_turn(&reader("a", None, ms(300)), now)
        .unwrap();
    assert_eq!(away.memo.as_deref(), Some("1"));
    assert!(away.ends == now + LOOKS_AGAIN);
    assert_eq!(away.holder.unwrap().as_str(), "w");
    assert!(
        state
            .waits_its_turn(&reader("a", Some("1"), ms(300)), now)
            .is_some()
    );
    assert!(
        state
            .waits_its_turn(&reader("a", Some("0"), ms(300)), now)
            .is_none()
    );
    let tries = with(reader("b", None, ms(300)), Queueing::Tries);
    assert!(state.waits_its_turn(&tries, now).is_some());
    // The note of the writer is over.
    let over = now + COUNTS_AS_WAITING;
    assert!(
        state
            .waits_its_turn(&reader("b", None, ms(300)), over)
            .is_none()
    );
}

#[test]
fn notes_go_with_the_last_that_counts() {
    let (mut state, now) = (State::default(), BootInstant::now());
    let (w, x) = (VisitorId::of_field("w"), VisitorId::of_field("x"));
    assert!(!state.forget_writer(NAME, &w));
    state.note_waiting(&writer("w"), now);
    state.note_waiting(&writer("x"), now);
    assert!(state.forget_writer(NAME, &w));
    assert!(!state.forget_writer(NAME, &w));
    assert_eq!(state.notes.len(), 1);
    assert!(state.forget_writer(NAME, &x));
    assert!(state.notes.is_empty());
    // Those of other names that are over go when there are many.
    for number in 0..LEAST_SWEPT {
        let claim = Claim {
            name: format!("{number}").into(),
            ..writer("w")
        };
        state.note_waiting(&claim, now);
    }
    assert_eq!(state.notes.len(), LEAST_SWEPT);
    state.note_waiting(&writer("w"), now + KEPT);
    assert_eq!(state.notes.len(), 1);
}

#[test]
fn notes_that_are_over_count_no_more() {
    let (mut state, now) = (State::default(), BootInstant::now());
    state.note_waiting(&writer("w"), now);
    state.note_writer(&writer("w"), now);
    assert_eq!(state.notes[NAME].phase, 1);
    let memo = state.note_waiting(&reader("a", None, ms(300)), now + KEPT);
    assert_eq!(memo.as_deref(), Some("0"), "it begins anew");
}

#[test]
fn a_free_lock_that_is_kept_for_readers_turns_none_of_them_away() {
    let (mut state, now) = (State::default(), BootInstant::now());
    state.note_waiting(&writer("w"), now);
    state.notes.get_mut(NAME).unwrap().window = Some(Window {
        ends: now + ms(500),
        behind: 0,
        due: 1,
    });
    let asks = reader("a", None, ms(300));
    assert!(state.waits_its_turn(&asks, now).is_none());
    held(&mut state, false, now);
    assert!(state.waits_its_turn(&asks, now).is_some());
}

#[test]
fn a_writer_that_is_in_goes_from_the_notes_with_those_that_are_over() {
    let (mut state, now) = (State::default(), BootInstant::now());
    for visitor in ["over", "w", "x"] {
        state.note_waiting(&writer(visitor), now);
    }
    let over = &mut state.notes.get_mut(NAME).unwrap().writers[0];
    over.ends = now;
    state.note_writer(&writer("w"), now);
    let left = &state.notes[NAME].writers;
    let left: Vec<_> = left.iter().map(|it| it.visitor.as_str()).collect();
    assert_eq!(left, ["x"]);
}

#[test]
fn notes_of_an_end_that_has_passed_turn_nobody_away() {
    let (mut state, now) = (State::default(), BootInstant::now());
    held(&mut state, false, now);
    state.note_waiting(&writer("w"), now);
    let asks = reader("a", None, ms(300));
    assert!(state.waits_its_turn(&asks, now).is_some());
    state.notes.get_mut(NAME).unwrap().ends = Some(now);
    assert!(state.waits_its_turn(&asks, now).is_none());
}
