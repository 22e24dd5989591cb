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
fn a_reader_that_is_turned_away_in_each_phase_starves() {
    let rules = Rules {
        has_memo: false,
        ..Rules::default()
    };
    assert!(breaks(rules, "nobody waits for more than two phases"));
}

#[test]
fn without_a_window_the_next_writer_comes_before_readers() {
    let rules = Rules {
        opens_window: false,
        ..Rules::default()
    };
    assert!(breaks(rules, "nobody waits for more than two phases"));
}

#[test]
fn a_window_that_ends_with_the_first_reader_keeps_the_others_out() {
    let rules = Rules {
        counts_readers: false,
        ..Rules::default()
    };
    assert!(breaks(rules, "nobody waits for more than two phases"));
}

#[test]
fn readers_that_come_in_whoever_waits_starve_writers() {
    let rules = Rules {
        prefers_readers: true,
        ..Rules::default()
    };
    assert!(breaks(rules, "nobody waits for long"));
}

#[test]
fn a_writer_of_which_nobody_knows_is_overtaken() {
    let rules = Rules {
        notes_writers: false,
        ..Rules::default()
    };
    assert!(!broken(Phases { rules }).is_empty());
}
