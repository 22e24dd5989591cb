//! The interface of `src/sync.rs` on shuttle's scheduler.
//!
//! Shuttle never lets a timed wait time out, so time is a choice here: at every query the scheduler chooses whether a
//! near deadline has passed, and a far deadline never passes. A waiter with a far deadline that is never woken is a
//! deadlock, which shuttle reports: so a timeout cannot hide a lost wake-up.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use shuttle::rand::Rng;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    guard: Option<shuttle::sync::MutexGuard<'a, T>>,
    mutex: &'a shuttle::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            guard: Some(self.0.lock().unwrap()),
            mutex: &self.0,
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().unwrap()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn wait<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        let inner = guard.guard.take().unwrap();
        guard.guard = Some(if deadline.is_some_and(is_near) {
            drop(inner);
            shuttle::thread::yield_now();
            guard.mutex.lock().unwrap()
        } else {
            self.0.wait(inner).unwrap()
        });
        guard
    }
}

pub(crate) fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// A deadline that may pass at any query.
pub(crate) fn near() -> Instant {
    start() + Duration::from_secs(1)
}

/// A deadline that never passes; the higher `rank`, the later.
pub(crate) fn far(rank: u64) -> Instant {
    start() + Duration::from_secs(3600 + rank)
}

fn is_near(deadline: Instant) -> bool {
    deadline <= near()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock;

impl Clock {
    pub(crate) fn look() -> Clock {
        Clock
    }

    pub(crate) fn has_passed(self, deadline: Instant) -> bool {
        is_near(deadline) && shuttle::rand::thread_rng().gen_bool(0.5)
    }
}

thread_local! {
    /// Shuttle runs all threads of a schedule on the thread of the test.
    static PLANTED: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

pub(crate) fn plant(bug: &'static str) {
    PLANTED.set(bug);
}

pub(crate) fn mutant(bug: &str) -> bool {
    PLANTED.get() == bug
}
