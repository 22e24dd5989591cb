//! Releases in the background, of a store that answers as a test says.
#![allow(
    clippy::unwrap_used,
    clippy::unreachable,
    reason = "a test that cannot go on has failed"
)]

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::engine::clearing::{Clearing, Filed, OpenDoubt};
use crate::ground::backoff::Backoff;
use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::notify::{Notifier, Parker};
use crate::ground::sync::{self, Mutex};
use crate::ground::time;
use crate::store::{
    Facts, Granted, HealthWarning, Holding, InDoubt, Outcome, Refusal, Released, Renewal, Store,
    Subscription,
};

const COMMAND: Duration = Duration::from_secs(5);

/// Fails as often as there is to be no room for a thread.
pub(super) fn take_room(no_room: &AtomicU32) -> io::Result<()> {
    let less = |left: u32| left.checked_sub(1);
    match no_room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
        Ok(_) => Err(io::ErrorKind::OutOfMemory.into()),
        Err(_) => Ok(()),
    }
}

/// Longer than a thread takes to hear of something, on a machine that is busy.
const LONG: Duration = Duration::from_secs(3);

/// A call: when it came, and the names of the locks.
type Asked = (Instant, Vec<String>);

/// A store that resolves, and nothing else. Names that begin with the same letter belong to one place.
#[derive(Debug)]
struct Answering {
    facts: Facts,
    asked: Mutex<Vec<Asked>>,
    /// The answers to the next calls; behind them nothing is left of anything.
    answers: Mutex<VecDeque<Vec<Result<bool>>>>,
    /// Calls for the place `a` wait for it.
    gate: Mutex<()>,
}

impl Store for Answering {
    fn acquire(&self, _: &Claim, _: Instant) -> Result<Outcome<Granted, Refusal>> {
        unreachable!()
    }

    fn release(&self, _: &Claim, _: u32, _: Instant) -> Result<Outcome<Released>> {
        unreachable!()
    }

    fn renew(&self, _: &[Claim], _: Instant) -> Vec<Renewal> {
        unreachable!()
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        assert!(deadline <= time::now() + COMMAND);
        let names: Vec<_> = in_doubts.iter().map(|it| it.name.to_string()).collect();
        let waits = names.iter().any(|name| name.starts_with('a'));
        let answers = self.answers.lock().pop_front();
        let answers = answers.unwrap_or_else(|| names.iter().map(|_| Ok(true)).collect());
        self.asked.lock().push((time::now(), names));
        if waits {
            drop(self.gate.lock());
        }
        answers
    }

    fn force_release(&self, _: &LockId, _: Instant) -> Result<bool> {
        unreachable!()
    }

    fn inspect(&self, _: &LockId, _: Option<&VisitorId>, _: Instant) -> Result<Holding> {
        unreachable!()
    }

    fn subscribe(
        &self,
        _: &LockId,
        _: Option<&VisitorId>,
        _: u32,
        _: &Arc<Parker>,
    ) -> Subscription {
        unreachable!()
    }

    fn check(&self, _: Instant) -> Result<Vec<HealthWarning>> {
        unreachable!()
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn node(&self, lock: Option<&str>) -> Arc<str> {
        lock.and_then(|name| name.get(..1)).unwrap_or("all").into()
    }
}

fn silent(name: &str) -> Error {
    Error::unknown(&name.into(), "the store", "withdraw", None, "it is silent")
}

fn refused(name: &str) -> Error {
    Error::Unsupported {
        lock: name.into(),
        reason: "it has no right to that".to_owned(),
    }
}

fn scene(answers: impl IntoIterator<Item = Vec<Result<bool>>>) -> (Arc<Answering>, Arc<Clearing>) {
    let store = Arc::new(Answering {
        facts: Facts::of(String::new(), &Arc::<Notifier>::default()),
        asked: Mutex::default(),
        answers: Mutex::new(answers.into_iter().collect()),
        gate: Mutex::default(),
    });
    let clearing = Clearing::new(Arc::<Answering>::clone(&store), COMMAND);
    (store, Arc::new(clearing))
}

fn in_doubt(name: &str) -> InDoubt {
    let visitor = VisitorId::new("c", 1, 1);
    InDoubt::of(
        Kind::Reentrant,
        &name.into(),
        &visitor,
        Duration::from_secs(60),
    )
}

/// One that is to be asked for after `rest`, and then at pauses of a fifth of a second at least.
fn open(name: &str, rest: Duration) -> OpenDoubt {
    let pause = Duration::from_millis(400);
    OpenDoubt {
        in_doubt: in_doubt(name),
        due: time::now() + rest,
        backoff: Backoff::between(pause, pause),
        is_owed: false,
    }
}

fn asked(store: &Answering) -> Vec<Vec<String>> {
    let asked = store.asked.lock();
    asked.iter().map(|(_, names)| names.clone()).collect()
}

fn until(is_so: impl Fn() -> bool) {
    let began = time::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "it does not come");
        sync::sleep(Duration::from_millis(1));
    }
}

