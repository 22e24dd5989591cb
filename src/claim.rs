//! Who asks for what: the visitor and its claim. Plain data that stores, watchdog and log lines share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The identity under which one hold stands in the store: `client uuid:thread number:hold number`.
///
/// A visitor id belongs to one hold, never to a second one, so that a request which arrives late can only ever touch
/// the hold it was sent for. Redisson uses the same field for `uuid:thread id` and compares it as text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VisitorId {
    field: Arc<str>,
}

impl VisitorId {
    pub(crate) fn new(client: &str, thread: u64, hold: u64) -> VisitorId {
        // Without the machinery of `format!`: it stands in the way of every acquisition.
        let (mut first, mut second) = (itoa::Buffer::new(), itoa::Buffer::new());
        let parts = [client, ":", first.format(thread), ":", second.format(hold)];
        VisitorId {
            field: parts.concat().into(),
        }
    }

    /// Returns the id as it stands in the store.
    pub fn as_str(&self) -> &str {
        &self.field
    }
}

impl fmt::Display for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)
    }
}

impl fmt::Debug for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VisitorId({})", self.field)
    }
}

/// What one visitor wants of the store, or has there.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The name of the lock, prefix included.
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// The hold count as this process knows it; 0 before a hold begins.
    pub(crate) count: u32,
    /// How long the hold is to last, counted from the send: the latest end that any live lease of it counts on.
    pub(crate) lease: Duration,
}
