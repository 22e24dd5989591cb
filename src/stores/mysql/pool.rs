//! The connections of one client to one database.
//!
//! A connection that timed out, broke, or may be inside a transaction is closed, never put back. Why not the pool of
//! the `mysql` crate: a waiter there hangs when the connection it waits for comes back broken, and a check-out costs two
//! round trips. Why not `r2d2_mysql`: it leaks open transactions to the next user.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address::Address;
use super::call_error::CallError;
use super::connection::{Connection, has_second_handles};
use crate::ground::error::Result;
use crate::ground::sync::Mutex;
use crate::stores::permits::{Permit, PermitSource, Permits};

/// The server may take this long to answer a statement that waits for a row, and then some.
const LONGEST_ANSWER: Duration = Duration::from_secs(15);

/// The connections for one purpose.
pub(super) struct Lane {
    permits: Permits,
    /// The sound connections not in use, the one used last on top. Who has a slot may use one, or make one.
    idle: Mutex<Vec<Connection>>,
}

impl Lane {
    fn new(size: u32, permit_source: &PermitSource) -> Arc<Lane> {
        Arc::new(Lane {
            permits: permit_source.permits(size),
            idle: Mutex::default(),
        })
    }

    /// Keeps a sound connection for the next one who needs one.
    fn keep(&self, connection: Option<Connection>) {
        let mut idle = self.idle.lock();
        if !self.permits.is_closed() {
            idle.extend(connection);
        }
    }

    fn close(&self) {
        self.permits.close();
        self.idle.lock().clear();
    }

    fn permit(&self, deadline: Instant) -> Result<Permit, CallError> {
        self.permits
            .take(deadline)
            .map_err(|none| CallError::Exhausted(none.of))
    }

    /// A connection that lies idle and is not `unfit`; those that are get closed.
    fn pop(&self, unfit: fn(&Connection) -> bool) -> Option<Connection> {
        loop {
            let connection = self.idle.lock().pop()?;
            if !unfit(&connection) {
                return Some(connection);
            }
        }
    }
}

/// A connection that one transaction has to itself.
pub(super) struct Lent {
    /// `None` once its state is in doubt.
    pub(super) connection: Option<Connection>,
    lane: Arc<Lane>,
    /// `None` only once it is over.
    permit: Option<Permit>,
    pid: u32,
}

impl Lent {
    /// Whether this process is a fork of the one that it was lent to.
    pub(super) fn is_forked(&self) -> bool {
        self.pid != std::process::id()
    }

    /// The right to a connection, for another one than this, which is closed.
    pub(super) fn take_slot(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Gives the connection back, outside of any transaction.
    pub(super) fn give_back(&self, connection: Connection) {
        self.lane.keep(Some(connection));
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A thread that a fork lacks may have been at the slots at that moment, and would never let go of them.
        if self.is_forked() {
            std::mem::forget(self.permit.take());
        }
    }
}

pub(super) struct Pool {
    permit_source: PermitSource,
    /// For single statements.
    statements: Arc<Lane>,
    /// For transactions, which keep theirs for as long as the user likes; counted apart, so that they cannot keep the
    /// locks from being released.
    transactions: Arc<Lane>,
    address: Arc<Address>,
}

impl Pool {
    /// Fails if r2d2's thread cannot be started.
    pub(super) fn new(address: Arc<Address>, size: u32) -> Result<Pool> {
        let permit_source = PermitSource::new()?;
        Ok(Pool {
            statements: Lane::new(size, &permit_source),
            transactions: Lane::new(size, &permit_source),
            permit_source,
            address,
        })
    }

    /// Closes what lies idle, and keeps no connection from now on. Statements go on working, each on one of its own.
    pub(super) fn close(&self) {
        self.statements.close();
        self.transactions.close();
        self.permit_source.close();
    }

    pub(super) fn node(&self) -> &Arc<str> {
        &self.address.node
    }

    /// The server and the database.
    pub(super) fn place(&self) -> String {
        let database = self.address.opts.get_db_name().unwrap_or_default();
        format!("{}/{database}", self.address.node)
    }

    pub(super) fn address(&self) -> &Arc<Address> {
        &self.address
    }

    /// Runs `talk` on a connection. After a fault that leaves its state in doubt the connection is closed.
    ///
    /// `talk` must be something that may be done twice: it is done again, on a new connection, if the one that lay in
    /// the pool turns out to be broken.
    pub(super) fn with<T>(
        &self,
        deadline: Instant,
        mut talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let _slot = self.statements.permit(deadline)?;
        let mut place = self.statements.pop(Connection::is_stale);
        let is_fresh = place.is_none();
        let outcome = match on_link(&mut place, &self.address, deadline, &mut talk) {
            Err(
                CallError::NotSent(_)
                | CallError::NoReply {
                    timed_out: false, ..
                },
            ) if !is_fresh && Instant::now() < deadline => {
                on_link(&mut place, &self.address, deadline, &mut talk)
            }
            outcome => outcome,
        };
        self.statements.keep(place);
        outcome
    }

    /// Runs `talk`, which must not be done twice: it is done again only if nothing of it was sent.
    pub(super) fn once<T>(
        &self,
        deadline: Instant,
        mut talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let _slot = self.statements.permit(deadline)?;
        // It cannot be sent again, so it had better arrive.
        let mut place = self.statements.pop(Connection::has_ended);
        let is_fresh = place.is_none();
        let outcome = match on_link(&mut place, &self.address, deadline, &mut talk) {
            Err(CallError::NotSent(_)) if !is_fresh && Instant::now() < deadline => {
                on_link(&mut place, &self.address, deadline, &mut talk)
            }
            outcome => outcome,
        };
        self.statements.keep(place);
        outcome
    }

    /// The right to a connection for a transaction.
    pub(super) fn transaction_slot(&self, deadline: Instant) -> Result<Permit, CallError> {
        self.transactions.permit(deadline)
    }

    /// A connection for a transaction. Nothing gives it back but the transaction's good end.
    pub(super) fn lend(
        &self,
        permit: Option<Permit>,
        deadline: Instant,
    ) -> Result<Lent, CallError> {
        let mut idle = self.transactions.pop(Connection::has_ended);
        if idle
            .as_mut()
            .is_some_and(|connection| !connection.tune(deadline))
            && has_second_handles()
        {
            idle = None;
        }
        let connection = match idle {
            Some(connection) => connection,
            None => Connection::connect(&self.address, deadline, LONGEST_ANSWER)?,
        };
        Ok(Lent {
            connection: Some(connection),
            lane: Arc::clone(&self.transactions),
            permit,
            pid: std::process::id(),
        })
    }
}

/// The connection given, if its time-outs can be made to suit, or a new one.
fn suited(
    connection: Option<Connection>,
    address: &Address,
    deadline: Instant,
) -> Result<Connection, CallError> {
    if let Some(mut connection) = connection
        && connection.tune(deadline)
    {
        return Ok(connection);
    }
    Connection::connect(address, deadline, Duration::ZERO)
}

/// Runs `talk` on what is in `place`, connecting first if need be, and empties the place after a fault.
pub(super) fn on_link<T>(
    place: &mut Option<Connection>,
    address: &Address,
    deadline: Instant,
    talk: &mut impl FnMut(&mut Connection) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let connection = place.take().filter(|connection| !connection.is_stale());
    let mut connection = suited(connection, address, deadline)?;
    let outcome = talk(&mut connection);
    if outcome.as_ref().err().is_none_or(CallError::leaves_sound) {
        *place = Some(connection);
    }
    outcome
}
