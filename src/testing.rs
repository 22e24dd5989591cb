//! Controls for the tests of a program that uses locks. Feature `test-util`, and `in-memory` for those of a server in memory.
//!
//! The code under test gets its [`Client`] from outside: in the program from [`Client::open`], in a test from
//! [`Client::in_memory`], which runs the same scripts and needs no server. [`Client::another`] plays another process, and
//! [`Controls`] let time pass and make things fail. Each in-memory client has a server of its own, so tests that run
//! in parallel do not meet.
//!
//! ```
//! use std::time::Duration;
//! use redlatch::{Client, LossCause, testing::Controls};
//!
//! let client = Client::in_memory();
//! let lock = client.lock("lock:report").with_lease_time(Duration::from_secs(3600));
//! let guard = lock.guard()?;
//! Controls::of(&client).advance(Duration::from_secs(3600)); // takes no time
//! assert!(!guard.is_valid());
//! assert_eq!(guard.lost().try_recv()?.cause, LossCause::LeaseEnded);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The page `docs/testing.md` of the repository has an example for each kind of test.

use std::time::Duration;

use crate::client::Client;
use crate::engine::raw_lock::RawLock;
#[cfg(feature = "in-memory")]
use crate::ground::error::{Error, Result};
use crate::lock::Lock;
#[cfg(feature = "in-memory")]
use crate::stores::redis::in_memory::Faults;

/// Control over a client, and over its server if that is in memory.
///
/// A control counts for all clients of that server. For a client of any other server only
/// [`Controls::kill_watchdog`] does anything.
#[derive(Debug)]
pub struct Controls<'a> {
    client: &'a Client,
}

impl Controls<'_> {
    /// Takes control of a client.
    pub fn of(client: &Client) -> Controls<'_> {
        Controls { client }
    }

    /// Kills the renewal thread of the client by a panic, also of a client of a real server.
    pub fn kill_watchdog(&self) {
        self.client.inner().watchdog.die();
    }
}

/// The time in which a key has ended and is still there.
#[cfg(feature = "in-memory")]
const LAST_MILLISECOND: Duration = Duration::from_millis(1);

