//! Turns of others, counted by messages that a test brings.

use std::sync::Arc;

use super::*;
use crate::ground::turn_count::Messages;

const SPAN: Duration = Duration::from_millis(2);

/// A lock that `listeners` have heard of, and its messages, our own among them.
fn left_to(listeners: u64) -> (Yield, Arc<Messages>) {
    let messages = Arc::new(Messages::default());
    let turns = Turns::after(Arc::clone(&messages), messages.count(), listeners);
    messages.note_arrival(time::now());
    (Yield::new(SPAN, Some(turns)), messages)
}

#[test]
fn each_of_the_others_has_a_turn() {
    let (mut yields, messages) = left_to(3);
    let now = yields.since;
    for turn in 0..3 {
        assert!(yields.ends(now).is_some(), "before turn {turn}");
        assert_eq!(yields.lets_by(), 2 - turn);
        messages.note_arrival(time::now());
    }
    assert_eq!(yields.ends(now), None);
}

#[test]
fn nobody_is_waited_for_who_does_not_take_it() {
    let (mut yields, messages) = left_to(3);
    let end = yields.ends(yields.since).unwrap_or(yields.since);
    assert_eq!(end, yields.since + SPAN);
    assert_eq!(yields.ends(end), None);
    // From the end of a turn on it is as long as two of them.
    let ended = yields.since + SPAN * 2;
    messages.note_arrival(ended);
    assert_eq!(yields.ends(ended), Some(ended + SPAN * 4));
    assert_eq!(yields.ends(ended + SPAN * 4), None);
}

#[test]
fn turns_may_be_long() {
    let (mut yields, messages) = left_to(5);
    let mut now = yields.since;
    for _ in 0..4 {
        now += Duration::from_secs(30);
        assert_eq!(yields.ends(now), None, "nobody may have taken it");
        messages.note_arrival(now);
        assert_eq!(yields.ends(now), Some(now + LONGEST_SPAN));
    }
}

#[test]
fn a_turn_that_ended_long_ago_makes_nobody_wait() {
    let (mut yields, messages) = left_to(3);
    let ended = yields.since;
    messages.note_arrival(ended);
    assert_eq!(yields.ends(ended + LONGEST_SPAN), None);
}

#[test]
fn the_number_of_the_others_is_learned() {
    let (mut yields, messages) = left_to(5);
    messages.note_arrival(time::now());
    messages.note_arrival(time::now());
    yields.granted();
    assert_eq!(yields.left, 3, "the third may have been late");
    yields.granted();
    let (next, messages) = left_to(5);
    let mut next = next.after(Some(&yields));
    messages.note_arrival(time::now());
    messages.note_arrival(time::now());
    assert_eq!(next.ends(next.since), None, "two others want it");
    next.refused(next.since);
    assert_eq!(next.ends(next.since), None, "it was its turn");
    let (third, messages) = left_to(5);
    let mut third = third.after(Some(&next));
    messages.note_arrival(time::now());
    messages.note_arrival(time::now());
    assert!(third.ends(third.since).is_some(), "there is one more");
}

#[test]
fn the_known_are_waited_for_longer_than_one_more_is() {
    let (mut yields, messages) = left_to(5);
    messages.note_arrival(yields.since);
    yields.granted();
    yields.granted();
    yields.granted();
    assert_eq!(yields.left, 1);
    for round in 1..=TRIED_EACH {
        let (next, messages) = left_to(5);
        let mut next = next.after(Some(&yields));
        let begun = next.since;
        assert_eq!(next.ends(begun), Some(begun + FOR_THE_KNOWN));
        messages.note_arrival(begun);
        let tried = (round == TRIED_EACH).then_some(begun + SPAN);
        assert_eq!(next.ends(begun), tried, "round {round}");
        next.granted();
        yields = next;
    }
    let (nobody, _) = left_to(5);
    let mut nobody = nobody.after(Some(&yields));
    nobody.granted();
    let (next, _) = left_to(5);
    let mut next = next.after(Some(&nobody));
    assert_eq!(next.ends(next.since), Some(next.since + SPAN));
}

