//! One transaction on its own connection, which is closed after a lost reply or a change of the session's state.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::prelude::FromRow;
use ::mysql::{Params, params};

use super::MySql;
use super::call_error::CallError;
use super::connection::Connection;
use super::lock_table::{cause_of_loss, micros};
use super::pool::borrow;
use crate::ground::claim::Claim;
use crate::ground::error::database::DatabaseError;
use crate::ground::error::{Error, Reason, Result};
use crate::ground::loss::LossCause;
use crate::ground::{process, time};
use crate::store::Holder;
use crate::stores::connection_pool::Slot;
use crate::stores::patience;

/// An open transaction. Drop rolls it back.
pub(crate) struct Session {
    /// `None` after the end of the transaction. The slot is empty after its connection was closed.
    slot: Option<Slot<Connection>>,
    pid: u32,
    /// The error that ended the transaction. Every later statement fails with this error, because the statement would run
    /// outside of the transaction.
    ended_by: Option<Error>,
    isolation: Option<&'static str>,
    /// True if a statement may have left state in the session. In that case, the connection must be closed.
    pub(crate) is_tainted: bool,
    pub(crate) subject: Arc<str>,
    pub(super) node: Arc<str>,
    pub(crate) statement_timeout: Duration,
    command_timeout: Duration,
}

/// The upper limit of statement timeouts. A much longer timeout could overflow an `Instant`.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The assumed longest response time of a statement that waits for a row.
const LONGEST_ANSWER: Duration = Duration::from_secs(15);

/// The savepoint at the beginning of each transaction. If this savepoint does not exist, the server has ended the
/// transaction.
const MARKER: &str = "redlatch_begun";

impl Session {
    /// Begins a transaction whose statements wait for a row for at most `row_wait` seconds. An `isolation` of `None` means
    /// the isolation level of the server.
    ///
    /// The server ends a transaction that is idle for `idle_limit`, so that a hung holder does not block others.
    pub(super) fn begin(
        store: &MySql,
        subject: &Arc<str>,
        isolation: Option<&'static str>,
        idle_limit: Option<Duration>,
        row_wait: u64,
        mut slot: Slot<Connection>,
    ) -> Result<Session> {
        let deadline = store.deadline();
        let idle = idle_limit.map(|limit| whole_seconds(limit).to_string());
        let (idle, waits) = (idle.unwrap_or("DEFAULT".to_owned()), waits(row_wait));
        // With autocommit, if the server rolled back, it would commit each later statement alone.
        let settings = format!(
            "SET SESSION autocommit = 0, {waits}, wait_timeout = {idle}, time_zone = DEFAULT"
        );
        // These statements may run twice, because they change no rows.
        let pools = &store.pools;
        let begun = pools.on(&mut slot, deadline, LONGEST_ANSWER, true, |connection| {
            connection.execute_text(&settings, deadline)?;
            start(connection, isolation, deadline)
        });
        if let Err(error) = begun {
            // The connection may be inside a transaction, so it is closed.
            *slot = None;
            return Err(store.error(subject, error));
        }
        Ok(Session {
            slot: Some(slot),
            pid: process::id(),
            ended_by: None,
            isolation,
            is_tainted: false,
            subject: Arc::clone(subject),
            node: Arc::clone(store.node()),
            statement_timeout: store.command_timeout,
            command_timeout: store.command_timeout,
        })
    }

    /// Fails in a forked child, because the transaction belongs to the parent.
    fn check_not_forked(&self) -> Result<()> {
        let lock = || Arc::clone(&self.subject);
        let forked = || Error::Forked { lock: lock() };
        (self.pid == process::id()).then_some(()).ok_or_else(forked)
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.slot.as_mut()?.as_mut()
    }

