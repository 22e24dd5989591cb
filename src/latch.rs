//! The count-down latch.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::raw_lock::RawLock;
use crate::engine::wait_loop::WaitLimit;
use crate::ground::claim::LARGEST_COUNT;
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::store::CountStep;

/// A gate that opens for all who wait once its count has come down to 0; threads of many processes share it by its name.
///
/// It is Redisson's `RCountDownLatch`, with the meaning of `java.util.concurrent.CountDownLatch`, but for what a server
/// cannot know:
///
/// * **A latch that is missing is open.** A thread that waits before anybody has set it passes, and so do all after the
///   server lost its data. Let the thread that starts the work set the latch before it tells anybody of it.
/// * **The count has no end and no owner.** A worker that dies does not count down, and a latch that nobody finishes stays
///   until [`Latch::delete`]. Bound the wait with [`Latch::wait_for`].
/// * **Its name is for nothing else.** A [`Semaphore`](crate::Semaphore) of the same name is the same number in Redis.
/// * **It has no generations.** If it opens and is set again before a waiter has looked, that one waits for the new count.
///   Give each round of work a name of its own.
///
/// A message wakes the waiters at once. One that is lost costs a second, after which each of them looks again.
///
/// [`Client::latch`](crate::Client::latch) makes a latch without I/O; clones, and latches of the same name, are the same
/// latch. It exists on one Redis server (also behind sentinels or in a cluster) and in memory. A failover may lose a step.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlatch::Client;
///
/// let client = Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
/// let latch = client.latch("latch:import");
/// assert!(latch.try_set(2)?);
/// assert!(!latch.try_set(5)?, "it is set");
///
/// assert_eq!(latch.count_down()?, 1);
/// assert!(!latch.wait_for(Duration::from_millis(10))?);
/// assert_eq!(latch.count_down()?, 0);
/// latch.wait()?; // it is open
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    pub(crate) raw_lock: RawLock,
}

impl Latch {
    /// Returns the name of the latch, key prefix included.
    pub fn name(&self) -> &str {
        &self.raw_lock.key.lock.name
    }

    /// Sets the count, 1 ..= 2147483647, if there is no latch of this name, and returns whether it did.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPermits`] if `count` is out of range, and those of [`Latch::count_down`].
    pub fn try_set(&self, count: u32) -> Result<bool> {
        self.raw_lock.ready()?;
        if !(1..=LARGEST_COUNT).contains(&count) {
            return Err(Error::InvalidPermits {
                name: Arc::clone(&self.raw_lock.key.lock.name),
                permits: count.into(),
            });
        }
        let set = self.raw_lock.count(CountStep::SetIfMissing(count, None))?;
        Ok(set == 1)
    }

    /// Counts down by one, and returns the count that is left. With the last one the latch opens, and is gone.
    ///
    /// A latch that is open stays open, and 0 is returned. The request is carried out at most once: if its answer is lost,
    /// it is sent again under the same number.
    ///
    /// # Errors
    ///
    /// After [`command_timeout`](crate::Builder::command_timeout) at the latest:
    ///
    /// - [`Error::Unknown`]: no answer came, so it was carried out once, or not at all. A second call may count twice;
    /// - [`Error::Unreachable`], [`Error::Exhausted`]: nothing was sent;
    /// - [`Error::Unavailable`]: the server cannot serve now, and nothing was done;
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or TLS does not trust the other side;
    /// - [`Error::WrongType`], [`Error::Unexpected`]: the key is no count, or the server answered something unexpected;
    /// - [`Error::InvalidName`], [`Error::Unsupported`]: the name cannot be used, or latches cannot be kept here;
    /// - [`Error::Forked`]: the client was made before this process was forked.
    pub fn count_down(&self) -> Result<u32> {
        Ok(to_count(self.raw_lock.count(CountStep::CountDown)?))
    }

    /// Asks for the count; 0 if the latch is open.
    ///
    /// # Errors
    ///
    /// Those of [`Latch::count_down`], but [`Error::Unreachable`] in place of [`Error::Unknown`].
    pub fn count(&self) -> Result<u32> {
        Ok(to_count(self.raw_lock.count(CountStep::Get)?))
    }

    /// Waits until the latch is open, as long as it takes.
    ///
    /// # Errors
    ///
    /// After [`outage_timeout`](crate::Builder::outage_timeout) without a usable answer those of [`Latch::count`] that may
    /// pass; the others at once, and [`Error::Closed`] if the client was shut down.
    pub fn wait(&self) -> Result<()> {
        self.raw_lock
            .wait_for_zero(WaitLimit::forever(None))
            .map(drop)
    }

    /// Waits until the latch is open or `interrupt` is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`Latch::wait`].
    pub fn wait_interruptibly(&self, interrupt: &Interrupt) -> Result<()> {
        self.raw_lock
            .wait_for_zero(WaitLimit::forever(Some(interrupt)))
            .map(drop)
    }

    /// Waits until the latch is open, at most for `time`, and returns whether it is.
    ///
    /// The call takes up to 250 ms more if the server is slow. With a `time` of zero it asks once.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`] if the end of the wait cannot be expressed as an instant, and those of [`Latch::wait`], with
    /// the end of the wait in place of the outage timeout.
    pub fn wait_for(&self, time: Duration) -> Result<bool> {
        self.raw_lock
            .wait_for_zero(self.raw_lock.limit(time, None)?)
    }

    /// Takes the latch away, which opens it for all who wait, and returns whether there was one.
    ///
    /// (Redisson's own `delete` lets its waiters sleep on.)
    ///
    /// # Errors
    ///
    /// Those of [`Latch::count_down`].
    pub fn delete(&self) -> Result<bool> {
        Ok(self.raw_lock.count(CountStep::Delete)? == 1)
    }
}

fn to_count(count: i64) -> u32 {
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}
