//! The interface of a quorum to a node. A request is sent at once and its reply is read later, so that all nodes work at the
//! same time.

use std::time::Instant;

use crate::ground::error::Result;
use crate::ground::poll::Source;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Request,
    /// The grant counts toward the majority. `Vote` and `Renewal` need a node with a vote; see `quarantine.rs`.
    Vote,
    Renewal,
}

pub(crate) enum Pending<'a, T> {
    Ready(Result<T>),
    /// If the caller drops the pending answer, the next user of the connection reads the reply. For a renewal, the drop
    /// closes the connection instead.
    Sent(Box<dyn PendingAnswer<T> + 'a>),
    /// Nothing was sent. `RedisNode::connect` makes a connection.
    NotConnected,
    /// Nothing was sent. All connections are in use; this is their number.
    Busy(u32),
}

pub(crate) trait PendingAnswer<T> {
    /// The connection on which the reply arrives. `None` if the reply can be read without waiting.
    fn source(&self) -> Option<Source<'_>>;

    /// Reads the replies to earlier requests on the connection. Returns whether the next reply belongs to this request.
    fn is_next(&mut self) -> bool;

    /// The time of the node's clock in ms after which the node refuses the request. `None` without an expiry, and in renewals.
    fn not_after(&self) -> Option<i64> {
        None
    }

    fn receive(self: Box<Self>, deadline: Instant) -> Result<T>;
}
