//! Controls for the tests of a program that uses locks. This module needs the feature `test-util`. The feature `in-memory`
//! adds the controls of an in-memory server.
//!
//! The tested code gets its [`Client`] as a parameter. The program passes a client of [`Client::open`]. A test passes a
//! client of [`Client::in_memory`]: its server is in the process, and runs the same scripts. [`Client::another`]
//! creates a second client of this server, as if in another process. [`Controls`] let time pass and inject faults. Each
//! call of [`Client::in_memory`] creates a separate server, so tests can run in parallel.
//!
//! ```
//! use std::time::Duration;
//! use redlatch::{Client, LossCause, testing::Controls};
//!
//! let client = Client::in_memory();
//! let lock = client.lock("lock:report").with_lease_time(Duration::from_secs(3600));
//! let guard = lock.guard()?;
//! Controls::of(&client).advance(Duration::from_secs(3600)); // returns at once
//! assert!(!guard.is_valid());
//! assert_eq!(guard.lost().try_recv()?.cause, LossCause::LeaseEnded);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The page `docs/testing.md` of the repository names the control for each kind of test.

use std::time::Duration;

use crate::client::Client;
use crate::engine::raw_lock::RawLock;
#[cfg(feature = "in-memory")]
use crate::ground::error::{Error, Result};
use crate::lock::Lock;
#[cfg(feature = "in-memory")]
use crate::stores::redis::in_memory::Faults;

/// Control over a client and its in-memory server.
///
/// [`Controls::kill_watchdog`] affects only this client, which may be a client of any server. The other methods affect
/// all clients of the in-memory server, and have no effect for a client of another server.
#[derive(Debug)]
pub struct Controls<'a> {
    client: &'a Client,
}

impl Controls<'_> {
    /// Returns the controls of a client.
    pub fn of(client: &Client) -> Controls<'_> {
        Controls { client }
    }

    /// Makes a watchdog thread of the client panic, as a bug would, so that all holds of the client are lost.
    pub fn kill_watchdog(&self) {
        self.client.inner.watchdog.die();
    }
}

/// Redis keeps a key until the end of the millisecond in which the key expires.
#[cfg(feature = "in-memory")]
const LAST_MILLISECOND: Duration = Duration::from_millis(1);

