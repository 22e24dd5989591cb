//! The memory of locks for which no thread of this client waits any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::process_turns::{REMEMBERED, Yield};
use super::run::Run;
use crate::ground::claim::LockId;
use crate::ground::sync::Mutex;
use crate::ground::time;

/// The locks without a queue of which there is something to remember.
#[derive(Debug, Default)]
pub(super) struct Resting {
    locks: Mutex<HashMap<LockId, Kept>>,
    /// The number of them: read without a mutex to see that there is nothing to do.
    number: AtomicUsize,
}

/// So long a thread of this client is relied on to have the lock: a waiter asks as often at the latest.
const HELD_FOR: Duration = Duration::from_secs(1);

/// The part of a queue that goes on with the next waiter.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) yields: Option<Yield>,
    pub(super) run: Run,
    /// When the last waiter left with the lock, if it did and has not set it free.
    pub(super) held_since: Option<Instant>,
}

#[derive(Debug)]
struct Kept {
    memory: Memory,
    since: Instant,
}

impl Memory {
    /// Whether one who comes waits: the lock is left to others, or a thread of this client has it and may hand it off.
    fn makes_wait(&mut self, now: Instant) -> bool {
        if self.held_since.is_some_and(|since| now < since + HELD_FOR) {
            return true;
        }
        let Some(yields) = &mut self.yields else {
            return false;
        };
        let is_left = yields.ends(now).is_some();
        if !is_left {
            // The one who comes asks.
            yields.is_asked();
        }
        is_left
    }
}

impl Kept {
    fn is_forgotten(&self, now: Instant) -> bool {
        let yields = self.memory.yields.as_ref();
        now >= self.since + REMEMBERED && yields.is_none_or(|yields| yields.is_forgotten(now))
    }

    /// Recalls what is of use now.
    fn recalled(self, now: Instant) -> Memory {
        let is_forgotten = self.is_forgotten(now);
        let mut memory = self.memory;
        if is_forgotten {
            // Nobody here has had the lock for a while.
            memory.run.ended();
        }
        let held_since = memory.held_since;
        memory.held_since = held_since.filter(|since| now < *since + HELD_FOR);
        memory
    }
}

impl Resting {
    /// Of how many locks there is something to remember.
    pub(super) fn number(&self) -> usize {
        self.number.load(Ordering::SeqCst)
    }

    /// Whether one who comes for `lock` has to queue, though nobody does.
    pub(super) fn makes_wait(&self, lock: &LockId) -> bool {
        if self.number.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut locks = self.locks.lock();
        let kept = locks.get_mut(lock);
        kept.is_some_and(|it| it.memory.makes_wait(time::now()))
    }

    /// Takes out what is known of a lock.
    pub(super) fn take(&self, lock: &LockId) -> Memory {
        if self.number.load(Ordering::SeqCst) == 0 {
            return Default::default();
        }
        let mut locks = self.locks.lock();
        let known = locks.remove(lock);
        self.number.store(locks.len(), Ordering::SeqCst);
        known.map(|it| it.recalled(time::now())).unwrap_or_default()
    }

    /// Keeps what is to be known of a lock whose last waiter left.
    pub(super) fn keep(&self, lock: &LockId, memory: Memory) {
        if memory.yields.is_none() && !memory.run.goes_on() {
            return;
        }
        let mut locks = self.locks.lock();
        let since = time::now();
        // Amortised: it is swept when it has doubled.
        if locks.len() == locks.capacity() {
            locks.retain(|_, it| !it.is_forgotten(since));
        }
        locks.insert(lock.clone(), Kept { memory, since });
        self.number.store(locks.len(), Ordering::SeqCst);
    }

    /// Notes that a lock was set free.
    pub(super) fn freed(&self, lock: &LockId, yields: Option<Yield>) {
        if yields.is_none() && self.number.load(Ordering::SeqCst) == 0 {
            return;
        }
        let former = self.take(lock);
        let mut run = former.run;
        run.ended();
        let memory = Memory {
            yields: yields.map(|it| it.after(former.yields.as_ref())),
            run,
            held_since: None,
        };
        self.keep(lock, memory);
    }
}

// For shuttle a lock is its name alone.
#[cfg(all(test, not(redlatch_shuttle)))]
mod tests;
