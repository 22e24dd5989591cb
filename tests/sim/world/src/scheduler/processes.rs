//! Processes: labels on threads, with clocks of their own.

use std::time::Duration;

use super::core::{Process, State};
use super::{AS, NEVER, Nanos, at, core, nanos, note, note_news};
use crate::events;

/// Adds a process. `rate` is how much faster its clocks run, in millionths; `booted` is its initial clock.
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
    core().processes[process].pauses += 1;
    at(until, move || {
        note(|| format!("process {process} goes on"));
        core().processes[process].pauses -= 1;
    });
}

/// Suspends the machine of a process until the world time `until`: it does nothing, and the clock of deadlines stops
/// while the clock since boot continues.
pub fn suspend(process: usize, until: Nanos) {
    note_news();
    let mut core = core();
    let now = core.now;
    if core.processes[process].sleeps_until > now || until <= now {
        return;
    }
    let span = until - now;
    let machine = &mut core.processes[process];
    machine.sleeps_until = until;
    machine.slept += span;
    machine.lag += span;
    let mine = core.tasks.iter_mut().filter(|it| it.process == process);
    for task in mine.filter(|it| it.state == State::Blocked && it.deadline != NEVER) {
        task.deadline += span;
    }
    drop(core);
    events::count("process suspended");
    pause(process, until);
}

/// Kills a process: none of its threads runs again.
pub fn kill(process: usize) {
    note_news();
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

/// Runs `what` on the clock of another process.
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

/// The calling process's clock for deadlines.
pub fn local_now() -> Nanos {
    let core = core();
    let process = core.process_of();
    core.local(process, core.awake(process))
}

/// The time since boot, in the calling process.
pub fn since_boot() -> Nanos {
    let core = core();
    let process = core.process_of();
    core.local(process, core.now) + core.processes[process].booted
}

/// The world time at which the clock of the calling process reads `local`.
pub fn of_local(local: Nanos) -> Nanos {
    let core = core();
    let process = core.process_of();
    core.asleep(process, core.of_local(process, local))
}
