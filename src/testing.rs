//! Controls for tests, and how to test a program that uses locks. Feature `test-util`.
//!
//! # Testing a program that uses locks
//!
//! Let the code under test get its [`Client`], or its [`Lock`](crate::Lock), from outside. In the program that is
//! [`Client::open`]; in a test it is [`Client::in_memory`], which obeys the same laws and needs no server. In
//! `Cargo.toml`:
//!
//! ```toml
//! [dev-dependencies]
//! redlatch = { version = "0.1", features = ["test-util"] }
//! ```
//!
//! Each in-memory client is a world of its own, so tests that run in parallel do not meet. All that is set here counts
//! for that world alone, its clock included.
//!
//! ## The lock is taken
//!
//! [`Client::another`] makes a second client of the same world, as if it were another process:
//!
//! ```
//! use redlatch::{Client, Lock};
//!
//! /// The code under test.
//! fn send_the_report(lock: &Lock) -> redlatch::Result<&'static str> {
//!     let Some(_guard) = lock.try_guard()? else {
//!         return Ok("somebody else sends it");
//!     };
//!     Ok("sent")
//! }
//!
//! let client = Client::in_memory();
//! let elsewhere = client.another().unwrap();
//! elsewhere.lock("lock:report").lock()?;
//! assert_eq!(send_the_report(&client.lock("lock:report"))?, "somebody else sends it");
//! elsewhere.lock("lock:report").unlock()?;
//! assert_eq!(send_the_report(&client.lock("lock:report"))?, "sent");
//! # Ok::<(), redlatch::Error>(())
//! ```
//!
//! ## Time passes
//!
//! [`Controls::advance`] sets the clock of the world ahead: leases end, waits are over, and whoever waited for the end of
//! a lease gets the lock. A test of an hour takes no time:
//!
//! ```
//! use std::time::Duration;
//! use redlatch::{Client, LossCause, testing::Controls};
//!
//! let client = Client::in_memory();
//! let lock = client.lock("lock:report").with_lease_time(Duration::from_secs(3600));
//! let guard = lock.guard()?;
//! Controls::of(&client).advance(Duration::from_secs(3600));
//! assert!(!guard.is_valid());
//! assert_eq!(guard.lost().try_recv()?.cause, LossCause::LeaseEnded);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A lock that is renewed survives steps that are shorter than what is left of its lease, because its renewal falls due
//! and is made; after a longer one it is lost, as after a suspend of the machine or a pause of the process.
//!
//! ## The lock is lost while the work goes on
//!
//! Either by such a step, or because the store has lost it, with [`Controls::expire`]. The code under test is right if it
//! notices before it does what cannot be undone:
//!
//! ```
//! use redlatch::{Client, Guard, testing::Controls};
//!
//! /// The code under test.
//! fn write_if_still_alone(guard: &Guard) -> Result<(), &'static str> {
//!     if !guard.is_valid() {
//!         return Err("the lock was lost");
//!     }
//!     // … write, in small steps, or with guard.fencing_token() …
//!     Ok(())
//! }
//!
//! let client = Client::in_memory();
//! let controls = Controls::of(&client);
//! let guard = client.lock("lock:orders:42").guard()?;
//! assert!(write_if_still_alone(&guard).is_ok());
//! controls.expire("lock:orders:42");
//! controls.advance(std::time::Duration::from_secs(10)); // its next renewal finds out
//! guard.lost().recv()?;
//! assert!(write_if_still_alone(&guard).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## The server is silent
//!
//! [`Controls::set_silent`] refuses every request before it is sent, which is [`Error::Unreachable`]: nothing was done,
//! and to try again later is right. [`Controls::lose_answers`] lets requests be done and loses their answers, which is
//! [`Error::Unknown`]; what was done under the lock by then was done:
//!
//! ```
//! use redlatch::{Client, RunError, testing::Controls};
//!
//! let client = Client::in_memory();
//! let lock = client.lock("lock:orders:42");
//! let mut charged = 0;
//! let outcome = lock.run(|_| {
//!     charged += 1;
//!     Controls::of(&client).lose_answers(1); // that to the unlock
//! });
//! assert!(matches!(outcome, Err(RunError::Ran { error, .. }) if error.is_ambiguous()));
//! assert_eq!(charged, 1);
//! ```
//!
//! ## What is better tested with a server
//!
//! Scripts, rights, failovers and time-outs are those of real servers. A test of a few seconds with a private
//! `redis-server` and a client with a short [`Builder::watchdog_timeout`](crate::Builder::watchdog_timeout) says more
//! about them than any model.
//!
//! [`Error::Unreachable`]: crate::Error::Unreachable
//! [`Error::Unknown`]: crate::Error::Unknown

