//! The coordinator of the workers, and the results of all seeds and all planted bugs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use crate::{cores, mutants};

#[derive(Default)]
struct Totals {
    seeds: u64,
    steps: u64,
    switches: u64,
    time: u64,
    held: u64,
    /// How often each event happened, and in how many seeds.
    events: BTreeMap<String, (u64, u64)>,
    violations: Vec<(u64, String)>,
}

/// Runs all cores, and sums up.
pub(crate) fn lead() -> ExitCode {
    let is_stable = (1..=8).all(has_one_trace);
    let chooses = |name: &&str| std::env::var_os(name).is_some();
    let is_chosen = ["MUTANT", "MOOD", "SHAPE", "TOPOLOGY", "SEEDS"]
        .iter()
        .any(chooses);
    let hunt = (!is_chosen).then(mutants::hunt);
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
    totals.print(began.elapsed().as_secs_f64(), is_stable, hunt.as_ref());
    let is_good = is_stable && totals.violations.is_empty();
    let is_toothless = hunt.is_some_and(|hunt| hunt.found < hunt.planted);
    ExitCode::from(u8::from(!is_good || is_toothless))
}

/// This program, and the same one built in another profile, if there is one.
fn programs() -> Vec<PathBuf> {
    let other = std::env::var_os("OTHER").map(PathBuf::from);
    let this = std::env::current_exe().ok();
    this.into_iter().chain(other).collect()
}

/// Whether a seed has the same trace on each core and in each profile.
fn has_one_trace(seed: u64) -> bool {
    let mut traces = programs().into_iter().flat_map(|program| {
        (0..cores()).map(move |core| {
            let mut run = Command::new(&program);
            run.env("SEED", seed.to_string())
                .env("CORE", core.to_string());
            let output = run.output().ok()?;
            output.status.success().then_some(output.stdout)
        })
    });
    let first = traces.next().flatten();
    let first = first.filter(|trace| trace.len() > 1_000);
    first.is_some() && traces.all(|trace| trace == first)
}

fn start(core: u64) -> Option<Child> {
    worker(core)?.stdout(Stdio::piped()).spawn().ok()
}

/// The command of a worker, configured for many short threads: without heaps of their own, as only one runs at a time,
/// and without signal stacks, which Rust's runtime makes where `SIGSEGV` has its default action.
pub(crate) fn worker(core: u64) -> Option<Command> {
    let mut worker = Command::new("sh");
    worker
        .args(["-c", "trap '' SEGV BUS; exec \"$0\""])
        .arg(std::env::current_exe().ok()?)
        .env("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")
        .env("WORKER", core.to_string());
    Some(worker)
}

/// The number of a seed and its outcome, from its line.
pub(crate) fn verdict_of(line: &str) -> Option<(u64, &str)> {
    let (seed, rest) = line.split_once(' ')?;
    Some((seed.parse().ok()?, rest.splitn(7, ' ').nth(6)?))
}

/// The rule that an outcome names, or the start of an error.
pub(crate) fn kind_of(verdict: &str) -> &str {
    verdict.split([':', '{']).next().unwrap_or(verdict)
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
        let mut words = line.split(' ').skip(1);
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let numbers = [number(), number(), number(), number(), number()];
        let [steps, switches, _, time, held] = numbers.map(Option::unwrap_or_default);
        self.seeds += 1;
        self.steps += steps;
        self.switches += switches;
        self.time += time;
        self.held += held;
        match verdict_of(line) {
            Some((_, "ok")) => {}
            Some((seed, verdict)) => self.violations.push((seed, verdict.to_owned())),
            None => self.violations.push((0, line.to_owned())),
        }
    }

    fn print(&mut self, seconds: f64, is_stable: bool, hunt: Option<&mutants::SearchResult>) {
        self.violations.sort();
        let mut kinds: BTreeMap<&str, (u64, u64, &str)> = BTreeMap::new();
        for (seed, verdict) in &self.violations {
            let kind = kinds.entry(kind_of(verdict));
            kind.or_insert((0, *seed, verdict)).0 += 1;
        }
        for (count, seed, verdict) in kinds.values() {
            println!("{count} times, first SEED={seed}: {verdict}");
        }
        for (what, (count, seeds)) in &self.events {
            println!("{what}: {count} times in {seeds} seeds");
        }
        let per_minute = |what: u64| what as f64 / seconds * 60.0;
        let hours = |nanos: u64| nanos as f64 / 3.6e12;
        let teeth = hunt.map_or_else(String::new, |hunt| {
            format!(
                "\"mutants\": {}, \"mutants_found\": {}, \"worst_mutant_seeds\": {}, ",
                hunt.planted, hunt.found, hunt.worst
            )
        });
        println!(
            "{{\"seeds\": {}, \"violations\": {}, \"seeds_per_min\": {:.0}, \"lock_hours_per_min\": {:.1}, \
             \"hours_per_min\": {:.1}, \"steps_per_s\": {:.0}, \"switches_per_s\": {:.0}, {teeth}\
             \"trace_profiles\": {}, \"trace_is_stable\": {is_stable}}}",
            self.seeds,
            self.violations.len(),
            per_minute(self.seeds),
            hours(self.held) / seconds * 60.0,
            hours(self.time) / seconds * 60.0,
            self.steps as f64 / seconds,
            self.switches as f64 / seconds,
            programs().len(),
        );
    }
}
