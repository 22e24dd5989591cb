//! Threads of the world, each a thread of the system.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, Thread};

use super::core::{State, Task};
use super::turns::wait_for_turn;
use super::{JOINS, LAST, ME, NEVER, Nanos, Wake, block, core, step};

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

    /// Waits for the end of the thread until a world time. Returns whether it has ended.
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

/// Registers a thread that is about to be started, in the given process or the caller's.
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
    let index = core.tasks.len() - 1;
    core.live.push(index);
    (index, has_turn, seed)
}

/// The first things that a thread does.
fn enter(index: usize, turn: &AtomicBool, seed: u64) {
    ME.set(Some(index));
    LAST.with(|_| ());
    wait_for_turn(turn);
    fastrand::seed(seed);
}

const STACK: usize = 512 * 1024;

/// Starts a thread in a process, the caller's if `None`.
///
/// # Errors
///
/// Like `std::thread::Builder::spawn`.
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
