//! Fair locks: the order of grants, skipped waiters, and leftovers of the queues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use redlatch_server_checks::{Server, Value};
use redlatch_world::events;
use redlatch_world::scheduler::{self, MILLI, Nanos, SECOND};

use crate::counter_programs;
use crate::machine::Redis;
use crate::plan::{FaultMode, Flavour, NAMES, Op, Plan, PlannedFault, Target, pick};
use crate::shapes::people;

/// How the names of fair locks begin.
pub(crate) const KIND: &str = "fair";

/// A waiter that sends no query is skipped after this time, ms, if it does not subscribe, and after `SILENT` if it
/// does.
const UNHEARD: i64 = 1_500;
const SILENT: i64 = 10_000;

/// The longest time for which dead waiters delay a free lock, at any number and position: the waiters behind them
/// query every three seconds, suspect them all then, and skip them a second and a half later.
pub(crate) const DEAD: Nanos = 5 * SECOND;

/// The time that requests in flight at a shutdown take, and the requests that remove their queue entries.
const LEAVES: Nanos = 250 * MILLI;

/// The observations of one lock.
#[derive(Debug, Default)]
struct Line {
    waiting: Vec<String>,
    holder: Option<String>,
    /// When each waiter last sent a query, in ms of the server.
    looked: BTreeMap<String, i64>,
    /// All waiters so far, and skipped waiters that have not returned.
    known: BTreeSet<String>,
    passed: BTreeSet<String>,
}

#[derive(Debug)]
struct Lines {
    is_on: bool,
    /// For how long a waiter without queries counts as alive, ms.
    patience: i64,
    /// The first rule that was broken.
    flaw: Option<String>,
    lines: BTreeMap<String, Line>,
    /// The process of each client, by the id prefix of its visitors.
    clients: BTreeMap<String, usize>,
    /// When the clients of processes were shut down while nothing else happened.
    closed: BTreeMap<usize, Nanos>,
}

static LINES: Mutex<Lines> = Mutex::new(Lines {
    is_on: false,
    patience: 0,
    flaw: None,
    lines: BTreeMap::new(),
    clients: BTreeMap::new(),
    closed: BTreeMap::new(),
});

fn lines() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of this number.
pub(crate) fn name_of(number: usize) -> String {
    format!("{KIND}{number}")
}

/// Starts the checks, if there are fair locks.
pub(crate) fn begin(plan: &Plan) {
    let mut lines = lines();
    lines.is_on = plan.flavours.contains(&Flavour::Fair);
    lines.patience = i64::try_from(plan.patience).unwrap_or(i64::MAX);
}

/// Notes the client of the calling process.
pub(crate) fn note_client(id: &str) {
    let mut lines = lines();
    if lines.is_on {
        lines.clients.insert(id.to_owned(), scheduler::process());
    }
}

/// Records the shutdown of the calling process's client, unless its requests were blocked.
pub(crate) fn note_shutdown(plan: &Plan) {
    if plan.shape == crate::shapes::Shape::Queues && plan.fault_mode == FaultMode::Calm {
        events::count("fair queue left by a shutdown");
        lines()
            .closed
            .insert(scheduler::process(), scheduler::now());
    }
}

fn texts(value: Option<(&Value, i64)>) -> Vec<String> {
    let text = |item: &Vec<u8>| String::from_utf8_lossy(item).into_owned();
    match value {
        Some((Value::List(items), _)) => items.iter().map(text).collect(),
        Some((Value::Hash(fields), _)) => fields.iter().map(|(field, _)| text(field)).collect(),
        _ => Vec::new(),
    }
}

/// The rule that was broken by a request, if there is one.
pub(crate) fn flaw() -> Option<String> {
    lines().flaw.take()
}

