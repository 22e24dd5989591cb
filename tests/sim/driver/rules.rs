//! The eye of the world, and the rules that it sees to at every step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch_sim::eye;
use redlatch_world::scheduler::{self, MILLI, Nanos, SECOND};

use crate::machine::{Redis, is_excused};
use crate::promptness::{Promptness, Sight};
use crate::shards;
use crate::topology::{Home, Part, Topology};

/// A thread that may hold locks.
#[derive(Clone, Debug)]
struct Watched {
    thread: eye::Watched,
    process: usize,
}

/// A thread that waits for a lock.
#[derive(Clone, Debug)]
struct Waiting {
    name: String,
    process: usize,
    since: Nanos,
    /// How long its process had been kept from running by then.
    lag: Nanos,
}

#[derive(Default)]
struct Rules {
    servers: Vec<Redis>,
    topology: Option<Topology>,
    threads: Vec<Watched>,
    waiting: BTreeMap<u64, Waiting>,
    next_wait: u64,
    /// Since when each lock has been free.
    free_since: BTreeMap<String, Nanos>,
    /// How long each lock would have stood yet when it was seen last, ms.
    left: BTreeMap<String, i64>,
    looked_at: Nanos,
    expects: Expects,
    promptness: Promptness,
}

/// The rules of time that a plan is judged by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expects {
    /// How long a waiter may not notice that a lock is free, in calm.
    pub(crate) patience: Nanos,
    /// A message of a free lock arrives in any case, and so wakes a waiter soon.
    pub(crate) messages: bool,
    /// Nothing keeps a renewal from its server.
    pub(crate) renewals: bool,
    /// No clock is set: a validity is no longer than its key.
    pub(crate) validities: bool,
    /// Each loss is told by a client that lives.
    pub(crate) losses: bool,
    /// What nobody counts on is freed in calm.
    pub(crate) owners: bool,
    pub(crate) processes: usize,
}

static RULES: Mutex<Option<Rules>> = Mutex::new(None);
static HELD: AtomicU64 = AtomicU64::new(0);
static LOOKS: AtomicU64 = AtomicU64::new(0);
static IS_CALM: AtomicBool = AtomicBool::new(false);

fn rules() -> MutexGuard<'static, Option<Rules>> {
    RULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to look.
pub(crate) fn begin(topology: &Topology, servers: &[Redis], expects: Expects) {
    *rules() = Some(Rules {
        topology: Some(topology.clone()),
        servers: servers.to_vec(),
        expects,
        ..Rules::default()
    });
    scheduler::watch(look);
}

/// Watches the holds of the calling thread from now on.
pub(crate) fn watch_me() -> eye::Watched {
    let (thread, process) = (eye::watch(), scheduler::process());
    if let Some(rules) = &mut *rules() {
        let thread = thread.clone();
        rules.threads.push(Watched { thread, process });
    }
    thread
}

/// Notes that a thread leaves its holds to their leases.
pub(crate) fn leaves(me: &eye::Watched) {
    let seen = eye::holds_of(me).into_iter().flatten();
    if let Some(rules) = &mut *rules() {
        rules.promptness.leave(seen.map(|hold| hold.visitor));
    }
}

/// Notes that no fault happens any more.
pub(crate) fn calm() {
    IS_CALM.store(true, Ordering::Relaxed);
    if let Some(rules) = &mut *rules() {
        rules.free_since.clear();
    }
}

/// Notes that the calling thread waits for a lock, until the result is dropped.
pub(crate) fn waits_for(name: &str) -> Wait {
    let process = scheduler::process();
    let waiting = Waiting {
        name: name.to_owned(),
        process,
        since: scheduler::now(),
        lag: scheduler::lag(process),
    };
    let mut rules = rules();
    let number = rules.as_mut().map(|rules| {
        rules.next_wait += 1;
        rules.waiting.insert(rules.next_wait, waiting);
        rules.next_wait
    });
    Wait(number.unwrap_or_default())
}

/// A wait that goes on until it is dropped.
pub(crate) struct Wait(u64);

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(rules) = &mut *rules() {
            rules.waiting.remove(&self.0);
        }
    }
}

/// For how long locks were held, in nanoseconds, and how often it was looked.
pub(crate) fn figures() -> (u64, u64) {
    (HELD.load(Ordering::Relaxed), LOOKS.load(Ordering::Relaxed))
}

fn look() {
    let mut place = rules();
    let Some(rules) = &mut *place else {
        return;
    };
    LOOKS.fetch_add(1, Ordering::Relaxed);
    let now = scheduler::now();
    let passed = now - std::mem::replace(&mut rules.looked_at, now);
    let sights = rules.sights();
    let broken = rules
        .holds(&sights, passed)
        .or_else(|| rules.times(&sights))
        .or_else(|| rules.waits(now));
    if let Some(broken) = broken {
        drop(place);
        crate::run::violated(&broken);
    }
}

impl Rules {
    /// All holds of threads that live.
    fn sights(&self) -> Vec<Sight> {
        let mut sights = Vec::new();
        for Watched { thread, process } in &self.threads {
            if scheduler::is_killed(*process) {
                continue;
            }
            let seen = scheduler::on_clock_of(*process, || eye::holds_of(thread));
            let seen = seen.into_iter().flatten();
            sights.extend(seen.map(|hold| Sight {
                process: *process,
                hold,
            }));
        }
        sights
    }

