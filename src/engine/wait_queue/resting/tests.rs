//! The memory of a lock for which nobody waits, and how long it lasts.

use super::*;
use crate::ground::claim::Kind;

const SPAN: Duration = Duration::from_millis(10);
const MOMENT: Duration = Duration::from_nanos(1);

fn lock(name: &str) -> LockId {
    LockId {
        kind: Kind::Reentrant,
        name: name.into(),
    }
}

/// A run that has begun.
fn begun() -> Memory {
    let mut run = Run::default();
    assert!(!run.is_enough(Some(REMEMBERED)));
    Memory {
        run,
        ..Memory::default()
    }
}

fn left_to_others() -> Memory {
    Memory {
        yields: Some(Yield::new(SPAN, None)),
        ..Memory::default()
    }
}

#[test]
fn a_run_does_not_go_on_much_later() {
    let since = time::now();
    for (age, goes_on) in [
        (Duration::ZERO, true),
        (REMEMBERED - MOMENT, true),
        (REMEMBERED, false),
    ] {
        let memory = begun();
        let kept = Kept { memory, since };
        assert_eq!(kept.recalled(since + age).run.goes_on(), goes_on, "{age:?}");
    }
}

#[test]
fn a_run_goes_on_as_long_as_the_turns_of_others_are_known() {
    let goes_on = |kept_before: Duration, after: Duration| {
        let memory = Memory {
            run: begun().run,
            ..left_to_others()
        };
        let now = time::now();
        let since = now.checked_sub(kept_before).unwrap_or(now);
        Kept { memory, since }.recalled(now + after).run.goes_on()
    };
    assert!(goes_on(SPAN * 2, REMEMBERED - SPAN));
    assert!(!goes_on(SPAN * 2, REMEMBERED + SPAN));
    assert!(goes_on(Duration::ZERO, REMEMBERED - SPAN));
}

#[test]
fn a_holder_here_is_relied_on_for_a_second() {
    let since = time::now();
    let held = || Memory {
        held_since: Some(since),
        ..Memory::default()
    };
    for (age, is_relied_on) in [
        (Duration::ZERO, true),
        (HELD_FOR - MOMENT, true),
        (HELD_FOR, false),
        (HELD_FOR + MOMENT, false),
    ] {
        let now = since + age;
        assert_eq!(held().makes_wait(now), is_relied_on, "{age:?}");
        let memory = held();
        let recalled = Kept { memory, since }.recalled(now);
        assert_eq!(recalled.held_since.is_some(), is_relied_on, "{age:?}");
    }
}

#[test]
fn one_who_comes_behind_the_turns_of_others_begins_new_ones() {
    // Until when the next turns last, where one came at that time.
    let next_end = |comes: fn(Instant) -> Instant| {
        let mut memory = left_to_others();
        let mut yields = memory.yields.clone();
        let end = yields.as_mut()?.ends(time::now())?;
        let waits = memory.makes_wait(comes(end));
        let former = memory.yields.as_ref();
        let next = Yield::new(SPAN, None).after(former).ends(end - MOMENT);
        next.map(|next| (waits, next > end))
    };
    // This thread may not get to look in time.
    let mut tries = (0..1_000).filter_map(|_| next_end(|end| end));
    assert_eq!(tries.next(), Some((false, true)));
    let mut tries = (0..1_000).filter_map(|_| next_end(|end| end - MOMENT));
    assert_eq!(tries.next(), Some((true, false)), "they are not over");
}

#[test]
fn what_is_of_use_is_kept_until_it_is_taken() {
    for memory in [begun, left_to_others] {
        let resting = Resting::default();
        assert_eq!(resting.number(), 0);
        resting.keep(&lock("orders"), memory());
        resting.keep(&lock("stock"), memory());
        resting.keep(&lock("users"), Memory::default());
        assert_eq!(resting.number(), 2);
        let is_known = |memory: Memory| memory.yields.is_some() || memory.run.goes_on();
        assert!(is_known(resting.take(&lock("orders"))));
        assert!(!is_known(resting.take(&lock("orders"))));
        assert_eq!(resting.number(), 1);
    }
}

#[test]
fn one_who_comes_waits_for_the_lock_that_is_left_to_others_alone() {
    let makes_wait = |name| {
        let resting = Resting::default();
        resting.keep(&lock("orders"), left_to_others());
        resting.makes_wait(&lock(name))
    };
    // They have a few milliseconds, in which this thread may not get to look.
    assert!((0..1_000).any(|_| makes_wait("orders")));
    assert!(!makes_wait("stock"));
}

#[test]
fn what_is_forgotten_is_swept_when_there_is_no_room() {
    let resting = Resting::default();
    let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
    for name in &names {
        resting.keep(&lock(name), begun());
    }
    assert_eq!(resting.number(), names.len());
    let room = {
        let mut locks = resting.locks.lock();
        for kept in locks.values_mut() {
            let before = kept.since.checked_sub(REMEMBERED);
            kept.since = before.unwrap_or(kept.since);
        }
        locks.capacity()
    };
    for number in 0..=room - names.len() {
        resting.keep(&lock(&format!("later {number}")), begun());
    }
    assert_eq!(resting.number(), room - names.len() + 1);
}

#[test]
fn a_lock_that_is_set_free_is_left_to_those_who_have_heard_of_it() {
    let resting = Resting::default();
    resting.freed(&lock("orders"), None);
    assert_eq!(resting.number(), 0);
    resting.freed(&lock("orders"), left_to_others().yields);
    assert_eq!(resting.number(), 1);
    resting.keep(&lock("orders"), begun());
    resting.freed(&lock("orders"), None);
    assert_eq!(resting.number(), 0, "the run is over");
}