/// Checks all queues after a request.
pub(crate) fn ran(server: &Server, now: i64, request: &[Vec<u8>], answer: &[u8]) {
    let lines = &mut *lines();
    if !lines.is_on {
        return;
    }
    let has_run = has_run(answer);
    let half = lines.patience / 2;
    for name in (0..NAMES).map(name_of) {
        let waiting = texts(server.look(now, &format!("redisson_lock_queue:{{{name}}}")));
        let holder = texts(server.look(now, &name)).into_iter().next();
        let line = lines.lines.entry(name.clone()).or_default();
        let listens = |waiter: &str| {
            server.listeners(&format!("redisson_lock__channel:{{{name}}}:{waiter}")) > 0
        };
        let may_go = |waiter: &str, silence: Silence| {
            // By its timeout, or because it is silent while the lock is free.
            let most = if listens(waiter) { SILENT } else { UNHEARD };
            silence.not_looked >= half || silence.is_free && silence.not_looked >= most
        };
        let asked = Asked { request, has_run };
        let flaw = line.change(&waiting, holder.as_deref(), now / 1000, asked, may_go);
        let is_closed = |waiter: &&String| {
            let client = waiter.split(':').next().unwrap_or_default();
            let process = lines.clients.get(client);
            let closed = process.and_then(|process| lines.closed.get(process));
            closed.is_some_and(|closed| scheduler::now() > closed + LEAVES)
        };
        let left = waiting.iter().find(is_closed);
        let flaw =
            flaw.or(left.map(|left| format!("{left} waits though its client was shut down")));
        line.note(waiting, holder, now / 1000, asked);
        let flaw = flaw.map(|flaw| format!("I16: {name}: {flaw}"));
        lines.flaw = lines.flaw.take().or(flaw);
    }
}

/// The times of a skipped visitor, in ms.
#[derive(Clone, Copy, Debug)]
struct Silence {
    not_looked: i64,
    is_free: bool,
}

/// A request, and whether it had its intended effect.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    request: &'a [Vec<u8>],
    has_run: bool,
}

/// Whether a request has a visitor among its arguments.
fn names(request: &[Vec<u8>], visitor: &str) -> bool {
    request.iter().any(|it| it == visitor.as_bytes())
}

/// Whether a request was not refused, for coming too late or by an error.
fn has_run(answer: &[u8]) -> bool {
    const TOO_LATE: &[u8] = b"*2\r\n:3\r\n";
    let is_too_late = answer.windows(TOO_LATE.len()).any(|it| it == TOO_LATE);
    !is_too_late && !answer.starts_with(b"-")
}

impl Line {
    /// The invariant violated by a request's change of the queue.
    fn change(
        &mut self,
        waiting: &[String],
        holder: Option<&str>,
        now: i64,
        asked: Asked<'_>,
        may_go: impl Fn(&str, Silence) -> bool,
    ) -> Option<String> {
        let stays = |waiter: &&String| waiting.contains(waiter);
        // A lease may have ended since the last request.
        let is_free = self.holder.as_deref().is_none_or(|it| holder != Some(it));
        for gone in self.waiting.iter().filter(|it| !stays(it)) {
            // It has the lock, or left on its own.
            if holder == Some(gone.as_str()) || names(asked.request, gone) {
                continue;
            }
            let looked = self.looked.get(gone).copied().unwrap_or_default();
            let silence = Silence {
                not_looked: now - looked,
                is_free,
            };
            if !may_go(gone, silence) {
                return Some(format!("{gone} is passed over, {silence:?}"));
            }
            events::count("waiter passed over");
            self.passed.insert(gone.clone());
        }
        let before: Vec<&String> = self.waiting.iter().filter(stays).collect();
        let after = waiting.iter().filter(|it| self.waiting.contains(it));
        let after: Vec<&String> = after.collect();
        if before != after {
            return Some(format!(
                "those who wait change places: {before:?}, {after:?}"
            ));
        }
        for (place, comes) in waiting.iter().enumerate() {
            if self.waiting.contains(comes) {
                continue;
            }
            let is_last = waiting[place..].iter().all(|it| !self.waiting.contains(it));
            if self.passed.remove(comes) {
                if place > 0 {
                    return Some(format!(
                        "{comes} was passed over, and comes back to place {place}"
                    ));
                }
                events::count("waiter came back");
            } else if !self.known.contains(comes) && !is_last {
                return Some(format!("{comes} comes before others at once"));
            }
        }
        let taker = holder.filter(|holder| self.holder.as_deref() != Some(holder))?;
        let mut ahead = self.waiting.iter().take_while(|it| it.as_str() != taker);
        let overtaken = ahead.find(stays)?;
        Some(format!(
            "{taker} gets it before {overtaken}, which came earlier"
        ))
    }

    /// Records the present state.
    fn note(&mut self, waiting: Vec<String>, holder: Option<String>, now: i64, asked: Asked<'_>) {
        for waiter in &waiting {
            if !self.known.contains(waiter) || asked.has_run && names(asked.request, waiter) {
                self.looked.insert(waiter.clone(), now);
            }
        }
        self.known.extend(waiting.iter().cloned());
        (self.waiting, self.holder) = (waiting, holder);
    }
}