    fn deadline(&self) -> Instant {
        time::now() + self.statement_timeout.min(NO_LIMIT)
    }

    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut Connection, Instant) -> Result<T, CallError>,
    ) -> Result<T> {
        self.check_not_forked()?;
        let deadline = self.deadline();
        if let Some(error) = &self.ended_by {
            return Err(error.clone());
        }
        let outcome = match self.connection() {
            None => Err(CallError::NotSent("its connection was closed".into())),
            Some(connection) if connection.is_disconnected() => {
                let reason = "the server closed its connection: it was idle for too long, was killed, or the server \
                    stopped";
                Err(CallError::NotSent(reason.into()))
            }
            Some(connection) => call(connection, deadline),
        };
        outcome.map_err(|error| {
            // A deadlock ends the transaction. With innodb_rollback_on_timeout, a timeout does the same. A later statement
            // would run outside of the transaction, without its locks.
            let mut is_over = error.is_busy();
            let error = match error {
                // The server rolls the transaction back when the connection closes.
                CallError::NotSent(reason) | CallError::NoReply { reason, .. } => {
                    is_over = true;
                    self.close();
                    self.lost(reason)
                }
                error => error.into_error(&self.subject, &self.node, ""),
            };
            self.ended_by = is_over.then(|| error.clone());
            error
        })
    }

    pub(crate) fn lost(&self, reason: impl Into<Reason>) -> Error {
        let (reason, source) = reason.into().into_parts();
        Error::Database(DatabaseError::TransactionLost {
            lock: Arc::clone(&self.subject),
            node: Arc::clone(&self.node),
            reason,
            source,
        })
    }

    fn close(&mut self) {
        if let Some(slot) = &mut self.slot {
            **slot = None;
        }
    }

    /// Returns the `LAST_INSERT_ID` and the number of affected rows.
    pub(crate) fn execute(&mut self, statement: &str, params: Params) -> Result<(u64, u64)> {
        self.call(|connection, deadline| connection.execute(statement, params, deadline))
    }

    pub(crate) fn query<T: FromRow>(&mut self, statement: &str, params: Params) -> Result<Vec<T>> {
        self.call(|connection, deadline| connection.query(statement, params, deadline))
    }

    /// After a failed statement, rolls back the transaction and begins a new one.
    pub(super) fn restart(&mut self) -> Result<()> {
        let isolation = self.isolation;
        self.ended_by = None;
        self.call(|connection, deadline| {
            connection.execute_text("ROLLBACK", deadline)?;
            start(connection, isolation, deadline)
        })
    }

    pub(super) fn leave_to_user(&mut self) -> Result<()> {
        self.statement_timeout = self.command_timeout;
        let statement = format!("SET SESSION {}", waits(row_wait(self.command_timeout)));
        self.call(|connection, deadline| connection.execute_text(&statement, deadline))
    }

    /// Commits. After any error except [`Error::Unknown`], this call committed nothing.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.statement_timeout = self.command_timeout;
        let deadline = self.deadline();
        let release = format!("RELEASE SAVEPOINT {MARKER}");
        let ended = self.call(|connection, _| {
            Ok(match connection.execute_text(&release, deadline) {
                Ok(()) => connection.execute_text("COMMIT", deadline),
                Err(error @ CallError::Server { .. }) => {
                    let before =
                        "the transaction had ended before the commit, and its locks with it";
                    let reason = format!("{before} ({})", error.reason());
                    Err(CallError::NotSent(reason.into()))
                }
                Err(error) => return Err(error),
            })
        })?;
        match ended {
            Ok(()) => {
                self.end();
                Ok(())
            }
            Err(CallError::NotSent(reason)) => Err(self.lost(reason)),
            Err(CallError::NoReply { reason, .. }) => {
                self.close();
                let node = Arc::clone(&self.node);
                Err(Error::unknown(&self.subject, node, "commit", None, reason))
            }
            Err(error) => Err(error.into_error(&self.subject, &self.node, "")),
        }
    }

    /// Rolls back. If `ROLLBACK` fails, the server rolls back when it notices that the connection is closed.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        self.check_not_forked()?;
        let deadline = time::now() + self.command_timeout;
        let Some(connection) = self.connection() else {
            return self.ended_by.take().map_or(Ok(()), Err);
        };
        let rolled_back = connection.execute_text("ROLLBACK", deadline);
        if rolled_back.is_err() {
            self.close();
        }
        self.end();
        rolled_back.map_err(|error| self.lost(error.into_reason()))
    }

    /// Returns the connection to the pool, or closes it if statements may have left state.
    fn end(&mut self) {
        if self.is_tainted {
            self.close();
        }
        self.slot = None;
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.subject)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // In a forked child the connection belongs to the parent, and the mutex of the pool may stay locked.
        if self.pid != process::id() {
            std::mem::forget(self.slot.take());
        } else {
            // If the rollback fails, `rollback` closes the connection, so the server rolls back.
            let _ = self.rollback();
        }
    }
}

impl MySql {
    /// Begins a transaction and locks the row of a hold; `None` if the hold is gone.
    pub(crate) fn pin(&self, claim: &Claim, idle_limit: Duration) -> Result<Option<Session>> {
        // The check refuses a table engine without transactions, because such an engine locks no rows.
        self.check_own(&self.tables.locks, &claim.name, self.deadline())?;
        let slot = borrow(&self.pools.transactions, patience(self.deadline()));
        let slot = slot.map_err(|error| self.error(&claim.name, error))?;
        let wait = row_wait(self.command_timeout);
        let mut session = Session::begin(self, &claim.name, None, Some(idle_limit), wait, slot)?;
        let params = params! { "r" => &*claim.name, "o" => claim.visitor.as_str() };
        let fences: Vec<u64> = session.query(&self.statements.pin, params)?;
        Ok((!fences.is_empty()).then_some(session))
    }

    /// Extends the lease of a hold in the transaction that `pin` began. Returns whether the row belongs to the hold.
    pub(crate) fn extend_pinned(&self, session: &mut Session, claim: &Claim) -> Result<bool> {
        let params = params! {
            "r" => &*claim.name, "o" => claim.visitor.as_str(), "us" => micros(claim.lease)
        };
        Ok(session.execute(&self.statements.extend_pinned, params)?.0 > 0)
    }

    pub(crate) fn cause_of_loss(&self, claim: &Claim) -> Result<LossCause> {
        let found = self.holder(&claim.name, self.deadline())?;
        let is_other = |holder: &Holder| holder.visitor != claim.visitor.as_str();
        let found = found.filter(|found| found.holders.iter().all(is_other));
        Ok(cause_of_loss(found.as_ref()))
    }
}

fn start(
    connection: &mut Connection,
    isolation: Option<&'static str>,
    deadline: Instant,
) -> Result<(), CallError> {
    if let Some(level) = isolation {
        // This setting applies to the next transaction only.
        let set = format!("SET TRANSACTION ISOLATION LEVEL {level}");
        connection.execute_text(&set, deadline)?;
    }
    connection.execute_text("START TRANSACTION", deadline)?;
    connection.execute_text(&format!("SAVEPOINT {MARKER}"), deadline)
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().clamp(1, 31_536_000)
}

pub(super) fn row_wait(statement_timeout: Duration) -> u64 {
    whole_seconds(statement_timeout.saturating_sub(Duration::from_millis(500)))
}

fn waits(seconds: u64) -> String {
    format!("innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}")
}
