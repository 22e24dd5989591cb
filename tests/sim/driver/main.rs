//! The simulation of the whole client: many seeds for a time, or one with its trace.
//!
//! | variable | is |
//! |---|---|
//! | `SEED` | the one seed to run, with a trace |
//! | `SHRUNK` | that what is needless for its violation is left out of it |
//! | `MUTANT` | the bug that is planted, by its name in `mutants.rs` |
//! | `BUGS` | that the names of the bugs are printed, and nothing is run |
//! | `CORE` | the core that it keeps to |
//! | `FIRST`, `SEEDS` | the first of many, and how many at most |
//! | `MOOD`, `SHAPE`, `TOPOLOGY` | the only fault mode, shape or topology to run |
//! | `SECONDS` | for how long seeds are begun; 45 |
//! | `OTHER` | the path of this program, built in another profile: traces have to be the same there |
//!
//! Without a choice of seeds, each bug of `mutants.rs` is planted and has to be found.

#![allow(clippy::print_stdout, reason = "it is a program")]

mod causes;
mod clusters;
mod conditions;
mod counter_programs;
mod counters;
mod epochs;
mod ids;
mod machine;
mod mutants;
mod names;
mod plan;
mod process;
mod promptness;
mod queues;
mod replication;
mod report;
mod rules;
mod run;
mod seed_runner;
mod sentinels;
mod shapes;
mod shards;
mod shrink;
mod sides;
mod spread;
mod topology;
mod worker;
mod writes;

use std::process::ExitCode;

use plan::Plan;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn main() -> ExitCode {
    if let Some(core) = variable("CORE").or_else(|| variable("WORKER")) {
        keep_to(core);
    }
    if std::env::var_os("BUGS").is_some() {
        mutants::names().for_each(|bug| println!("{bug}"));
        return ExitCode::SUCCESS;
    }
    if let Ok(bug) = std::env::var("MUTANT") {
        if !mutants::names().any(|name| name == bug) {
            println!("no bug is called \"{bug}\"");
            return ExitCode::FAILURE;
        }
        redlatch_world::plant(&bug);
        redlatch_server_checks::plant(&bug);
    }
    if let Some(seed) = variable("SEED") {
        if variable("SHRUNK").is_some() {
            return shrink::shrink(seed);
        }
        let plan = Plan::of(seed).without(&shrink::left_out());
        run::run(seed, &plan, std::env::var_os("QUIET").is_none());
    }
    match variable("WORKER") {
        Some(core) => seed_runner::work(core),
        None => report::lead(),
    }
}

/// Alternating threads run faster on one core.
fn keep_to(core: u64) {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(usize::try_from(core).unwrap_or_default());
    // Elsewhere they are only slower.
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}

fn cores() -> u64 {
    variable("CORES").unwrap_or(2)
}
