//! Checks of servers for settings that endanger locks.

#[cfg(doc)]
use crate::Error;
use crate::client::Client;
use crate::ground::error::Result;
use crate::redlock::Redlock;
use crate::store::HealthWarning;

impl Client {
    /// Checks the server for settings that endanger locks, and returns a warning for each; [`HealthWarning::code`]
    /// lists the checks.
    ///
    /// The checks change nothing on the server. A check that the user has no right to run is a warning, too. With the
    /// feature `tracing` the checks run once by themselves and are logged.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`], [`Error::Permission`],
    /// [`Error::Untrusted`], [`Error::Unexpected`] or `Error::Database` if the server cannot be queried within
    /// [`command_timeout`](crate::Builder::command_timeout); [`Error::Forked`] in a forked child.
    pub fn check(&self) -> Result<Vec<HealthWarning>> {
        self.inner.check()
    }

    /// Checks the server as [`check`](Client::check) does, and also returns the checks that passed.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Client::check).
    pub fn examine(&self) -> Result<Vec<HealthWarning>> {
        self.inner.examine()
    }
}

impl Redlock {
    /// Checks all nodes and their number for settings that endanger locks, and returns a warning for each finding.
    ///
    /// Besides the findings of [`Client::check`], a finding may be a node without a vote, with the reason, a node that
    /// another server may replace, or a node where this user may flush the keys. A node that cannot be queried is a warning.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child.
    pub fn check(&self) -> Result<Vec<HealthWarning>> {
        self.inner.check()
    }

    /// Checks all nodes as [`check`](Redlock::check) does, and also returns the checks that passed.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Redlock::check).
    pub fn examine(&self) -> Result<Vec<HealthWarning>> {
        self.inner.examine()
    }
}
