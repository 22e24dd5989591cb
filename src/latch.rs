use std::time::Duration;

#[cfg(doc)]
use crate::Error;
use crate::engine::wait_loop::WaitLimit;
use crate::ground::error::Result;
use crate::ground::interrupt::Interrupt;
use crate::lock::Lock;
use crate::store::CountStep;

/// A gate that opens for all waiters when its count reaches 0. Threads of many processes share a latch by its name.
///
/// It is Redisson's `RCountDownLatch`. It differs from `java.util.concurrent.CountDownLatch`:
///
/// * **A missing latch is open.** A wait for a latch that was never set, or that the server has lost, returns at once. Set
///   the latch before other threads wait for it.
/// * **The count has no TTL and no owner.** If a thread dies before it counts down, the latch stays closed until another
///   thread counts down or calls [`Latch::delete`]. Use [`Latch::wait_for`] to bound the wait.
/// * **Use a separate name.** A [`Semaphore`](crate::Semaphore) of the same name uses the same key in Redis.
/// * **Use a new name for each round of work.** If the latch opens and is set again before a waiter notices, the waiter
///   waits until the new count is 0.
///
/// A message wakes the waiters. In case the message is lost, each waiter also queries the latch once a second.
///
/// [`Client::latch`](crate::Client::latch) returns a latch without I/O. A latch needs one Redis server, which may be
/// behind sentinels or in a cluster. A failover may lose a change of the count.
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
/// assert!(!latch.try_set(5)?, "it is already set");
///
/// assert_eq!(latch.count_down()?, 1);
/// assert!(!latch.wait_for(Duration::from_millis(10))?);
/// assert_eq!(latch.count_down()?, 0);
/// latch.wait()?; // it is open
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    pub(crate) lock: Lock,
}

impl Latch {
    /// Returns the name of the latch, key prefix included.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Sets the count if there is no latch of this name. Returns whether the count was set. `count` is 1 ..= 2147483647.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPermits`] if `count` is out of range, and those of [`Latch::count_down`].
    pub fn try_set(&self, count: u32) -> Result<bool> {
        self.lock.raw_lock.ready()?;
        if count == 0 {
            return Err(self.lock.invalid_permits(0));
        }
        self.lock.set_permits(count, None)
    }

    /// Counts down by one, and returns the remaining count. At 0 the latch opens, and its key is deleted.
    ///
    /// An open latch stays open, and the result is 0. If a reply is lost, the client sends the request once more. The
    /// server recognizes the repetition by the id of the request, and executes the request at most once.
    ///
    /// # Errors
    ///
    /// These errors are returned after [`command_timeout`](crate::Builder::command_timeout) at the latest:
    ///
    /// - [`Error::Unknown`]: the client received no reply. The request was executed once or not at all, so another call may
    ///   count down a second time;
    /// - [`Error::Unreachable`], [`Error::Exhausted`]: nothing was sent;
    /// - [`Error::Unavailable`]: the server cannot serve now, and nothing was changed;
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or a TLS certificate is not trusted;
    /// - [`Error::WrongType`], [`Error::Unexpected`]: the key contains no count, or the server sent an unexpected reply;
    /// - [`Error::InvalidName`], [`Error::InvalidConfig`], [`Error::Unsupported`]: the name is invalid, the server is a
    ///   node of a cluster, or the store has no latches;
    /// - [`Error::Forked`]: the client was created before this process was forked.
    pub fn count_down(&self) -> Result<u32> {
        Ok(to_count(self.lock.raw_lock.count(CountStep::CountDown)?))
    }

    /// Queries the count. It is 0 if the latch is open.
    ///
    /// # Errors
    ///
    /// Those of [`Latch::count_down`], with [`Error::Unreachable`] instead of [`Error::Unknown`].
    pub fn count(&self) -> Result<u32> {
        Ok(to_count(self.lock.raw_lock.count(CountStep::Get)?))
    }

    /// Waits without a limit until the latch is open.
    ///
    /// # Errors
    ///
    /// Those of [`Latch::count`], and [`Error::Closed`] if the client was shut down. An error of an outage is returned after
    /// [`outage_timeout`](crate::Builder::outage_timeout). Any other error is returned at once.
    pub fn wait(&self) -> Result<()> {
        let limit = WaitLimit::forever(None);
        self.lock.raw_lock.wait_for_zero(limit).map(drop)
    }

    /// Waits until the latch is open or `interrupt` is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`Latch::wait`].
    pub fn wait_interruptibly(&self, interrupt: &Interrupt) -> Result<()> {
        let limit = WaitLimit::forever(Some(interrupt));
        self.lock.raw_lock.wait_for_zero(limit).map(drop)
    }

    /// Waits until the latch is open, at most for `time`, and returns whether it is open.
    ///
    /// If the server is slow, the call takes up to 250 ms more than `time`. With a `time` of zero the call queries the latch
    /// once. The result is also false if the client had no free connection until the end of `time`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`] if the end of the wait cannot be represented as an `Instant`. Other errors are those of
    /// [`Latch::wait`]. Errors of an outage are returned after `time` instead of the outage timeout.
    pub fn wait_for(&self, time: Duration) -> Result<bool> {
        let limit = self.lock.raw_lock.limit(time, None)?;
        self.lock.raw_lock.wait_for_zero(limit)
    }

    /// Deletes the latch, and returns whether it existed. The deletion opens the latch for all waiters.
    ///
    /// Redisson's `delete` does not wake the waiters of a latch.
    ///
    /// # Errors
    ///
    /// Those of [`Latch::count_down`].
    pub fn delete(&self) -> Result<bool> {
        Ok(self.lock.raw_lock.count(CountStep::Delete)? == 1)
    }
}

fn to_count(count: i64) -> u32 {
    u32::try_from(count.max(0)).unwrap_or(u32::MAX)
}