#[cfg(feature = "in-memory")]
#[cfg_attr(docsrs, doc(cfg(feature = "in-memory")))]
impl Controls<'_> {
    /// Sets the clocks of the server and of its clients ahead, as if these had been paused for so long and one millisecond
    /// more: a server has a key for the whole millisecond in which it ends.
    ///
    /// When the call returns, every hold whose validity has ended by then is lost and reported so
    /// ([`Guard::lost`](crate::Guard::lost); the thread of the [`Builder::on_lost`](crate::Builder::on_lost) hook calls it
    /// soon after). The renewal threads of all its clients have made the renewals that fell due, so that steps may
    /// follow one another at once. Waiters look again: they get a lock whose lease has ended, or find that their own time
    /// is over. The clock cannot be set back.
    ///
    /// Other servers have clocks of their own. A [`MultiLock`](crate::MultiLock) of locks on this server alone counts on its
    /// clock, too. Timeouts of requests and outages do not count on it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use redlatch::{Client, testing::Controls};
    ///
    /// let client = Client::in_memory();
    /// let lock = client.lock("lock:orders:42").with_lease_time(Duration::from_secs(60));
    /// lock.lock()?;
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

    /// Takes the hold of this name out of the server, as an eviction or a flushed database does, and has all clients of the
    /// server renew their holds at once.
    ///
    /// When the call returns, a holder whose lock is renewed knows of the loss. One with a fixed lease is not renewed, and
    /// learns of it from its `unlock`. [`Controls::expire`] leaves every holder in the dark.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if nobody holds a lock of this name, or the server is not in memory.
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

    /// Takes the hold of this name out of the server before its time, and returns whether there was one.
    ///
    /// The name is the one given to [`Client::lock`], or the whole name of [`Lock::name`](crate::Lock::name), which has the
    /// key prefix.
    ///
    /// No side is notified. The **holder** goes on as before, with a true `is_valid`, until it asks the server: at its next
    /// renewal, or when it unlocks. A hold with a fixed lease is not renewed and learns of the loss from its `unlock`. The
    /// cause is [`LossCause::Gone`](crate::LossCause::Gone), or [`LossCause::HeldBy`](crate::LossCause::HeldBy) if somebody
    /// took the lock meanwhile. **Others** can take the lock from now on; a waiter asks again within about a second. For a
    /// lease that ends in its time, as both sides know, there is [`Controls::advance`].
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::{Client, testing::Controls};
    ///
    /// let client = Client::in_memory();
    /// let guard = client.lock("lock:orders:42").guard()?;
    /// assert!(Controls::of(&client).expire("lock:orders:42"));
    /// assert!(guard.is_valid(), "it does not know yet");
    /// assert!(client.another().unwrap().lock("lock:orders:42").try_lock()?);
    /// assert!(guard.unlock().unwrap_err().is_lost());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn expire(&self, name: &str) -> bool {
        let full = self.client.inner().key_prefix.before(name);
        self.client
            .world()
            .is_some_and(|world| world.expire([&full, name]))
    }

    /// Drops the next `count` requests for renewals: they are refused, and nothing is known of the holds. One request renews
    /// several holds that fall due together.
    pub fn drop_renewals(&self, count: u32) {
        self.fail(|faults| faults.renewals_to_drop = count);
    }

    /// Loses the next `count` unlock messages, so that waiters have to look for themselves.
    pub fn lose_messages(&self, count: u32) {
        self.fail(|faults| faults.messages_to_lose = count);
    }

    /// Executes the next `count` requests, and loses the answers to them.
    ///
    /// Such a request is [`Error::Unknown`] at once; a request that only asks is
    /// [`Error::Unreachable`]. Acquisitions, re-entries, unlocks, forced unlocks and questions
    /// count; a waiting call goes on after a lost answer, and uses one up per attempt. Renewals and releases in the
    /// background do not count.
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
    /// assert!(lock.try_lock().unwrap_err().is_ambiguous());
    /// // The hold that it may have left is released in the background.
    /// assert!(lock.try_lock_for(Duration::from_secs(5))?);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn lose_answers(&self, count: u32) {
        self.fail(|faults| faults.answers_to_lose = count);
    }

    /// Makes the server unreachable for every request, or lets it answer again.
    pub fn set_silent(&self, is_silent: bool) {
        self.fail(|faults| faults.is_silent = is_silent);
    }

    fn fail(&self, change: impl FnOnce(&mut Faults)) {
        if let Some(world) = self.client.world() {
            world.fail(change);
        }
    }
}

/// Returns the number of threads that wait for a lock through its client, or through its [`Redlock`](crate::Redlock).
///
/// With this a test lets something happen while a thread waits, and needs no sleep to be sure that it does. Threads that wait
/// through other clients do not count.
///
/// # Examples
///
/// ```
/// use std::thread;
/// use redlatch::{Client, testing};
///
/// let lock = Client::in_memory().lock("lock:orders:42");
/// lock.lock()?;
/// thread::scope(|scope| {
///     let waiter = scope.spawn(|| lock.lock().and_then(|()| lock.unlock()));
///     while testing::queue_length(&lock) < 1 {
///         thread::yield_now();
///     }
///     lock.unlock()?;
///     waiter.join().unwrap()
/// })?;
/// # Ok::<(), redlatch::Error>(())
/// ```
pub fn queue_length(lock: &Lock) -> usize {
    let RawLock { inner, key, .. } = lock.raw_lock();
    let waits = inner.counters.listed();
    waits.iter().filter(|wait| wait.lock == key.lock).count()
}

/// Sets the clock ahead on which this process counts the validity of holds on servers, as a suspend of the machine does.
///
/// All clients of servers in this process share that clock, so the function is for a process that runs one test. Servers in
/// memory have clocks of their own, see [`Controls::advance`]. As after a suspend, sleeping threads are not woken: a hold
/// is not valid from now on, and its loss is reported when its renewal is due. The clock cannot be set back.
pub fn advance_clock(by: Duration) {
    crate::ground::clock::advance_process(by);
}
