//! What the model of the fair lock is asked.

use stateright::{Checker, HasDiscoveries, Model};

use crate::checking::broken;
use crate::queue::{Absent, Fault, Queue, Rules, Withdraws};

fn with(faults: &'static [Fault]) -> Queue {
    Queue {
        faults,
        ..Queue::default()
    }
}

fn by(rules: Rules, faults: &'static [Fault]) -> Queue {
    Queue {
        rules,
        ..with(faults)
    }
}

#[test]
fn the_queue_survives_waiters_that_give_up_or_die() {
    let queue = Queue {
        gives_up: true,
        ..with(&[Fault::Crash])
    };
    assert!(broken(queue).is_empty());
}

#[test]
fn the_queue_survives_a_late_request() {
    assert!(broken(with(&[Fault::Late])).is_empty());
}

#[test]
fn the_queue_survives_a_doubled_request() {
    assert!(broken(with(&[Fault::Doubled])).is_empty());
}

#[test]
fn the_queue_survives_a_process_that_dies_behind_a_request_without_an_answer() {
    assert!(broken(with(&[Fault::Unanswered, Fault::Crash])).is_empty());
}

#[test]
fn a_newcomer_that_passes_the_queue_is_noticed() {
    let rules = Rules {
        newcomers_queue: false,
        ..Rules::default()
    };
    assert!(broken(by(rules, &[])).contains(&"in order"));
}

#[test]
fn a_request_that_comes_however_late_leaves_an_entry() {
    let rules = Rules {
        requests_expire: false,
        ..Rules::default()
    };
    assert!(broken(by(rules, &[Fault::Late])).contains(&"no entry is left"));
}

#[test]
fn to_withdraw_once_leaves_an_entry() {
    let rules = Rules {
        withdraws: Withdraws::Once,
        ..Rules::default()
    };
    assert!(broken(by(rules, &[Fault::Late])).contains(&"no entry is left"));
}

#[test]
fn not_to_withdraw_leaves_an_entry() {
    let rules = Rules {
        withdraws: Withdraws::Never,
        ..Rules::default()
    };
    let queue = by(rules, &[Fault::Unanswered]);
    assert!(broken(queue).contains(&"no entry is left"));
}

/// What is withdrawn is then the place of one that waits.
#[test]
fn to_go_on_as_the_same_visitor_loses_the_place() {
    let rules = Rules {
        fresh_visits: false,
        ..Rules::default()
    };
    assert!(broken(by(rules, &[Fault::Late])).contains(&"in order"));
}

#[test]
fn without_looks_a_dead_one_holds_all_up() {
    let rules = Rules {
        looks: false,
        ..Rules::default()
    };
    let queue = by(rules, &[Fault::Crash]);
    assert!(broken(queue).contains(&"nobody waits for ever"));
}

#[test]
fn a_suspicion_that_is_forgotten_holds_all_up() {
    let rules = Rules {
        absent: Absent::Never,
        ..Rules::default()
    };
    let queue = by(rules, &[Fault::Crash]);
    assert!(broken(queue).contains(&"nobody waits for ever"));
}

/// One that has just queued does not listen yet.
#[test]
fn to_pass_over_at_the_first_look_overtakes_the_living() {
    let rules = Rules {
        absent: Absent::AtOnce,
        ..Rules::default()
    };
    assert!(broken(by(rules, &[])).contains(&"in order"));
}

#[test]
fn to_give_up_without_a_word_leaves_an_entry() {
    let rules = Rules {
        leaves: false,
        ..Rules::default()
    };
    let queue = Queue {
        gives_up: true,
        ..by(rules, &[])
    };
    assert!(broken(queue).contains(&"no entry is left"));
}

/// A model in which nothing happens would keep every promise.
#[test]
fn all_that_matters_does_happen_in_the_queue() {
    let queue = Queue {
        shows_what_happens: true,
        ..with(&[Fault::Late, Fault::Crash])
    };
    let names = [
        "a dead one is passed over",
        "a late request leaves something",
        "all are done",
    ];
    let until = HasDiscoveries::AllOf(names.into_iter().collect());
    let checker = queue.checker().finish_when(until).spawn_bfs().join();
    for name in names {
        let path = checker.assert_any_discovery(name);
        println!("{name}: {:?}", path.into_actions());
    }
}
