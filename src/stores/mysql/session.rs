//! One transaction on a connection of its own, which ends well or is never used again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::{Params, Row, Value};

use super::MySql;
use super::call_error::{CallError, Class, unknown};
use super::connection::Connection;
use super::pool::Lent;
use crate::ground::error::{Error, Reason, Result};
use crate::stores::permits::Permit;

/// A transaction that was begun. It is rolled back when it is dropped.
pub(crate) struct Session {
    lent: Lent,
    /// Why the transaction is over although nobody has ended it; then no statement may run outside of it unnoticed.
    over: Option<Error>,
    isolation: Option<&'static str>,
    /// How long statements wait for rows at present, in whole seconds.
    row_wait: u64,
    /// Whether something may be left in the session when the transaction is over; then nobody else gets it.
    is_tainted: bool,
    subject: Arc<str>,
    node: Arc<str>,
    pub(crate) statement_timeout: Duration,
}

/// No transaction is open for so long; where a time-out would be beyond all time, this is none.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Stands at the beginning of a transaction, and is gone as soon as that was rolled back or ended otherwise.
const MARK: &str = "redlatch_begun";

impl Session {
    /// Begins a transaction, in the server's isolation level if none is given.
    ///
    /// If it lies idle for `idle_limit` the server ends it, so that a holder that hangs does not block others for ever.
    pub(super) fn begin(
        store: &MySql,
        subject: &Arc<str>,
        isolation: Option<&'static str>,
        idle_limit: Option<Duration>,
        permit: Permit,
    ) -> Result<Session> {
        let deadline = store.deadline();
        let idle = idle_limit.map_or("DEFAULT".to_owned(), |limit| {
            whole_seconds(limit).to_string()
        });
        let wait = row_wait(store.command_timeout);
        // Without autocommit: a statement behind a transaction that the server has rolled back must not commit alone.
        let settings = format!(
            "SET SESSION autocommit = 0, innodb_lock_wait_timeout = {wait}, \
             lock_wait_timeout = {wait}, wait_timeout = {idle}, time_zone = DEFAULT"
        );
        let begun = |permit: &mut Option<Permit>| -> Result<Lent, CallError> {
            let mut lent = store.pool.lend(permit.take(), deadline)?;
            let begun = lent.connection.as_mut().map_or(Ok(()), |connection| {
                connection.say(&settings, deadline)?;
                start(connection, isolation, deadline)
            });
            if begun.is_err() {
                *permit = lent.take_slot();
            }
            begun.map(|()| lent)
        };
        let mut permit = Some(permit);
        let lent = match begun(&mut permit) {
            // The server had closed a connection that lay idle; nothing has been done yet.
            Err(CallError::NoReply {
                timed_out: false, ..
            }) => begun(&mut permit),
            outcome => outcome,
        };
        Ok(Session {
            lent: lent.map_err(|fault| store.error(subject, fault))?,
            over: None,
            isolation,
            row_wait: wait,
            is_tainted: false,
            subject: Arc::clone(subject),
            node: Arc::clone(store.node()),
            statement_timeout: store.command_timeout,
        })
    }

    /// A fork has a copy of the connection, but the transaction is its parent's.
    fn owned(&self) -> Result<()> {
        if self.lent.is_forked() {
            return Err(Error::Forked {
                lock: Arc::clone(&self.subject),
            });
        }
        Ok(())
    }

