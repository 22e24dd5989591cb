//! Compares the validity of a hold with a model of its store, which runs requests in random order.

mod ends;

use std::sync::Arc;
use std::time::Duration;

use crate::engine::counters::Counters;
use crate::engine::hold::state::{ROUNDING, State};
use crate::engine::hold::validity::MOST_IN_FLIGHT;
use crate::engine::hold::validity::{By, Flying, InFlightId};
use crate::engine::hold::{Hold, Lease, ReleasePlan};
use crate::ground::claim::{Claim, Kind, Rules};
use crate::ground::clock::{BootInstant, ClockPair, PROCESS, drift};
use crate::ground::loss::LossCause;

pub(super) fn held(lease: Lease, sent: BootInstant) -> (Hold, Arc<()>) {
    held_of(Arc::default(), 1, lease, sent)
}

pub(super) fn held_of(
    client: Arc<Counters>,
    number: u64,
    lease: Lease,
    sent: BootInstant,
) -> (Hold, Arc<()>) {
    let thread = Arc::default();
    let claim = Claim {
        kind: Kind::Reentrant,
        name: "orders".into(),
        visitor: Kind::Reentrant.visitor("model", number, 1),
        count: 0,
        lease: lease.duration(),
        is_renewed: false,
        inside: None,
        queueing: Default::default(),
    };
    let hold = Hold::new(&claim, number, Arc::downgrade(&thread), client, lease, sent);
    (hold, thread)
}

struct Request {
    in_flight_id: InFlightId,
    by: By,
    sent: BootInstant,
    lease: Duration,
    expires: BootInstant,
    /// The servers that have not yet run the request.
    pending: Vec<usize>,
    ran_at: usize,
    state: Flying,
}

/// Sends, runs and answers requests in random order. Each request is sent to all servers, and needs the replies of
/// `needed` servers.
fn play(seed: u64, servers: usize, needed: usize) {
    let mut draw = fastrand::Rng::with_seed(seed);
    let millis = Duration::from_millis;
    let mut now = PROCESS.now();
    let (hold, _thread) = held(Lease::Watchdog(millis(60_000)), now);
    let mut state = hold.state.lock();
    let mut ends = vec![now + millis(60_000); servers];
    let mut requests: Vec<Request> = Vec::new();
    for step in 0..300 {
        now = now + millis(draw.u64(..40));
        for (server, end) in ends.iter_mut().enumerate() {
            let at = draw.usize(..=requests.len());
            let Some(request) = requests.get_mut(at) else {
                continue;
            };
            // Requests use several connections, so requests and their copies may run in any order.
            let Some(copy) = request.pending.iter().position(|it| *it == server) else {
                continue;
            };
            request.pending.swap_remove(copy);
            if now < request.expires {
                request.ran_at += 1;
                *end = now + request.lease;
            }
        }
        for by in [By::Holder, By::Watchdog] {
            let awaited = |it: &&mut Request| it.by == by && it.state == Flying::Awaited;
            match requests.iter_mut().find(awaited) {
                Some(request) if request.ran_at >= needed && draw.bool() => {
                    request.state = Flying::Answered;
                    let Request {
                        in_flight_id,
                        sent,
                        lease,
                        ..
                    } = *request;
                    let may_run_again = servers > 1 || !request.pending.is_empty();
                    state.confirm(in_flight_id, sent, lease, may_run_again);
                }
                Some(request) if draw.u8(..8) == 0 => {
                    request.state = Flying::Unanswered;
                    state.unanswered(request.in_flight_id);
                }
                Some(_) => {}
                None if draw.bool() => {
                    let lease = millis([6_000, 60_000, 600_000][draw.usize(..3)]);
                    let expires = now + millis(draw.u64(1..2_000));
                    requests.push(Request {
                        in_flight_id: state.note_in_flight(by, now, lease, expires),
                        by,
                        sent: now,
                        lease,
                        expires,
                        pending: match servers {
                            1 => vec![0; draw.usize(1..3)],
                            _ => (0..servers).collect(),
                        },
                        ran_at: 0,
                        state: Flying::Awaited,
                    });
                }
                None => {}
            }
        }
        let lasting = ends.iter().filter(|end| state.valid_until <= **end);
        assert!(
            lasting.count() >= needed,
            "seed {seed}, step {step}: {:?} is believed, the servers have {ends:?}",
            state.valid_until
        );
        assert!(state.in_flight.len() <= MOST_IN_FLIGHT + 1);
    }
}

