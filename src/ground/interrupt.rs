use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::ground::notify::Parker;
use crate::ground::sync::{Clock, Condvar, Mutex};
use crate::ground::time;

/// A one-shot signal with which any thread can end waits.
///
/// Clones share one signal. A raised signal stays raised, so every later wait with the signal ends at once. Raising the
/// signal wakes sleeping threads. A thread that waits for the reply to a request stops waiting when the request ends. A
/// request ends at most one [`command_timeout`](crate::Builder::command_timeout) after it was sent. If the request acquired
/// the lock, the call succeeds in spite of the signal. A thread that waits for a row of a database stops waiting within
/// about a second.
///
/// # Examples
///
/// ```
/// use std::{thread, time::Duration};
/// use redlatch::{Client, Error, Interrupt};
///
/// let client = Client::in_memory();
/// let lock = client.lock("lock:orders:42");
/// lock.lock()?;
///
/// let interrupt = Interrupt::new();
/// let waiter = thread::spawn({
///     let (lock, interrupt) = (lock.clone(), interrupt.clone());
///     move || lock.lock_interruptibly(&interrupt)
/// });
/// interrupt.raise();
/// assert!(matches!(waiter.join().unwrap(), Err(Error::Interrupted { .. })));
/// lock.unlock()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    inner: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Signal {
    raised: Mutex<Raised>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Raised {
    is_raised: bool,
    waiting: Vec<Weak<Parker>>,
}

impl Interrupt {
    /// Makes an interrupt that is not raised.
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Ends every present and future wait that uses this interrupt.
    pub fn raise(&self) {
        let mut raised = self.inner.raised.lock();
        raised.is_raised = true;
        self.inner.changed.notify_all();
        let waiting = raised.waiting.drain(..);
        for parker in waiting.filter_map(|parker| parker.upgrade()) {
            parker.interrupt();
        }
    }

    /// Returns whether the interrupt was raised.
    pub fn is_raised(&self) -> bool {
        self.inner.raised.lock().is_raised
    }

    /// Waits until the interrupt is raised.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{thread, time::Duration};
    /// use redlatch::Interrupt;
    ///
    /// let stop = Interrupt::new();
    /// let worker = thread::spawn({
    ///     let stop = stop.clone();
    ///     move || {
    ///         // One step of work, and a pause that ends at once when it is time to stop.
    ///         while !stop.wait_timeout(Duration::from_secs(60)) {}
    ///     }
    /// });
    /// stop.raise();
    /// stop.wait();
    /// worker.join().unwrap();
    /// ```
    pub fn wait(&self) {
        self.wait_until(None);
    }

    /// Waits until the interrupt is raised, at most for `timeout`. Returns whether the interrupt was raised.
    ///
    /// If `timeout` is too long for an [`Instant`], the call waits without a limit.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.wait_until(time::now().checked_add(timeout))
    }

    fn wait_until(&self, deadline: Option<Instant>) -> bool {
        let mut raised = self.inner.raised.lock();
        while !raised.is_raised && !deadline.is_some_and(|at| Clock::look().has_passed(at)) {
            raised = self.inner.changed.wait(raised, deadline);
        }
        raised.is_raised
    }

    pub(crate) fn attach(&self, parker: &Arc<Parker>) {
        let mut raised = self.inner.raised.lock();
        if raised.is_raised {
            parker.interrupt();
        } else {
            raised.waiting.retain(|waiting| waiting.strong_count() > 0);
            raised.waiting.push(Arc::downgrade(parker));
        }
    }
}

impl std::panic::RefUnwindSafe for Signal {}
