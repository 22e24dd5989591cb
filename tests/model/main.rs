//! A model of the quorum, of which every state is looked at. The simulation draws some orders of messages at several servers;
//! here is every order of them, and of up to two faults.
//!
//! It has three nodes, two clients, one lock, all times in ticks. A client sends its acquire to all nodes, holds the lock when
//! enough of them said yes, extends the hold as often as it likes, and releases on all nodes whenever it likes; each
//! of this may take any time, also in the middle. Messages are lost, delayed and reordered in every run. A run also
//! has up to two faults at any instant: a node restarts with its keys or without, or a server without them takes over in
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

use quorum::{Action, LEASE, NODES, NodeFault, Origin, Quorum, Restore, Rules};
use stateright::{Checker, HasDiscoveries, Model};

/// The shortest trace by which two clients hold the lock, if there is one.
fn breach(rules: Rules, faults: &'static [NodeFault]) -> Option<Vec<Action>> {
    let started = Instant::now();
    let model = Quorum {
        rules,
        faults,
        ..Quorum::default()
    };
    let checker = model
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    println!(
        "{rules:?}, {faults:?}: {} states, {} steps, {:.1?}",
        checker.unique_state_count(),
        checker.state_count(),
        started.elapsed()
    );
    let trace = checker.discovery("exclusion")?.into_actions();
    println!("broken in {} steps: {trace:?}", trace.len());
    Some(trace)
}

/// Asserts that no trace leads to two holders.
fn holds(rules: Rules, faults: &'static [NodeFault]) {
    assert_eq!(breach(rules, faults), None);
}

/// Asserts that the broken rules are noticed.
fn breaks(rules: Rules, faults: &'static [NodeFault]) {
    assert_ne!(breach(rules, faults), None, "nobody noticed");
}

#[test]
fn exclusion_survives_lost_and_late_messages() {
    holds(Rules::default(), &[]);
}

#[test]
fn exclusion_survives_the_faults_of_nodes() {
    holds(Rules::default(), &[NodeFault::Emptied]);
    holds(Rules::default(), &[NodeFault::Jump(-1)]);
    let with_its_keys = Rules {
        away: 0,
        ..Rules::default()
    };
    holds(with_its_keys, &[NodeFault::Restarted]);
    let drifts = Rules {
        drift: 1,
        ..Rules::default()
    };
    holds(drifts, &[NodeFault::Emptied, NodeFault::Jump(1)]);
    // Here the drift only reduces the states; exclusion holds without it.
    holds(drifts, &[NodeFault::Late]);
}

/// The node common to two majorities decides, so with a bare majority one lost key is too many. With all nodes
/// required it is not, but then one dead node is.
#[test]
fn exclusion_by_all_nodes_survives_a_lost_key() {
    let rules = Rules {
        quorum: NODES,
        away: 0,
        ..Rules::default()
    };
    holds(rules, &[NodeFault::Emptied]);
    holds(rules, &[NodeFault::Jump(2)]);
}

#[test]
fn a_node_that_restarts_empty_at_once_breaks_exclusion() {
    for away in [0, LEASE - 1] {
        let rules = Rules {
            away,
            ..Rules::default()
        };
        breaks(rules, &[NodeFault::Emptied]);
    }
}

#[test]
fn each_weaker_rule_breaks_exclusion() {
    let weaken = |change: fn(&mut Rules), faults| {
        let mut rules = Rules::default();
        change(&mut rules);
        breaks(rules, faults);
    };
    weaken(|rules| rules.counted_from = Origin::Decision, &[]);
    weaken(|rules| rules.quorum = NODES / 2, &[]);
    // The vote of the absent node breaks it, not the release: the same node granted the other client before it lost
    // its keys.
    weaken(|rules| rules.restore = Restore::Vote, &[NodeFault::Emptied]);
    weaken(
        |rules| (rules.drift, rules.fresh_ids) = (1, false),
        &[NodeFault::Late],
    );
}

/// Not promised: a node that loses a key while it keeps its vote breaks exclusion, and so does a clock that jumps
/// ahead by more than the drift.
#[test]
fn each_excluded_fault_breaks_exclusion() {
    breaks(Rules::default(), &[NodeFault::Flushed]);
    let rules = Rules {
        drift: 1,
        ..Rules::default()
    };
    breaks(rules, &[NodeFault::Jump(2)]);
}