#[test]
fn all_who_listen_have_a_chance_now_and_then() {
    let (mut yields, _) = left_to(3);
    yields.granted();
    for chance in 1..=FARTHEST_EACH {
        let before = yields.since.checked_sub(A_CHANCE_EACH);
        yields.missed_since = before.unwrap_or(yields.since);
        let (next, messages) = left_to(3);
        let mut next = next.after(Some(&yields));
        let long = match chance {
            FARTHEST_EACH => FOR_THE_FARTHEST,
            _ => FOR_THE_FAR,
        };
        assert_eq!(next.ends(next.since), Some(next.since + long));
        messages.note_arrival(next.since);
        assert_eq!(
            next.ends(next.since),
            Some(next.since + long),
            "there are two more"
        );
        next.granted();
        let (then, _) = left_to(3);
        let mut then = then.after(Some(&next));
        let end = then.ends(then.since).unwrap_or(then.since);
        assert!(end < then.since + FOR_THE_FAR, "they had one");
        yields = next;
    }
}

#[test]
fn a_rest_is_no_longer_because_others_here_have_the_lock_meanwhile() {
    let (first, messages) = left_to(5);
    let end = first.until;
    messages.note_arrival(first.since);
    let mut yields = first;
    for _ in 0..3 {
        let (next, _) = left_to(5);
        yields = next.after(Some(&yields));
        assert!(yields.until <= end, "{yields:?}");
    }
    assert_eq!(yields.left, 4, "one turn was seen");
    let (mut next, messages) = left_to(5);
    for _ in 0..4 {
        messages.note_arrival(next.since);
    }
    next = next.after(Some(&yields));
    let (last, _) = left_to(5);
    let mut last = last.after(Some(&next));
    assert_eq!(
        last.ends(last.since),
        None,
        "there were as many as are to be"
    );
    last.is_asked();
    let (anew, _) = left_to(5);
    let anew = anew.after(Some(&last));
    assert!(anew.until > end, "it is asked for in between");
}

#[test]
fn without_turns_nothing_is_learned_of_their_time() {
    let mut slow = Yield::new(LONGEST_SPAN, None);
    slow.granted();
    let next = Yield::new(SPAN, None).after(Some(&slow));
    assert_eq!(next.until, next.since + SPAN);
}

#[test]
fn the_last_turns_say_how_long_the_next_may_be() {
    let (mut yields, messages) = left_to(9);
    let begun = yields.since;
    for (seen, ended) in [(2, SPAN * 3), (2, SPAN * 7)] {
        for _ in 0..seen {
            messages.note_arrival(begun + ended);
        }
        yields.ends(begun);
    }
    // Two of them took four spans.
    assert_eq!(yields.until, begun + SPAN * 7 + SPAN * 4);
}

#[test]
fn those_who_all_had_a_turn_have_missed_none() {
    let (mut yields, messages) = left_to(2);
    let missed = |yields: &mut Yield, now| {
        yields.ends(now);
        yields.missed_since
    };
    let (begun, later) = (yields.since, yields.since + SPAN);
    messages.note_arrival(later);
    assert_eq!(missed(&mut yields, later), begun, "one had none");
    messages.note_arrival(later);
    assert_eq!(missed(&mut yields, later), later);
}

#[test]
fn one_more_is_known_of_only_where_all_had_their_turns() {
    let (mut yields, messages) = left_to(5);
    yields.granted();
    assert_eq!(yields.left, 2);
    messages.note_arrival(time::now());
    yields.refused(yields.since);
    assert!(yields.left == 2 && yields.turns.is_some());
    messages.note_arrival(time::now());
    yields.refused(yields.since);
    assert!(yields.left == 3 && yields.turns.is_none());
}

#[test]
fn it_is_remembered_for_a_while_behind_its_end() {
    let (yields, _) = left_to(3);
    let end = yields.until + REMEMBERED;
    assert!(!yields.is_forgotten(end - Duration::from_nanos(1)));
    assert!(yields.is_forgotten(end));
}

#[test]
fn without_turns_one_span_has_to_do() {
    let mut yields = Yield::new(SPAN, None);
    assert_eq!(yields.ends(yields.since), Some(yields.since + SPAN));
    yields.refused(yields.since);
    assert_eq!(yields.ends(yields.since), None);
}

