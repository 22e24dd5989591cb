//! Scheduling: where another thread may run, where a thread waits, and which thread is next.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::core::State;
use super::{CHECKER, HAS_NEWS, IS_WORLD, Locked, NEVER, Nanos, SEES_UNTIL, core, me, now};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    Woken,
    TimedOut,
}

/// A point at which another thread may run.
pub fn step() {
    let Some(me) = me() else {
        return;
    };
    let mut core = core();
    if core.count_step() {
        spins(core);
    }
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

fn spins(core: Locked) -> ! {
    // Before the panic, whose hook inspects the world.
    drop(core);
    panic!("I5: so many steps, and no end: somebody spins")
}

/// Waits at `key` until it is woken, at most until the world time `deadline`.
pub fn block(key: usize, deadline: Option<Nanos>) -> Wake {
    let me = me().expect("the world does not wait");
    let mut core = core();
    if core.count_step() {
        spins(core);
    }
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
    if super::core().task(me).has_timed_out {
        Wake::TimedOut
    } else {
        Wake::Woken
    }
}

/// Wakes a waiter at `key`. Returns whether there was one.
pub fn wake_one(key: usize) -> bool {
    core().wake(key, 1) > 0
}

pub fn wake_all(key: usize) {
    core().wake(key, usize::MAX);
}

pub fn sleep_until(deadline: Nanos) {
    // Nothing wakes a waiter without an address.
    while now() < deadline {
        block(0, Some(deadline));
    }
}

/// Whether the calling thread acts for the world now, as a checker or an event, and so must not wait.
pub fn is_world() -> bool {
    IS_WORLD.get()
}

/// Runs the due events.
fn happen(mut core: Locked) -> Locked {
    while let Some(event) = core.next_due() {
        drop(core);
        IS_WORLD.set(true);
        event();
        IS_WORLD.set(false);
        core = super::core();
    }
    core
}

fn look(now: Nanos) {
    if !HAS_NEWS.swap(false, Ordering::Relaxed) && now < SEES_UNTIL.load(Ordering::Relaxed) {
        return;
    }
    let mut place = CHECKER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut checker) = place.take() {
        drop(place);
        let before = IS_WORLD.replace(true);
        SEES_UNTIL.store(checker(), Ordering::Relaxed);
        IS_WORLD.set(before);
        let mut place = CHECKER.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert(checker);
    }
}

/// Schedules another thread, and returns when the caller runs again; at once, if its thread has ended.
pub(super) fn dispatch(mut core: Locked, me: usize) {
    loop {
        if core.is_closing {
            return;
        }
        if let Some(next) = core.pick() {
            let now = core.now;
            core.mix(next as u64 ^ now);
            if next == me {
                drop(core);
                return look(now);
            }
            core.switches += 1;
            let task = core.task(next);
            let thread = task.thread.clone().expect("a thread that was started");
            let theirs = Arc::clone(&task.has_turn);
            let mine = Arc::clone(&core.task(me).has_turn);
            let has_ended = core.task(me).state == State::Ended;
            drop(core);
            look(now);
            // Not earlier: it may be awake already.
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
        let now = core.now;
        drop(core);
        look(now);
        core = super::core();
    }
}

pub(super) fn wait_for_turn(turn: &AtomicBool) {
    while !turn.swap(false, Ordering::Acquire) {
        thread::park();
    }
}

type LastHook = Box<dyn FnOnce(String) + Send>;
static ON_STUCK: Mutex<Option<LastHook>> = Mutex::new(None);

/// Calls `what` with a description if no thread can ever run again. It must not return.
pub fn on_stuck(what: impl FnOnce(String) + Send + 'static) {
    *ON_STUCK.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(what));
}

fn stuck(mut core: Locked) {
    let mut text = String::from("nobody can ever run again:");
    for task in &core.tasks {
        if task.state == State::Blocked {
            let process = &core.processes[task.process].name;
            // Writing to a string cannot fail.
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
