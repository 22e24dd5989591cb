//! The errors. Each text names the cause and, if known, the lock, the server and the remedy.

#[cfg(feature = "mysql")]
pub(crate) mod database;
mod errors_macro;
mod methods;
mod reason;
mod run_error;
mod source;
mod variants;

use std::sync::Arc;

pub use reason::IoSource;
pub(crate) use reason::Reason;
pub use run_error::RunError;
pub use variants::Error;

/// The result of a lock operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reply of one node of a quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeAnswer {
    /// The server.
    pub node: Arc<str>,
    /// `granted`, `refused`, `has no such hold`, or the reason why the node gave no usable reply.
    pub answer: String,
}