/// Left to so many, who are known of from `former`, and what becomes of it: `seen` turns, and then ours.
fn then(former: &Yield, listeners: u64, seen: u64) -> Yield {
    let (next, messages) = left_to(listeners);
    let mut next = next.after(Some(former));
    (0..seen).for_each(|_| messages.note_arrival(next.since));
    next.granted();
    next
}

/// Whether a lock that is set free behind `former` is left to anybody.
fn is_left(former: &Yield, listeners: u64) -> bool {
    let (next, _) = left_to(listeners);
    let mut next = next.after(Some(former));
    next.ends(next.since).is_some()
}

/// Of one that listens and has taken no turn, so often.
fn in_vain(times: u32) -> Yield {
    let (mut yields, _) = left_to(1);
    yields.granted();
    for _ in 1..times {
        yields.idle = yields.idle.with_end(true);
        yields = then(&yields, 1, 0);
    }
    yields.idle = yields.idle.with_end(false);
    yields
}

#[test]
fn one_who_takes_no_turn_is_left_none_for_a_while() {
    assert!(is_left(&in_vain(1), 1), "it may have been late");
    for times in 2..9 {
        let mut yields = in_vain(times);
        assert!(!is_left(&yields, 1), "in vain {times} times");
        yields.idle = yields.idle.with_end(true);
        assert!(is_left(&yields, 1), "after a while behind {times} times");
    }
}

#[test]
fn a_lock_that_is_left_to_nobody_is_asked_for_at_once_with_and_without_messages() {
    for turns in [true, false] {
        let (mut next, _) = left_to(1);
        next.turns = next.turns.filter(|_| turns);
        let mut next = next.after(Some(&in_vain(3)));
        assert_eq!((next.ends(next.since), next.lets_by()), (None, 0));
    }
}

#[test]
fn one_who_comes_has_its_turn_at_once() {
    let idle = in_vain(5);
    assert!(is_left(&idle, 2), "one more listens");
    // One of them leaves and another one comes.
    let fewer = then(&then(&idle, 1, 0), 0, 0);
    assert!(is_left(&fewer, 1));
}

#[test]
fn one_who_is_seen_to_take_the_lock_has_a_turn_again() {
    let idle = in_vain(5);
    let by = |seen: fn(&mut Yield)| {
        let (next, _) = left_to(1);
        let mut next = next.after(Some(&idle));
        seen(&mut next);
        is_left(&next, 1)
    };
    assert!(!by(|it| it.granted()));
    assert!(by(|it| it.refused(it.since)));
    assert!(by(|it| {
        it.is_asked();
        it.somebody_has_it();
    }));
    assert!(is_left(&then(&idle, 1, 1), 1), "a message of it came");
}

#[test]
fn a_chance_is_given_to_those_who_are_left_no_turn() {
    let mut idle = in_vain(5);
    idle.missed_since = idle.since.checked_sub(A_CHANCE_EACH).unwrap_or(idle.since);
    let (next, _) = left_to(1);
    let mut next = next.after(Some(&idle));
    assert_eq!(next.ends(next.since), Some(next.since + FOR_THE_FAR));
    let vain = next.idle.clone();
    next.granted();
    assert_eq!(next.idle, vain, "what it costs is known");
}

#[test]
fn one_turn_is_in_vain_once() {
    let (mut yields, _) = left_to(1);
    // Handed on by the first of ours to the others.
    for _ in 0..3 {
        yields.granted();
    }
    assert!(is_left(&yields, 1));
}

#[test]
fn a_turn_that_is_left_to_nobody_is_not_in_vain() {
    let idle = in_vain(3);
    let (next, _) = left_to(1);
    let mut next = next.after(Some(&idle));
    assert_eq!(next.left, 0);
    let before = next.idle.clone();
    next.granted();
    assert_eq!(next.idle, before);
}

#[test]
fn those_who_took_all_their_turns_are_waited_for_as_long_the_next_time() {
    let (mut yields, messages) = left_to(1);
    messages.note_arrival(yields.since + SPAN * 2);
    assert_eq!(yields.ends(yields.since), None, "it had its turn");
    yields.granted();
    let (next, _) = left_to(1);
    let mut next = next.after(Some(&yields));
    assert_eq!(next.ends(next.since), Some(next.since + SPAN * 4));
}