/// The entries left in a queue in the end, except for those of dead waiters.
pub(crate) fn left_over(server: &Redis) -> Option<String> {
    let lines = lines();
    if !lines.is_on {
        return None;
    }
    let died = |waiter: &&String| {
        let client = waiter.split(':').next().unwrap_or_default();
        let process = lines.clients.get(client);
        process.is_some_and(|process| scheduler::is_killed(*process))
    };
    (0..NAMES).map(name_of).find_map(|name| {
        let waiting = server.texts(&format!("redisson_lock_queue:{{{name}}}"));
        let times = server.texts(&format!("redisson_lock_timeout:{{{name}}}"));
        let mut left = waiting.iter().chain(&times).filter(|it| !died(it));
        let left = left.next()?;
        Some(format!("I16: at the end {left} still waits for {name}"))
    })
}

/// Whether processes die and nothing else happens: then the others are always checked.
pub(crate) fn only_kills(plan: &Plan) -> bool {
    let kills = |(_, blow): &(Nanos, PlannedFault)| matches!(blow, PlannedFault::KillProcess(_));
    plan.shape == crate::shapes::Shape::Queues
        && plan.fault_mode == FaultMode::Processes
        && plan.planned_faults.iter().all(kills)
}

fn fair(name: usize, lease: Option<u64>) -> Target {
    Target {
        name,
        lease,
        ..Target::default()
    }
}

/// Programs of threads that wait in queues on the server.
pub(crate) fn queues(plan: &mut Plan, draw: &mut Rng) {
    counter_programs::world(plan, draw);
    plan.flavours = [Flavour::Fair; NAMES];
    plan.patience = pick(draw, &[10, 10, 300]) * SECOND / MILLI;
    let world = draw.u8(..8);
    match world {
        0 => counter_programs::cuts(plan, draw),
        1..=3 | 7 => plan.fault_mode = FaultMode::Calm,
        4..=6 => plan.fault_mode = FaultMode::Processes,
        _ => {}
    }
    let names = pick(draw, &[1, 1, 1, 2]);
    let (lease, span) = (plan.lease, pick(draw, &[20, 300, 2_000]));
    let is_calm = plan.fault_mode == FaultMode::Calm;
    people(plan, draw, 4, &|draw| {
        let mut ops = Vec::new();
        for _ in 0..draw.usize(2..=7) {
            let lease = match draw.u8(..10) {
                // No message reports the end of a lease, and calm runs check that every release is reported.
                _ if is_calm => None,
                0 => Some(draw.u64(100..1_000)),
                1 => Some(lease * 2),
                _ => None,
            };
            let target = fair(draw.usize(..names), lease);
            let (held, pause) = (draw.u64(..=span), draw.u64(..=span / 4));
            // Some waits end just when the lock is free.
            let longest = pick(draw, &[span, 4_000]);
            ops.push(match draw.u8(..10) {
                0 => Op::Try(target),
                1 | 2 => Op::TryFor(target, draw.u64(1..=longest)),
                3 => Op::Interruptibly(target, draw.u64(..=longest)),
                4 => Op::Guarded(target, held, draw.bool()),
                _ => Op::Lock(target),
            });
            ops.push(Op::Sleep(held));
            match draw.u8(..8) {
                0 => ops.extend([Op::Lock(target), Op::Unlock(target), Op::Unlock(target)]),
                1 => ops.extend([Op::Ask(target), Op::Unlock(target)]),
                _ => ops.push(Op::Unlock(target)),
            }
            ops.push(Op::Sleep(pause));
        }
        ops
    });
    match world {
        0..=3 => {}
        4 => {
            // Only dead waiters.
            plan.planned_faults = (0..draw.usize(1..=2))
                .map(|_| {
                    let at = draw.u64(..3_000) * MILLI;
                    (
                        at,
                        PlannedFault::KillProcess(draw.usize(..plan.processes.len())),
                    )
                })
                .collect();
        }
        5 => {
            // A process pauses long enough to count as dead.
            plan.calm_at = 30 * SECOND;
            plan.planned_faults = (0..draw.usize(1..=3))
                .map(|_| {
                    let (at, span) = (draw.u64(..5_000), draw.u64(1_000..16_000));
                    let process = draw.usize(..plan.processes.len());
                    (
                        at * MILLI,
                        PlannedFault::PauseProcess(process, span * MILLI),
                    )
                })
                .collect();
        }
        6 => counter_programs::befall(plan, draw),
        _ => {
            // A process ends in the middle.
            let process = draw.usize(..plan.processes.len());
            plan.processes[process].shut_down_at = Some(draw.u64(..3_000) * MILLI);
        }
    }
}
