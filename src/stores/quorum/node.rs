//! One server as a quorum needs it: requests that are sent now and answered later, so that all nodes work at the same
//! time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::error::Result;
use crate::ground::poll::Source;
use crate::store::{Granted, Holding, InDoubt, Outcome, Refusal, Released, Renewal, Store};
use crate::stores::quorum::quarantine::{NodeHandle, Quarantined};

/// One server of a quorum. Where sending takes no time, requests are answered at once.
pub(crate) trait Node: Send + Sync {
    /// The locks that this server has by itself.
    fn store(&self) -> &dyn Store;

    /// Whether another server may take over, with other keys.
    fn can_fail_over(&self) -> bool {
        false
    }

    /// Whether there is a connection for `purpose` on which a request can be sent without waiting for anything first.
    fn is_ready(&self, _purpose: Purpose) -> bool {
        true
    }

    /// Makes a connection for `purpose` ready, asks the server who it is, and notes it as the one behind `handle`.
    fn connect(
        &self,
        handle: &NodeHandle,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Result<(), Quarantined>>;

    /// Sends [`Store::acquire`], if `handle` has a vote. With `restored` it puts as many levels as `claim` counts where
    /// the lock is free.
    fn send_acquire<'a>(
        &'a self,
        claim: &'a Claim,
        restored: bool,
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Outcome<Granted, Refusal>>;

    /// Sends [`Store::renew`], if `handle` has a vote.
    fn send_renew<'a>(
        &'a self,
        claims: &'a [Claim],
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Vec<Renewal>>;

    /// Sends [`Store::release`], so that `keep` levels stay.
    fn send_release<'a>(
        &'a self,
        claim: &'a Claim,
        keep: u32,
        deadline: Instant,
    ) -> Pending<'a, Outcome<Released>>;

    /// Sends [`Store::resolve`].
    fn send_resolve<'a>(&'a self, in_doubt: InDoubt, deadline: Instant) -> Pending<'a, bool>;

    /// Sends [`Store::force_release`].
    fn send_force_release<'a>(&'a self, lock: &'a LockId, deadline: Instant) -> Pending<'a, bool>;

    /// Sends [`Store::inspect`].
    fn send_inspect<'a>(
        &'a self,
        lock: &'a LockId,
        visitor: Option<&'a VisitorId>,
        deadline: Instant,
    ) -> Pending<'a, Holding>;
}

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
    /// Nothing was sent, because there is no connection for it: [`Node::connect`] makes one.
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
