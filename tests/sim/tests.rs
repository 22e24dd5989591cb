//! The simulation, run as the program that it is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod planted;
#[allow(dead_code, reason = "it is for the build script")]
mod planting;

use std::collections::BTreeSet;
use std::env;
use std::process::Command;

use planted::Bug;

/// Runs the program with variables. Returns whether it ended well, and what it said.
fn simulate(variables: &[(&str, &str)]) -> (bool, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_sim"));
    let output = program.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.success(), text)
}

/// Runs those of so many seeds that have a topology; many times as many where changes of the source are tried.
fn keeps_all_rules(topology: &str, seeds: u32) {
    let times = env::var("REDLATCH_SEEDS_TIMES").ok();
    let times: u32 = times.map_or(1, |times| times.parse().unwrap());
    let seeds = (seeds * times).to_string();
    let (is_good, text) = simulate(&[("TOPOLOGY", topology), ("SEEDS", &seeds), ("SECONDS", "60")]);
    assert!(is_good, "{text}");
}

#[test]
fn no_rule_is_broken_with_servers_apart() {
    keeps_all_rules("Plain", 100);
}

#[test]
fn no_rule_is_broken_with_locks_of_several_parts() {
    keeps_all_rules("Parts", 500);
}

#[test]
fn no_rule_is_broken_with_replicas() {
    keeps_all_rules("Replicas", 1500);
}

#[test]
fn no_rule_is_broken_behind_sentinels() {
    keeps_all_rules("Sentinel", 1500);
}

#[test]
fn no_rule_is_broken_in_a_cluster() {
    keeps_all_rules("Cluster", 1500);
}

/// Seeds that broke a rule before what they showed was mended. What a seed stands for changes with what is drawn; one that
/// stands for another world by now is a seed more, and no more than that.
const RECORDED: [(&str, &str); 10] = [
    (
        "2965",
        "I5: the steps of many minutes were taken for spinning",
    ),
    (
        "10059294",
        "I4: a waiter was held up by a connection for renewals",
    ),
    (
        "10035870",
        "I1: the nodes of a quorum among other servers were not all looked at",
    ),
    (
        "1018163",
        "I1: a forced release in many pieces was not known for one",
    ),
    (
        "70261420",
        "I8: a sentinel that was asked while the client closed kept its connection",
    ),
    (
        "70094453",
        "I16: the beginning of a request that came with the end of another one was not looked at",
    ),
    (
        "70117552",
        "the copy of an error was taken for the answer of the next request",
    ),
    (
        "70071771",
        "I1: a master that was replaced was kept because the new one refused a connection",
    ),
    (
        "120001305",
        "I4: several clients that were shut down one after another had the time of one",
    ),
    (
        "530674367",
        "I17: a thread put something under a lock that it had lost while it was paused",
    ),
];

