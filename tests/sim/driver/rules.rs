//! The checker of the world, and the rules that it checks at every step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlatch_sim::thread_holds;
use redlatch_world::scheduler::{self, MILLI, Nanos, SECOND};

use crate::causes::{Causes, ReportedLosses};
use crate::conditions;
use crate::counters;
use crate::ids;
use crate::machine::{Redis, is_excused};
use crate::promptness::{Observation, Promptness};
use crate::queues;
use crate::shards;
use crate::sides;
use crate::topology::{Location, Part, Topology};
use crate::writes;

/// A thread that may hold locks.
#[derive(Clone, Debug)]
struct Watched {
    thread: thread_holds::WatchedThread,
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
    /// The number of permits it requests from a semaphore.
    wanted: u32,
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
    /// The last seen TTL of each lock, ms.
    left: BTreeMap<String, i64>,
    /// Until when each hold may be valid whose store, or whose majority, no longer has it.
    outlived: BTreeMap<String, Nanos>,
    /// The largest fencing token of each lock that a valid hold was seen with, and the visitor of that.
    fences: BTreeMap<String, (u64, String)>,
    looked_at: Nanos,
    /// How many holds were valid then.
    valid: u64,
    /// Until when time alone changes nothing.
    sees_until: Nanos,
    expects: Expectations,
    promptness: Promptness,
    causes: Causes,
    reported: ReportedLosses,
}

/// The time rules that apply to a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expectations {
    /// How long a waiter may not notice that a lock is free, in calm.
    pub(crate) patience: Nanos,
    /// A message about a free lock always arrives, and wakes a waiter soon.
    pub(crate) messages: bool,
    /// Nothing blocks a renewal on its way to the server.
    pub(crate) renewals: bool,
    /// The longest requested lease of any lock.
    pub(crate) longest: Nanos,
    /// No clock is set: a validity is no longer than its key.
    pub(crate) validities: bool,
    /// Each loss is reported by a live client.
    pub(crate) losses: bool,
    /// Keys without an owner are freed in calm.
    pub(crate) owners: bool,
    /// Processes may have died in a queue.
    pub(crate) dead: bool,
    pub(crate) processes: usize,
}

static RULES: Mutex<Option<Rules>> = Mutex::new(None);
static HELD: AtomicU64 = AtomicU64::new(0);
static LOOKS: AtomicU64 = AtomicU64::new(0);
static IS_CALM: AtomicBool = AtomicBool::new(false);

fn rules() -> MutexGuard<'static, Option<Rules>> {
    RULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the checks.
pub(crate) fn begin(topology: &Topology, servers: &[Redis], expects: Expectations, causes: Causes) {
    *rules() = Some(Rules {
        topology: Some(topology.clone()),
        servers: servers.to_vec(),
        expects,
        causes,
        ..Rules::default()
    });
    scheduler::watch(look);
}

/// Watches the holds of the calling thread from now on.
pub(crate) fn watch_me() -> thread_holds::WatchedThread {
    let (thread, process) = (thread_holds::watch(), scheduler::process());
    scheduler::note_news();
    if let Some(rules) = &mut *rules() {
        let thread = thread.clone();
        rules.threads.push(Watched { thread, process });
    }
    thread
}

/// Notes that a thread leaves its holds to their leases.
pub(crate) fn leaves(me: &thread_holds::WatchedThread) {
    let seen = thread_holds::holds_of(me).into_iter().flatten();
    scheduler::note_news();
    if let Some(rules) = &mut *rules() {
        rules.promptness.leave(seen.map(|hold| hold.visitor));
    }
}

/// Records that no more faults happen.
pub(crate) fn calm() {
    IS_CALM.store(true, Ordering::Relaxed);
    scheduler::note_news();
    if let Some(rules) = &mut *rules() {
        rules.free_since.clear();
    }
}

/// Records that the calling thread waits for a lock, until the result is dropped.
pub(crate) fn waits_for(name: &str) -> Wait {
    waits_for_some(name, 1)
}

