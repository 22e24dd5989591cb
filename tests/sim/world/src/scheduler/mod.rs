//! The scheduler: real threads, of which exactly one runs at any time, chosen by the seed.
//!
//! Real threads, because then thread-locals with destructors, panics and thread ids work as they do elsewhere. The thread
//! that runs makes the choice itself, at each step, and hands over only if another one is chosen.
//!
//! Time is a number. When no thread can run, it advances to the earliest deadline or event. Occasionally it advances
//! although a thread could run, to simulate a slow machine.

mod core;
mod processes;
mod threads;
mod turns;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use self::core::{Core, Process, State, Task};
pub use processes::{
    add_process, is_killed, kill, lag, local_now, now, of_local, on_clock_of, pause, process,
    since_boot, suspend,
};
pub use threads::{JoinHandle, spawn};
pub use turns::{Wake, block, is_world, on_stuck, sleep_until, step, wake_all, wake_one};

/// Nanoseconds since the beginning of the world.
pub type Nanos = u64;

/// More steps in a row without time passing mean that a thread spins.
const MOST_STEPS: u64 = 200_000;

/// A run with more steps counts as endless.
const MOST_IN_ALL: u64 = 2_000_000;

const NEVER: Nanos = Nanos::MAX;

pub const MILLI: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000 * MILLI;

/// The keys for joining threads start here; other keys are addresses.
const JOINS: usize = usize::MAX / 2;

/// How the threads of a run take turns.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The chance that another thread may run, at each step.
    pub switch: f64,
    /// Whether each thread has a rank, and the thread with the highest one runs until it waits: rare orders of few
    /// threads.
    pub ranks: bool,
    /// The chance that time passes although a thread could run, and how much at most.
    pub jump: f64,
    pub longest_jump: Nanos,
}

static CORE: Mutex<Option<Core>> = Mutex::new(None);

type Checker = Box<dyn FnMut() -> Nanos + Send>;
static CHECKER: Mutex<Option<Checker>> = Mutex::new(None);

/// Whether something besides the time may have changed since the last check; and until when time alone changes
/// nothing.
static HAS_NEWS: AtomicBool = AtomicBool::new(true);
static SEES_UNTIL: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of this thread, and whether it acts for the world at the moment.
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
    static IS_WORLD: Cell<bool> = const { Cell::new(false) };
    /// The process whose clock the checker uses.
    static AS: Cell<Option<usize>> = const { Cell::new(None) };
    /// Created before all other thread-locals of a thread, so dropped last.
    static LAST: Last = const { Last };
}

struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(me) = ME.get() {
            let mut core = core();
            note_news();
            core.task(me).state = State::Ended;
            core.live.retain(|index| *index != me);
            core.wake(JOINS + me, usize::MAX);
            core.note(|| "ends".to_owned());
            turns::dispatch(core, me);
        }
    }
}

struct Locked(MutexGuard<'static, Option<Core>>);

impl std::ops::Deref for Locked {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.0.as_ref().expect("a world")
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Core {
        self.0.as_mut().expect("a world")
    }
}

fn core() -> Locked {
    Locked(CORE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The number of the calling thread, if it belongs to the world.
fn me() -> Option<usize> {
    ME.get().filter(|_| !IS_WORLD.get())
}

/// Begins the world of a seed. The calling thread is its first one, in process 0; the world ends with the process of the
/// operating system.
pub fn begin(seed: u64, pace: Pace, traced: bool) {
    let mut draw = Rng::with_seed(seed);
    fastrand::seed(draw.u64(..));
    let mut guard = CORE.lock().unwrap_or_else(PoisonError::into_inner);
    *guard = Some(Core {
        now: 0,
        pace,
        tasks: vec![Task {
            name: "main".to_owned(),
            process: 0,
            thread: Some(thread::current()),
            has_turn: Arc::default(),
            state: State::Ready,
            key: 0,
            deadline: NEVER,
            has_timed_out: false,
            rank: draw.u64(..),
        }],
        live: vec![0],
        able: Vec::new(),
        draw,
        processes: vec![Process {
            name: "driver".to_owned(),
            ..Process::default()
        }],
        events: BTreeMap::new(),
        next_event: 0,
        steps: 0,
        switches: 0,
        stands_at: 0,
        stands_since: 0,
        hash: seed,
        trace: traced.then(String::new),
        is_closing: false,
    });
    ME.set(Some(0));
}

/// Runs the checker from now on after each step that may have changed something. It must not wait. It returns until
/// when time alone changes nothing for it.
pub fn watch(checker: impl FnMut() -> Nanos + Send + 'static) {
    *CHECKER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(checker));
}

/// Marks that something the checker inspects may have changed.
pub fn note_news() {
    HAS_NEWS.store(true, Ordering::Relaxed);
}

pub fn nanos(span: Duration) -> Nanos {
    u64::try_from(span.as_nanos()).unwrap_or(NEVER / 4)
}

/// The number of steps, the number of switches between threads, and the hash of all choices.
pub fn figures() -> (u64, u64, u64) {
    let core = core();
    (core.steps, core.switches, core.hash)
}

pub fn draw<T>(what: impl FnOnce(&mut Rng) -> T) -> T {
    what(&mut core().draw)
}

/// Adds a line to the trace, and mixes it into the hash even without a trace.
pub fn note(text: impl FnOnce() -> String) {
    if is_traced() {
        let text = text();
        core().note(|| text);
    }
}

pub fn is_traced() -> bool {
    core().trace.is_some()
}

pub fn take_trace() -> String {
    core().trace.take().unwrap_or_default()
}

/// Schedules an event. It must not wait.
pub fn at(moment: Nanos, what: impl FnOnce() + Send + 'static) {
    let mut core = core();
    let number = core.next_event;
    core.next_event += 1;
    let moment = moment.max(core.now);
    core.events.insert((moment, number), Box::new(what));
}
