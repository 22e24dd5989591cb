//! The interface between connections and topologies.

use std::time::Instant;

use crate::store::HealthWarning;
use crate::stores::redis::transport::{CallError, Connection, KnownMaster};

pub(crate) trait Connector: Send + Sync {
    /// Connects to the current master, and sets `Connection::generation`.
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError>;

    fn master(&self) -> &KnownMaster;

    /// Whether another server may become the master. If true, requests that were not executed are retried.
    fn can_fail_over(&self) -> bool {
        false
    }

    /// Checks the sentinels.
    fn watchers(&self, _deadline: Instant) -> Vec<HealthWarning> {
        Vec::new()
    }

    /// Ends the thread that watches the sentinels. `connect` continues to work.
    fn close(&self) {}
}
