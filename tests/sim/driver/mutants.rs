//! The planted bugs by name, and the shape of seeds in which each is searched first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::report::{verdict_of, worker};
use crate::{cores, variable};

/// The seeds to search for a bug, and its name in `tests/sim/planted`, or in `redlatch_server_checks::PLANTS` for a
/// bug of a script. Other seeds are counted but not run, because they rarely find it.
const MUTANTS: [&str; 54] = [
    "SHAPE Writes: a batch goes without its check",
    "SHAPE Writes: a batch is checked by a request before it",
    "SHAPE Writes: a batch may run behind the validity",
    "SHAPE Writes: a batch does not declare its keys",
    "SHAPE Free: a hold that is handed off keeps its token",
    "SHAPE Spins: a spin lock pauses ever longer",
    "SHAPE Permits: permits end with the call that took them",
    "SHAPE Permits: permits in doubt stay taken",
    "SHAPE Permits: a newcomer asks before those who wait",
    "SHAPE PermitIds: a step of a count is taken for the one before",
    "SHAPE Latches: a count-down is forgotten at once",
    "SHAPE Latches: a latch that opens wakes nobody",
    "SHAPE Sides: readers come in whoever waits",
    "SHAPE Sides: a reader is turned away in each phase",
    "SHAPE Sides: a place is taken anew at each look",
    "SHAPE Sides: one that gives up keeps its place",
    "SHAPE Sides: one takes a place before it is first",
    "SHAPE Sides: a writer that reads waits for itself",
    "SHAPE Sides: the next in line is not noted",
    "SHAPE Queues: a newcomer passes a queue on the server",
    "SHAPE Queues: nobody is told that a fair lock is free",
    "SHAPE Queues: one is passed over at the first look",
    "SHAPE Queues: the dead keep their places in a queue",
    "SHAPE Queues: one that comes back stands last",
    "SHAPE Queues: a look does not count for one that has a place",
    "SHAPE Queues: a place that was lost is not asked for again",
    "SHAPE Queues: what is owed at the end is dropped",
    "SHAPE Conditions: a signal is not told",
    "SHAPE Conditions: a signal wakes two",
    "SHAPE Conditions: one that leaves forgets its signal",
    "SHAPE Conditions: a signal at the end of a wait is dropped",
    "SHAPE Conditions: a wait takes one level back",
    "SHAPE Free: a request in flight shortens nothing",
    "SHAPE Orders: an answer counts in full whatever else is in flight",
    "SHAPE Pauses: a chosen waiter stays",
    "SHAPE Pauses: one who left is handed a hold",
    "SHAPE Outage: a doubt is given up after half a minute",
    "SHAPE Silence: what is in doubt is released before all else",
    "SHAPE Cuts: the copy of a token is refused by the first one",
    "SHAPE Cuts: the last copy speaks for all",
    "SHAPE Closing: a hold of a closed client is not told",
    "SHAPE Forced: a waiter relies on a holder here for ever",
    "SHAPE Newcomers: a quarantine counts from before the question",
    "SHAPE Newcomers: a promoted replica votes",
    "SHAPE Newcomers: a request goes where no vote was checked",
    "SHAPE Split: what was not undone is dropped",
    "SHAPE Forced: an earlier entry wakes nobody",
    "SHAPE Waiters: nobody takes over",
    "SHAPE Orders: an earlier request is answered in full behind a later one",
    "SHAPE Orders: a later request is answered in full before an earlier one",
    "SHAPE Behind: a lone sentinel may be behind",
    "SHAPE Silence: a hold that has lapsed is called gone",
    "SHAPE Behind: the master before is asked",
    "TOPOLOGY Replicas: a hold needs none of its replicas",
];

/// The names of all bugs.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let rows = MUTANTS.iter().filter_map(|row| row.split_once(": "));
    rows.map(|(_, name)| name)
}

/// The number of seeds tried for one bug.
const MOST: u64 = 300_000;

/// The outcome for all of them.
#[derive(Debug, Default)]
pub(crate) struct SearchResult {
    pub(crate) planted: usize,
    pub(crate) found: usize,
    /// The most seeds that a bug needed.
    pub(crate) worst: u64,
}

/// Plants each bug alone, searches for it, and reports after how many seeds it was found.
pub(crate) fn hunt() -> SearchResult {
    let next = AtomicUsize::new(0);
    let found: Mutex<BTreeMap<usize, Option<(u64, String)>>> = Mutex::default();
    let look = |core| {
        while let place = next.fetch_add(1, Ordering::Relaxed)
            && let Some(mutant) = MUTANTS.get(place).copied()
        {
            let outcome = find(mutant, core);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.insert(place, outcome);
        }
    };
    thread::scope(|scope| {
        for core in 0..cores() {
            let look = &look;
            scope.spawn(move || look(core));
        }
    });
    let mut hunt = SearchResult {
        planted: MUTANTS.len(),
        ..SearchResult::default()
    };
    for (place, outcome) in found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let name = MUTANTS[place];
        match outcome {
            Some((seeds, verdict)) => {
                hunt.found += 1;
                hunt.worst = hunt.worst.max(seeds);
                println!("{seeds:>6} seeds until \"{name}\" was found: {verdict}");
            }
            None => println!("\"{name}\" was not found"),
        }
    }
    hunt
}

/// Searches for a bug. Returns after how many seeds it was found, and by which rule.
fn find(row: &str, core: u64) -> Option<(u64, String)> {
    let (seeds, bug) = row.split_once(": ")?;
    let (filter, only) = seeds.split_once(' ')?;
    let first = variable("FIRST").unwrap_or(1);
    let mut worker = worker(core)?;
    worker
        .env("MUTANT", bug)
        .env(filter, only)
        .env("FIND", "1")
        .env("SEEDS", MOST.to_string())
        .env("SECONDS", "120");
    let output = worker.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut verdicts = text.lines().filter_map(verdict_of);
    let (seed, verdict) = verdicts.find(|(_, verdict)| *verdict != "ok")?;
    let verdict: String = verdict.chars().take(90).collect();
    Some((seed - first + 1, verdict))
}