/// Like [`waits_for`], for this many permits.
pub(crate) fn waits_for_some(name: &str, wanted: u32) -> Wait {
    scheduler::note_news();
    let process = scheduler::process();
    let waiting = Waiting {
        name: name.to_owned(),
        process,
        since: scheduler::now(),
        lag: scheduler::lag(process),
        wanted,
    };
    let mut rules = rules();
    let number = rules.as_mut().map(|rules| {
        rules.next_wait += 1;
        rules.waiting.insert(rules.next_wait, waiting);
        rules.next_wait
    });
    Wait(number.unwrap_or_default())
}

/// A wait that lasts until it is dropped.
pub(crate) struct Wait(u64);

impl Wait {
    /// Whether it acquired before another thread of its process that has waited much longer, in calm. Threads of one
    /// client have an order.
    pub(crate) fn overtakes(&self) -> Option<String> {
        let rules = rules();
        let rules = rules.as_ref().filter(|it| it.expects.messages)?;
        let Waiting {
            name,
            process,
            since,
            ..
        } = rules.waiting.get(&self.0)?;
        let is_before = |it: &&Waiting| {
            let is_same = it.name == *name && it.process == *process;
            is_same && it.since + QUEUING < *since
        };
        let before = rules.waiting.values().find(is_before)?;
        let millis = (since - before.since) / MILLI;
        Some(format!(
            "I14: one of process {process} has got {name} before one that had come {millis} ms earlier"
        ))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(rules) = &mut *rules() {
            rules.waiting.remove(&self.0);
        }
    }
}

/// For how long locks were held, in nanoseconds, and the number of checks.
pub(crate) fn figures() -> (u64, u64) {
    (HELD.load(Ordering::Relaxed), LOOKS.load(Ordering::Relaxed))
}

/// Checks whether a guarded write was allowed to run just now.
pub(crate) fn has_run(number: u64) {
    let mut place = rules();
    let Some(rules) = &mut *place else {
        return;
    };
    let flaw = writes::flaw(number, &rules.observations(), rules.expects.validities);
    if let Some(flaw) = flaw {
        drop(place);
        crate::run::violated(&flaw);
    }
}

fn look() -> Nanos {
    let mut place = rules();
    let Some(rules) = &mut *place else {
        return Nanos::MAX;
    };
    LOOKS.fetch_add(1, Ordering::Relaxed);
    let now = scheduler::now();
    let passed = now - std::mem::replace(&mut rules.looked_at, now);
    HELD.fetch_add(passed * rules.valid, Ordering::Relaxed);
    rules.sees_until = Nanos::MAX;
    let observations = rules.observations();
    let broken = rules
        .holds(&observations)
        .or_else(|| rules.causes(&observations))
        .or_else(|| rules.times(&observations))
        .or_else(|| rules.waits(now))
        .or_else(|| rules.sleeps())
        .or_else(queues::flaw)
        .or_else(|| counters::flaw(&rules.servers[0]));
    if let Some(broken) = broken {
        drop(place);
        crate::run::violated(&broken);
    }
    rules.sees_until
}

/// A lower bound of a span by any clock: clocks drift by at most this, and count in ms.
fn in_any_case(span: Nanos) -> Nanos {
    span.saturating_sub(MILLI) / 100 * 98
}

impl Rules {
    /// Records that something may change after this span, by any clock.
    fn looks_again_in(&mut self, span: Nanos) {
        let by = self.looked_at.saturating_add(in_any_case(span));
        self.sees_until = self.sees_until.min(by);
    }

    /// All holds of live threads.
    fn observations(&mut self) -> Vec<Observation> {
        let mut observations = Vec::new();
        for Watched { thread, process } in &self.threads {
            if scheduler::is_killed(*process) {
                continue;
            }
            let seen = scheduler::on_clock_of(*process, || thread_holds::holds_of(thread));
            if seen.is_none() {
                // The thread is busy.
                self.sees_until = 0;
            }
            let seen = seen.into_iter().flatten();
            observations.extend(seen.map(|hold| Observation {
                process: *process,
                hold,
            }));
        }
        match counters::observations(&self.servers[0]) {
            Some(permits) => observations.extend(permits),
            None => self.sees_until = 0,
        }
        observations
    }

