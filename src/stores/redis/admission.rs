//! The right of a server to vote in a quorum, asked for on the connection that the request takes.

use std::sync::Arc;
use std::time::Instant;

use crate::stores::quorum::quarantine::{NodeHandle, Quarantined};
use crate::stores::redis::Identity;
use crate::stores::redis::transport::{CallError, Connection};

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

/// Which server it is, if it may vote.
pub(super) fn vote_on(
    connection: &mut Connection,
    handle: &NodeHandle,
    deadline: Instant,
) -> Result<Arc<Identity>, CallError> {
    vote_of(connection, handle, deadline)?
        .map_err(|abstention| CallError::NoVote(abstention.to_string()))
}

/// Whether the server need not be asked who it is to know whether it may vote.
pub(super) fn is_known(connection: &mut Connection, handle: &NodeHandle) -> bool {
    let admitted = connection.identity().map(|identity| handle.admit(identity));
    match admitted {
        Some(Err(Quarantined::Outdated)) => {
            connection.forget_identity();
            false
        }
        admitted => admitted.is_some(),
    }
}
