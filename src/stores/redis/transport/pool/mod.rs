//! The connections of one client to one node.
//!
//! A permit holder reuses the idle connection used last, or opens one.

mod connecting;
mod lending;
mod unread;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::claim::VisitorId;
use crate::ground::sync::Mutex;
use crate::ground::time;
use crate::stores::connection_limit::{ConnectionLimit, NoPermit, Permit};
use crate::stores::idle::IdleTimeout;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::connection::Connection;
use crate::stores::redis::transport::connector::Connector;
use crate::stores::redis::transport::room::Room;
use crate::stores::redis::transport::share;
use unread::{Lost, UnreadConnection};

pub(crate) struct Pool {
    limit: ConnectionLimit,
    /// The permits of those who have waited for one, and check out next.
    reserved: Mutex<Vec<Permit>>,
    /// The sound connections not in use, the one used last on top. A permit holder uses one, or opens one.
    idle: Arc<Mutex<Vec<Connection>>>,
    idle_timeout: Arc<IdleTimeout>,
    /// One that was idle for longer is asked whether it lives before it carries a request.
    check_idle_after: Duration,
    /// The connections on which somebody did not wait for the answer.
    unread: Mutex<Vec<UnreadConnection>>,
    /// The requests whose connection was closed before they were answered, as long as they may still arrive.
    lost: Mutex<Vec<Lost>>,
    connector: Arc<dyn Connector>,
    /// Whether EVALSHA was found to be switched off on this node.
    evalsha_is_off: AtomicBool,
    serves_a_quorum: AtomicBool,
    /// Whether unlock messages are sharded here.
    is_sharded: bool,
    /// How often the server was found to have cut a connection.
    resets_seen: AtomicU64,
    /// Those in use, and the requests that find no room for one more.
    room: Arc<Room>,
}

/// A connection for one request, and the right to use it.
pub(crate) struct CheckedOut {
    pub(crate) connection: Connection,
    pub(crate) permit: Permit,
    /// How many answers to earlier requests of the same visitor come first.
    pub(crate) replies_due: u32,
    /// The server refuses the requests that those answer after this time of its clock, in ms, if it ever does.
    pub(crate) due_until: Option<i64>,
    /// An earlier request of the same visitor, on a connection that is closed, may arrive up to this time of the server's
    /// clock, in ms.
    pub(crate) not_after: Option<i64>,
}

impl Pool {
    pub(crate) fn new(
        connector: Arc<dyn Connector>,
        limit: ConnectionLimit,
        (idle_timeout, check_idle_after): (&Arc<IdleTimeout>, Duration),
        is_sharded: bool,
    ) -> Pool {
        let idle: Arc<Mutex<Vec<Connection>>> = Arc::default();
        idle_timeout.add(Arc::downgrade(&idle) as _);
        Pool {
            idle_timeout: Arc::clone(idle_timeout),
            check_idle_after,
            is_sharded,
            resets_seen: AtomicU64::new(0),
            room: Arc::default(),
            limit,
            reserved: Mutex::default(),
            idle,
            unread: Mutex::default(),
            lost: Mutex::default(),
            connector,
            evalsha_is_off: AtomicBool::new(false),
            serves_a_quorum: AtomicBool::new(false),
        }
    }

    /// Whether unlock messages are sharded here.
    pub(crate) fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    pub(crate) fn note_evalsha(&self, is_allowed: bool) {
        self.evalsha_is_off.store(!is_allowed, Ordering::Relaxed);
    }

    pub(crate) fn uses_text(&self) -> bool {
        self.evalsha_is_off.load(Ordering::Relaxed)
    }

    pub(crate) fn connector(&self) -> &dyn Connector {
        &*self.connector
    }

    fn permit(&self, deadline: Instant) -> Result<Permit, CallError> {
        let permit = self.limit.take(deadline);
        permit.map_err(|none| self.exhausted(&none))
    }

    fn exhausted(&self, none: &NoPermit) -> CallError {
        // Those who have the others may wait for room.
        let (_, lack) = self.room.look();
        lack.unwrap_or(CallError::Exhausted(none.of))
    }

    /// Waits for a permit until then, which a check-out of this or of another thread takes.
    pub(crate) fn reserve(&self, until: Instant) -> Result<(), CallError> {
        let permit = self.limit.take_until(until);
        let permit = permit.map_err(|none| self.exhausted(&none))?;
        self.reserved.lock().push(permit);
        Ok(())
    }

