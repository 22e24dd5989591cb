//! The way to the server that takes writes: below this seam a topology hides.

use std::sync::Arc;
use std::time::Instant;

use crate::store::HealthWarning;
use crate::stores::redis::transport::address::Address;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::connection::Connection;

/// Finds the server of one node, which may be another one tomorrow.
pub(crate) trait Connector: Send + Sync {
    /// Connects to the server that takes writes now. The connection carries the generation that it belongs to.
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError>;

    /// The name of the node in messages; has no secret in it.
    fn node(&self) -> Arc<str>;

    /// Rises when the server is found to be another one; connections of an earlier generation are of no use then.
    fn generation(&self) -> u64;

    /// Whether another server may take over, so that a request which was not executed is worth another try.
    fn can_fail_over(&self) -> bool {
        false
    }

    /// Whether somebody watches over the server who can be asked about it.
    fn is_watched(&self) -> bool {
        false
    }

    /// Returns the findings of those who watch over the server.
    fn watchers(&self, _deadline: Instant) -> Vec<HealthWarning> {
        Vec::new()
    }

    /// Notes that the server of this generation was found not to take writes.
    fn suspect(&self, _generation: u64) {}

    /// Calls `hook` whenever the generation has risen.
    fn on_change(&self, _hook: Hook) {}

    /// Calls `hook` whenever another server was found in the place of the one before.
    fn on_takeover(&self, _hook: Hook) {}

    /// Ends its thread, if it has one. It goes on finding the server.
    fn close(&self) {}
}

/// A function that is called when the server is another one; it must not block.
pub(crate) type Hook = Box<dyn Fn() + Send + Sync>;

/// One server at one address.
impl Connector for Address {
    fn connect(&self, deadline: Instant) -> Result<Connection, CallError> {
        Connection::connect(self, deadline)
    }

    fn node(&self) -> Arc<str> {
        Arc::clone(&self.node)
    }

    fn generation(&self) -> u64 {
        0
    }
}
