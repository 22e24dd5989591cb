//! Controls for tests: make an in-memory lock expire, drop renewals, lose messages, let time pass. Feature `test-util`.
//!
//! ```
//! use redlatch::{Client, testing::Controls};
//!
//! let client = Client::in_memory();
//! let lock = client.lock("lock:orders:42");
//! lock.lock()?;
//! Controls::of(&client).expire("lock:orders:42");
//! assert!(lock.unlock().unwrap_err().is_lost());
//! # Ok::<(), redlatch::Error>(())
//! ```

use std::fmt;
use std::time::Duration;

use crate::client::Client;

/// Control over the in-memory world of a client.
pub struct Controls<'a> {
    client: &'a Client,
}

impl Controls<'_> {
    /// Takes control of a client.
    pub fn of(client: &Client) -> Controls<'_> {
        Controls { client }
    }

    /// Lets the hold of this name expire now, as if its lease had run out. Returns whether there was one.
    ///
    /// Always false for a client that is not in memory.
    pub fn expire(&self, name: &str) -> bool {
        self.client.world().is_some_and(|world| world.expire(name))
    }

    /// Lets the next `count` renewals get no answer.
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

/// Sets the clock on which the validity of holds is counted ahead, in this process, as a suspend of the machine does.
///
/// It cannot be set back.
pub fn advance_clock(by: Duration) {
    crate::clock::shift::advance(by);
}
