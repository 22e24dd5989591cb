//! What the model of the semaphore is asked.

use stateright::{Checker, HasDiscoveries, Model};

use crate::checking::broken;
use crate::permits::{Fault, Permits, Rules};

fn with(rules: Rules, faults: &'static [Fault]) -> Permits {
    Permits {
        rules,
        faults,
        ..Permits::default()
    }
}

#[track_caller]
fn holds(faults: &'static [Fault]) {
    assert!(broken(with(Rules::default(), faults)).is_empty());
}

#[track_caller]
fn breaks(promise: &str, rules: Rules, faults: &'static [Fault]) {
    let broken = broken(with(rules, faults));
    assert!(broken.contains(&promise), "nobody noticed");
}

#[test]
fn permits_survive_answers_that_are_lost() {
    holds(&[Fault::Unanswered]);
}

#[test]
fn permits_survive_a_process_that_dies() {
    holds(&[Fault::Crash]);
}

#[test]
fn permits_survive_a_release_that_comes_again() {
    holds(&[Fault::DoubledRelease]);
}

#[test]
fn validity_from_the_answer_lets_too_many_in() {
    let rules = Rules {
        counts_from_send: false,
        ..Rules::default()
    };
    breaks("no more than there are", rules, &[]);
}

#[test]
fn the_same_owner_for_every_hold_lets_too_many_in() {
    let rules = Rules {
        fresh_owners: false,
        ..Rules::default()
    };
    breaks("no more than there are", rules, &[Fault::DoubledRelease]);
}

#[test]
fn an_acquisition_that_comes_however_late_takes_permits() {
    let rules = Rules {
        requests_expire: false,
        ..Rules::default()
    };
    breaks("no permit is left", rules, &[Fault::Unanswered]);
}

#[test]
fn not_to_withdraw_leaves_permits_taken() {
    let rules = Rules {
        withdraws: false,
        ..Rules::default()
    };
    breaks("no permit is left", rules, &[Fault::Unanswered]);
}

#[test]
fn permits_without_an_owner_are_lost() {
    let rules = Rules {
        has_records: false,
        ..Rules::default()
    };
    breaks("the sum is right", rules, &[Fault::Crash]);
}

#[test]
fn an_owner_that_stays_makes_permits() {
    let rules = Rules {
        records_end: false,
        ..Rules::default()
    };
    breaks("the sum is right", rules, &[]);
}

/// A model in which nothing happens would keep every promise.
#[test]
fn all_that_matters_does_happen_to_permits() {
    let permits = Permits {
        faults: &[Fault::Crash],
        shows_what_happens: true,
        ..Permits::default()
    };
    let names = [
        "permits of the dead come back",
        "two are inside",
        "all are done",
    ];
    let until = HasDiscoveries::AllOf(names.into_iter().collect());
    let checker = permits.checker().finish_when(until).spawn_bfs().join();
    for name in names {
        let path = checker.assert_any_discovery(name);
        println!("{name}: {:?}", path.into_actions());
    }
}