use std::fmt;
use std::time::Duration;

use crate::client::Client;

/// Control over the in-memory world of a client.
///
/// What is set here counts for all clients of the world. For a client that is not in memory nothing is changed, except
/// by [`Controls::kill_watchdog`].
pub struct Controls<'a> {
    client: &'a Client,
}

impl Controls<'_> {
    /// Takes control of a client.
    pub fn of(client: &Client) -> Controls<'_> {
        Controls { client }
    }

    /// Sets the clock of the world ahead, as if all of its clients had been paused for so long.
    ///
    /// When it returns, every hold whose validity has ended by then is lost, and that is told
    /// ([`Guard::lost`](crate::Guard::lost); the hook of [`Builder::on_lost`](crate::Builder::on_lost) is called
    /// by its thread soon after). Renewals that fell due have been made by the renewal threads of all clients of the
    /// world, so that steps may follow one another at once. Whoever waits looks again: it gets a lock whose lease has ended, or finds that its own time is over. It cannot be set back.
    ///
    /// Other worlds, and clients of servers, have clocks of their own. A [`MultiLock`](crate::MultiLock) of locks of
    /// this world alone counts on its clock, too. The time-outs of requests and outages are not counted on it.
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
            world.advance(by);
        }
    }

    /// Takes the hold of this name out of the store before its time, as an eviction or a flushed database does. Returns
    /// whether there was one.
    ///
    /// The name is that given to [`Client::lock`], the key prefix of this client is put before it; the whole name of
    /// [`Lock::name`](crate::Lock::name) does, too.
    ///
    /// Nobody is told. The **holder** goes on as before, and `is_valid` is true, until it asks the store: that is
    /// at its next renewal, or when it unlocks; a hold with a fixed lease is not renewed, so it learns it from its
    /// `unlock` alone. The loss has the cause [`LossCause::Gone`](crate::LossCause::Gone), or
    /// [`LossCause::HeldBy`](crate::LossCause::HeldBy) if somebody took the lock meanwhile. **Others** can take the lock
    /// from now on; one that waits already asks again within about a second. For a lease that ends in its time, which
    /// both sides know, there is [`Controls::advance`].
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
        let full = format!("{}{name}", self.client.core().key_prefix);
        self.client
            .world()
            .is_some_and(|world| world.expire([&full, name]))
    }

    /// Lets the next `count` renewals get no answer; they are not made.
    pub fn drop_renewals(&self, count: u32) {
        if let Some(world) = self.client.world() {
            world.drop_renewals(count);
        }
    }

    /// Loses the next `count` unlock messages, so that waiters have to find out by themselves.
    pub fn lose_messages(&self, count: u32) {
        if let Some(world) = self.client.world() {
            world.lose_messages(count);
        }
    }

    /// Executes the next `count` requests, and loses the answers to them.
    ///
    /// Such a request is [`Error::Unknown`](crate::Error::Unknown), at once; a mere question is
    /// [`Error::Unreachable`](crate::Error::Unreachable). An acquisition counts, a re-entry, an unlock, a forced one and a
    /// question; a waiting call goes on in spite of it, and uses one up for each of its attempts. Renewals and what is
    /// cleared up in the background do not count.
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
    /// // What it has left is freed in the background.
    /// assert!(lock.try_lock_for(Duration::from_secs(5))?);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn lose_answers(&self, count: u32) {
        if let Some(world) = self.client.world() {
            world.lose_answers(count);
        }
    }

    /// Makes the store refuse every request as if it could not be reached, or lets it answer again.
    pub fn set_silent(&self, is_silent: bool) {
        if let Some(world) = self.client.world() {
            world.set_silent(is_silent);
        }
    }

    /// Kills the renewal thread of the client by a panic, whatever its store is.
    pub fn kill_watchdog(&self) {
        self.client.core().watchdog.die();
    }
}

impl fmt::Debug for Controls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controls")
            .field("client", &self.client)
            .finish()
    }
}

/// Sets the clock ahead on which this process counts the validity of holds on servers, as a suspend of the machine does.
///
/// It is that of all clients of servers in this process, so it is for a process that runs one test. Worlds in memory have
/// clocks of their own, see [`Controls::advance`]. As after a suspend, what sleeps is not woken: a hold is not valid from
/// now on, and its loss is told when its renewal is due. It cannot be set back.
pub fn advance_clock(by: Duration) {
    crate::clock::advance_process(by);
}
