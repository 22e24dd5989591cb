//! Looks at the place of the locks for what endangers them.

#[cfg(doc)]
use crate::Error;
use crate::client::Client;
use crate::ground::error::Result;
use crate::redlock::Redlock;
use crate::store::HealthWarning;

impl Client {
    /// Looks at the server for what endangers locks, and returns a warning for each; [`HealthWarning::code`] lists the looks.
    ///
    /// It changes nothing on the server and wakes no waiter. A look that the user may not take is a warning, too. With the
    /// feature `tracing` it runs once by itself, and logs a danger as a warning and a note for debugging.
    ///
    /// # Errors
    ///
    /// After [`command_timeout`](crate::Builder::command_timeout) at the latest, if the server cannot be asked:
    /// [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`], [`Error::Permission`], [`Error::Untrusted`],
    /// [`Error::Unexpected`] or `Error::Database`; [`Error::Forked`] in a forked child.
    pub fn check(&self) -> Result<Vec<HealthWarning>> {
        self.inner().check()
    }

    /// Looks at the server as [`check`](Client::check) does, and also returns what is well.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Client::check).
    pub fn examine(&self) -> Result<Vec<HealthWarning>> {
        self.inner().examine()
    }
}

impl Redlock {
    /// Looks at all nodes, and at their number, for what endangers locks, and returns a warning for each finding.
    ///
    /// Besides the findings of [`Client::check`] these are nodes that have no vote at present, with the reason, nodes that
    /// another server may take over, and nodes where this user may flush the keys. A node that cannot be asked is a warning.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child.
    pub fn check(&self) -> Result<Vec<HealthWarning>> {
        self.inner().check()
    }

    /// Looks at all nodes as [`check`](Redlock::check) does, and also returns what is well.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Redlock::check).
    pub fn examine(&self) -> Result<Vec<HealthWarning>> {
        self.inner().examine()
    }
}
