//! The validity of a hold against a model of what its store may have, in any order of requests.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::hold::in_flight::{By, Flying, InFlightId};
use crate::engine::hold::validity::MOST_IN_FLIGHT;
use crate::engine::hold::{Hold, Lease};
use crate::ground::claim::{Claim, Kind, Rules};
use crate::ground::clock::{BootInstant, ClockPair, PROCESS};
use crate::ground::loss::LossCause;

/// A request in the model, as the servers see it.
struct Request {
    in_flight_id: InFlightId,
    by: By,
    sent: BootInstant,
    lease: Duration,
    expires: BootInstant,
    /// Where it is still under way.
    pending: Vec<usize>,
    ran_at: usize,
    state: Flying,
}

/// Draws an order in which requests are sent, run and answered, at `servers` of which `needed` have to answer.
fn play(seed: u64, servers: usize, needed: usize) {
    let mut draw = fastrand::Rng::with_seed(seed);
    let millis = Duration::from_millis;
    let mut now = PROCESS.now();
    let hold = Hold::new(
        &Claim {
            kind: Kind::Reentrant,
            name: "orders".into(),
            visitor: Kind::Reentrant.visitor("model", 1, 1),
            count: 0,
            lease: millis(60_000),
            inside: None,
            queueing: Default::default(),
        },
        1,
        Weak::new(),
        Arc::default(),
        Lease::Watchdog(millis(60_000)),
        now,
    );
    let mut state = hold.state.lock();
    let mut ends = vec![now + millis(60_000); servers];
    let mut requests: Vec<Request> = Vec::new();
    for step in 0..300 {
        now = now + millis(draw.u64(..40));
        // Some servers run something.
        for (server, end) in ends.iter_mut().enumerate() {
            let at = draw.usize(..=requests.len());
            let Some(request) = requests.get_mut(at) else {
                continue;
            };
            // Connections are cut, so nothing keeps an order among them, nor among copies of one request.
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
fn in_any_order_no_more_is_believed_than_the_store_has() {
    (0..500).for_each(|seed| play(seed, 1, 1));
}

#[test]
fn in_any_order_no_more_is_believed_than_a_majority_has() {
    (0..500).for_each(|seed| play(seed, 3, 2));
}

#[test]
fn a_late_look_is_told_from_a_late_answer() {
    let sent = PROCESS.read();
    let lease = Duration::from_secs(3);
    let hold = |span: Duration| {
        let claim = Claim {
            kind: Kind::Reentrant,
            name: "orders".into(),
            visitor: Kind::Reentrant.visitor("model", 1, 1),
            count: 0,
            lease,
            inside: None,
            queueing: Default::default(),
        };
        let hold = Hold::new(
            &claim,
            1,
            Weak::new(),
            Arc::default(),
            Lease::Watchdog(lease),
            sent.moment,
        );
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
        reason.contains("no answer") && !reason.contains("paused"),
        "{reason}"
    );
    renewed.renewal_unknown(in_flight_id, "the port refuses");
    let reason = cause(&renewed, later(in_time, in_time));
    assert_eq!(reason, "the port refuses");
    let reason = cause(&renewed, later(late, late));
    assert!(reason.contains("paused"), "{reason}");
    let waits = hold(lease);
    waits.state.lock().waits_since = Some(sent.moment + lease / 3);
    let reason = cause(&waits, later(in_time, in_time));
    assert!(
        reason.contains("behind") && !reason.contains("paused"),
        "{reason}"
    );
    let paused = cause(&hold(lease / 3), later(late, late));
    assert!(paused.contains("paused"), "{paused}");
    let suspended = cause(&hold(lease / 3), later(late, lease / 6));
    assert!(suspended.contains("suspended"), "{suspended}");
}

#[test]
fn a_fixed_lease_is_looked_after_where_others_may_shorten_it() {
    let sent = PROCESS.now();
    let lease = Duration::from_secs(3);
    let claim = Claim {
        kind: Kind::Reentrant,
        name: "orders".into(),
        visitor: Kind::Reentrant.visitor("model", 1, 1),
        count: 0,
        lease,
        inside: None,
        queueing: Default::default(),
    };
    let fixed = Lease::Fixed(lease);
    let hold = Hold::new(&claim, 1, Weak::new(), Arc::default(), fixed, sent);
    let restored = Rules {
        restores_lifetime: true,
        ..Rules::PLAIN
    };
    let state = hold.state.lock();
    assert!(state.is_looked_after(&restored) && !state.is_looked_after(&Rules::PLAIN));
}
