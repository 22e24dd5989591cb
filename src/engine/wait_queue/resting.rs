//! The memory of locks for which no thread of this client waits any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::process_turns::{REMEMBERED, Yield};
use super::run::Run;
use crate::ground::claim::LockId;
use crate::ground::sync::Mutex;
use crate::ground::time;

/// The locks without a queue of which there is something to remember.
#[derive(Debug, Default)]
pub(super) struct Resting {
    locks: Mutex<HashMap<LockId, Memory>>,
    /// The number of them: read without a mutex to see that there is nothing to do.
    number: AtomicUsize,
}

#[derive(Debug)]
struct Memory {
    yields: Option<Yield>,
    run: Run,
    since: Instant,
}

impl Memory {
    fn is_forgotten(&self, now: Instant) -> bool {
        let yields = self.yields.as_ref();
        now >= self.since + REMEMBERED && yields.is_none_or(|yields| yields.is_forgotten(now))
    }

    /// Recalls what is of use now.
    fn recalled(mut self, now: Instant) -> (Option<Yield>, Run) {
        if self.is_forgotten(now) {
            // Nobody here has had the lock for a while.
            self.run.ended();
        }
        (self.yields, self.run)
    }
}

impl Resting {
    /// Whether this client yields `lock` to other processes.
    pub(super) fn is_yielded(&self, lock: &LockId) -> bool {
        if self.number.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut locks = self.locks.lock();
        let yields = locks.get_mut(lock).and_then(|it| it.yields.as_mut());
        yields.is_some_and(|yields| yields.ends(time::now()).is_some())
    }

    /// Takes out what is known of a lock.
    pub(super) fn take(&self, lock: &LockId) -> (Option<Yield>, Run) {
        if self.number.load(Ordering::SeqCst) == 0 {
            return Default::default();
        }
        let mut locks = self.locks.lock();
        let known = locks.remove(lock);
        self.number.store(locks.len(), Ordering::SeqCst);
        known.map(|it| it.recalled(time::now())).unwrap_or_default()
    }

    /// Keeps what is to be known of a lock whose last waiter left.
    pub(super) fn keep(&self, lock: &LockId, yields: Option<Yield>, run: Run) {
        if yields.is_none() && !run.goes_on() {
            return;
        }
        let mut locks = self.locks.lock();
        let since = time::now();
        // Amortised: it is swept when it has doubled.
        if locks.len() == locks.capacity() {
            locks.retain(|_, it| !it.is_forgotten(since));
        }
        locks.insert(lock.clone(), Memory { yields, run, since });
        self.number.store(locks.len(), Ordering::SeqCst);
    }

    /// Notes that a lock was set free.
    pub(super) fn freed(&self, lock: &LockId, yields: Option<Yield>) {
        if yields.is_none() && self.number.load(Ordering::SeqCst) == 0 {
            return;
        }
        let (former, mut run) = self.take(lock);
        run.ended();
        self.keep(lock, yields.map(|it| it.after(former.as_ref())), run);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_run_does_not_go_on_much_later() {
        let since = time::now();
        for (age, goes_on) in [(Duration::ZERO, true), (REMEMBERED, false)] {
            let mut run = Run::default();
            assert!(!run.is_enough(Some(REMEMBERED)), "it has begun");
            let yields = None;
            let memory = Memory { yields, run, since };
            assert_eq!(memory.recalled(since + age).1.goes_on(), goes_on);
        }
    }
}
