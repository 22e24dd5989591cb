//! What the model of the read-write lock is asked.

use crate::checking::broken;
use crate::phases::{Phases, Rules};

#[test]
fn nobody_waits_for_more_than_two_phases() {
    assert!(broken(Phases::default()).is_empty());
}

/// Whether the rules break a promise.
fn breaks(rules: Rules, promise: &str) -> bool {
    broken(Phases { rules }).contains(&promise)
}

#[test]
fn a_reader_of_which_nobody_knows_is_passed_by_writers() {
    let rules = Rules {
        notes_readers: false,
        ..Rules::default()
    };
    assert!(breaks(rules, "nobody waits for more than two phases"));
}

#[test]
fn by_arrival_alone_readers_wait_for_several_writers() {
    let rules = Rules {
        lets_readers_in: false,
        ..Rules::default()
    };
    assert!(breaks(rules, "nobody waits for more than two phases"));
}

#[test]
fn readers_that_come_in_whoever_waits_keep_no_turns() {
    let rules = Rules {
        prefers_readers: true,
        ..Rules::default()
    };
    assert!(!broken(Phases { rules }).is_empty());
}

#[test]
fn a_writer_of_which_nobody_knows_is_overtaken() {
    let rules = Rules {
        notes_writers: false,
        ..Rules::default()
    };
    assert!(!broken(Phases { rules }).is_empty());
}
