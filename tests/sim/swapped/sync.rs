//! The interface of `src/ground/sync.rs` on the scheduler of the world.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::TryLockError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redlatch_world::scheduler;

use crate::ground::time;

pub(crate) use redlatch_world::scheduler::JoinHandle;

/// One wait in this many ends spuriously.
const SPURIOUS: u32 = 300;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    /// The number of waiters, which wait at its address.
    waiting: AtomicUsize,
    value: std::sync::Mutex<T>,
}

#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    /// Empty only while it is dropped.
    guard: Option<std::sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex {
            waiting: AtomicUsize::new(0),
            value: std::sync::Mutex::new(value),
        }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(&self.waiting).addr()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        scheduler::step();
        self.lock_in_turn()
    }

    fn lock_in_turn(&self) -> MutexGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            if scheduler::is_world() {
                // The checker cannot inspect a busy thread.
                std::panic::resume_unwind(Box::new("a mutex is locked"));
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
            scheduler::block(self.key(), None);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Locks it if it is unlocked.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = match self.value.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard {
            guard: Some(guard),
            mutex: self,
        })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[allow(clippy::expect_used, reason = "it is there until the end")]
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("a mutex that is locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[allow(clippy::expect_used, reason = "it is there until the end")]
    fn deref_mut(&mut self) -> &mut T {
        if is_seen::<T>() {
            scheduler::note_news();
        }
        self.guard.as_mut().expect("a mutex that is locked")
    }
}

/// Whether the checker inspects values of this type.
fn is_seen<T>() -> bool {
    let name = std::any::type_name::<T>();
    ["hold::state::State", "owner::holds::ByName"]
        .iter()
        .any(|seen| name.ends_with(seen))
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.guard = None;
        if self.mutex.waiting.load(Ordering::Relaxed) > 0 {
            scheduler::wake_all(self.mutex.key());
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar {
    /// The number of waiters, which wait at its address.
    waiting: AtomicUsize,
}

impl Condvar {
    fn key(&self) -> usize {
        std::ptr::from_ref(&self.waiting).addr()
    }

    pub(crate) fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            scheduler::wake_one(self.key());
        }
    }

    pub(crate) fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            scheduler::wake_all(self.key());
        }
    }

    pub(crate) fn wait<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        let mutex = guard.mutex;
        let until = deadline.map(time::moment);
        drop(guard);
        if scheduler::draw(|draw| draw.u32(..SPURIOUS)) > 0 {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            scheduler::block(self.key(), until);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        mutex.lock_in_turn()
    }
}

pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    scheduler::spawn(name, None, run)
}

pub(crate) fn sleep(span: Duration) {
    scheduler::sleep_until(time::moment(time::now() + span));
}

/// A reading of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn look() -> Clock {
        Clock(time::now())
    }

    pub(crate) fn has_passed(self, deadline: Instant) -> bool {
        self.0 >= deadline
    }
}

/// Whether the bug of this name is planted in this run.
pub(crate) fn mutant(bug: &str) -> bool {
    redlatch_world::is_planted(bug)
}
