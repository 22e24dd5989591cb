//! A model of the quorum, of which every state is looked at. The simulation draws some orders of messages at several servers;
//! here is every order of them, and of up to two mishaps.
//!
//! It has three nodes, two clients, one lock, all times in ticks. A client sends its acquire to all nodes, holds the lock when
//! enough of them said yes, extends the hold as often as it likes, and releases on all nodes whenever it likes; each
//! of this may take any time, also in the middle. Messages are lost, delayed and reordered in every run. A run also
//! has up to two mishaps at any instant: a node restarts with its keys or without, or a server without them takes over in
//! its place; its keys are flushed; a clock jumps; requests arrive when their hold has ended. Times are kept relative to now, so the runs have no end and yet finitely many states.
//!
//! A node answers each request as the scripts do. The rules are those of the library. Where it could go by stricter ones, the model goes by the weakest: a restarted
//! node is back one lease after its restart, not after its discovery; a node has restarted as soon as it has crashed; a
//! request is good for as long as its hold, so its expiry only bounds what a late one leaves behind.
//!
//! All leases are the longest one allowed. Not in the model: re-entry, fencing tokens, waiters and their messages,
//! clocks which run at different rates (a jump within the drift stands for them), more than one node which loses its
//! keys, liveness, and the work a client still does after its validity has ended.
#![allow(
    clippy::print_stdout,
    reason = "the counts and the traces are worth a look"
)]

mod quorum;
mod served;

use std::time::Instant;

use quorum::{Action, GiveBack, LEASE, Mishap, NODES, Origin, Quorum, Rules};
use stateright::{Checker, HasDiscoveries, Model};

/// The shortest way for two clients to hold the lock, if there is one.
fn breach(rules: Rules, mishaps: &'static [Mishap]) -> Option<Vec<Action>> {
    let started = Instant::now();
    let model = Quorum {
        rules,
        mishaps,
        ..Quorum::default()
    };
    let checker = model
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!(
        "{rules:?}, {mishaps:?}: {} states, {} steps, {:.1?}",
        checker.unique_state_count(),
        checker.state_count(),
        started.elapsed()
    );
    let trace = checker.discovery("exclusion")?.into_actions();
    println!("broken in {} steps: {trace:?}", trace.len());
    Some(trace)
}

/// Demands that no way lead to two holders.
fn holds(rules: Rules, mishaps: &'static [Mishap]) {
    assert_eq!(breach(rules, mishaps), None);
}

/// Demands that the broken rules be noticed.
fn breaks(rules: Rules, mishaps: &'static [Mishap]) {
    assert_ne!(breach(rules, mishaps), None, "nobody noticed");
}

#[test]
fn exclusion_survives_lost_and_late_messages() {
    holds(Rules::default(), &[]);
}

#[test]
fn exclusion_survives_a_node_which_restarts_empty_and_stays_away() {
    holds(Rules::default(), &[Mishap::Emptied]);
}

#[test]
fn exclusion_survives_a_node_which_restarts_with_its_keys_and_votes_at_once() {
    let rules = Rules {
        away: 0,
        ..Rules::default()
    };
    holds(rules, &[Mishap::Restarted]);
}

#[test]
fn exclusion_survives_a_clock_which_jumps_back() {
    holds(Rules::default(), &[Mishap::Jump(-1)]);
}

#[test]
fn exclusion_survives_a_clock_which_jumps_ahead_by_no_more_than_the_drift() {
    let rules = Rules {
        drift: 1,
        ..Rules::default()
    };
    holds(rules, &[Mishap::Jump(1)]);
}

#[test]
fn exclusion_survives_an_empty_restart_and_a_small_jump() {
    let rules = Rules {
        drift: 1,
        ..Rules::default()
    };
    holds(rules, &[Mishap::Emptied, Mishap::Jump(1)]);
}

/// The drift only keeps the states few; it holds without.
#[test]
fn exclusion_survives_what_is_left_of_an_ended_hold() {
    let rules = Rules {
        drift: 1,
        ..Rules::default()
    };
    holds(rules, &[Mishap::Late]);
}

/// The node which two majorities share decides, so with a bare majority one lost key is one too many. Where all nodes
/// have to agree it is not, but then one node which is down is.
#[test]
fn exclusion_survives_a_lost_key_if_all_nodes_have_to_agree() {
    let rules = Rules {
        quorum: NODES,
        away: 0,
        ..Rules::default()
    };
    holds(rules, &[Mishap::Emptied]);
    holds(rules, &[Mishap::Jump(2)]);
}

#[test]
fn validity_from_the_decision_breaks_exclusion() {
    let rules = Rules {
        counted_from: Origin::Decision,
        ..Rules::default()
    };
    breaks(rules, &[]);
}

#[test]
fn half_the_nodes_as_a_quorum_break_exclusion() {
    let rules = Rules {
        quorum: NODES / 2,
        ..Rules::default()
    };
    breaks(rules, &[]);
}

#[test]
fn a_node_which_restarts_empty_at_once_breaks_exclusion() {
    let rules = Rules {
        away: 0,
        ..Rules::default()
    };
    breaks(rules, &[Mishap::Emptied]);
}

/// No promise is made here: one node which loses a key while it keeps its vote is enough.
#[test]
fn a_node_which_is_flushed_and_goes_on_voting_breaks_exclusion() {
    breaks(Rules::default(), &[Mishap::Flushed]);
}

#[test]
fn a_node_which_is_back_a_tick_too_soon_breaks_exclusion() {
    let rules = Rules {
        away: LEASE - 1,
        ..Rules::default()
    };
    breaks(rules, &[Mishap::Emptied]);
}

/// The vote of the node which is away breaks it, not the giving back: the same node said yes to the other client before
/// it lost its keys.
#[test]
fn giving_back_as_a_vote_breaks_exclusion() {
    let rules = Rules {
        give_back: GiveBack::Vote,
        ..Rules::default()
    };
    breaks(rules, &[Mishap::Emptied]);
}

#[test]
fn the_same_id_for_every_hold_breaks_exclusion() {
    let rules = Rules {
        drift: 1,
        fresh_ids: false,
        ..Rules::default()
    };
    breaks(rules, &[Mishap::Late]);
}

/// No promise is made here.
#[test]
fn a_clock_which_jumps_ahead_by_more_than_the_drift_breaks_exclusion() {
    let rules = Rules {
        drift: 1,
        ..Rules::default()
    };
    breaks(rules, &[Mishap::Jump(2)]);
}

/// A model in which nothing happens would keep every promise.
#[test]
fn all_that_matters_does_happen() {
    let model = Quorum {
        mishaps: &[Mishap::Emptied],
        memory: true,
        ..Quorum::default()
    };
    let sometimes: Vec<_> = model
        .properties()
        .iter()
        .map(|property| property.name)
        .filter(|name| *name != "exclusion")
        .collect();
    let checker = model
        .checker()
        .finish_when(HasDiscoveries::AllOf(sometimes.iter().copied().collect()))
        .spawn_bfs()
        .join();
    checker.assert_no_discovery("exclusion");
    for name in sometimes {
        println!(
            "{name}: {:?}",
            checker.assert_any_discovery(name).into_actions()
        );
    }
}