#[test]
fn seeds_that_broke_a_rule_keep_all_of_them() {
    for (seed, broke) in RECORDED {
        let (is_good, text) = simulate(&[("SEED", seed), ("QUIET", "1")]);
        assert!(is_good, "{seed}, {broke}: {text}");
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

/// Runs seeds in steps until what they said is enough, or a number of them is through. Returns whether it was.
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
fn each_planted_bug_is_looked_for() {
    let (_, looked_for) = simulate(&[("BUGS", "1")]);
    let mut planted: BTreeSet<_> = planted::bugs().map(|bug| bug.name.to_owned()).collect();
    planted.extend(redlatch_spec::PLANTS.map(|plant| plant.name.to_owned()));
    let looked_for: BTreeSet<_> = looked_for.lines().map(str::to_owned).collect();
    let amiss: Vec<_> = planted.symmetric_difference(&looked_for).collect();
    assert!(amiss.is_empty(), "in one of two lists: {amiss:?}");
}

#[test]
fn a_bug_that_fits_nowhere_is_named() {
    let bug = |find, replace| Bug {
        name: "it is upside down",
        file: "lib.rs",
        find,
        replace,
    };
    let plant =
        |find, replace| planting::plant("let up = 1; let down = 2;", &[&bug(find, replace)]);
    let planted = plant("up = 1", "up = if PLANTED { 2 } else { 1 }").unwrap();
    let question = "crate::ground::sync::mutant(\"it is upside down\")";
    let expected = format!("let up = if {question} {{ 2 }} else {{ 1 }}; let down = 2;");
    assert_eq!(planted, expected);
    for (find, replace) in [("left", "PLANTED"), ("let", "PLANTED"), ("up", "down")] {
        let error = plant(find, replace).unwrap_err();
        assert!(
            error.contains("\"it is upside down\", src/lib.rs"),
            "{error}"
        );
    }
    let twice = [&bug("up = 1", "PLANTED"), &bug("1; let", "PLANTED")];
    assert!(planting::plant("let up = 1; let down = 2;", &twice).is_err());
}

/// Plants a bug of the library, and demands that a rule be broken by it.
fn finds(bug: &str, rule: &str, shape: &str) {
    let planted = [("MUTANT", bug), ("SHAPE", shape)];
    let is_found = runs_until(&planted, 20_000, &mut |is_good, text| {
        !is_good && text.contains(rule)
    });
    assert!(is_found, "{bug} breaks no {rule}");
}

#[test]
fn bugs_that_are_planted_are_found() {
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
    // A hold, what makes it unknown, and another one.
    assert!(text.contains("I2: ") && numbers[1] <= 8, "{text}");
}

/// Demands that these events happen in seeds of a mood, shape or topology, none of which breaks a rule.
fn happens(filter: (&str, &str), events: &[&str]) {
    let mut missing = events.to_vec();
    runs_until(&[filter], 8_000, &mut |is_good, text| {
        assert!(is_good, "{text}");
        missing.retain(|event| !text.contains(&format!("{event}: ")));
        missing.is_empty()
    });
    assert!(missing.is_empty(), "none of 8,000 seeds had {missing:?}");
}

#[test]
fn locks_made_of_parts_are_taken() {
    happens(("TOPOLOGY", "Parts"), &["multi-lock entered", "overlap"]);
}

#[test]
fn permits_are_taken_and_latches_open() {
    let permits = ["permits taken", "permits forgotten", "stray request"];
    happens(("SHAPE", "Permits"), &permits);
    let ids = ["permits taken", "permit id taken", "stray request"];
    happens(("SHAPE", "PermitIds"), &ids);
    happens(("SHAPE", "Latches"), &["counted down", "latch passed"]);
}

#[test]
fn readers_and_writers_come_in() {
    let sides = ["read side entered", "write side entered", "stray request"];
    happens(("SHAPE", "Sides"), &sides);
}

#[test]
fn queues_on_the_server_are_stood_in_and_conditions_waited_on() {
    let queues = [
        "fair lock entered",
        "waiter passed over",
        "waiter came back",
    ];
    happens(("SHAPE", "Queues"), &queues);
    let conditions = ["signal", "woken by a signal", "fair lock entered"];
    happens(("SHAPE", "Conditions"), &conditions);
}

#[test]
fn locks_are_fenced_and_polled_for() {
    let kinds = ["fenced lock entered", "spin lock entered"];
    happens(("SHAPE", "Free"), &kinds);
}

#[test]
fn replicas_take_over() {
    let takeovers = [
        "takeover as planned",
        "takeover from a dead master",
        "takeover from a master that goes on",
        "takeover in which nothing acknowledged may be lost",
        "holds lost in a takeover",
    ];
    happens(("TOPOLOGY", "Replicas"), &takeovers);
}

#[test]
fn sentinels_lie_and_die() {
    let events = [
        "sentinel lies",
        "sentinel dies",
        "takeover from a dead master",
    ];
    happens(("TOPOLOGY", "Sentinel"), &events);
}

#[test]
fn slots_move() {
    let events = [
        "slot begins to move",
        "key moved to another shard",
        "takeover from a dead master",
    ];
    happens(("TOPOLOGY", "Cluster"), &events);
}

#[test]
fn clocks_are_set_and_machines_sleep() {
    let clocks = ["clock set ahead", "clock set back", "process suspended"];
    happens(("MOOD", "Clocks"), &clocks);
}

#[test]
fn replies_are_garbled_and_calls_end() {
    happens(("MOOD", "Garbled"), &["reply garbled"]);
}

#[test]
fn threads_are_refused() {
    happens(("MOOD", "Threads"), &["thread refused"]);
}

#[test]
fn guards_are_forgotten_and_children_fail() {
    let acts = [
        "guard forgotten",
        "panic under a guard",
        "fork",
        "thread ended with holds",
    ];
    happens(("SHAPE", "Free"), &acts);
}
