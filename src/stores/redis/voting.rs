//! Checks whether the grants of a server count in a quorum. The checked connection then carries the request.

use std::sync::Arc;
use std::time::Instant;

use crate::stores::quorum::quarantine::{NodeHandle, Quarantined};
use crate::stores::redis::Identity;
use crate::stores::redis::transport::{Borrowed, CallError, Connection, NotReady, Pool};

pub(super) fn vote_of(
    connection: &mut Connection,
    handle: &NodeHandle,
    deadline: Instant,
) -> Result<Result<Arc<Identity>, Quarantined>, CallError> {
    let identity = connection.identify(deadline)?;
    match handle.admit(&identity) {
        Err(Quarantined::Outdated) => {
            connection.identity = None;
            let identity = connection.identify(deadline)?;
            Ok(handle.admit(&identity).map(|()| identity))
        }
        vote => Ok(vote.map(|()| identity)),
    }
}

pub(super) type Voting = (Borrowed, Option<Arc<Identity>>);

/// With a `handle`, fails unless the server is already identified and has a vote.
pub(super) fn borrow_voting(pool: &Pool, handle: Option<&NodeHandle>) -> Result<Voting, NotReady> {
    let mut borrowed = pool.borrow_ready()?;
    let Some(handle) = handle else {
        return Ok((borrowed, None));
    };
    let known = borrowed.connection.identity.clone();
    let why = match known.map(|identity| (handle.admit(&identity), identity)) {
        Some((Ok(()), identity)) => return Ok((borrowed, Some(identity))),
        Some((Err(Quarantined::Outdated), _)) => {
            borrowed.connection.identity = None;
            NotReady::NotConnected
        }
        Some((Err(abstention), _)) => NotReady::Unfit(abstention.to_string()),
        // The server is not identified yet. Identification takes a round trip, so the connection is not ready.
        None => NotReady::NotConnected,
    };
    pool.give_back(borrowed, &Ok(()));
    Err(why)
}
