//! The right of a server to vote in a quorum, asked for on the connection that the request takes.

use std::sync::Arc;
use std::time::Instant;

use crate::stores::quorum::quarantine::{NodeHandle, Quarantined};
use crate::stores::redis::Identity;
use crate::stores::redis::transport::{Borrowed, CallError, Connection, NotReady, Pool};

/// Asks a server who it is, and whether it may vote.
pub(super) fn vote_of(
    connection: &mut Connection,
    handle: &NodeHandle,
    deadline: Instant,
) -> Result<Result<Arc<Identity>, Quarantined>, CallError> {
    let identity = connection.identify(deadline)?;
    match handle.admit(&identity) {
        Err(Quarantined::Outdated) => {
            connection.forget_identity();
            let identity = connection.identify(deadline)?;
            Ok(handle.admit(&identity).map(|()| identity))
        }
        vote => Ok(vote.map(|()| identity)),
    }
}

/// A connection on which a request can be sent without waiting for anything first, and which server it leads to where that
/// has to have a vote.
pub(super) type Voting = (Borrowed, Option<Arc<Identity>>);

/// Borrows a connection for a request at once; with a `handle` one to a server that is known to have a vote.
pub(super) fn borrow_voting(pool: &Pool, handle: Option<&NodeHandle>) -> Result<Voting, NotReady> {
    let mut borrowed = pool.borrow_ready()?;
    let Some(handle) = handle else {
        return Ok((borrowed, None));
    };
    let known = borrowed.connection.identity().map(Arc::clone);
    let why = match known.map(|identity| (handle.admit(&identity), identity)) {
        Some((Ok(()), identity)) => return Ok((borrowed, Some(identity))),
        Some((Err(Quarantined::Outdated), _)) => {
            borrowed.connection.forget_identity();
            NotReady::NotConnected
        }
        Some((Err(abstention), _)) => NotReady::Unfit(abstention.to_string()),
        // To ask who it is takes a time of its own.
        None => NotReady::NotConnected,
    };
    pool.give_back(borrowed, &Ok(()));
    Err(why)
}
