//! What the model of the read-write lock is asked.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::phases::{Phases, Rules};

/// The names of the promises that are broken where the first is, if one can be.
fn broken(rules: Rules) -> Vec<&'static str> {
    let started = Instant::now();
    let until = HasDiscoveries::AnyFailures;
    let checker = Phases { rules }
        .checker()
        .finish_when(until)
        .spawn_bfs()
        .join();
    println!(
        "{rules:?}: {} states, {} steps, {:.1?}",
        checker.unique_state_count(),
        checker.state_count(),
        started.elapsed()
    );
    let ways = checker.discoveries().into_iter();
    ways.map(|(name, path)| {
        println!("{name}: {:?}", path.into_actions());
        name
    })
    .collect()
}

#[test]
fn nobody_waits_for_more_than_two_phases() {
    assert!(broken(Rules::default()).is_empty());
}

#[test]
fn a_reader_that_is_turned_away_in_each_phase_starves() {
    let rules = Rules {
        has_memo: false,
        ..Rules::default()
    };
    let promise = "nobody waits for more than two phases";
    assert!(broken(rules).contains(&promise));
}

#[test]
fn without_a_window_the_next_writer_comes_before_readers() {
    let rules = Rules {
        opens_window: false,
        ..Rules::default()
    };
    let promise = "nobody waits for more than two phases";
    assert!(broken(rules).contains(&promise));
}

#[test]
fn readers_that_come_in_whoever_waits_starve_writers() {
    let rules = Rules {
        prefers_readers: true,
        ..Rules::default()
    };
    let promise = "nobody waits for long";
    assert!(broken(rules).contains(&promise));
}

#[test]
fn a_writer_of_which_nobody_knows_is_overtaken() {
    let rules = Rules {
        notes_writers: false,
        ..Rules::default()
    };
    assert!(!broken(rules).is_empty());
}
