//! Read-write locks: which threads may hold them together, and which thread is next.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use redlatch_sim::Result;
use redlatch_sim::thread_holds::HoldView;
use redlatch_world::events;
use redlatch_world::scheduler::{self, MILLI, Nanos};

use crate::counter_programs;
use crate::plan::{FaultMode, Op, Plan, Target, pick};
use crate::shapes::people;

/// How the names of read-write locks begin.
pub(crate) const KIND: &str = "rw";

/// The suffix of the timeout keys of read holds.
pub(crate) const END: &[u8] = b":rwlock_timeout:1";

const READ: &str = " read";
const WRITE: &str = " write";

/// The name of a side of the read-write lock of this number, as the checker uses it.
pub(crate) fn name_of(number: usize, writes: bool) -> String {
    format!("{KIND}{number}{}", if writes { WRITE } else { READ })
}

/// The lock of a side.
pub(crate) fn lock_of(name: &str) -> &str {
    let lock = name.strip_suffix(READ).or(name.strip_suffix(WRITE));
    lock.unwrap_or(name)
}

pub(crate) fn is_side(name: &str) -> bool {
    name != lock_of(name)
}

/// The thread of a hold, by its visitor.
fn thread_of(visitor: &str) -> &str {
    let hold = visitor.strip_suffix(":write").unwrap_or(visitor);
    hold.rsplit_once(':').map_or(hold, |(thread, _)| thread)
}

/// Whether a writer is valid beside a hold of another thread.
pub(crate) fn beside_a_writer<'a>(
    valid: impl Iterator<Item = &'a HoldView> + Clone,
) -> Option<String> {
    let writers = valid.clone().filter(|hold| hold.name.ends_with(WRITE));
    for writer in writers {
        let lock = lock_of(&writer.name);
        let is_beside = |hold: &&HoldView| {
            let is_other = thread_of(&hold.visitor) != thread_of(&writer.visitor);
            is_side(&hold.name) && lock_of(&hold.name) == lock && is_other
        };
        if let Some(other) = valid.clone().find(is_beside) {
            let (one, other) = (&writer.visitor, &other.visitor);
            return Some(format!("I2: {one} writes {lock}, and {other} has it, too"));
        }
    }
    None
}

/// A pending request for a side, and the events since.
#[derive(Clone, Debug)]
struct PendingRequest {
    lock: String,
    writes: bool,
    process: usize,
    since: Nanos,
    lag: Nanos,
    /// Its deadline.
    ends: Nanos,
    /// How many writers entered since it must have had its note.
    passed: u32,
    /// Whether any did since it began, or was inside by then.
    is_passed: bool,
}

/// The writers of one lock.
#[derive(Clone, Debug, Default)]
struct LockState {
    /// By process, when its last writer entered, left or gave up, and how many are inside.
    written_by: BTreeMap<usize, (Nanos, u32)>,
}

#[derive(Debug)]
struct Requests {
    pending: BTreeMap<u64, PendingRequest>,
    next: u64,
    states: BTreeMap<String, LockState>,
}

static REQUESTS: Mutex<Requests> = Mutex::new(Requests {
    pending: BTreeMap::new(),
    next: 0,
    states: BTreeMap::new(),
});

/// After this time, in calm, a waiter has sent its request, is in the queue and has its note on the server.
const NOTED: Nanos = 400 * MILLI;

/// After this time, in calm, a reader of a lock without writers holds it.
const SOON: Nanos = 800 * MILLI;

/// A reader waits for the writer inside, for the next writer, and for one more that was faster.
const MOST_WRITERS: u32 = 3;

impl LockState {
    fn is_written(&self) -> bool {
        self.written_by.values().any(|(_, count)| *count > 0)
    }

    /// When the last writer entered, left or gave up.
    fn written(&self) -> Nanos {
        let times = self.written_by.values().map(|(time, _)| *time);
        times.max().unwrap_or_default()
    }
}

