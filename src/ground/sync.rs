//! The locks that the waiting code sleeps on, behind one small face.
//!
//! The wait queue, the notifier and the timer use nothing else to synchronise, so that the test suite compiles their files
//! against a scheduler that tries many interleavings, with time-outs as a random choice (`tests/shuttle`).

use std::sync::PoisonError;
use std::time::Instant;

pub(crate) use std::sync::MutexGuard;

/// The standard library's mutex, and its condition variable: a thread that sleeps there is known to the kernel alone.
/// parking_lot keeps its sleepers in a table of the process, which a forked child inherits without the threads.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // No code of a caller runs under these mutexes, so a panic leaves nothing half done there.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Waits for a notification, at most until `deadline`, `None` meaning for ever. Wakes may be spurious.
    pub(crate) fn wait<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        match deadline {
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let waited = self.0.wait_timeout(guard, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.0.wait(guard).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// One look at the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn look() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn has_passed(self, deadline: Instant) -> bool {
        self.0 >= deadline
    }
}

/// Whether a test has planted this bug, to prove that it would be found. Never, in the library itself.
pub(crate) const fn mutant(_bug: &str) -> bool {
    false
}
