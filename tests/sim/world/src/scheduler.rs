//! The scheduler: real threads, of which exactly one runs at any time, chosen by the seed.
//!
//! Real threads, because then thread-locals with destructors, panics and thread ids work as they do elsewhere. The thread
//! that runs makes the choice itself, at each step, and hands over only if another one is chosen.
//!
//! Time is a number. It moves when nobody can run, to the earliest deadline or event; now and then also while somebody
//! could, which is a thread that the machine is slow to run.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use fastrand::Rng;

/// Nanoseconds since the beginning of the world.
pub type Nanos = u64;

/// So many steps in a row take no time, or somebody spins.
const MOST_STEPS: u64 = 200_000;

const NEVER: Nanos = Nanos::MAX;

pub const MILLI: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000 * MILLI;

/// The keys of those who wait for the end of a thread begin here; other keys are addresses.
const JOINS: usize = usize::MAX / 2;

/// How the threads of a run take turns.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The chance that another thread may run, at each step.
    pub switch: f64,
    /// Whether each thread has a rank, and the one with the highest runs until it waits: rare orders of few threads.
    pub ranks: bool,
    /// The chance that time passes although somebody could run, and how much at most.
    pub jump: f64,
    pub longest_jump: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    Woken,
    TimedOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Blocked,
    Ended,
}

struct Task {
    name: String,
    process: usize,
    thread: Option<Thread>,
    has_turn: Arc<AtomicBool>,
    state: State,
    /// What it waits at, and until when.
    key: usize,
    deadline: Nanos,
    has_timed_out: bool,
    rank: u64,
}

/// A process of the world: a label on threads, and clocks of its own.
#[derive(Clone, Debug, Default)]
struct Process {
    name: String,
    is_paused: bool,
    is_killed: bool,
    /// How much faster its clocks run, in millionths.
    rate: i64,
    /// What its clock since boot says at the beginning.
    booted: Nanos,
    /// How long its threads have been kept from running.
    lag: Nanos,
}

type Event = Box<dyn FnOnce() + Send>;

struct Core {
    now: Nanos,
    draw: Rng,
    pace: Pace,
    tasks: Vec<Task>,
    processes: Vec<Process>,
    events: BTreeMap<(Nanos, u64), Event>,
    next_event: u64,
    steps: u64,
    switches: u64,
    /// Since which step it has been which time.
    stands_at: Nanos,
    stands_since: u64,
    /// Of all choices.
    hash: u64,
    trace: Option<String>,
    is_closing: bool,
}

static CORE: Mutex<Option<Core>> = Mutex::new(None);

type Hook = Box<dyn FnMut() + Send>;
static EYE: Mutex<Option<Hook>> = Mutex::new(None);

thread_local! {
    /// The number of this thread, and whether it acts for the world at the moment.
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
    static IS_WORLD: Cell<bool> = const { Cell::new(false) };
    /// The process on whose clock the eye looks.
    static AS: Cell<Option<usize>> = const { Cell::new(None) };
    /// Made first of all values of a thread, so it goes last.
    static LAST: Last = const { Last };
}

struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(me) = ME.get() {
            let mut core = core();
            core.task(me).state = State::Ended;
            core.wake(JOINS + me, usize::MAX);
            core.note(|| "ends".to_owned());
            dispatch(core, me);
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

/// The number of the calling thread, if it takes turns with others.
fn me() -> Option<usize> {
    ME.get().filter(|_| !IS_WORLD.get())
}

impl Core {
    fn task(&mut self, index: usize) -> &mut Task {
        &mut self.tasks[index]
    }

    fn chance(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.draw.f64() < chance
    }

    fn may_run(&self, index: usize) -> bool {
        let task = &self.tasks[index];
        let process = &self.processes[task.process];
        task.state == State::Ready && !process.is_paused && !process.is_killed
    }

    fn pick(&mut self) -> Option<usize> {
        let able = (0..self.tasks.len()).filter(|index| self.may_run(*index));
        if self.pace.ranks {
            return able.max_by_key(|index| self.tasks[*index].rank);
        }
        let count = able.clone().count();
        let chosen = match count {
            0 => return None,
            1 => 0,
            _ => self.draw.clone().usize(..count),
        };
        let next = able.clone().nth(chosen);
        if count > 1 {
            self.draw.u64(..);
        }
        next
    }

    /// When something happens next, if nobody runs.
    fn next_instant(&self) -> Option<Nanos> {
        let lives =
            |task: &&Task| task.state == State::Blocked && !self.processes[task.process].is_killed;
        let deadlines = self.tasks.iter().filter(lives).map(|task| task.deadline);
        let events = self.events.keys().next().map(|(at, _)| *at);
        deadlines.chain(events).filter(|at| *at != NEVER).min()
    }

    /// Sets the clock, and readies those whose time is over.
    fn set_time(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.now);
        self.now += passed;
        if passed > 0 {
            for process in 0..self.processes.len() {
                let is_kept = |task: &Task| task.process == process && task.state == State::Ready;
                if self.tasks.iter().any(is_kept) {
                    self.processes[process].lag += passed;
                }
            }
        }
        for task in &mut self.tasks {
            if task.state == State::Blocked && task.deadline <= self.now {
                task.state = State::Ready;
                task.has_timed_out = true;
            }
        }
    }

    fn next_due(&mut self) -> Option<Event> {
        let entry = self.events.first_entry()?;
        (entry.key().0 <= self.now).then(|| entry.remove())
    }

    /// Readies up to `most` of those who wait at `key`, by chance. Returns how many.
    fn wake(&mut self, key: usize, most: usize) -> usize {
        let waits = |task: &Task| task.state == State::Blocked && task.key == key;
        let mut waiting: Vec<usize> = Vec::new();
        for (index, task) in self.tasks.iter().enumerate() {
            if waits(task) {
                waiting.push(index);
            }
        }
        while waiting.len() > most {
            let lucky = self.draw.usize(..waiting.len());
            waiting.swap_remove(lucky);
        }
        for index in &waiting {
            self.tasks[*index].state = State::Ready;
        }
        waiting.len()
    }

    fn local(&self, process: usize, at: Nanos) -> Nanos {
        let rate = self.processes[process].rate;
        let more = i128::from(at) * i128::from(rate) / 1_000_000;
        u64::try_from(i128::from(at) + more).unwrap_or(NEVER)
    }

    /// The first moment of the world at which the clock of a process says `local` or more.
    fn of_local(&self, process: usize, local: Nanos) -> Nanos {
        let rate = i128::from(self.processes[process].rate);
        let guess = i128::from(local) * 1_000_000 / (1_000_000 + rate);
        let mut at = u64::try_from(guess).unwrap_or(NEVER);
        while at < NEVER && self.local(process, at) < local {
            at += 1;
        }
        at
    }

    fn process_of(&self) -> usize {
        let of_thread = || ME.get().map(|me| self.tasks[me].process);
        AS.get().or_else(of_thread).unwrap_or_default()
    }

    fn count_step(&mut self) {
        self.steps += 1;
        if self.now != self.stands_at {
            (self.stands_at, self.stands_since) = (self.now, self.steps);
        }
        assert!(
            self.steps - self.stands_since < MOST_STEPS,
            "so many steps and no time: somebody spins"
        );
    }

    fn mix(&mut self, what: u64) {
        self.hash = (self.hash.rotate_left(5) ^ what).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.trace.is_some() {
            let at = self.now / 1_000;
            let who = match ME.get().filter(|_| !IS_WORLD.get()) {
                Some(me) => {
                    let task = &self.tasks[me];
                    format!("{} {}", self.processes[task.process].name, task.name)
                }
                None => "world".to_owned(),
            };
            let text = text();
            if let Some(trace) = &mut self.trace {
                let (millis, micros) = (at / 1_000, at % 1_000);
                // A string takes it all.
                let _ = writeln!(trace, "{millis:>7}.{micros:03} {who:<24} {text}");
            }
        }
    }
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

/// Looks at the world after each step from now on; it must not wait.
pub fn watch(eye: impl FnMut() + Send + 'static) {
    *EYE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(eye));
}

/// Adds a process. `rate` is how much faster its clocks run, in millionths; `booted` is what its clock says at the beginning.
pub fn add_process(name: &str, rate: i64, booted: Duration) -> usize {
    let mut core = core();
    core.processes.push(Process {
        name: name.to_owned(),
        rate,
        booted: nanos(booted),
        ..Process::default()
    });
    core.processes.len() - 1
}

/// Lets no thread of a process run until the world time `until`.
pub fn pause(process: usize, until: Nanos) {
    core().processes[process].is_paused = true;
    at(until, move || {
        note(|| format!("process {process} goes on"));
        core().processes[process].is_paused = false;
    });
}

/// Ends a process without a word: none of its threads runs again.
pub fn kill(process: usize) {
    core().processes[process].is_killed = true;
}

pub fn is_killed(process: usize) -> bool {
    core().processes[process].is_killed
}

/// How long threads of this process were ready and did not run.
pub fn lag(process: usize) -> Nanos {
    core().processes[process].lag
}

/// The process of the calling thread.
pub fn process() -> usize {
    core().process_of()
}

/// Does something on the clock of another process.
pub fn on_clock_of<T>(process: usize, look: impl FnOnce() -> T) -> T {
    let before = AS.replace(Some(process));
    let result = look();
    AS.set(before);
    result
}

/// The time of the world.
pub fn now() -> Nanos {
    core().now
}