fn requests() -> MutexGuard<'static, Requests> {
    REQUESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that the calling thread requests a side, for at most `bound`.
pub(crate) fn begin(name: &str, bound: Option<Nanos>) -> u64 {
    let process = scheduler::process();
    let since = scheduler::now();
    let mut requests = requests();
    requests.next += 1;
    let number = requests.next;
    let writes = name.ends_with(WRITE);
    // A request that meets a writer waits for that writer.
    let is_written = requests.state(lock_of(name)).is_written();
    let request = PendingRequest {
        lock: lock_of(name).to_owned(),
        writes,
        process,
        since,
        lag: scheduler::lag(process),
        ends: bound.map_or(Nanos::MAX, |bound| since + bound),
        passed: 0,
        is_passed: is_written && !writes,
    };
    requests.pending.insert(number, request);
    number
}

impl Requests {
    /// Records that a writer gave up, or entered or left with another count.
    fn change(&mut self, lock: &str, process: usize, count: impl Fn(u32) -> u32) {
        let state = self.states.entry(lock.to_owned()).or_default();
        let of_process = state.written_by.entry(process).or_default();
        *of_process = (scheduler::now(), count(of_process.1));
    }

    fn state(&self, lock: &str) -> LockState {
        self.states.get(lock).cloned().unwrap_or_default()
    }

    /// Writers that must have their notes on a lock by the time `by`, and still wait.
    fn noted(&self, lock: &str, by: Nanos) -> impl Iterator<Item = &PendingRequest> {
        let state = self.state(lock);
        let lock = lock.to_owned();
        self.pending.values().filter(move |it| {
            // Per process, the head of the queue waits on the server; the next thread does so after a writer has left.
            let (left, is_in) = state
                .written_by
                .get(&it.process)
                .copied()
                .unwrap_or_default();
            let first = it.since.max(left);
            let waits_on = it.ends > scheduler::now() + 100 * MILLI;
            it.writes && it.lock == lock && waits_on && is_in == 0 && first + NOTED < by
        })
    }

    /// Whether a granted request has waited for its turn.
    fn flaw(&self, request: &PendingRequest) -> Option<String> {
        let PendingRequest { lock, process, .. } = request;
        let waited = (scheduler::now() - request.since) / MILLI;
        let noted = self.noted(lock, request.since).next();
        if let Some(writer) = noted.filter(|_| !request.is_passed) {
            let what = if request.writes { "writer" } else { "reader" };
            let before = (request.since - writer.since) / MILLI;
            return Some(format!(
                "I15: a {what} of process {process} got {lock} before a writer that had come {before} ms earlier"
            ));
        }
        let is_passed = !request.writes && request.passed > MOST_WRITERS;
        is_passed.then(|| {
            let passed = request.passed;
            format!("I15: {passed} writers got {lock} while a reader of process {process} waited {waited} ms")
        })
    }

    /// Whether a reader waited although no writer blocked it.
    fn is_kept_by_nobody(&self, request: &PendingRequest) -> Option<String> {
        let state = self.state(&request.lock);
        let mut others = self.pending.values();
        let is_written = state.is_written()
            || others.any(|it| it.writes && it.lock == request.lock)
            || request.writes;
        let since = request.since.max(state.written());
        let kept = scheduler::lag(request.process) - request.lag;
        let late = scheduler::now().saturating_sub(since + SOON + kept);
        (!is_written && late > 0).then(|| {
            let waited = (scheduler::now() - since) / MILLI;
            format!(
                "I15: nobody writes {}, and a reader waited {waited} ms",
                request.lock
            )
        })
    }
}

