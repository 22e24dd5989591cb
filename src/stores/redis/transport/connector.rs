//! The way to the server that takes writes: below this seam a topology hides.

use std::time::Instant;

use crate::store::HealthWarning;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::connection::Connection;
use crate::stores::redis::transport::known_master::KnownMaster;

/// Finds the server of one node, which may be another one tomorrow.
pub(crate) trait Connector: Send + Sync {
    /// Connects to the server that takes writes now. The connection carries the generation that it belongs to.
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError>;

    /// Which server that is, as far as known.
    fn master(&self) -> &KnownMaster;

    /// Whether another server may take over, so that a request which was not executed is worth another try.
    fn can_fail_over(&self) -> bool {
        false
    }

    /// Returns the findings of those who watch over the server.
    fn watchers(&self, _deadline: Instant) -> Vec<HealthWarning> {
        Vec::new()
    }

    /// Ends its thread, if it has one. It goes on finding the server.
    fn close(&self) {}
}