#[test]
fn the_validity_never_exceeds_the_lease_in_the_store() {
    (0..500).for_each(|seed| play(seed, 1, 1));
}

#[test]
fn the_validity_never_exceeds_the_lease_of_a_majority() {
    (0..500).for_each(|seed| play(seed, 3, 2));
}

#[test]
fn a_loss_tells_a_paused_process_from_a_late_reply() {
    let sent = PROCESS.read();
    let lease = Duration::from_secs(3);
    let hold = |span: Duration| {
        let (hold, _) = held(Lease::Watchdog(lease), sent.moment);
        hold.state.lock().due = Some(sent.instant + span);
        hold
    };
    let later = |moment, instant| ClockPair {
        moment: sent.moment + moment,
        instant: sent.instant + instant,
        ..sent
    };
    let (in_time, late) = (lease + Duration::from_millis(1), lease * 5);
    let cause = |hold: &Hold, now| {
        let state = hold.state.lock();
        match state.lapse(now, true) {
            Some(LossCause::Unreachable { reason }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let renewed = hold(lease);
    let expires = sent.moment + lease;
    let in_flight_id =
        renewed
            .state
            .lock()
            .note_in_flight(By::Watchdog, sent.moment, lease, expires);
    let reason = cause(&renewed, later(in_time, in_time));
    assert!(
        reason.contains("no reply") && !reason.contains("paused"),
        "{reason}"
    );
    renewed.renewal_unknown(in_flight_id, "the port refuses");
    let reason = cause(&renewed, later(in_time, in_time));
    assert_eq!(reason, "the port refuses");
    let reason = cause(&renewed, later(late, late));
    assert!(reason.contains("paused"), "{reason}");
    let paused = cause(&hold(lease / 3), later(late, late));
    assert!(paused.contains("paused"), "{paused}");
    let suspended = cause(&hold(lease / 3), later(late, lease / 6));
    assert!(suspended.contains("suspended"), "{suspended}");
}

#[test]
fn a_fixed_lease_that_others_may_shorten_is_renewed() {
    let (hold, _thread) = held(Lease::Fixed(Duration::from_secs(3)), PROCESS.now());
    let restored = Rules {
        restores_lifetime: true,
        ..Rules::PLAIN
    };
    let state = hold.state.lock();
    assert!(state.is_looked_after(&restored) && !state.is_looked_after(&Rules::PLAIN));
}

const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn flying(hold: &Hold) -> Vec<(InFlightId, Flying)> {
    let state = hold.state.lock();
    state.in_flight.iter().map(|it| (it.id, it.state)).collect()
}

#[test]
fn the_end_of_a_request_changes_no_other_request() {
    let now = PROCESS.read();
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), now.moment);
    let deadline = now.instant + MINUTE;
    let ask = || hold.reentry(Lease::Watchdog(MINUTE), deadline).1;
    let (first, second, third) = (ask(), ask(), ask());
    hold.not_done(first);
    let left = [(second, Flying::Awaited), (third, Flying::Awaited)];
    assert_eq!(flying(&hold), left);
    hold.unanswered(second);
    let left = [(second, Flying::Unanswered), (third, Flying::Awaited)];
    assert_eq!(flying(&hold), left);
    assert!(!hold.may_outlast());
    hold.set_may_outlast();
    hold.unanswered(third);
    let left = [(second, Flying::Unanswered), (third, Flying::Unanswered)];
    assert_eq!(flying(&hold), left);
    assert!(hold.may_outlast());
}

#[test]
fn an_ended_hold_is_not_reentered() {
    let now = PROCESS.read();
    let lease = Lease::Watchdog(MINUTE);
    let enter = |hold: &Hold| {
        let (claim, id) = hold.reentry(lease, now.instant + MINUTE);
        hold.entered(&claim, id, lease, PROCESS.now(), false)
    };
    let (hold, _thread) = held(lease, now.moment);
    assert!(enter(&hold).is_some());
    assert!(hold.lose(LossCause::Gone).is_some());
    assert_eq!((enter(&hold), hold.count()), (None, 2));
    let (lapsed, _thread) = held(lease, now.moment.earlier(2 * MINUTE));
    assert!(lapsed.is_held() && !lapsed.is_valid());
    assert_eq!((enter(&lapsed), lapsed.count()), (None, 1));
}

#[test]
fn unlocking_a_lost_hold_removes_levels_without_guards_first() {
    let now = PROCESS.read();
    let lease = Lease::Watchdog(MINUTE);
    let deadline = now.instant + MINUTE;
    let (hold, _thread) = held(lease, now.moment);
    for _ in 0..2 {
        let (claim, id) = hold.reentry(lease, deadline);
        hold.entered(&claim, id, lease, PROCESS.now(), false);
    }
    hold.guard(0);
    hold.guard(2);
    let _ = hold.lose(LossCause::Gone);
    hold.remove_lost_level();
    let levels = |hold: &Hold| -> Vec<_> {
        let state = hold.state.lock();
        state.levels.iter().map(|level| level.id).collect()
    };
    assert_eq!(levels(&hold), [0, 2]);
    hold.remove_lost_level();
    assert_eq!(levels(&hold), [0]);
    let had_level = |id| match hold.release_level(id, deadline) {
        ReleasePlan::Lost { had_level, .. } => had_level,
        other => panic!("{other:?}"),
    };
    assert!(!had_level(2) && had_level(0) && !had_level(0));
}

#[test]
fn no_hold_is_valid_without_a_watchdog() {
    let (hold, _thread) = held(Lease::Fixed(MINUTE), PROCESS.now());
    assert!(hold.is_valid() && hold.excludes_overlap() && hold.begin_write().is_some());
    assert!(hold.remaining_validity() > Duration::ZERO);
    hold.client.watchdog_died();
    assert!(hold.is_held() && !hold.is_valid() && !hold.excludes_overlap());
    assert_eq!(hold.remaining_validity(), Duration::ZERO);
    assert!(hold.begin_write().is_none());
}

#[test]
fn a_shortened_fixed_lease_is_set_again() {
    let sent = PROCESS.now();
    let (hold, _thread) = held(Lease::Fixed(MINUTE), sent);
    let mut state = hold.state.lock();
    let needed = (sent + MINUTE).earlier(drift(MINUTE) + ROUNDING);
    let short = |state: &State| (state.is_short(), state.is_looked_after(&Rules::PLAIN));
    assert_eq!(short(&state), (false, false));
    state.valid_until = needed;
    assert_eq!(short(&state), (false, false));
    state.valid_until = needed.earlier(Duration::from_micros(1));
    assert_eq!(short(&state), (true, true));
}

#[test]
fn the_pace_of_renewals_follows_the_lease_in_the_store() {
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), PROCESS.now());
    let mut state = hold.state.lock();
    assert_eq!(state.pace(), MINUTE);
    // The lease in the store is shorter than the lease of the level.
    for counted in [MINUTE / 6, Duration::from_millis(20)] {
        state.valid_until = state.counted_from + counted;
        assert_eq!(state.pace(), counted + drift(counted));
    }
    state.valid_until = state.counted_from + MINUTE / 6;
    state.levels.clear();
    assert_eq!(state.pace(), MINUTE / 6);
}