    /// Whether all happens in time.
    fn times(&mut self, sights: &[Sight]) -> Option<String> {
        let Expects {
            patience,
            renewals,
            losses,
            owners,
            processes,
            ..
        } = self.expects;
        let promptness = &mut self.promptness;
        let told = losses.then(|| promptness.told(sights)).flatten();
        if told.is_some() || !IS_CALM.load(Ordering::Relaxed) {
            return told;
        }
        let renewed = renewals.then(|| promptness.renewed(sights)).flatten();
        renewed.or_else(|| {
            let owned = || promptness.owned(sights, &self.servers, processes, patience);
            owners.then(owned).flatten()
        })
    }

    /// Whether two holds are valid at once, or one without the server.
    fn holds(&self, sights: &[Sight], passed: Nanos) -> Option<String> {
        let mut valid: BTreeMap<String, &str> = BTreeMap::new();
        let seen = sights.iter().map(|sight| &sight.hold);
        for hold in seen.filter(|hold| hold.is_valid) {
            HELD.fetch_add(passed, Ordering::Relaxed);
            if is_excused(&hold.visitor) {
                continue;
            }
            for part in self.parts_of(&hold.name) {
                let (one, sure) = (&hold.visitor, hold.remaining);
                if let Some(other) = valid.insert(part.name.clone(), one) {
                    return Some(format!("I2: both {other} and {one} hold {}", part.name));
                }
                if let Some(has) = self.lacks(&part, hold) {
                    let name = &part.name;
                    return Some(format!(
                        "I1: {one} is sure of {name} for {sure:?}, and the server {has}"
                    ));
                }
            }
        }
        None
    }

    fn masters(&self) -> Vec<&Redis> {
        let of_all = |all: &mut shards::Shards| {
            let all = all.shards.iter().map(|shard| shard.master);
            all.collect::<Vec<_>>()
        };
        let masters = shards::with(of_all).unwrap_or_default();
        masters.into_iter().map(|it| &self.servers[it]).collect()
    }

    fn parts_of(&self, name: &str) -> Vec<Part> {
        let topology = self.topology.as_ref();
        topology.map_or_else(Vec::new, |it| it.parts_of(name, self.servers.len()))
    }

    /// Why the server of a lock has not what a hold believes that it has. A quorum is judged by I2 alone.
    fn lacks(&self, part: &Part, hold: &eye::Seen) -> Option<String> {
        let server = match part.home {
            Home::Server(server) => &self.servers[server],
            Home::Quorum => return None,
            Home::Master => {
                let has = |server: &&Redis| server.look(&part.name, &hold.visitor).is_some();
                let is_there = self.masters().iter().any(has);
                return (!is_there).then(|| "has nothing of it".to_owned());
            }
        };
        let Some((_, left)) = server.look(&part.name, &hold.visitor) else {
            let has_token = part.is_token && server.has_token_of(&part.name, &hold.visitor);
            return (!has_token).then(|| "has nothing of it".to_owned());
        };
        // A key without an end lasts; and the server counts in whole milliseconds.
        let lasts = u64::try_from(left).map_or(u64::MAX, |left| left + 2);
        let is_over = self.expects.validities && hold.remaining > Duration::from_millis(lasts);
        is_over.then(|| format!("has it for {left} ms"))
    }

    /// How long the lock stands yet, ms; `None` if it is free.
    fn left(&self, part: &Part) -> Option<i64> {
        match part.home {
            Home::Server(server) => self.servers[server].left(&part.name),
            Home::Master => {
                let masters = self.masters().into_iter();
                masters.filter_map(|it| it.left(&part.name)).max()
            }
            Home::Quorum => {
                let servers = self.servers.iter();
                servers.filter_map(|server| server.left(&part.name)).max()
            }
        }
    }

    /// Whether a lock is free for long while somebody waits for it in calm.
    fn waits(&mut self, now: Nanos) -> Option<String> {
        if !IS_CALM.load(Ordering::Relaxed) || self.waiting.is_empty() {
            return None;
        }
        for waiting in self.waiting.values() {
            if scheduler::is_killed(waiting.process) {
                continue;
            }
            let name = &waiting.name;
            let parts = self.parts_of(name);
            let left = parts.iter().filter_map(|part| self.left(part)).max();
            if let Some(left) = left {
                self.left.insert(name.clone(), left);
                self.free_since.remove(name);
                continue;
            }
            // Nobody tells of a lease that has ended, nor of a token; and it takes a time until messages arrive.
            let was_released = self.left.get(name).is_some_and(|left| *left > 20);
            let is_heard = self.expects.messages && was_released && name.starts_with("lock");
            let free_since = *self.free_since.entry(name.clone()).or_insert(now);
            let kept = scheduler::lag(waiting.process) - waiting.lag;
            let ends = if is_heard {
                free_since.max(waiting.since + LISTENING) + PROMPTLY + kept
            } else {
                free_since.max(waiting.since) + self.expects.patience + kept
            };
            if now > ends {
                let seconds = (now - free_since.max(waiting.since)) / MILLI;
                return Some(format!(
                    "I5: {name} is free for {seconds} ms, and one of process {} waits for it",
                    waiting.process
                ));
            }
        }
        None
    }
}

/// A waiter listens after this time: it has asked, connected and subscribed.
const LISTENING: Nanos = 200 * MILLI;

/// A message, some requests in a row through a crowded pool, and a rest that lets another process in.
const PROMPTLY: Nanos = 300 * MILLI;

/// What a waiter may take to notice that a lock is free: its own look once a second, and a request.
pub(crate) fn patience(command: Nanos) -> Nanos {
    2 * SECOND + 3 * command
}