/// The time of the clock of the calling process that deadlines are counted on.
pub fn local_now() -> Nanos {
    let core = core();
    core.local(core.process_of(), core.now)
}

/// The time since boot, in the calling process.
pub fn since_boot() -> Nanos {
    let core = core();
    let process = core.process_of();
    core.local(process, core.now) + core.processes[process].booted
}

/// The moment of the world at which the clock of the calling process says `local`.
pub fn of_local(local: Nanos) -> Nanos {
    let core = core();
    core.of_local(core.process_of(), local)
}

pub fn nanos(span: Duration) -> Nanos {
    u64::try_from(span.as_nanos()).unwrap_or(NEVER / 4)
}

/// How many steps were made, how often another thread got the turn, and the hash of all choices.
pub fn figures() -> (u64, u64, u64) {
    let core = core();
    (core.steps, core.switches, core.hash)
}

pub fn draw<T>(what: impl FnOnce(&mut Rng) -> T) -> T {
    what(&mut core().draw)
}

/// Sets how the threads take turns from now on.
pub fn set_pace(pace: Pace) {
    core().pace = pace;
}

/// Notes a line of the trace, and mixes it into the hash where there is no trace, too.
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

/// Has something happen at a moment. It must not wait.
pub fn at(moment: Nanos, what: impl FnOnce() + Send + 'static) {
    let mut core = core();
    let number = core.next_event;
    core.next_event += 1;
    let moment = moment.max(core.now);
    core.events.insert((moment, number), Box::new(what));
}

/// A point at which another thread may run.
pub fn step() {
    let Some(me) = me() else {
        return;
    };
    let mut core = core();
    core.count_step();
    let jump = core.pace.jump;
    if core.chance(jump) {
        let longest = core.pace.longest_jump;
        let by = core.draw.u64(1..=longest);
        let next = core.next_instant().unwrap_or(NEVER);
        let now = (core.now + by).min(next.max(core.now));
        core.set_time(now);
        core = happen(core);
    }
    let switch = core.pace.switch;
    if core.chance(switch) || !core.may_run(me) {
        if core.pace.ranks {
            core.tasks[me].rank = core.draw.u64(..);
        }
        dispatch(core, me);
    }
}

/// Waits at `key` until it is woken, at most until the world time `deadline`.
pub fn block(key: usize, deadline: Option<Nanos>) -> Wake {
    let me = me().expect("the world does not wait");
    let mut core = core();
    core.count_step();
    let now = core.now;
    let deadline = deadline.unwrap_or(NEVER);
    let task = core.task(me);
    task.has_timed_out = deadline <= now;
    task.key = key;
    task.deadline = deadline;
    task.state = if task.has_timed_out {
        State::Ready
    } else {
        State::Blocked
    };
    dispatch(core, me);
    if self::core().task(me).has_timed_out {
        Wake::TimedOut
    } else {
        Wake::Woken
    }
}

/// Wakes one of those who wait at `key`. Returns whether there was one.
pub fn wake_one(key: usize) -> bool {
    core().wake(key, 1) > 0
}

pub fn wake_all(key: usize) {
    core().wake(key, usize::MAX);
}

pub fn sleep_until(deadline: Nanos) {
    // Nobody wakes who waits at no address.
    while now() < deadline {
        block(0, Some(deadline));
    }
}

/// Whether the calling thread acts for the world now, as an eye or an event, and so must not wait.
pub fn is_world() -> bool {
    IS_WORLD.get()
}

/// Lets what is due happen.
fn happen(mut core: Locked) -> Locked {
    while let Some(event) = core.next_due() {
        drop(core);
        IS_WORLD.set(true);
        event();
        IS_WORLD.set(false);
        core = self::core();
    }
    core
}

fn look() {
    let mut place = EYE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut eye) = place.take() {
        drop(place);
        let before = IS_WORLD.replace(true);
        eye();
        IS_WORLD.set(before);
        let mut place = EYE.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert(eye);
    }
}

/// Gives the turn to somebody, and returns when the caller has it again; at once, if its thread has ended.
fn dispatch(mut core: Locked, me: usize) {
    loop {
        if core.is_closing {
            return;
        }
        if let Some(next) = core.pick() {
            let now = core.now;
            core.mix(next as u64 ^ now);
            if next == me {
                drop(core);
                return look();
            }
            core.switches += 1;
            let task = core.task(next);
            let thread = task.thread.clone().expect("a thread that was started");
            let theirs = Arc::clone(&task.has_turn);
            let mine = Arc::clone(&core.task(me).has_turn);
            let has_ended = core.task(me).state == State::Ended;
            drop(core);
            look();
            // Not before: it may be awake already.
            theirs.store(true, Ordering::Release);
            thread.unpark();
            if !has_ended {
                wait_for_turn(&mine);
            }
            return;
        }
        let Some(next) = core.next_instant() else {
            stuck(core);
            return;
        };
        core.set_time(next);
        core = happen(core);
        drop(core);
        look();
        core = self::core();
    }
}

