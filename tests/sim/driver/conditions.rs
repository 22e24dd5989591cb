//! Conditions: threads wait for things that other threads put under a lock, and no signal is lost.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use redlatch_sim::Error;
use redlatch_world::events;
use redlatch_world::scheduler::{self, MILLI, Nanos};

use crate::counter_programs;
use crate::machine::Redis;
use crate::plan::{FaultMode, Flavour, NAMES, Op, Plan, PlannedFault, Target, pick};
use crate::process::{interrupt_after, within};
use crate::run::violated;
use crate::shapes::people;
use crate::worker::Worker;

/// The only condition of each lock.
const CONDITION: &str = "filled";

/// A wait for a thing from another thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Await {
    /// For at most this many ms.
    pub(crate) wait: u64,
    /// Whether an interrupt ends it, not its timeout.
    pub(crate) is_interrupted: bool,
    /// How often its thread acquires the lock.
    pub(crate) levels: u32,
}

/// A thread that waits on a condition.
#[derive(Clone, Copy, Debug)]
struct ConditionWaiter {
    process: usize,
    since: Nanos,
    lag: Nanos,
}

/// The things under one lock that are not taken yet, and their waiters.
#[derive(Debug, Default)]
struct Store {
    things: u32,
    /// Since when there are things.
    filled: Nanos,
    sleepers: BTreeMap<u64, ConditionWaiter>,
    /// The number of signals, and of returns from signalled waits.
    signalled: u32,
    woken: u32,
    /// Whether a signal may have been sent that is not counted.
    is_in_doubt: bool,
    /// Since when the lock is free.
    free_since: Option<Nanos>,
}

#[derive(Debug)]
struct Stores {
    next: u64,
    stores: BTreeMap<String, Store>,
}

static STORES: Mutex<Stores> = Mutex::new(Stores {
    next: 0,
    stores: BTreeMap::new(),
});

fn stores() -> MutexGuard<'static, Stores> {
    STORES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of<T>(name: &str, change: impl FnOnce(&mut Store) -> T) -> T {
    scheduler::note_news();
    change(stores().stores.entry(name.to_owned()).or_default())
}

/// The locks with things and with waiters.
pub(crate) fn wanted() -> Vec<String> {
    let stores = stores();
    let wanted = stores.stores.iter();
    let wanted = wanted.filter(|(_, it)| it.things > 0 && !it.sleepers.is_empty());
    wanted.map(|(name, _)| name.clone()).collect()
}

/// Records that the lock is held.
pub(crate) fn is_held(name: &str) {
    if let Some(store) = stores().stores.get_mut(name) {
        store.free_since = None;
    }
}

/// Whether a waiter sleeps although there is something for it, for longer than `most` on a free lock.
pub(crate) fn sleeps_on(name: &str, most: Nanos) -> Option<String> {
    let (now, mut stores) = (scheduler::now(), stores());
    let store = stores.stores.get_mut(name)?;
    let free = *store.free_since.get_or_insert(now);
    let since = free.max(store.filled);
    let late = store.sleepers.values().find(|it| {
        let kept = scheduler::lag(it.process) - it.lag;
        !scheduler::is_killed(it.process) && now > since.max(it.since) + most + kept
    })?;
    let (things, process) = (store.things, late.process);
    let waited = (now - since.max(late.since)) / MILLI;
    Some(format!(
        "I17: {things} are under {name}, which is free, and one of process {process} has slept for {waited} ms"
    ))
}

impl Worker {
    /// Puts this many things under a lock, and signals one waiter or all.
    pub(crate) fn produce(&mut self, target: &Target, things: u32, all: bool) {
        self.execute(&Op::Lock(*target));
        let (lock, name) = self.lock(target);
        if !self.has(&name) {
            return;
        }
        let condition = lock.condition(CONDITION);
        let put = if all { things } else { 1 };
        let outcome = within("signal", Some(self.command), || match all {
            true => condition.signal_all(),
            false => condition.signal().map(u32::from),
        });
        self.note("signal", &name, &outcome);
        // A paused thread may have lost the lock, and the waiter it signalled found nothing.
        let put = if lock.is_valid() { put } else { 0 };
        match outcome {
            Ok(count) => of(&name, |store| {
                events::count("signal");
                if store.things == 0 {
                    store.filled = scheduler::now();
                }
                store.things += put;
                store.signalled += count;
            }),
            Err(error) => {
                of(&name, |store| store.is_in_doubt = true);
                self.allow(&name, Some(error));
            }
        }
        self.execute(&Op::Unlock(*target));
    }

    /// Takes a thing from under a lock, or waits for one.
    pub(crate) fn consume(&mut self, target: &Target, how: Await) {
        for _ in 0..how.levels {
            self.execute(&Op::Lock(*target));
        }
        let name = self.lock(target).1;
        while self.has(&name) && !self.takes_something(&name) {
            if !self.sleeps(target, how) {
                break;
            }
        }
        while self.has(&name) {
            self.execute(&Op::Unlock(*target));
        }
    }

