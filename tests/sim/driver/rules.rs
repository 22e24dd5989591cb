//! The eye of the world, and the rules that it sees to at every step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redlatch_sim::eye;
use redlatch_world::scheduler::{self, MILLI, Nanos, SECOND};

use crate::machine::{Redis, is_excused};
use crate::shards;
use crate::topology::{Home, Part, Topology};

/// A thread that may hold locks.
#[derive(Clone, Copy, Debug)]
struct Watched {
    thread: u64,
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
    /// How long a waiter may not notice that a lock is free, in calm.
    patience: Nanos,
    /// Whether a message of a free lock arrives in any case, and so wakes a waiter soon.
    is_prompt: bool,
}

static RULES: Mutex<Option<Rules>> = Mutex::new(None);
static HELD: AtomicU64 = AtomicU64::new(0);
static LOOKS: AtomicU64 = AtomicU64::new(0);
static IS_CALM: AtomicBool = AtomicBool::new(false);

fn rules() -> MutexGuard<'static, Option<Rules>> {
    RULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to look, with so much patience for those who wait; less where messages arrive promptly.
pub(crate) fn begin(topology: &Topology, servers: &[Redis], patience: Nanos, is_prompt: bool) {
    *rules() = Some(Rules {
        topology: Some(topology.clone()),
        servers: servers.to_vec(),
        patience,
        is_prompt,
        ..Rules::default()
    });
    scheduler::watch(look);
}

/// Watches the holds of the calling thread from now on. Returns its number.
pub(crate) fn watch_me() -> u64 {
    let (thread, process) = (redlatch_sim::current_thread_id(), scheduler::process());
    if let Some(rules) = &mut *rules() {
        rules.threads.push(Watched { thread, process });
    }
    thread
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
    let broken = rules.holds(passed).or_else(|| rules.waits(now));
    if let Some(broken) = broken {
        drop(place);
        crate::run::violated(&broken);
    }
}

impl Rules {
    /// Whether two holds are valid at once, or one without the server.
    fn holds(&self, passed: Nanos) -> Option<String> {
        let mut valid: BTreeMap<String, String> = BTreeMap::new();
        for Watched { thread, process } in &self.threads {
            if scheduler::is_killed(*process) {
                continue;
            }
            let seen = scheduler::on_clock_of(*process, || eye::holds_of(*thread));
            for hold in seen.into_iter().flatten().filter(|hold| hold.is_valid) {
                HELD.fetch_add(passed, Ordering::Relaxed);
                let is_excused = is_excused(&hold.visitor);
                if is_excused {
                    continue;
                }
                for part in self.parts_of(&hold.name) {
                    let (name, one) = (&part.name, &hold.visitor);
                    if let Some(other) = valid.get(name) {
                        return Some(format!("I2: both {other} and {one} hold {name}"));
                    }
                    if !self.stands(&part, &hold) {
                        let remaining = hold.remaining;
                        return Some(format!(
                            "I1: {one} is sure of {name} for {remaining:?}, and the server has nothing of it"
                        ));
                    }
                    valid.insert(part.name, hold.visitor.clone());
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

    /// Whether a server has what a hold believes that it has of this lock. A quorum is judged by I2 alone.
    fn stands(&self, part: &Part, hold: &eye::Seen) -> bool {
        let server = match part.home {
            Home::Server(server) => &self.servers[server],
            Home::Quorum => return true,
            Home::Master => {
                let has = |server: &&Redis| server.look(&part.name, &hold.visitor).is_some();
                return self.masters().iter().any(has);
            }
        };
        server.look(&part.name, &hold.visitor).is_some()
            || part.is_token && server.has_token_of(&part.name, &hold.visitor)
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
            let is_heard = self.is_prompt && was_released && name.starts_with("lock");
            let free_since = *self.free_since.entry(name.clone()).or_insert(now);
            let kept = scheduler::lag(waiting.process) - waiting.lag;
            let ends = if is_heard {
                free_since.max(waiting.since + 2 * SECOND) + PROMPTLY + kept
            } else {
                free_since.max(waiting.since) + self.patience + kept
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

/// A message, some requests in a row through a crowded pool, and a rest that lets another process in.
const PROMPTLY: Nanos = 300 * MILLI;

/// What a waiter may take to notice that a lock is free: its own look once a second, and a request.
pub(crate) fn patience(command: Nanos) -> Nanos {
    2 * SECOND + 3 * command
}