fn wait_for_turn(turn: &AtomicBool) {
    while !turn.swap(false, Ordering::Acquire) {
        thread::park();
    }
}

type LastHook = Box<dyn FnOnce(String) + Send>;
static ON_STUCK: Mutex<Option<LastHook>> = Mutex::new(None);

/// Calls `what` with a description if nobody can ever run again. It must not return.
pub fn on_stuck(what: impl FnOnce(String) + Send + 'static) {
    *ON_STUCK.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(what));
}

fn stuck(mut core: Locked) {
    let mut text = String::from("nobody can ever run again:");
    for task in &core.tasks {
        if task.state == State::Blocked {
            let process = &core.processes[task.process].name;
            // A string takes it all.
            let _ = write!(text, " {process} {}", task.name);
        }
    }
    core.is_closing = true;
    drop(core);
    let last = ON_STUCK
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    IS_WORLD.set(true);
    match last {
        Some(last) => last(text),
        None => panic!("{text}"),
    }
}

/// A thread of the world.
#[derive(Debug)]
pub struct JoinHandle<T> {
    index: usize,
    thread: thread::JoinHandle<T>,
}

impl<T> JoinHandle<T> {
    pub fn is_finished(&self) -> bool {
        step();
        has_ended(self.index)
    }

    /// Waits for the end of the thread.
    ///
    /// # Errors
    ///
    /// The payload of its panic.
    pub fn join(self) -> thread::Result<T> {
        wait_for_end(self.index, None);
        self.thread.join()
    }

    /// Waits for the end of the thread until a moment of the world. Returns whether it has ended.
    pub fn wait_until(&self, deadline: Nanos) -> bool {
        wait_for_end(self.index, Some(deadline));
        has_ended(self.index)
    }

    pub fn thread(&self) -> &Thread {
        self.thread.thread()
    }
}

fn has_ended(index: usize) -> bool {
    core().task(index).state == State::Ended
}

fn wait_for_end(index: usize, deadline: Option<Nanos>) {
    while !has_ended(index) {
        if block(JOINS + index, deadline) == Wake::TimedOut {
            return;
        }
    }
}

/// Registers a thread that is about to be started, in this process or that of the caller.
fn register(name: &str, process: Option<usize>) -> (usize, Arc<AtomicBool>, u64) {
    let mut core = core();
    let process = process.unwrap_or_else(|| core.process_of());
    let has_turn = Arc::new(AtomicBool::new(false));
    let (rank, seed) = (core.draw.u64(..), core.draw.u64(..));
    core.tasks.push(Task {
        name: name.to_owned(),
        process,
        thread: None,
        has_turn: Arc::clone(&has_turn),
        state: State::Ready,
        key: 0,
        deadline: NEVER,
        has_timed_out: false,
        rank,
    });
    core.note(|| format!("starts {name}"));
    (core.tasks.len() - 1, has_turn, seed)
}

/// The first things that a thread does.
fn enter(index: usize, turn: &AtomicBool, seed: u64) {
    ME.set(Some(index));
    LAST.with(|_| ());
    wait_for_turn(turn);
    fastrand::seed(seed);
}

const STACK: usize = 512 * 1024;

/// Starts a thread in a process, that of the caller if `None`.
///
/// # Errors
///
/// As `std::thread::Builder::spawn`.
pub fn spawn<T: Send + 'static>(
    name: &str,
    process: Option<usize>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (index, turn, seed) = register(name, process);
    let builder = thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK);
    let thread = builder.spawn(move || {
        enter(index, &turn, seed);
        run()
    })?;
    core().task(index).thread = Some(thread.thread().clone());
    step();
    Ok(JoinHandle { index, thread })
}

/// Runs all `jobs` at the same time, each in a thread of its own; see the library's `sync`.
pub fn run_at_once<T: Send>(
    name: &str,
    jobs: impl IntoIterator<Item = impl FnOnce() -> T + Send>,
) -> Vec<Option<T>> {
    thread::scope(|scope| {
        let started = jobs.into_iter().map(|job| {
            let (index, turn, seed) = register(name, None);
            let run = move || {
                enter(index, &turn, seed);
                job()
            };
            let builder = thread::Builder::new()
                .name(name.to_owned())
                .stack_size(STACK);
            let thread = builder.spawn_scoped(scope, run).ok()?;
            core().task(index).thread = Some(thread.thread().clone());
            Some((index, thread))
        });
        let started: Vec<_> = started.collect();
        let joined = started.into_iter().map(|started| {
            let (index, thread) = started?;
            wait_for_end(index, None);
            thread.join().ok()
        });
        joined.collect()
    })
}
