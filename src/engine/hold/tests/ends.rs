#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::*;
use crate::ground::loss::NoLoss;

fn enter(hold: &Hold, lease: Lease) -> u32 {
    let now = PROCESS.read();
    let (claim, id) = hold.reentry(lease, now.instant + MINUTE);
    hold.entered(&claim, id, lease, now.moment, false).unwrap()
}

#[test]
fn a_hold_of_an_ended_thread_lapses_for_that_reason() {
    let long_ago = PROCESS.now().earlier(3 * MINUTE);
    let (hold, thread) = held(Lease::Watchdog(MINUTE), long_ago);
    let unreachable = |it: &LossCause| matches!(it, LossCause::Unreachable { .. });
    assert!(hold.lapse().as_ref().is_some_and(unreachable));
    drop(thread);
    assert_eq!(hold.lapse(), Some(LossCause::ThreadEnded));
}

#[test]
fn permits_lapse_with_their_semaphore() {
    let now = PROCESS.read();
    let (hold, _thread) = held(Lease::Fixed(MINUTE), now.moment);
    let mut state = hold.state.lock();
    let end = state.valid_until;
    let at_end = ClockPair { moment: end, ..now };
    for (life_ends, cause) in [
        (end + ROUNDING, LossCause::Gone),
        (
            end + ROUNDING + Duration::from_nanos(1),
            LossCause::LeaseEnded,
        ),
    ] {
        state.rare().life_ends = Some(life_ends);
        assert_eq!(state.lapse(at_end, true), Some(cause));
    }
}

#[test]
fn a_release_ends_the_wait_of_listeners() {
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), PROCESS.now());
    let deadline = PROCESS.read().instant + MINUTE;
    let news = hold.news();
    hold.release_level(0, deadline);
    let now = Some(PROCESS.read().instant);
    assert!(matches!(news.wait(now), Err(NoLoss::NotYet)));
    hold.close_listeners();
    assert!(matches!(news.wait(now), Err(NoLoss::Ended)));
    assert!(matches!(hold.news().wait(now), Err(NoLoss::Ended)));
}

#[test]
fn an_unlock_releases_the_last_level_without_a_guard() {
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), PROCESS.now());
    let [second, third] = [(); 2].map(|()| enter(&hold, Lease::Watchdog(MINUTE)));
    assert_eq!(hold.top_level(), Some(third));
    hold.guard(third);
    assert_eq!(hold.top_level(), Some(second));
    hold.guard(0);
    hold.guard(second);
    assert_eq!(hold.top_level(), Some(third));
}

#[test]
fn an_id_is_never_that_of_another_level() {
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), PROCESS.now());
    let second = enter(&hold, Lease::Watchdog(MINUTE));
    let deadline = PROCESS.read().instant + MINUTE;
    for last in [u32::MAX - 1, u32::MAX, second - 1, second - 2] {
        hold.state.lock().last_id = last;
        let third = enter(&hold, Lease::Watchdog(MINUTE));
        let plan = hold.release_level(third, deadline);
        assert!(matches!(plan, ReleasePlan::Part(..)), "{plan:?}");
        assert_eq!((hold.count(), hold.top_level()), (2, Some(second)));
    }
}

#[test]
fn releasing_a_level_keeps_the_leases_of_the_others() {
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), PROCESS.now());
    let deadline = PROCESS.read().instant + MINUTE;
    let inner = enter(&hold, Lease::Fixed(10 * MINUTE));
    match hold.release_level(inner, deadline) {
        ReleasePlan::Part(claim, _) => assert_eq!((claim.count, claim.lease), (2, MINUTE)),
        other => panic!("{other:?}"),
    }
    match hold.release_level(0, deadline) {
        ReleasePlan::Whole(claim) => assert!(claim.lease >= MINUTE, "{:?}", claim.lease),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_longest_pace_can_be_set() {
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), PROCESS.now());
    let mut state = hold.state.lock();
    assert_eq!(state.longest_pace(), None);
    state.rare().longest_pace = Some(MINUTE / 6);
    assert_eq!(state.longest_pace(), Some(MINUTE / 6));
}

#[test]
fn a_guarded_write_begins_only_during_the_validity() {
    let now = PROCESS.now();
    let (hold, _thread) = held(Lease::Fixed(MINUTE), now);
    let (_, valid_until) = hold.begin_write().unwrap();
    assert_eq!(valid_until, hold.state.lock().valid_until);
    let (over, _thread) = held(Lease::Fixed(MINUTE), now.earlier(2 * MINUTE));
    assert!(over.is_held() && over.begin_write().is_none());
}