#[test]
fn a_hold_is_invalid_at_the_end_of_its_validity() {
    let now = PROCESS.read();
    let (hold, _thread) = held(Lease::Fixed(MINUTE), now.moment);
    let state = hold.state.lock();
    let at = |moment| state.lapse(ClockPair { moment, ..now }, true);
    assert_eq!(at(state.valid_until), Some(LossCause::LeaseEnded));
    let before = state.valid_until.earlier(Duration::from_nanos(1));
    assert_eq!(at(before), None);
}

#[test]
fn a_loss_does_not_call_a_reentry_a_renewal() {
    let now = PROCESS.read();
    let sent = now.moment.earlier(2 * MINUTE);
    let (hold, _thread) = held(Lease::Watchdog(MINUTE), sent);
    let mut state = hold.state.lock();
    state.note_in_flight(By::Holder, sent, MINUTE, now.moment);
    assert_eq!(state.trouble(now), "no renewal was confirmed in time");
    assert!(!state.is_being_renewed());
    let renewal = state.note_in_flight(By::Watchdog, sent, MINUTE, now.moment);
    assert!(state.is_being_renewed() && state.trouble(now).contains("no reply"));
    state.unanswered(renewal);
    assert!(!state.is_being_renewed());
    assert_eq!(state.trouble(now), "no renewal was confirmed in time");
}
