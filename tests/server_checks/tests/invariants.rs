//! Drawn sequences of script calls on one server, with the invariants of each kind of lock checked after every call.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod calls;
#[path = "invariants/draw.rs"]
mod draw;
#[path = "invariants/ledger.rs"]
mod ledger;
#[path = "invariants/locks.rs"]
mod locks;
#[path = "invariants/permits.rs"]
mod permits;
#[path = "invariants/queue.rs"]
mod queue;
#[path = "invariants/world.rs"]
mod world;

use std::time::{Duration, Instant};

use calls::{Kind, Step, decoded, listed, locks as kinds};
use draw::{drawn, name_of};
use redlatch_server_checks::{Engine, PLANTS, plant_in, shrunk};
use world::World;

/// Runs a sequence. Returns the number of its calls, or the violated invariant and the number of steps.
fn run(kind: &Kind, seed: u64, steps: &[Step], engine: &Engine) -> Result<u64, (usize, String)> {
    let mut world = World::new(kind.name, name_of(seed), engine);
    for (at, step) in steps.iter().enumerate() {
        world.step(step).map_err(|flaw| (at + 1, flaw))?;
    }
    Ok(world.calls)
}

/// Runs drawn sequences of a kind. Returns the number of calls, or the report of the first flaw.
fn check(kind: &Kind, seeds: std::ops::Range<u64>, engine: &Engine) -> Result<u64, String> {
    let mut calls = 0;
    for seed in seeds {
        let steps = drawn(seed, kind, name_of(seed));
        match run(kind, seed, &steps, engine) {
            Ok(count) => calls += count,
            Err((at, _)) => return Err(report(kind, seed, steps[..at].to_vec(), engine)),
        }
    }
    Ok(calls)
}

fn report(kind: &Kind, seed: u64, steps: Vec<Step>, engine: &Engine) -> String {
    let before = steps.len();
    let fewer = shrunk(steps, &mut |fewer| run(kind, seed, fewer, engine).is_err());
    let flaw = run(kind, seed, &fewer, engine).err().map(|(_, flaw)| flaw);
    let (name, flaw) = (kind.name, flaw.unwrap_or_default());
    format!(
        "{name}, seed {seed}: {flaw}\n{} of {before} steps:\n{}",
        fewer.len(),
        listed(&fewer)
    )
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn invariants_hold_after_every_call() {
    let is_long = std::env::var_os("REDLATCH_LONG").is_some();
    let seeds = if is_long { 20_000 } else { 300 };
    // FIRST sets the first seed, SECONDS the duration.
    let first = variable("FIRST").unwrap_or(0);
    let limit = variable("SECONDS").map(Duration::from_secs);
    let (start, engine) = (Instant::now(), Engine::new());
    let (mut calls, mut reports, mut seed) = (0, Vec::new(), first);
    while limit.map_or(seed < first + seeds, |limit| start.elapsed() < limit) {
        for kind in kinds() {
            match check(&kind, seed..seed + 100, &engine) {
                Ok(count) => calls += count,
                Err(report) => reports.push(report),
            }
        }
        seed += 100;
        assert!(reports.is_empty(), "{}", reports.join("\n"));
    }
    let rate = calls as f64 / start.elapsed().as_secs_f64() * 60.0;
    println!("{calls} calls, {rate:.0} a minute, of the seeds {first} to {seed}");
}

#[test]
fn planted_bugs_are_found() {
    for bug in PLANTS {
        let engine = Engine::new();
        plant_in(&engine, bug.name);
        let name = if bug.name.contains("signal") {
            "condition"
        } else {
            "fair"
        };
        let kind = kinds().into_iter().find(|kind| kind.name == name);
        let found = check(&kind.unwrap(), 0..3000, &engine);
        match found {
            Err(report) => println!("{}\n{report}", bug.name),
            Ok(calls) => panic!("not found in {calls} calls: {}", bug.name),
        }
    }
}
