//! One transaction on a connection of its own. After a bad end the connection is closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::prelude::FromRow;
use ::mysql::{Params, Row, Value};

use super::MySql;
use super::call_error::{CallError, Class, row_not_found, unknown};
use super::connection::Connection;
use super::pool::TransactionSlot;
use crate::ground::error::database::DatabaseError;
use crate::ground::error::{Error, Reason, Result};
use crate::ground::time;

/// An open transaction. Drop rolls it back.
pub(crate) struct Session {
    /// `None` once its state is in doubt.
    connection: Option<Connection>,
    /// Behind the connection, which is closed before another transaction gets the slot.
    slot: TransactionSlot,
    /// The error that ended the transaction. Every later statement fails with it: it would run outside of a transaction.
    ended_by: Option<Error>,
    isolation: Option<&'static str>,
    /// The longest wait of a statement for a row, in whole seconds.
    row_wait: u64,
    /// Whether a statement may have left state in the session; then the connection is not used again.
    is_tainted: bool,
    pub(crate) subject: Arc<str>,
    node: Arc<str>,
    pub(crate) statement_timeout: Duration,
    /// The limit of the statements that end the transaction.
    command_timeout: Duration,
}

/// The time-out where the end of the one asked for cannot be expressed.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The savepoint at the beginning of each transaction. If it is gone, the server has ended the transaction.
const MARKER: &str = "redlatch_begun";

impl Session {
    /// Begins a transaction, in the server's isolation level if none is given.
    ///
    /// The server ends a transaction that is idle for `idle_limit`, so that a holder that hangs does not block others for
    /// ever.
    pub(super) fn begin(
        store: &MySql,
        subject: &Arc<str>,
        isolation: Option<&'static str>,
        idle_limit: Option<Duration>,
        mut slot: TransactionSlot,
    ) -> Result<Session> {
        let deadline = store.deadline();
        let idle = idle_limit.map_or("DEFAULT".to_owned(), |limit| {
            whole_seconds(limit).to_string()
        });
        let wait = row_wait(store.command_timeout);
        // Without autocommit, a statement after a rollback by the server does not commit alone.
        let settings = format!(
            "SET SESSION autocommit = 0, innodb_lock_wait_timeout = {wait}, \
             lock_wait_timeout = {wait}, wait_timeout = {idle}, time_zone = DEFAULT"
        );
        let begin = |slot: &mut TransactionSlot| {
            let mut connection = store.pools.connect_transaction(slot, deadline)?;
            connection.execute_text(&settings, deadline)?;
            start(&mut connection, isolation, deadline)?;
            Ok(connection)
        };
        let connection = match begin(&mut slot) {
            // The server had closed an idle connection; nothing has been done yet.
            Err(CallError::NoReply {
                timed_out: false, ..
            }) => begin(&mut slot),
            outcome => outcome,
        };
        Ok(Session {
            connection: Some(connection.map_err(|error| store.error(subject, error))?),
            slot,
            ended_by: None,
            isolation,
            row_wait: wait,
            is_tainted: false,
            subject: Arc::clone(subject),
            node: Arc::clone(store.node()),
            statement_timeout: store.command_timeout,
            command_timeout: store.command_timeout,
        })
    }

    /// Fails in a forked child: the transaction belongs to the parent.
    fn check_not_forked(&self) -> Result<()> {
        if self.slot.is_forked() {
            return Err(Error::Forked {
                lock: Arc::clone(&self.subject),
            });
        }
        Ok(())
    }

    /// Returns the deadline of a statement that starts now.
    fn deadline(&self) -> Instant {
        let now = time::now();
        now.checked_add(self.statement_timeout)
            .unwrap_or(now + NO_LIMIT)
    }

