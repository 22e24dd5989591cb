//! Tests when a hold is checked and renewed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::engine::hold::tests::held;
use crate::engine::hold::{DueAction, Hold, Lease};
use crate::ground::clock::{BootInstant, ClockPair, PROCESS};
use crate::ground::loss::LossCause;
use crate::ground::time;

const LEASE: Duration = Duration::from_secs(60);
/// Long enough that it does not pass within a test.
const SOON: Duration = Duration::from_secs(30);
const MILLI: Duration = Duration::from_millis(1);

fn later(now: ClockPair, span: Duration) -> ClockPair {
    ClockPair {
        moment: now.moment + span,
        instant: now.instant + span,
        ..now
    }
}

fn valid_until(hold: &Hold) -> BootInstant {
    hold.state.lock().valid_until
}

#[test]
fn a_hold_is_rescheduled_only_for_an_earlier_check() {
    let now = PROCESS.read();
    let (hold, _thread) = held(Lease::Watchdog(LEASE), now.moment);
    assert!(hold.is_due_earlier(now), "nothing is noted");
    let next = hold.plan(now, None).map(|next| (next.due, next.is_end));
    let Some((due, false)) = next else {
        panic!("{next:?}");
    };
    assert!(hold.is_due_at(due) && !hold.is_due_at(due + MILLI));
    assert!(due > now.instant + LEASE / 4 && due <= now.instant + LEASE / 3);
    assert!(!hold.is_due_earlier(now), "that is the one which is noted");
    assert!(hold.set_due(Some(due + MILLI)));
    assert!(hold.is_due_earlier(now));
    assert!(hold.set_due(Some(due - MILLI)));
    assert!(!hold.is_due_earlier(now));
    assert!(hold.set_due(None) && !hold.set_due(None));
    assert!(hold.lose(LossCause::Gone).is_some());
    assert!(!hold.is_due_earlier(now) && hold.plan(now, None).is_none());
}

#[test]
fn a_reply_does_not_delay_a_check_requested_meanwhile() {
    let (hold, _thread) = held(Lease::Fixed(Duration::from_secs(30)), PROCESS.now());
    let now = PROCESS.read();
    assert!(hold.plan(now, None).is_some());
    // A check is due now, because the master changed. The reply of the old master does not postpone this check.
    hold.set_due(Some(time::now()));
    assert!(hold.plan(now, None).is_none());
    // The plan replaces a check that was due later.
    hold.set_due(Some(time::now() + Duration::from_secs(60)));
    assert!(hold.plan(now, None).is_some_and(|it| it.replaces_another));
}

#[test]
fn the_end_of_the_validity_is_checked_without_a_renewal() {
    let now = PROCESS.read();
    let (hold, thread) = held(Lease::Watchdog(LEASE), now.moment);
    let end = valid_until(&hold);
    let plan = |again_in| {
        let next = hold.plan(now, again_in);
        next.map(|next| (next.due, next.is_end))
    };
    let rest = now.moment.until(end);
    let at_end = Some((now.instant + rest, true));
    assert_eq!(plan(Some(SOON)), Some((now.instant + SOON, false)));
    assert_eq!(
        plan(Some(rest - MILLI)),
        Some((now.instant + rest - MILLI, false))
    );
    assert_eq!(plan(Some(rest)), at_end);
    assert_eq!(plan(Some(rest + MILLI)), at_end);
    // While one renewal is in flight, no other renewal is planned.
    let begun = hold.begin_renewal(now, now.moment + LEASE);
    let in_flight_id = begun.unwrap().in_flight_id;
    assert_eq!(plan(None), at_end);
    hold.renewal_unknown(in_flight_id, "no answer");
    assert_eq!(plan(Some(SOON)), Some((now.instant + SOON, false)));
    // A hold whose thread has ended is not renewed.
    drop(thread);
    assert_eq!(plan(Some(SOON)), at_end);
    assert_eq!(plan(None), at_end);
}

#[test]
fn a_renewal_extends_only_a_hold_that_is_still_valid() {
    let now = PROCESS.read();
    let begin = |hold: &Hold| {
        let begun = hold.begin_renewal(later(now, LEASE / 3), now.moment + LEASE);
        begun.unwrap().in_flight_id
    };
    let (hold, _thread) = held(Lease::Watchdog(LEASE), now.moment);
    let (end, id) = (valid_until(&hold), begin(&hold));
    hold.confirmed(id, None, false, end);
    assert_eq!(valid_until(&hold), end, "it had ended");

    let (hold, _thread) = held(Lease::Watchdog(LEASE), now.moment);
    let id = begin(&hold);
    assert!(hold.lose(LossCause::Gone).is_some());
    hold.confirmed(id, None, false, now.moment + LEASE / 2);
    assert_eq!(valid_until(&hold), end, "it was lost");

    let (hold, _thread) = held(Lease::Watchdog(LEASE), now.moment);
    let id = begin(&hold);
    hold.confirmed(id, None, false, end.earlier(MILLI));
    assert_eq!(valid_until(&hold), end + LEASE / 3);
    assert!(!hold.state.lock().is_being_renewed());
}

#[test]
fn a_hold_of_an_ended_thread_is_not_renewed() {
    let now = PROCESS.read();
    let (hold, thread) = held(Lease::Watchdog(LEASE), now.moment);
    let expires = now.moment + LEASE;
    let start = |span| hold.begin_renewal(later(now, span), expires);
    assert!(start(LEASE / 3).is_ok());
    drop(thread);
    assert!(matches!(start(LEASE / 3), Err(DueAction::Idle)));
    assert!(matches!(hold.duty(later(now, LEASE / 3)), DueAction::Idle));
    let ended = start(LEASE);
    assert!(
        matches!(ended, Err(DueAction::Lapsed(LossCause::ThreadEnded))),
        "{ended:?}"
    );
}