#[test]
fn all_of_one_place_go_in_one_call_and_no_place_delays_another() {
    let (store, clearing) = scene([]);
    let gate = store.gate.lock();
    assert_eq!(clearing.settle(in_doubt("a1"), false), Filed::Staffed);
    until(|| asked(&store).len() == 1);
    for name in ["a2", "a3"] {
        assert_eq!(clearing.settle(in_doubt(name), false), Filed::Staffed);
    }
    assert_eq!(clearing.settle(in_doubt("a4"), true), Filed::Staffed);
    assert_eq!(clearing.open(), 2, "what is owed is in no doubt");
    clearing.settle(in_doubt("b1"), false);
    until(|| asked(&store).len() == 2);
    assert_eq!(asked(&store)[1], ["b1"]);
    drop(gate);
    until(|| asked(&store).len() == 3);
    assert_eq!(asked(&store)[2], ["a2", "a3", "a4"]);
    until(|| clearing.state.lock().desks.is_empty());
    assert_eq!(clearing.open(), 0);
}

#[test]
fn what_is_not_settled_is_asked_for_again_after_a_pause() {
    for answer in [Ok(false), Err(refused("a1"))] {
        let (store, clearing) = scene([vec![answer]]);
        let filed = open("a1", Duration::ZERO);
        clearing.file(&mut clearing.state.lock(), filed);
        assert!(clearing.staff());
        until(|| asked(&store).len() == 2);
        let asked = store.asked.lock();
        assert!(asked[1].0.duration_since(asked[0].0) >= Duration::from_millis(200));
    }
}

#[test]
fn those_that_a_call_did_not_reach_are_asked_for_when_the_place_has_rested() {
    let (store, clearing) = scene([vec![Err(silent("a1"))]]);
    let mut state = clearing.state.lock();
    let pause = Duration::from_millis(400);
    let desk = state.desks.entry("a".into()).or_default();
    desk.backoff = Backoff::between(pause, pause);
    for name in ["a1", "a2"] {
        clearing.file(&mut state, open(name, Duration::ZERO));
    }
    drop(state);
    assert!(clearing.staff());
    until(|| asked(&store).len() == 1);
    // One that comes meanwhile waits with them, and another place does not.
    clearing.settle(in_doubt("a3"), false);
    clearing.settle(in_doubt("b1"), false);
    until(|| asked(&store).len() == 2);
    assert_eq!(asked(&store)[1], ["b1"]);
    until(|| asked(&store).len() > 2);
    let times: Vec<_> = store.asked.lock().iter().map(|it| it.0).collect();
    assert!(times[2].duration_since(times[0]) >= pause / 2);
    assert!(asked(&store)[2].contains(&"a3".to_owned()));
}

/// The thread of a place sleeps until something is due there.
#[test]
fn one_that_comes_is_asked_for_at_once() {
    for rested in [false, true] {
        let (store, clearing) = scene([]);
        let mut state = clearing.state.lock();
        clearing.file(&mut state, open("a1", LONG * 4));
        let desk = state.desks.values_mut().next().unwrap();
        desk.rests_until = rested.then(time::now);
        drop(state);
        assert!(clearing.staff());
        // So that it sleeps.
        sync::sleep(Duration::from_millis(50));
        clearing.settle(in_doubt("a2"), false);
        until(|| asked(&store).len() == 1);
        assert_eq!(asked(&store)[0], ["a2"]);
        assert_eq!(clearing.close().len(), 1);
    }
}

#[test]
fn at_the_end_what_is_owed_is_asked_for_once_and_all_else_dropped() {
    let (store, clearing) = scene([vec![Ok(true)], vec![Err(refused("a3"))]]);
    let gate = store.gate.lock();
    clearing.settle(in_doubt("a1"), false);
    until(|| asked(&store).len() == 1);
    clearing.settle(in_doubt("a2"), false);
    clearing.settle(in_doubt("a3"), true);
    let threads = clearing.close();
    assert_eq!(threads.len(), 1);
    assert_eq!(clearing.settle(in_doubt("a4"), true), Filed::Closed);
    drop(gate);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(asked(&store), [["a1"], ["a3"]]);
}

#[test]
fn a_doubt_ends_with_what_it_is_about() {
    let (store, clearing) = scene([]);
    let mut over = open("a1", LONG * 4);
    over.in_doubt.ends = crate::ground::clock::BootInstant::now();
    clearing.file(&mut clearing.state.lock(), over);
    assert!(clearing.staff());
    until(|| clearing.state.lock().desks.is_empty());
    assert!(asked(&store).is_empty());
}

#[test]
fn a_place_without_a_thread_is_looked_after_by_that_of_another() {
    let (store, clearing) = scene([]);
    let gate = store.gate.lock();
    clearing.settle(in_doubt("a1"), false);
    until(|| asked(&store).len() == 1);
    clearing.no_room.store(1_000, Ordering::SeqCst);
    assert_eq!(clearing.settle(in_doubt("b1"), false), Filed::Unstaffed);
    drop(gate);
    until(|| asked(&store).len() == 2);
    assert_eq!(asked(&store)[1], ["b1"]);
}