    /// Runs `call` on the connection, and notes an error that ends the transaction.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut Connection, Instant) -> Result<T, CallError>,
    ) -> Result<T> {
        self.check_not_forked()?;
        let deadline = self.deadline();
        if let Some(error) = &self.ended_by {
            return Err(error.clone());
        }
        let Some(connection) = &mut self.connection else {
            return Err(self.lost("its connection was closed"));
        };
        if connection.is_disconnected() {
            let error = self.lost(
                "the server ended its connection: it was idle for too long, killed, or the server stopped"
                    .to_owned(),
            );
            return Err(self.close_with(error));
        }
        let error = match call(connection, deadline) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let class = error.class();
        Err(match error {
            // The server rolls back a transaction whose client is gone.
            CallError::NotSent(reason) | CallError::NoReply { reason, .. } => {
                let error = self.lost(reason);
                self.close_with(error)
            }
            error => {
                let error = error.into_error(&self.subject, &self.node, "");
                // After a deadlock the transaction is gone, and after a time-out it may be (innodb_rollback_on_timeout).
                // A later statement would run without the lock.
                if matches!(class, Some(Class::Deadlock | Class::WaitTimeout)) {
                    self.ended_by = Some(error.clone());
                }
                error
            }
        })
    }

    fn lost(&self, reason: impl Into<Reason>) -> Error {
        let (reason, source) = reason.into().into_parts();
        Error::Database(DatabaseError::TransactionLost {
            lock: Arc::clone(&self.subject),
            node: Arc::clone(&self.node),
            reason,
            source,
        })
    }

    pub(super) fn row_not_found(&self, key: &Value) -> Error {
        row_not_found(&self.subject, &self.node, key)
    }

    fn close_with(&mut self, error: Error) -> Error {
        self.connection = None;
        self.ended_by = Some(error.clone());
        error
    }

    /// Notes that a statement may leave state in the session that outlives the transaction.
    pub(crate) fn taint(&mut self) {
        self.is_tainted = true;
    }

    /// Puts the connection back, unless the next transaction could find state of this one.
    fn put_back(&mut self, connection: Connection) {
        if !self.is_tainted {
            self.slot.put_back(connection);
        }
    }

    /// Runs a statement, and returns its `LAST_INSERT_ID` and the number of affected rows.
    pub(crate) fn execute(&mut self, statement: &str, params: Params) -> Result<(u64, u64)> {
        self.call(|connection, deadline| connection.execute(statement, params, deadline))
    }

    pub(crate) fn query<T: FromRow>(&mut self, statement: &str, params: Params) -> Result<Vec<T>> {
        self.call(|connection, deadline| connection.query(statement, params, deadline))
    }

    /// Rolls back the rest of a transaction after a failed statement, and begins a new one.
    pub(super) fn restart(&mut self) -> Result<()> {
        let isolation = self.isolation;
        self.ended_by = None;
        self.call(|connection, deadline| {
            connection.execute_text("ROLLBACK", deadline)?;
            start(connection, isolation, deadline)
        })
    }

    /// Locks one row by `SELECT … FOR UPDATE`, and returns whether there is one. A time-out ends the transaction: with `innodb_rollback_on_timeout` the server
    /// has rolled all of it back.
    pub(super) fn lock_row(
        &mut self,
        statement: &str,
        params: Params,
        wait: Duration,
    ) -> Result<bool> {
        let timeout = self.statement_timeout;
        // The server times out before the socket does, so that there is an answer.
        self.statement_timeout = timeout.saturating_add(wait);
        let outcome = self.query::<Row>(statement, params);
        self.statement_timeout = timeout;
        outcome.map(|rows| !rows.is_empty())
    }

    /// Sets the longest wait of statements for rows, in whole seconds.
    pub(super) fn set_row_wait(&mut self, seconds: u64) -> Result<()> {
        if self.row_wait != seconds {
            let statement = format!(
                "SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
            );
            self.call(|connection, deadline| connection.execute_text(&statement, deadline))?;
            self.row_wait = seconds;
        }
        Ok(())
    }

    /// Sets the wait for rows that the user's own statements get.
    pub(super) fn reset_row_wait(&mut self) -> Result<()> {
        self.set_row_wait(row_wait(self.statement_timeout))
    }

    /// Commits. After any error but [`Error::Unknown`] nothing was written.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.statement_timeout = self.command_timeout;
        let deadline = self.deadline();
        let release = format!("RELEASE SAVEPOINT {MARKER}");
        let gone =
            self.call(
                |connection, _| match connection.execute_text(&release, deadline) {
                    Ok(()) => Ok(None),
                    Err(error @ CallError::Server { .. }) => Ok(Some(error.reason())),
                    Err(error) => Err(error),
                },
            )?;
        if let Some(reason) = gone {
            let before = "it had ended before the commit, and with it the locks";
            return Err(self.lost(format!("{before} ({reason})")));
        }
        let Some(mut connection) = self.connection.take() else {
            return Err(self.lost("its connection was closed"));
        };
        match connection.execute_text("COMMIT", deadline) {
            Ok(()) => {
                self.put_back(connection);
                Ok(())
            }
            Err(CallError::NotSent(reason)) => Err(self.lost(reason)),
            Err(CallError::NoReply { reason, .. }) => {
                Err(unknown(&self.subject, &self.node, "commit", None, reason))
            }
            Err(error) => {
                let error = error.into_error(&self.subject, &self.node, "");
                self.connection = Some(connection);
                Err(error)
            }
        }
    }

    /// Rolls back. If this fails, the server rolls back when it notices that the connection is closed.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        self.check_not_forked()?;
        let Some(mut connection) = self.connection.take() else {
            return self.ended_by.take().map_or(Ok(()), Err);
        };
        match connection.execute_text("ROLLBACK", time::now() + self.command_timeout) {
            Ok(()) => {
                self.put_back(connection);
                Ok(())
            }
            Err(error) => Err(self.lost(error.into_reason())),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After an error the connection is closed, which rolls back as well.
        let _ = self.rollback();
    }
}

/// Starts a transaction, and sets the savepoint at its beginning.
fn start(
    connection: &mut Connection,
    isolation: Option<&'static str>,
    deadline: Instant,
) -> Result<(), CallError> {
    if let Some(level) = isolation {
        // This holds for the next transaction only.
        connection.execute_text(
            &format!("SET TRANSACTION ISOLATION LEVEL {level}"),
            deadline,
        )?;
    }
    connection.execute_text("START TRANSACTION", deadline)?;
    connection.execute_text(&format!("SAVEPOINT {MARKER}"), deadline)
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().clamp(1, 31_536_000)
}

/// Returns the longest wait for a row after which the server's answer still arrives before the socket's time-out.
fn row_wait(statement_timeout: Duration) -> u64 {
    whole_seconds(statement_timeout.saturating_sub(Duration::from_millis(500)))
}