#[cfg(feature = "in-memory")]
#[cfg_attr(docsrs, doc(cfg(feature = "in-memory")))]
impl Controls<'_> {
    /// Sets the clocks of the server and its clients ahead by `by`, rounded down to milliseconds, plus one millisecond.
    ///
    /// Before the call returns, every hold whose validity has ended is lost, and [`Guard::lost`](crate::Guard::lost)
    /// reports the loss. The clients renew all other holds. The [`Builder::on_lost`](crate::Builder::on_lost) hook is
    /// called soon after. Waiters attempt to acquire their locks again. The clock cannot be set back. Request timeouts,
    /// [`outage_timeout`](crate::Builder::outage_timeout) and other servers are not affected. Holds of a
    /// [`Redlock`](crate::Redlock) use the clock of the process, so they stay valid although their keys on this server
    /// expire. For a Redlock, call [`advance_clock`] as well.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use redlatch::{Client, testing::Controls};
    ///
    /// let client = Client::in_memory();
    /// let lock = client.lock("lock:orders:42").with_lease_time(Duration::from_secs(60));
    /// let _guard = lock.guard()?;
    /// Controls::of(&client).advance(Duration::from_secs(59));
    /// assert!(lock.remaining_lease()?.unwrap() <= Duration::from_secs(1));
    /// Controls::of(&client).advance(Duration::from_secs(1));
    /// assert!(!lock.is_locked()?);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn advance(&self, by: Duration) {
        if let Some(world) = self.client.world() {
            world.timeline.advance(by.saturating_add(LAST_MILLISECOND));
        }
    }

    /// Removes the lock of this name from the server, as an eviction does, and makes all clients renew their holds at once.
    ///
    /// When the call returns, the loss has been reported, even if the hold has a fixed lease. On a real server, the
    /// holder of a fixed lease notices the loss at its unlock, or when the lease ends. A [`Redlock`](crate::Redlock)
    /// notices the loss at its next renewal. [`Controls::expire`] removes a lock without notifying its holder.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if no lock of this name is held, or the server is not in memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::{Client, LossCause, testing::Controls};
    ///
    /// let client = Client::in_memory();
    /// let guard = client.lock("lock:orders:42").guard()?;
    /// Controls::of(&client).lose("lock:orders:42")?;
    /// assert!(!guard.is_valid());
    /// assert_eq!(guard.lost().try_recv()?.cause, LossCause::Gone);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lose(&self, name: &str) -> Result<()> {
        match self.client.world().filter(|_| self.expire(name)) {
            Some(world) => {
                world.renew_all();
                Ok(())
            }
            None => Err(Error::config(
                "the name of a hold",
                format!("{name:?} is not held on an in-memory server"),
            )),
        }
    }

    /// Removes the lock of this name from the server, and returns whether the lock was held.
    ///
    /// `name` is the name passed to [`Client::lock`], or the full name from [`Lock::name`](crate::Lock::name). No
    /// client is notified. The holder's `is_valid` stays true until its next request, such as a renewal. A waiter notices the
    /// free lock within about a second. The cause of the loss is [`LossCause::Gone`](crate::LossCause::Gone), or
    /// [`LossCause::HeldBy`](crate::LossCause::HeldBy) if another holder has acquired the lock meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::{Client, testing::Controls};
    ///
    /// let client = Client::in_memory();
    /// let guard = client.lock("lock:orders:42").guard()?;
    /// assert!(Controls::of(&client).expire("lock:orders:42"));
    /// assert!(guard.is_valid(), "the loss is not known yet");
    /// let other = client.another().unwrap().lock("lock:orders:42");
    /// assert!(other.try_guard()?.is_some());
    /// assert!(guard.unlock().unwrap_err().is_lost());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn expire(&self, name: &str) -> bool {
        let full = self.client.inner.key_prefix.before(name);
        let world = self.client.world();
        world.is_some_and(|world| world.expire([&full, name]))
    }

    /// Makes the server refuse the next `count` renewal requests. One request can renew up to 100 holds.
    pub fn drop_renewals(&self, count: u32) {
        self.fail(|faults| faults.renewals_to_drop = count);
    }

    /// Drops the next `count` messages of the server, such as unlock messages, so that waiters have to poll.
    pub fn lose_messages(&self, count: u32) {
        self.fail(|faults| faults.messages_to_lose = count);
    }

    /// Makes the server execute the next `count` requests without sending replies.
    ///
    /// The caller of such a request gets [`Error::Unknown`] at once, or [`Error::Unreachable`] for a query. A call that
    /// waits for a lock continues to wait instead. All requests of locks, semaphores, latches and conditions count,
    /// except renewals, background releases and [`Lock::describe`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use redlatch::{Client, testing::Controls};
    ///
    /// let client = Client::in_memory();
    /// let lock = client.lock("lock:orders:42");
    /// Controls::of(&client).lose_answers(1);
    /// assert!(lock.try_guard().unwrap_err().is_ambiguous());
    /// // A background thread releases the hold that the request may have left.
    /// assert!(lock.try_guard_for(Duration::from_secs(5))?.is_some());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn lose_answers(&self, count: u32) {
        self.fail(|faults| faults.answers_to_lose = count);
    }

    /// Makes the server unreachable for every request if `is_silent` is true, otherwise reachable again.
    pub fn set_silent(&self, is_silent: bool) {
        self.fail(|faults| faults.is_silent = is_silent);
    }

    fn fail(&self, change: impl FnOnce(&mut Faults)) {
        if let Some(world) = self.client.world() {
            world.fail(change);
        }
    }
}

/// Returns the number of threads that wait for `lock` through the lock's client or [`Redlock`](crate::Redlock).
///
/// Instead of sleeping, a test can poll this number until a thread waits. Threads that wait through other clients do not
/// count.
///
/// # Examples
///
/// ```
/// use std::thread;
/// use redlatch::{Client, testing};
///
/// let lock = Client::in_memory().lock("lock:orders:42");
/// let guard = lock.guard()?;
/// thread::scope(|scope| {
///     let waiter = scope.spawn(|| lock.guard()?.unlock());
///     while testing::queue_length(&lock) < 1 {
///         thread::yield_now();
///     }
///     guard.unlock()?;
///     waiter.join().unwrap()
/// })?;
/// # Ok::<(), redlatch::Error>(())
/// ```
pub fn queue_length(lock: &Lock) -> usize {
    let RawLock { inner, key, .. } = lock.raw_lock();
    let waits = inner.counters.listed();
    waits.iter().filter(|wait| wait.lock == key.lock).count()
}

/// Sets ahead the clock of this process, as a suspend of the machine does. This clock measures the validity of holds on
/// real servers and of a [`Redlock`](crate::Redlock).
///
/// All clients of real servers in this process share this clock, so call this function only in a process that runs one
/// test. In-memory servers have separate clocks; see [`Controls::advance`]. Sleeping threads are not woken. An expired
/// hold is invalid at once, but its loss is reported at its next renewal or unlock. The clock cannot be set back.
pub fn advance_clock(by: Duration) {
    crate::ground::clock::advance_process(by);
}
