//! The way to the server that takes writes: below this seam a topology hides.

use std::sync::Arc;
use std::time::Instant;

use super::wire::{Address, Fault, Wire};

/// Finds the server of one node, which may be another one tomorrow.
pub(super) trait Route: Send + Sync {
    /// Connects to the server that takes writes now. The connection carries the generation that it belongs to.
    fn connect(&self, until: Instant) -> Result<Wire, Fault>;

    /// The name of the node in messages; has no secret in it.
    fn node(&self) -> Arc<str>;

    /// Rises when the server is found to be another one; connections of an earlier generation are of no use then.
    fn generation(&self) -> u64;
}

/// One server at one address.
impl Route for Address {
    fn connect(&self, until: Instant) -> Result<Wire, Fault> {
        Wire::connect(self, until)
    }

    fn node(&self) -> Arc<str> {
        Arc::clone(&self.node)
    }

    fn generation(&self) -> u64 {
        0
    }
}
