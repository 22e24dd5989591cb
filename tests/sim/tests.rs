//! The simulation, run as a program.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "it is for the build script")]
mod planted;

use std::collections::BTreeSet;
use std::env;
use std::process::Command;

/// Runs the program with variables. Returns whether it succeeded, and its output.
fn simulate(variables: &[(&str, &str)]) -> (bool, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_sim"));
    let output = program.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.success(), text)
}

/// Runs this many seeds of a topology; many times as many for a changed source.
fn keeps_all_rules(topology: &str, seeds: u32) {
    let times = env::var("REDLATCH_SEEDS_TIMES").ok();
    let times: u32 = times.map_or(1, |times| times.parse().unwrap());
    let seeds = (seeds * times).to_string();
    let (is_good, text) = simulate(&[("TOPOLOGY", topology), ("SEEDS", &seeds), ("SECONDS", "60")]);
    assert!(is_good, "{text}");
}

#[test]
fn no_rule_is_broken_with_independent_servers() {
    keeps_all_rules("Plain", 100);
}

#[test]
fn no_rule_is_broken_with_clusters_and_sentinels() {
    keeps_all_rules("Parts", 500);
    for topology in ["Replicas", "Sentinel", "Cluster"] {
        keeps_all_rules(topology, 1500);
    }
}

#[test]
fn a_seed_has_one_trace() {
    for seed in ["1", "2", "3", "5", "8", "13"] {
        let (_, first) = simulate(&[("SEED", seed)]);
        for core in ["0", "1"] {
            let (_, again) = simulate(&[("SEED", seed), ("CORE", core)]);
            assert!(first.len() > 1_000 && first == again, "seed {seed}");
        }
    }
}

/// Runs seeds in steps until their output is sufficient, or a number of them has run. Returns whether it was.
fn runs_until(
    variables: &[(&str, &str)],
    most: u32,
    is_enough: &mut dyn FnMut(bool, &str) -> bool,
) -> bool {
    const STEP: u32 = 400;
    (1..most).step_by(STEP as usize).any(|first| {
        let (first, seeds) = (first.to_string(), STEP.to_string());
        let part = [("FIRST", &*first), ("SEEDS", &*seeds), ("SECONDS", "120")];
        let (is_good, text) = simulate(&[variables, &part].concat());
        is_enough(is_good, &text)
    })
}

#[test]
fn each_planted_bug_has_a_search() {
    let (_, looked_for) = simulate(&[("BUGS", "1")]);
    let mut planted: BTreeSet<_> = planted::bugs().map(|bug| bug.name.to_owned()).collect();
    planted.extend(redlatch_server_checks::PLANTS.map(|plant| plant.name.to_owned()));
    let looked_for: BTreeSet<_> = looked_for.lines().map(str::to_owned).collect();
    let amiss: Vec<_> = planted.symmetric_difference(&looked_for).collect();
    assert!(amiss.is_empty(), "in one of two lists: {amiss:?}");
}

/// Plants a bug of the library, and asserts that it breaks a rule.
fn finds(bug: &str, rule: &str, shape: &str) {
    let planted = [("MUTANT", bug), ("SHAPE", shape)];
    let is_found = runs_until(&planted, 20_000, &mut |is_good, text| {
        !is_good && text.contains(rule)
    });
    assert!(is_found, "{bug} breaks no {rule}");
}

#[test]
fn planted_bugs_are_found() {
    for (bug, rule, shape) in [
        ("a request in flight shortens nothing", "I1: ", "Free"),
        ("an earlier entry wakes nobody", "I9: ", "Forced"),
        ("what was not undone is dropped", "I8: ", "Split"),
        ("a batch goes without its check", "I10: ", "Writes"),
        ("a batch may run behind the validity", "I10: ", "Writes"),
        (
            "permits end with the call that took them",
            "I6: ",
            "Permits",
        ),
        ("a count-down is forgotten at once", "I13: ", "Latches"),
        ("a hold that is handed off keeps its token", "I11: ", "Free"),
        ("readers come in whoever waits", "I15: ", "Sides"),
        ("a reader is turned away in each phase", "I15: ", "Sides"),
        ("one takes a place before it is first", "I5: ", "Sides"),
        ("a newcomer passes a queue on the server", "I16: ", "Queues"),
        ("nobody is told that a fair lock is free", "I5: ", "Queues"),
        ("a signal wakes two", "I17: ", "Conditions"),
        ("a signal is not told", "I17: ", "Conditions"),
    ] {
        finds(bug, rule, shape);
    }
}

#[test]
fn a_seed_that_breaks_a_rule_is_shrunk() {
    let bug = ("MUTANT", "a promoted replica votes");
    let (is_good, text) = simulate(&[bug, ("SHAPE", "Newcomers"), ("SEEDS", "400")]);
    let seed = text.split("first SEED=").nth(1).unwrap();
    let seed = seed.split(':').next().unwrap();
    assert!(!is_good);
    let (_, text) = simulate(&[bug, ("SEED", seed), ("SHRUNK", "1")]);
    let last = text.lines().last().unwrap();
    let numbers: Vec<u32> = last.split(' ').filter_map(|it| it.parse().ok()).collect();
    // A hold, an event that makes it unknown, and another hold.
    assert!(text.contains("I2: ") && numbers[1] <= 8, "{text}");
}

/// A world without events would keep every rule.
#[test]
fn every_event_of_the_rules_happens() {
    for (filter, events) in [
        (("TOPOLOGY", "Parts"), "multi-lock entered, overlap"),
        (
            ("TOPOLOGY", "Replicas"),
            "takeover as planned, takeover from a dead master",
        ),
        (
            ("TOPOLOGY", "Replicas"),
            "takeover from a master that goes on, holds lost in a takeover",
        ),
        (
            ("TOPOLOGY", "Replicas"),
            "takeover in which nothing acknowledged may be lost",
        ),
        (
            ("TOPOLOGY", "Sentinel"),
            "sentinel lies, sentinel dies, takeover from a dead master",
        ),
        (
            ("TOPOLOGY", "Cluster"),
            "slot begins to move, key moved to another shard",
        ),
        (("TOPOLOGY", "Cluster"), "takeover from a dead master"),
        (
            ("MOOD", "Clocks"),
            "clock set ahead, clock set back, process suspended",
        ),
        (("SHAPE", "Permits"), "permits taken, stray request"),
        (
            ("SHAPE", "PermitIds"),
            "permits taken, permit id taken, stray request",
        ),
        (("SHAPE", "Latches"), "counted down, latch passed"),
        (
            ("SHAPE", "Sides"),
            "read side entered, write side entered, stray request",
        ),
        (
            ("SHAPE", "Queues"),
            "fair lock entered, waiter passed over, waiter came back",
        ),
        (
            ("SHAPE", "Conditions"),
            "signal, woken by a signal, fair lock entered",
        ),
        (("SHAPE", "Free"), "fenced lock entered, spin lock entered"),
        (("SHAPE", "Free"), "thread ended with holds"),
    ] {
        let mut missing: Vec<_> = events.split(", ").collect();
        runs_until(&[filter], 8_000, &mut |is_good, text| {
            assert!(is_good, "{text}");
            missing.retain(|event| !text.contains(&format!("{event}: ")));
            missing.is_empty()
        });
        assert!(
            missing.is_empty(),
            "{filter:?}: none of 8,000 seeds had {missing:?}"
        );
    }
}