    /// Takes out the idle connection used last, if there is one that is still good.
    pub(crate) fn take(&self, deadline: Instant) -> Option<Connection> {
        self.take_rather(|_| true, Some(deadline))
    }

    /// Takes out the idle connection used last of those that `are_right`, else the one used last. Without a deadline it asks
    /// none whether it lives.
    pub(crate) fn take_rather(
        &self,
        are_right: fn(&Connection) -> bool,
        deadline: Option<Instant>,
    ) -> Option<Connection> {
        let generation = self.connector.generation();
        let resets_seen = self.resets_seen.load(Ordering::Relaxed);
        loop {
            let mut connection = {
                let mut idle = self.idle.lock();
                let mut connection = match idle.iter().rposition(are_right) {
                    Some(at) => idle.remove(at),
                    None => idle.pop()?,
                };
                // Each is found in one of the two places at any moment.
                connection.in_use = Some(self.room.enter());
                connection
            };
            // A server that has cut one connection has mostly cut them all.
            let is_stale = connection.has_unread()
                || connection.is_stale()
                || (connection.resets_seen != resets_seen && connection.is_reset());
            let is_of_another = connection.generation != generation;
            if !is_stale && !is_of_another && self.is_alive(&mut connection, deadline) {
                return Some(connection);
            }
        }
    }

    /// Whether a connection is not known to be dead. Something between the client and the server may have forgotten it in
    /// silence, and mostly has then forgotten all that were idle for as long.
    pub(crate) fn is_alive(&self, connection: &mut Connection, deadline: Option<Instant>) -> bool {
        let is_recent =
            |connection: &Connection| time::since(connection.last_used) < self.check_idle_after;
        if is_recent(connection) {
            return true;
        }
        let is_alive = deadline.is_some_and(|deadline| connection.answers(share(deadline, 4)));
        if !is_alive {
            self.idle.lock().retain(is_recent);
        }
        is_alive
    }

    /// Closes the connections that the server has cut. Returns whether there is another one to lend.
    pub(crate) fn has_idle(&self) -> bool {
        let mut idle = self.idle.lock();
        idle.retain(|connection| !connection.is_reset());
        !idle.is_empty()
    }

    /// Whether a request has a connection, or makes one.
    pub(crate) fn is_used(&self) -> bool {
        self.room.is_used()
    }

    /// Keeps a sound connection for the next one who needs one.
    pub(crate) fn keep(&self, mut connection: Connection) {
        if connection.is_spent || connection.has_unread() {
            return;
        }
        connection.resets_seen = self.resets_seen.load(Ordering::Relaxed);
        connection.is_new = false;
        let mut idle = self.idle.lock();
        if self.keeps() {
            lay_down(&mut idle, connection);
            self.idle_timeout.begin();
        }
    }

    /// How many connections lie idle.
    pub(crate) fn idle(&self) -> usize {
        self.idle.lock().len()
    }

    /// How many owe answers that nobody waits for.
    pub(crate) fn late(&self) -> usize {
        self.unread.lock().len()
    }

    /// Whether connections are kept for later.
    pub(crate) fn keeps(&self) -> bool {
        !self.limit.is_closed() || self.serves_a_quorum.load(Ordering::Relaxed)
    }

    /// Notes that a quorum relies on connections that are ready, whatever becomes of the client of this node.
    pub(crate) fn serve_a_quorum(&self) {
        self.serves_a_quorum.store(true, Ordering::Relaxed);
    }

    /// Closes what lies idle, and keeps no connection from now on. Requests go on working, each on one of its own.
    pub(crate) fn close(&self) {
        self.limit.close();
        self.idle_timeout.close();
        // A quorum that is still at work says so again.
        self.serves_a_quorum.store(false, Ordering::Relaxed);
        for unread in self.unread.lock().drain(..) {
            self.note_lost(unread.visitor, unread.not_after, unread.deadline);
        }
        self.idle.lock().clear();
    }

