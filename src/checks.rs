#[cfg(doc)]
use crate::Error;
use crate::client::Client;
use crate::ground::error::Result;
use crate::redlock::Redlock;
use crate::store::HealthWarning;

impl Client {
    /// Checks the server for settings that endanger locks, and returns a warning for each such setting.
    ///
    /// [`HealthWarning::code`] lists the checks. The checks change nothing on the server. If the client's user lacks the
    /// rights for a check, the result contains a warning about these rights.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`], [`Error::Permission`],
    /// [`Error::Untrusted`], [`Error::Unexpected`] or `Error::Database` if the server cannot be queried within
    /// [`command_timeout`](crate::Builder::command_timeout). [`Error::InvalidConfig`] if the server of [`Client::open`]
    /// is a sentinel or a node of a cluster. [`Error::Forked`] in a forked child.
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
    /// Checks all nodes and their number, and returns a warning for each finding that endangers locks.
    ///
    /// The findings are those of [`Client::check`] and an unsuitable number of nodes. Further findings are nodes that may
    /// fail over to another server, nodes that cannot be queried, and nodes whose grants do not count. The grants of a node
    /// do not count while it may have lost holds, is a replica, is in a cluster, or is the same server as another node.
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
