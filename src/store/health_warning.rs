//! A finding about a server.

use std::fmt;
use std::sync::Arc;

/// Something about the server that endangers locks, found by [`Client::check`](crate::Client::check).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthWarning {
    /// The server.
    pub node: Arc<str>,
    /// The finding, and what to do about it.
    pub message: String,
}

impl fmt::Display for HealthWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.message)
    }
}
