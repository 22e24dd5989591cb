//! The simulation of the whole client: many seeds for a time, or one with its trace.
//!
//! | variable | is |
//! |---|---|
//! | `SEED` | the one seed to run, with a trace |
//! | `MUTANT` | the bug of the library that is planted, by its name in the source |
//! | `CORE` | the core that it keeps to |
//! | `FIRST`, `SEEDS` | the first of many, and how many at most |
//! | `MOOD`, `TOPOLOGY` | the one mood, the one topology, whose seeds are run |
//! | `SECONDS` | for how long seeds are begun; 60 |

#![allow(clippy::print_stdout, reason = "it is a program")]

mod acts;
mod clusters;
mod machine;
mod names;
mod plan;
mod process;
mod replication;
mod rules;
mod run;
mod sentinels;
mod shards;
mod spread;
mod topology;
mod worker;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use fork::Fork;
use plan::Plan;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn main() -> ExitCode {
    if let Some(core) = variable("CORE").or_else(|| variable("WORKER")) {
        keep_to(core);
    }
    if let Ok(bug) = std::env::var("MUTANT") {
        redlatch_world::plant(&bug);
    }
    if let Some(seed) = variable("SEED") {
        run::run(seed, &Plan::of(seed), std::env::var_os("QUIET").is_none());
    }
    match variable("WORKER") {
        Some(core) => work(core),
        None => lead(),
    }
}

/// Threads that take turns do so faster on one core.
fn keep_to(core: u64) {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(usize::try_from(core).unwrap_or_default());
    // Elsewhere they are only slower.
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}

/// Runs every other seed, each in a process of its own, so that none finds anything of another.
fn work(core: u64) -> ExitCode {
    let began = Instant::now();
    let seconds = Duration::from_secs(variable("SECONDS").unwrap_or(60));
    let (first, seeds) = (variable("FIRST").unwrap_or(1), variable("SEEDS"));
    let last = seeds.map_or(u64::MAX, |seeds| first + seeds);
    let mut seed = first + core;
    let only = |name: &str, is: &str| std::env::var(name).is_ok_and(|only| only != is);
    while seed < last && began.elapsed() < seconds {
        let plan = Plan::of(seed);
        if only("MOOD", &format!("{:?}", plan.mood)) || only("TOPOLOGY", plan.topology.label()) {
            seed += cores();
            continue;
        }
        match fork::fork() {
            Ok(Fork::Child) => run::run(seed, &plan, false),
            Ok(Fork::Parent(child)) => {
                let pid = rustix::process::Pid::from_raw(child);
                let status = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
                let code = status
                    .ok()
                    .flatten()
                    .and_then(|(_, status)| status.exit_status());
                if !matches!(code, Some(0 | 1)) {
                    println!("{seed} 0 0 0 0 0 0 it ended with {code:?}");
                }
            }
            Err(_) => return ExitCode::FAILURE,
        }
        seed += cores();
    }
    ExitCode::SUCCESS
}

fn cores() -> u64 {
    variable("CORES").unwrap_or(2)
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    steps: u64,
    switches: u64,
    looks: u64,
    time: u64,
    held: u64,
    /// How often each event was, and in how many seeds.
    events: BTreeMap<String, (u64, u64)>,
    violations: Vec<(u64, String)>,
}

/// Has all cores work, and adds up.
fn lead() -> ExitCode {
    let is_stable = (1..=4).all(has_one_trace);
    let began = Instant::now();
    let workers: Vec<Child> = (0..cores()).filter_map(start).collect();
    let mut totals = Totals::default();
    let readers = workers.into_iter().map(|mut worker| {
        std::thread::spawn(move || {
            let mut lines = Vec::new();
            if let Some(output) = worker.stdout.take() {
                lines.extend(BufReader::new(output).lines().map_while(Result::ok));
            }
            let is_good = worker.wait().is_ok_and(|status| status.success());
            (lines, is_good)
        })
    });
    let readers: Vec<_> = readers.collect();
    for reader in readers {
        match reader.join() {
            Ok((lines, true)) => lines.iter().for_each(|line| totals.add(line)),
            _ => totals
                .violations
                .push((0, "a worker has failed".to_owned())),
        }
    }
    totals.print(began.elapsed().as_secs_f64(), is_stable);
    ExitCode::from(u8::from(!is_stable || !totals.violations.is_empty()))
}

/// Whether a seed has the same trace on each core.
fn has_one_trace(seed: u64) -> bool {
    let trace = |core: u64| {
        let mut run = Command::new(std::env::current_exe().ok()?);
        run.env("SEED", seed.to_string())
            .env("CORE", core.to_string());
        run.output().ok().map(|output| output.stdout)
    };
    let first = trace(0);
    first.is_some() && (1..cores()).all(|core| trace(core) == first)
}

fn start(core: u64) -> Option<Child> {
    let mut worker = Command::new(std::env::current_exe().ok()?);
    worker
        .env("WORKER", core.to_string())
        .stdout(Stdio::piped());
    worker.spawn().ok()
}

impl Totals {
    fn add(&mut self, line: &str) {
        if let Some(events) = line.strip_prefix("events ") {
            for (what, count) in events.split("; ").filter_map(|event| event.split_once('=')) {
                let entry = self.events.entry(what.to_owned()).or_default();
                entry.0 += count.parse::<u64>().unwrap_or_default();
                entry.1 += 1;
            }
            return;
        }
        let mut words = line.splitn(8, ' ');
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let seed = number().unwrap_or_default();
        let numbers = [number(), number(), number(), number(), number()];
        let [steps, switches, looks, time, held] = numbers.map(Option::unwrap_or_default);
        self.seeds += 1;
        self.steps += steps;
        self.switches += switches;
        self.looks += looks;
        self.time += time;
        self.held += held;
        match words.nth(1) {
            Some("ok") => {}
            verdict => self
                .violations
                .push((seed, verdict.unwrap_or(line).to_owned())),
        }
    }

    fn print(&mut self, seconds: f64, is_stable: bool) {
        self.violations.sort();
        let mut kinds: BTreeMap<&str, (u64, u64, &str)> = BTreeMap::new();
        for (seed, verdict) in &self.violations {
            // The rule, or what an error begins with.
            let kind = verdict.split([':', '{']).next().unwrap_or(verdict);
            kinds.entry(kind).or_insert((0, *seed, verdict)).0 += 1;
        }
        for (count, seed, verdict) in kinds.values() {
            println!("{count} times, first SEED={seed}: {verdict}");
        }
        for (what, (count, seeds)) in &self.events {
            println!("{what}: {count} times in {seeds} seeds");
        }
        let per_minute = |what: u64| what as f64 / seconds * 60.0;
        let hours = |nanos: u64| nanos as f64 / 3.6e12;
        println!(
            "{{\"seeds\": {}, \"violations\": {}, \"seeds_per_min\": {:.0}, \"lock_hours_per_min\": {:.1}, \
             \"hours_per_min\": {:.1}, \"steps_per_s\": {:.0}, \"switches_per_s\": {:.0}, \"trace_is_stable\": {is_stable}}}",
            self.seeds,
            self.violations.len(),
            per_minute(self.seeds),
            hours(self.held) / seconds * 60.0,
            hours(self.time) / seconds * 60.0,
            self.steps as f64 / seconds,
            self.switches as f64 / seconds,
        );
    }
}