    /// Whether the causes of losses are correct.
    fn causes(&mut self, observations: &[Observation]) -> Option<String> {
        let mut told = std::mem::take(&mut self.reported);
        // A master may have been replaced since its reply.
        let is_one = !matches!(self.topology, Some(Topology::Replicated(_)));
        let stands = |observation: &Observation| self.stands(observation).filter(|_| is_one);
        let untrue = told.untrue(observations, &self.causes, stands);
        self.reported = told;
        untrue
    }

    /// Whether the store has all of a hold, or for a quorum a majority; `None` if unknown.
    fn stands(&self, observation: &Observation) -> Option<bool> {
        let (name, visitor) = (&observation.hold.name, &observation.hold.visitor);
        let is_at = |server: &Redis, part: &Part| {
            let is_whole = server.look(&part.name, visitor).is_some();
            is_whole || part.is_token && server.has_token_of(&part.name, visitor)
        };
        let mut parts = self.parts_of(name).into_iter().map(|part| match part.home {
            Location::Server(server) => Some(is_at(&self.servers[server], &part)),
            Location::Quorum if self.servers.len() > 1 => {
                let of_all = match &self.topology {
                    Some(Topology::Parts(parts)) => parts.nodes,
                    _ => self.servers.len(),
                };
                let nodes = self.servers.iter().take(of_all);
                Some(nodes.filter(|it| is_at(it, &part)).count() > of_all / 2)
            }
            // A demoted master may continue.
            Location::Master => Some(self.servers.iter().any(|server| is_at(server, &part))),
            Location::Quorum => None,
        });
        parts.try_fold(true, |all, part| Some(all & part?))
    }

    /// Whether everything happens in time.
    fn times(&mut self, observations: &[Observation]) -> Option<String> {
        let Expectations {
            patience,
            renewals,
            losses,
            owners,
            processes,
            ..
        } = self.expects;
        let is_calm = IS_CALM.load(Ordering::Relaxed);
        let promptness = &mut self.promptness;
        let mut broken = losses.then(|| promptness.told(observations)).flatten();
        if is_calm && renewals && broken.is_none() {
            broken = promptness.renewed(observations);
        }
        if is_calm && owners && broken.is_none() {
            broken = promptness.owned(observations, &self.servers, processes, patience);
        }
        let again = promptness.looks_again_in(observations, is_calm && owners);
        again.inspect(|span| self.looks_again_in(*span));
        broken
    }

