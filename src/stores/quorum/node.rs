//! What a quorum asks of a node: requests that are sent now and answered later, so that all nodes work at the same time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::ground::error::Result;
use crate::ground::poll::Source;

/// The use that a connection is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Request,
    /// A request to a server that has to say first whether it may vote.
    Vote,
    /// Renewals, which have to be of such a server, too.
    Renewal,
}

/// The answer to a request, or the way to it.
pub(crate) enum Pending<'a, T> {
    /// The answer is there.
    Ready(Result<T>),
    /// The request was sent. Dropping it leaves the answer to the next user of the connection.
    Sent(Box<dyn PendingAnswer<T> + 'a>),
    /// Nothing was sent, because there is no connection for it: `RedisNode::connect` makes one.
    NotConnected,
    /// Nothing was sent, because others use as many connections as may be in use at once, this many.
    Busy(u32),
}

/// A request whose answer is still to be read.
pub(crate) trait PendingAnswer<T> {
    /// The connection, to wait at until something arrives there; `None` if waiting is of no use.
    fn source(&self) -> Option<Source<'_>>;

    /// Reads what has come for earlier requests on its connection. Returns whether what comes next is its own answer.
    fn is_next(&mut self) -> bool;

    /// The time of the node's own clock, in ms, after which the request is refused there; `None` if it takes nothing.
    fn not_after(&self) -> Option<i64> {
        None
    }

    /// Whether the answer was read by whoever uses the connection next, once this has been dropped.
    fn answered(&self) -> Arc<AtomicBool> {
        Arc::default()
    }

    /// Reads the answer, waiting for it until `deadline`. It comes once.
    fn receive(self: Box<Self>, deadline: Instant) -> Option<Result<T>>;
}
