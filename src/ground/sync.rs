//! The wait queue, the notifier and the timer synchronise only with this module. So `tests/shuttle` can replace the
//! module with a scheduler that tries many interleavings.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::ground::time;

pub(crate) use parking_lot::MutexGuard;
pub(crate) use std::thread::JoinHandle;

/// A panic does not poison the mutex. Only user code may panic, and no user code runs while the mutex is locked.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// If `deadline` is `None`, waits without a limit. The wait may end without a notification.
    pub(crate) fn wait<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        match deadline {
            Some(deadline) => {
                self.0.wait_until(&mut guard, deadline);
            }
            None => self.0.wait(&mut guard),
        }
        guard
    }
}

pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

pub(crate) fn sleep(span: Duration) {
    thread::sleep(span);
}

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
