//! The simulation, run as the program that it is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

/// Runs the program with variables. Returns whether it ended well, and what it said.
fn simulate(variables: &[(&str, &str)]) -> (bool, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_sim"));
    let output = program.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.success(), text)
}

#[test]
fn no_rule_is_broken() {
    let (is_good, text) = simulate(&[("SEEDS", "300"), ("SECONDS", "60")]);
    assert!(is_good, "{text}");
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