    fn takes_something(&self, name: &str) -> bool {
        of(name, |store| {
            let has = store.things > 0;
            store.things -= u32::from(has);
            // The next signal is due from now on.
            store.filled = scheduler::now();
            has
        })
    }

    /// Waits on the condition once. Returns whether it was woken, and has the lock.
    fn sleeps(&mut self, target: &Target, how: Await) -> bool {
        let (lock, name) = self.lock(target);
        let condition = lock.condition(CONDITION);
        let process = scheduler::process();
        let sleeper = ConditionWaiter {
            process,
            since: scheduler::now(),
            lag: scheduler::lag(process),
        };
        let number = {
            let mut stores = stores();
            stores.next += 1;
            stores.next
        };
        of(&name, |store| store.sleepers.insert(number, sleeper));
        scheduler::note(|| format!("wait on {name}: {how:?}"));
        let outcome = match how.is_interrupted {
            false => condition.wait_for(Duration::from_millis(how.wait)),
            true => {
                let interrupt = interrupt_after(how.wait);
                condition.wait_interruptibly(&interrupt).map(|()| true)
            }
        };
        self.note("wait on", &name, &outcome);
        let is_woken = matches!(outcome, Ok(true));
        let too_many = of(&name, |store| {
            store.sleepers.remove(&number);
            store.woken += u32::from(is_woken);
            !store.is_in_doubt && store.woken > store.signalled
        });
        if is_woken {
            events::count("woken by a signal");
        }
        if too_many && self.is_in_calm() {
            violated(&format!(
                "I17: one that waits on {name} is woken, and nobody was signalled"
            ));
        }
        match outcome {
            Ok(_) => self.has_come_back(&lock, &name),
            Err(Error::Interrupted { .. }) => {
                self.has_come_back(&lock, &name);
                events::count("wait on a condition interrupted");
            }
            Err(error) => {
                // It may count as signalled, and is passed on.
                of(&name, |store| store.is_in_doubt = true);
                self.allow(&name, Some(error));
                if !lock.is_valid() {
                    self.doubt(&name, "it could not come back");
                }
            }
        }
        is_woken
    }
}

/// Whether queue entries are left in the end, or a signal that woke no waiter.
pub(crate) fn left_over(server: &Redis, plan: &Plan) -> Option<String> {
    let stores = stores();
    let mut all = stores.stores.iter();
    // In other stores a waiter that cannot return passes its signal on.
    let unheard = all.find(|(_, it)| !it.is_in_doubt && it.signalled != it.woken);
    if let Some((name, store)) = unheard.filter(|_| plan.fault_mode == FaultMode::Calm) {
        let Store {
            signalled, woken, ..
        } = store;
        return Some(format!(
            "I17: {signalled} were signalled at {name}, and {woken} woke"
        ));
    }
    let mut keys = stores.stores.keys().flat_map(|name| {
        ["waiting", "due"].map(|of| format!("redlatch_condition:{{{name}}}:{CONDITION}:{of}"))
    });
    let left = keys.find(|key| !server.texts(key).is_empty())?;
    Some(format!("I17: at the end {left} stands"))
}

/// Programs of threads that put things under locks, and wait for them.
pub(crate) fn conditions(plan: &mut Plan, draw: &mut Rng) {
    counter_programs::world(plan, draw);
    let flavour = pick(draw, &[Flavour::Plain, Flavour::Fair]);
    plan.flavours = [flavour; NAMES];
    let world = draw.u8(..8);
    match world {
        0 | 1 => counter_programs::cuts(plan, draw),
        2..=5 => plan.fault_mode = FaultMode::Calm,
        _ => {}
    }
    // Some sleep longer than the network faults last.
    let longest = (plan.calm_at + plan.settle) / MILLI + 20_000;
    let names = pick(draw, &[1, 1, 2]);
    let span = pick(draw, &[20, 300, 1_000]);
    people(plan, draw, 4, &|draw| {
        let mut ops = Vec::new();
        for _ in 0..draw.usize(2..=7) {
            let target = Target {
                name: draw.usize(..names),
                ..Target::default()
            };
            ops.push(match draw.u8(..8) {
                0..3 => Op::Produce(target, draw.u32(1..=3), draw.u8(..3) == 0),
                3..7 => Op::Consume(
                    target,
                    Await {
                        wait: pick(draw, &[0, 5, 20, 50, 1_000, 8_000, 30_000, longest]),
                        is_interrupted: draw.u8(..4) == 0,
                        levels: draw.u32(1..=2),
                    },
                ),
                _ => Op::Guarded(target, draw.u64(..=span), false),
            });
            ops.push(Op::Sleep(draw.u64(..=span)));
        }
        ops
    });
    if world > 1 {
        counter_programs::befall(plan, draw);
    }
    // A waiter that dies before it returns uses up its signal.
    plan.planned_faults
        .retain(|(_, blow)| !matches!(blow, PlannedFault::KillProcess(_)));
}