/// Records the outcome of a request (`is_new`: the thread holds no side of this lock); in calm, checks that it was its
/// turn.
pub(crate) fn end(
    number: u64,
    outcome: &Result<bool>,
    is_new: bool,
    is_calm: bool,
) -> Option<String> {
    let mut requests = requests();
    let request = requests.pending.remove(&number)?;
    let is_in = matches!(outcome, Ok(true));
    let mut flaw = None;
    if is_calm && is_new && outcome.is_ok() {
        flaw = requests.is_kept_by_nobody(&request);
        if is_in && flaw.is_none() {
            flaw = requests.flaw(&request);
        }
    }
    if is_in {
        events::count(if request.writes {
            "write side entered"
        } else {
            "read side entered"
        });
    }
    if is_in && request.writes && is_new {
        for other in requests
            .pending
            .values_mut()
            .filter(|it| it.lock == request.lock)
        {
            other.is_passed = true;
            let is_noted = scheduler::now() > other.since + NOTED;
            other.passed += u32::from(is_noted);
        }
        requests.change(&request.lock, request.process, |count| count + 1);
    } else if request.writes {
        requests.change(&request.lock, request.process, |count| count);
    }
    flaw
}

/// Records that the calling thread has left a side for good.
pub(crate) fn left(name: &str) {
    if name.ends_with(WRITE) {
        let mut requests = requests();
        requests.change(lock_of(name), scheduler::process(), |count| {
            count.saturating_sub(1)
        });
    }
}

/// The lock as a program requests it.
fn side(draw: &mut Rng, names: usize, lease: Option<u64>) -> Target {
    Target {
        name: draw.usize(..names),
        lease,
        is_token: false,
        side: Some(draw.u8(..3) == 0),
    }
}

/// Programs of readers and writers, in a world whose server loses nothing.
pub(crate) fn sides(plan: &mut Plan, draw: &mut Rng) {
    counter_programs::world(plan, draw);
    let is_cut = draw.u8(..5) == 0;
    if is_cut {
        counter_programs::cuts(plan, draw);
    } else if draw.bool() {
        plan.fault_mode = FaultMode::Calm;
    }
    let names = pick(draw, &[1, 1, 2]);
    let (lease, span) = (plan.lease, pick(draw, &[20, 300, 2_000]));
    let is_calm = plan.fault_mode == FaultMode::Calm;
    people(plan, draw, 4, &|draw| {
        let mut ops = Vec::new();
        // No message reports the end of a lease, and calm runs check that every release is reported.
        let lease = match draw.u8(..10) {
            _ if is_calm => None,
            0 => Some(draw.u64(100..1_000)),
            1 => Some(lease * 2),
            _ => None,
        };
        for _ in 0..draw.usize(2..=7) {
            let target = side(draw, names, lease);
            let other = Target {
                side: target.side.map(|writes| !writes),
                lease: None,
                ..target
            };
            let (held, pause) = (
                Op::Sleep(draw.u64(..=span)),
                Op::Sleep(draw.u64(..=span / 4)),
            );
            let take = match draw.u8(..8) {
                0 => Op::Try(target),
                1 | 2 => Op::TryFor(target, draw.u64(1..=4_000)),
                3 => Op::Interruptibly(target, draw.u64(..=3_000)),
                _ => Op::Lock(target),
            };
            ops.extend([take, held]);
            let end = if lease.is_some() { 7 } else { draw.u8(..8) };
            match end {
                // One side inside the other, released in either order.
                0 => ops.extend([
                    Op::TryFor(other, 500),
                    Op::Unlock(target),
                    Op::Unlock(other),
                ]),
                1 => ops.extend([
                    Op::TryFor(other, 500),
                    Op::Unlock(other),
                    Op::Unlock(target),
                ]),
                2 => ops.extend([Op::Lock(target), Op::Unlock(target), Op::Unlock(target)]),
                3 => ops.push(Op::Ask(target)),
                _ => ops.push(Op::Unlock(target)),
            }
            ops.push(pause);
        }
        ops
    });
    for thread in plan.processes.iter_mut().flat_map(|it| &mut it.threads) {
        thread.leaves = !is_calm && draw.u8(..20) == 0;
    }
    if !is_cut {
        counter_programs::befall(plan, draw);
    }
}