    /// Whether two holds are valid at once, or one without the server.
    fn holds(&mut self, observations: &[Observation]) -> Option<String> {
        let mut valid: BTreeMap<String, &str> = BTreeMap::new();
        self.valid = 0;
        for observation in observations
            .iter()
            .filter(|observation| observation.hold.is_valid)
        {
            let hold = &observation.hold;
            self.valid += 1;
            if let Some(broken) = self.outlives(observation) {
                return Some(broken);
            }
            self.looks_again_in(scheduler::nanos(hold.remaining));
            if is_excused(&hold.visitor) {
                continue;
            }
            if let Some(broken) = self.regresses(hold) {
                return Some(broken);
            }
            for part in self.parts_of(&hold.name) {
                let (one, sure) = (&hold.visitor, hold.remaining);
                let is_shared = counters::is_semaphore(&part.name) || sides::is_side(&hold.name);
                let other = (!is_shared).then(|| valid.insert(part.name.clone(), one));
                if let Some(other) = other.flatten() {
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
        let valid = observations.iter().map(|observation| &observation.hold);
        let valid = valid.filter(|hold| hold.is_valid);
        counters::too_many(valid.clone()).or_else(|| {
            let sure = valid.filter(|hold| !is_excused(&hold.visitor));
            sides::beside_a_writer(sure)
        })
    }

    /// Whether a hold's fencing token is not larger than earlier ones, or has changed.
    fn regresses(&mut self, hold: &thread_holds::HoldView) -> Option<String> {
        let (token, visitor) = (hold.fence?, &hold.visitor);
        let last = self
            .fences
            .insert(hold.name.clone(), (token, visitor.clone()));
        let (before, of) = last?;
        let rises = if of == *visitor {
            token == before
        } else {
            token > before
        };
        let name = &hold.name;
        (!rises).then(|| {
            format!("I11: {visitor} has token {token} of {name}, and {of} before it had {before}")
        })
    }

    /// Whether a hold is valid for longer than a lease after its store lost it, for whatever reason.
    fn outlives(&mut self, observation: &Observation) -> Option<String> {
        let (name, visitor) = (&observation.hold.name, &observation.hold.visitor);
        if self.stands(observation) != Some(false) {
            self.outlived.remove(visitor);
            return None;
        }
        let now = self.looked_at;
        let longest = self.expects.longest;
        // The clocks of processes run at other rates.
        let end = now + longest + longest / 100 + 100 * MILLI;
        let end = *self.outlived.entry(visitor.clone()).or_insert(end);
        self.looks_again_in(end.saturating_sub(now));
        (now > end)
            .then(|| format!("I1: {visitor} is sure of {name} a lease after its store has lost it"))
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
        let name = sides::lock_of(name);
        let topology = self.topology.as_ref();
        topology.map_or_else(Vec::new, |it| it.parts_of(name, self.servers.len()))
    }

    /// Why the server of a lock lacks a hold that its client considers valid. A quorum is checked by I2 alone.
    fn lacks(&mut self, part: &Part, hold: &thread_holds::HoldView) -> Option<String> {
        let server = match part.home {
            Location::Server(server) => self.servers[server].clone(),
            Location::Quorum => return None,
            Location::Master => {
                let look = |master: &Redis| master.look(&part.name, &hold.visitor);
                let found = self.masters().into_iter().find_map(look);
                let Some((_, left)) = found else {
                    return Some("has nothing of it".to_owned());
                };
                self.looks_again_in_ms(left);
                return None;
            }
        };
        let Some((_, left)) = server.look(&part.name, &hold.visitor) else {
            let has_token = part.is_token && server.has_token_of(&part.name, &hold.visitor);
            let left = server.left(&part.name);
            left.inspect(|left| self.looks_again_in_ms(*left));
            return (!has_token).then(|| "has nothing of it".to_owned());
        };
        self.looks_again_in_ms(left);
        // A key without a TTL lasts; and the server counts in whole milliseconds.
        let lasts = u64::try_from(left).map_or(u64::MAX, |left| left + 2);
        let lasts = Duration::from_millis(lasts);
        if self.expects.validities {
            // The drift between two clocks in percent.
            let spare = lasts.saturating_sub(hold.remaining);
            self.looks_again_in(
                scheduler::nanos(spare)
                    .saturating_sub(MILLI)
                    .saturating_mul(50),
            );
            let is_over = hold.remaining > lasts;
            return is_over.then(|| format!("has it for {left} ms"));
        }
        None
    }

    /// As [`Rules::looks_again_in`], in ms of a server; below zero for never.
    fn looks_again_in_ms(&mut self, left: i64) {
        if let Ok(left) = u64::try_from(left) {
            // Permits with ids may have no end.
            self.looks_again_in(left.saturating_mul(MILLI));
        }
    }

    /// The TTL of the lock, in ms; `None` if it is free.
    fn left(&self, part: &Part) -> Option<i64> {
        match part.home {
            Location::Server(server) => self.servers[server].left(&part.name),
            Location::Master => {
                let masters = self.masters().into_iter();
                masters.filter_map(|it| it.left(&part.name)).max()
            }
            Location::Quorum => {
                let servers = self.servers.iter();
                servers.filter_map(|server| server.left(&part.name)).max()
            }
        }
    }

    /// Whether a lock is free for long in calm while a thread waits for it.
    fn waits(&mut self, now: Nanos) -> Option<String> {
        if !IS_CALM.load(Ordering::Relaxed) || self.waiting.is_empty() {
            return None;
        }
        for waiting in self.waiting.values().cloned().collect::<Vec<_>>() {
            if scheduler::is_killed(waiting.process) {
                continue;
            }
            // Both sides of a read-write lock become free at once.
            let name = sides::lock_of(&waiting.name);
            let parts = self.parts_of(name);
            let left = if counters::is_counter(name) {
                counters::refused(name, &self.servers[0], self.most_wanted(name))
            } else {
                parts.iter().filter_map(|part| self.left(part)).max()
            };
            if let Some(left) = left {
                // The last of these checks finds whether it ends by itself.
                self.looks_again_in_ms((left - SHORTLY).max(0));
                self.left.insert(name.to_owned(), left);
                self.free_since.remove(name);
                continue;
            }
            self.sees_until = 0;
            // No message reports the end of a lease or of a token; other messages take time to arrive.
            let was_released = self.left.get(name).is_some_and(|left| *left > SHORTLY);
            let told = [
                "lock",
                "fenced",
                "latch",
                "semaphore",
                ids::KIND,
                sides::KIND,
                queues::KIND,
            ];
            let is_told = told.iter().any(|kind| name.starts_with(kind));
            let is_heard = self.expects.messages && was_released && is_told;
            let is_polled = self.expects.messages && name.starts_with("spin");
            let free_since = *self.free_since.entry(name.to_owned()).or_insert(now);
            let kept = scheduler::lag(waiting.process) - waiting.lag;
            let ends = if is_heard {
                free_since.max(waiting.since + LISTENING) + PROMPTLY + kept
            } else if is_polled {
                free_since.max(waiting.since) + POLLING + kept
            } else {
                let is_behind_the_dead = self.expects.dead && name.starts_with(queues::KIND);
                let dead = if is_behind_the_dead { queues::DEAD } else { 0 };
                free_since.max(waiting.since) + self.expects.patience + dead + kept
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

    /// Whether, in calm, a waiter of a condition sleeps although there is something for it.
    fn sleeps(&mut self) -> Option<String> {
        if !IS_CALM.load(Ordering::Relaxed) {
            return None;
        }
        for name in conditions::wanted() {
            let parts = self.parts_of(&name);
            if let Some(left) = parts.iter().filter_map(|part| self.left(part)).max() {
                self.looks_again_in_ms(left);
                conditions::is_held(&name);
                continue;
            }
            self.sees_until = 0;
            let most = match self.expects.messages {
                true => LISTENING + 2 * PROMPTLY,
                false => 2 * self.expects.patience,
            };
            let flaw = conditions::sleeps_on(&name, most);
            if flaw.is_some() {
                return flaw;
            }
        }
        None
    }

    /// The most permits that a waiter for a semaphore requests.
    fn most_wanted(&self, name: &str) -> u32 {
        let waiting = self.waiting.values();
        let waiting = waiting.filter(|it| it.name == name && !scheduler::is_killed(it.process));
        waiting.map(|it| it.wanted).max().unwrap_or_default()
    }
}

/// A lock with a shorter TTL than this, in ms, may have expired on its own.
const SHORTLY: i64 = 20;

/// After this time a waiter is subscribed: it has sent its request, connected and subscribed.
const LISTENING: Nanos = 200 * MILLI;

/// After this time a waiter is in the queue of its client.
const QUEUING: Nanos = 300 * MILLI;

/// The longest delay of a spin lock, twice, and some requests in a row.
const POLLING: Nanos = 500 * MILLI;

/// A message, some requests in a row through a busy pool, and a head start for another process.
const PROMPTLY: Nanos = 300 * MILLI;

/// The time a waiter may take to notice a free lock: one poll per second, and a request.
pub(crate) fn patience(command: Nanos) -> Nanos {
    2 * SECOND + 3 * command
}
