//! The interface of a quorum to a node: requests are sent now and their replies read later, so that all nodes work at the
//! same time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::ground::error::Result;
use crate::ground::poll::Source;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Request,
    /// A request that needs a server with a vote.
    Vote,
    /// Renewals, which need a server with a vote, too.
    Renewal,
}

pub(crate) enum Pending<'a, T> {
    Ready(Result<T>),
    /// The request was sent. If the request is dropped, the next user of the connection reads the reply.
    Sent(Box<dyn PendingAnswer<T> + 'a>),
    /// Nothing was sent, because no connection is ready: `RedisNode::connect` makes one.
    NotConnected,
    /// Nothing was sent, because all connections are in use. The value is their number.
    Busy(u32),
}

/// A request whose reply was not read yet.
pub(crate) trait PendingAnswer<T> {
    /// The connection to wait for; `None` if there is nothing to wait for.
    fn source(&self) -> Option<Source<'_>>;

    /// Reads the replies to earlier requests on the connection. Returns whether the next reply belongs to this request.
    fn is_next(&mut self) -> bool;

    /// The time of the node's clock in ms after which the node refuses the request; `None` if the request acquires nothing.
    fn not_after(&self) -> Option<i64> {
        None
    }

    /// A flag that is set when, after this request was dropped, the next user of the connection has read the reply.
    fn answered(&self) -> Arc<AtomicBool> {
        Arc::default()
    }

    /// Reads the reply, until `deadline`. Returns it once.
    fn receive(self: Box<Self>, deadline: Instant) -> Option<Result<T>>;
}