    fn note_reset<T>(&self, outcome: &Result<T, CallError>) {
        if let Err(
            CallError::NotSent(_)
            | CallError::NoReply {
                timed_out: false, ..
            },
        ) = outcome
        {
            self.resets_seen.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a connection for a request of `visitor`: the one that still owes it an answer, so that the server gets its
    /// requests in order, else any, rather one of those that `are_right`. `None` if there is none: it makes no new one.
    ///
    /// It does not wait for a permit: one who has connections to other nodes in hand would keep those from others, who may
    /// have what it waits for.
    pub(crate) fn check_out(
        &self,
        visitor: Option<&VisitorId>,
        are_right: fn(&Connection) -> bool,
    ) -> Result<Option<CheckedOut>, NoPermit> {
        let reserved = self.reserved.lock().pop();
        let permit = reserved.map_or_else(|| self.limit.try_take(), Ok)?;
        self.collect();
        let unread = {
            let mut unread = self.unread.lock();
            let at = unread
                .iter()
                .position(|unread| visitor.is_some() && unread.visitor.as_ref() == visitor);
            at.map(|at| unread.swap_remove(at))
        };
        let not_after = self.lost_until(visitor);
        let (connection, replies_due, due_until) = match unread {
            Some(unread) => (unread.connection, unread.replies_due, unread.not_after),
            None => match self.take_rather(are_right, None) {
                Some(connection) => (connection, 0, None),
                None => return Ok(None),
            },
        };
        Ok(Some(CheckedOut {
            connection,
            permit,
            replies_due,
            due_until,
            not_after,
        }))
    }

    /// Takes a connection back after `reply`, unless that leaves its state in doubt.
    pub(crate) fn give_back(&self, connection: Connection, reply: &Result<Value, CallError>) {
        doubt_after(reply, &connection, self.connector());
        self.note_reset(reply);
        if is_sound(reply) {
            self.keep(connection);
        }
    }

    /// Whether a connection that `is_right` lies idle, or owes this visitor an answer.
    pub(crate) fn is_warm(
        &self,
        visitor: Option<&VisitorId>,
        is_right: fn(&Connection) -> bool,
    ) -> bool {
        self.collect();
        if self.idle.lock().iter().any(is_right) {
            return true;
        }
        let is_due = |unread: &UnreadConnection| {
            unread.visitor.is_some()
                && unread.visitor.as_ref() == visitor
                && is_right(&unread.connection)
        };
        self.unread.lock().iter().any(is_due)
    }
}

/// Puts a connection where the next one finds it.
fn lay_down(idle: &mut Vec<Connection>, mut connection: Connection) {
    let in_use = connection.in_use.take();
    idle.push(connection);
    if let Some(in_use) = in_use {
        in_use.give_back();
    }
}

/// Whether a connection can be used again after this.
fn is_sound<T>(outcome: &Result<T, CallError>) -> bool {
    match outcome {
        Ok(_) | Err(CallError::NoVote(_)) => true,
        // The next connection may find the master.
        Err(fault @ CallError::Server(_)) => !fault.is_of_no_master(),
        Err(
            CallError::NotSent(_)
            | CallError::NoReply { .. }
            | CallError::Untrusted(_)
            | CallError::Exhausted(_),
        ) => false,
    }
}

/// Notes that a server which takes no writes is not the master.
fn doubt_after<T>(
    outcome: &Result<T, CallError>,
    connection: &Connection,
    connector: &dyn Connector,
) {
    if let Err(fault) = outcome
        && fault.is_of_no_master()
    {
        connector.suspect(connection.generation);
    }
}

/// Whether the script has to be sent as text.
pub(crate) fn lacks_script(text: &str) -> bool {
    text.starts_with("NOSCRIPT") || lacks_evalsha(text)
}

/// Whether the server has no EVALSHA, or does not let this user have it; EVAL may be there all the same.
pub(crate) fn lacks_evalsha(text: &str) -> bool {
    lacks(text, "evalsha")
}

/// Whether the server does not let this user send scripts; calling them by their hash may be allowed all the same.
pub(crate) fn lacks_eval(text: &str) -> bool {
    lacks(text, "eval")
}

/// Whether the server has no such command, in lower case, or does not let this user have it.
pub(crate) fn lacks(text: &str, command: &str) -> bool {
    let text = text.to_ascii_lowercase();
    // Before 7.0 a server puts the name of one that it does not know between backticks.
    let is_named = ["'", "`"]
        .iter()
        .any(|sign| text.contains(&[sign, command, sign].concat()));
    is_named && (text.contains("unknown command") || text.starts_with("noperm"))
}

#[cfg(test)]
mod tests;