    /// When a statement that starts now has to be over.
    fn deadline(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.statement_timeout)
            .unwrap_or(now + NO_LIMIT)
    }

    /// Runs one thing on the connection, and notes if the transaction did not survive it.
    fn talk<T>(
        &mut self,
        talk: impl FnOnce(&mut Connection, Instant) -> Result<T, CallError>,
    ) -> Result<T> {
        self.owned()?;
        let deadline = self.deadline();
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        let Some(connection) = &mut self.lent.connection else {
            return Err(self.lost("its connection was closed"));
        };
        if connection.has_ended() {
            let error = self.lost(
                "the server ended its connection: it was idle for too long, killed, or the server stopped"
                    .to_owned(),
            );
            return Err(self.give_up(error));
        }
        let fault = match talk(connection, deadline) {
            Ok(value) => return Ok(value),
            Err(fault) => fault,
        };
        let class = fault.class();
        Err(match fault {
            // The server rolls back what it has no client for.
            CallError::NotSent(reason) | CallError::NoReply { reason, .. } => {
                let error = self.lost(reason);
                self.give_up(error)
            }
            fault => {
                let error = fault.into_error(&self.subject, &self.node, "");
                // After a deadlock the transaction is gone, and after a time-out it may be (innodb_rollback_on_timeout).
                // A later statement would stand alone, without the lock.
                if matches!(class, Some(Class::Deadlock | Class::WaitTimeout)) {
                    self.over = Some(error.clone());
                }
                error
            }
        })
    }

    fn lost(&self, reason: impl Into<Reason>) -> Error {
        let (reason, source) = reason.into().into_parts();
        Error::TransactionLost {
            lock: Arc::clone(&self.subject),
            node: Arc::clone(&self.node),
            reason,
            source,
        }
    }

    pub(super) fn row_not_found(&self, key: &Value) -> Error {
        Error::RowNotFound {
            lock: Arc::clone(&self.subject),
            node: Arc::clone(&self.node),
            key: key.as_sql(true),
        }
    }

    fn give_up(&mut self, error: Error) -> Error {
        self.lent.connection = None;
        self.over = Some(error.clone());
        error
    }

    /// Notes that a statement may leave something in the session that outlives the transaction.
    pub(crate) fn taint(&mut self) {
        self.is_tainted = true;
    }

    /// Gives the connection back for the next transaction, unless that would find something of this one.
    fn give_back(&self, connection: Connection) {
        if !self.is_tainted {
            self.lent.give_back(connection);
        }
    }

    /// Runs a statement, and returns what it put into `LAST_INSERT_ID` and how many rows it touched.
    pub(crate) fn change(&mut self, statement: &str, params: Params) -> Result<(u64, u64)> {
        self.talk(|connection, deadline| connection.run(statement, params, deadline))
    }

    pub(crate) fn select(&mut self, statement: &str, params: Params) -> Result<Vec<Row>> {
        self.talk(|connection, deadline| connection.rows(statement, params, deadline))
    }

    /// Rolls back what is left of the transaction after a statement that failed, and begins a new one.
    pub(super) fn begin_anew(&mut self) -> Result<()> {
        let isolation = self.isolation;
        self.over = None;
        self.talk(|connection, deadline| {
            connection.say("ROLLBACK", deadline)?;
            start(connection, isolation, deadline)
        })
    }

    /// Locks one row by `SELECT … FOR UPDATE`. If it cannot be had in time the transaction is over: with
    /// `innodb_rollback_on_timeout` the server has rolled all of it back.
    pub(super) fn lock_row(
        &mut self,
        statement: &str,
        params: Params,
        wait: Duration,
    ) -> Result<Vec<Row>> {
        let timeout = self.statement_timeout;
        // The server gives up first, so that there is an answer.
        self.statement_timeout = timeout.saturating_add(wait);
        let outcome = self.select(statement, params);
        self.statement_timeout = timeout;
        outcome
    }

    /// Sets how long statements wait for rows, in whole seconds.
    pub(super) fn set_row_wait(&mut self, seconds: u64) -> Result<()> {
        if self.row_wait != seconds {
            let statement = format!(
                "SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
            );
            self.talk(|connection, deadline| connection.say(&statement, deadline))?;
            self.row_wait = seconds;
        }
        Ok(())
    }

    /// Sets it to what the user's own statements in the transaction get.
    pub(super) fn set_usual_row_wait(&mut self) -> Result<()> {
        self.set_row_wait(row_wait(self.statement_timeout))
    }

    /// Commits. After an error nothing was written, unless it is [`Error::Unknown`].
    pub(crate) fn commit(mut self) -> Result<()> {
        self.owned()?;
        if let Some(error) = self.over.take() {
            return Err(error);
        }
        let Some(mut connection) = self.lent.connection.take() else {
            return Err(self.lost("its connection was closed"));
        };
        if connection.has_ended() {
            return Err(self.lost(
                "the server ended its connection before the commit: it was idle for too long, killed, or the server stopped"
                    .to_owned(),
            ));
        }
        let deadline = self.deadline();
        match connection.say(&format!("RELEASE SAVEPOINT {MARK}"), deadline) {
            Ok(()) => {}
            Err(fault @ CallError::Server { .. }) => {
                let error = self.lost(format!(
                    "it had ended before the commit, and with it the locks ({})",
                    fault.reason()
                ));
                self.lent.connection = Some(connection);
                return Err(error);
            }
            Err(fault) => return Err(self.lost(fault.reason())),
        }
        match connection.say("COMMIT", deadline) {
            Ok(()) => {
                self.give_back(connection);
                Ok(())
            }
            Err(CallError::NotSent(reason)) => Err(self.lost(reason)),
            Err(CallError::NoReply { reason, .. }) => {
                Err(unknown(&self.subject, &self.node, "commit", None, reason))
            }
            Err(fault) => {
                let error = fault.into_error(&self.subject, &self.node, "");
                self.lent.connection = Some(connection);
                Err(error)
            }
        }
    }

    /// Rolls back, and tells whether the server has said so; it does so by itself if it has not.
    pub(crate) fn rollback(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.owned()?;
        let Some(mut connection) = self.lent.connection.take() else {
            return self.over.take().map_or(Ok(()), Err);
        };
        match connection.say("ROLLBACK", self.deadline()) {
            Ok(()) => {
                self.give_back(connection);
                Ok(())
            }
            Err(fault) => Err(self.lost(fault.into_reason())),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // If it fails, the connection is closed, which rolls back as well.
        let _ = self.end();
    }
}

/// Starts a transaction and marks its beginning.
fn start(
    connection: &mut Connection,
    isolation: Option<&'static str>,
    deadline: Instant,
) -> Result<(), CallError> {
    if let Some(level) = isolation {
        // For the next transaction only.
        connection.say(
            &format!("SET TRANSACTION ISOLATION LEVEL {level}"),
            deadline,
        )?;
    }
    connection.say("START TRANSACTION", deadline)?;
    connection.say(&format!("SAVEPOINT {MARK}"), deadline)
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().clamp(1, 31_536_000)
}

/// How long a statement may wait for a row so that the server's answer comes before the socket's time-out.
fn row_wait(statement_timeout: Duration) -> u64 {
    whole_seconds(statement_timeout.saturating_sub(Duration::from_millis(500)))
}
