//! The bugs that are planted, each by its name, and the shape of seeds in which it is looked for first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::report::{verdict_of, worker};
use crate::shapes::Shape;
use crate::{cores, variable};

/// A bug of the library, or of the scripts as the simulated server runs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mutant {
    /// Its name in `tests/sim/planted`, or in `redlatch_spec::PLANTS` for a bug of a script.
    pub(crate) name: &'static str,
    /// Seeds of other shapes are counted, and not run: it may be found in them, too, and seldom is.
    pub(crate) shape: Shape,
    /// The same of topologies.
    pub(crate) topology: Option<&'static str>,
}

const fn in_shape(shape: Shape, name: &'static str) -> Mutant {
    Mutant {
        name,
        shape,
        topology: None,
    }
}

/// A bug that shows in free seeds of one topology.
const fn on(topology: &'static str, name: &'static str) -> Mutant {
    Mutant {
        name,
        shape: Shape::Free,
        topology: Some(topology),
    }
}

pub(crate) const MUTANTS: [Mutant; 54] = [
    in_shape(Shape::Writes, "a batch goes without its check"),
    in_shape(Shape::Writes, "a batch is checked by a request before it"),
    in_shape(Shape::Writes, "a batch may run behind the validity"),
    in_shape(Shape::Writes, "a batch does not declare its keys"),
    in_shape(Shape::Free, "a hold that is handed off keeps its token"),
    in_shape(Shape::Spins, "a spin lock pauses ever longer"),
    in_shape(Shape::Permits, "permits end with the call that took them"),
    in_shape(Shape::Permits, "permits in doubt stay taken"),
    in_shape(Shape::Permits, "a newcomer asks before those who wait"),
    in_shape(
        Shape::PermitIds,
        "a step of a count is taken for the one before",
    ),
    in_shape(Shape::Latches, "a count-down is forgotten at once"),
    in_shape(Shape::Latches, "a latch that opens wakes nobody"),
    in_shape(Shape::Sides, "readers come in whoever waits"),
    in_shape(Shape::Sides, "a reader is turned away in each phase"),
    in_shape(Shape::Sides, "a place is taken anew at each look"),
    in_shape(Shape::Sides, "one that gives up keeps its place"),
    in_shape(Shape::Sides, "one takes a place before it is first"),
    in_shape(Shape::Sides, "a writer that reads waits for itself"),
    in_shape(Shape::Sides, "the next in line is not noted"),
    in_shape(Shape::Queues, "a newcomer passes a queue on the server"),
    in_shape(Shape::Queues, "nobody is told that a fair lock is free"),
    in_shape(Shape::Queues, "one is passed over at the first look"),
    in_shape(Shape::Queues, "the dead keep their places in a queue"),
    in_shape(Shape::Queues, "one that comes back stands last"),
    in_shape(
        Shape::Queues,
        "a look does not count for one that has a place",
    ),
    in_shape(
        Shape::Queues,
        "a place that was lost is not asked for again",
    ),
    in_shape(Shape::Queues, "what is owed at the end is dropped"),
    in_shape(Shape::Conditions, "a signal is not told"),
    in_shape(Shape::Conditions, "a signal wakes two"),
    in_shape(Shape::Conditions, "one that leaves forgets its signal"),
    in_shape(
        Shape::Conditions,
        "a signal at the end of a wait is dropped",
    ),
    in_shape(Shape::Conditions, "a wait takes one level back"),
    in_shape(Shape::Free, "a request in flight shortens nothing"),
    in_shape(
        Shape::Orders,
        "an answer counts in full whatever else is in flight",
    ),
    in_shape(Shape::Pauses, "a chosen waiter stays"),
    in_shape(Shape::Pauses, "one who left is handed a hold"),
    in_shape(Shape::Outage, "a doubt is given up after half a minute"),
    in_shape(
        Shape::Silence,
        "what is in doubt is released before all else",
    ),
    in_shape(
        Shape::Cuts,
        "the copy of a token is refused by the first one",
    ),
    in_shape(Shape::Cuts, "the last copy speaks for all"),
    in_shape(Shape::Closing, "a hold of a closed client is not told"),
    in_shape(Shape::Forced, "a waiter relies on a holder here for ever"),
    in_shape(
        Shape::Newcomers,
        "a quarantine counts from before the question",
    ),
    in_shape(Shape::Newcomers, "a promoted replica votes"),
    in_shape(Shape::Newcomers, "a request goes where no vote was checked"),
    in_shape(Shape::Split, "what was not undone is dropped"),
    in_shape(Shape::Forced, "an earlier entry wakes nobody"),
    in_shape(Shape::Waiters, "nobody takes over"),
    in_shape(
        Shape::Orders,
        "an earlier request is answered in full behind a later one",
    ),
    in_shape(
        Shape::Orders,
        "a later request is answered in full before an earlier one",
    ),
    in_shape(Shape::Behind, "a lone sentinel may be behind"),
    in_shape(Shape::Silence, "a hold that has lapsed is called gone"),
    in_shape(Shape::Behind, "the master before is asked"),
    on("Replicas", "a hold needs none of its replicas"),
];

/// So many seeds are tried for one bug.
const MOST: u64 = 300_000;

/// The outcome for all of them.
#[derive(Debug, Default)]
pub(crate) struct Hunt {
    pub(crate) planted: usize,
    pub(crate) found: usize,
    /// The most seeds that one of them took.
    pub(crate) worst: u64,
}

/// Plants each bug by itself, looks for it, and says after how many seeds it was found.
pub(crate) fn hunt() -> Hunt {
    let next = AtomicUsize::new(0);
    let found: Mutex<BTreeMap<usize, Option<(u64, String)>>> = Mutex::default();
    let look = |core| {
        while let place = next.fetch_add(1, Ordering::Relaxed)
            && let Some(mutant) = MUTANTS.get(place)
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
    let mut hunt = Hunt {
        planted: MUTANTS.len(),
        ..Hunt::default()
    };
    for (place, outcome) in found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let name = MUTANTS[place].name;
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

/// Looks for a bug. Returns after how many seeds it was found, and by what.
fn find(mutant: &Mutant, core: u64) -> Option<(u64, String)> {
    let first = variable("FIRST").unwrap_or(1);
    let mut worker = worker(core)?;
    worker
        .env("MUTANT", mutant.name)
        .env("SHAPE", format!("{:?}", mutant.shape))
        .env("FIND", "1")
        .env("SEEDS", MOST.to_string())
        .env("SECONDS", "120");
    if let Some(topology) = mutant.topology {
        worker.env("TOPOLOGY", topology);
    }
    let output = worker.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut verdicts = text.lines().filter_map(verdict_of);
    let (seed, verdict) = verdicts.find(|(_, verdict)| *verdict != "ok")?;
    let verdict: String = verdict.chars().take(90).collect();
    Some((seed - first + 1, verdict))
}
