//! Row locks in users' tables by primary key.
//!
//! The server's timeout for a locked row is in whole seconds. So in the last second of a wait, the client polls with
//! `NOWAIT` every 20 ms.
//!
//! With `innodb_rollback_on_timeout`, a lock timeout unlocks all rows of the transaction. So after each lock timeout,
//! the client begins a new transaction and locks all rows again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::{Params, Row, Value, params};

use super::call_error::{CallError, row_not_found};
use super::connection::Connection;
use super::keys::KeyedTable;
use super::pool::borrow;
use super::values::literal;
use super::{LONGEST_NAME, MySql, ROW_WAIT, Session};
use crate::ground::error::database::DatabaseError;
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::ground::notify::{Parker, Wake};
use crate::ground::time;
use crate::stores::connection_pool::Slot;

pub(super) const NOWAIT_PAUSE: Duration = Duration::from_millis(20);

/// The longest wait for a connection between two checks for an interrupt or a shutdown.
const SLOT_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug, Clone)]
pub(crate) struct LockedRows {
    /// `None` for `Tables::rows`, the library's own table of named rows.
    pub(crate) target: Option<KeyedTable>,
    pub(crate) keys: Vec<Value>,
    pub(crate) isolation: &'static str,
    pub(crate) idle_limit: Option<Duration>,
}

impl MySql {
    /// Locks rows in an order that is the same for all callers, so that two callers never deadlock.
    pub(crate) fn lock_rows(
        &self,
        rows: &LockedRows,
        wait: Option<Duration>,
        interrupt: Option<&Interrupt>,
        subject: &Arc<str>,
    ) -> Result<Session> {
        let parker = self.facts.notifier.parker();
        if let Some(interrupt) = interrupt {
            interrupt.attach(&parker);
        }
        sleep_until(&parker, time::now(), subject)?;
        if rows.keys.is_empty() {
            let reason = "no key was given, so there is no row to lock";
            return Err(Error::unsupported(subject, reason));
        }
        let lock = || Arc::clone(subject);
        let end = |wait| {
            let end = time::now().checked_add(wait);
            end.ok_or_else(|| Error::InvalidWait { lock: lock(), wait })
        };
        let deadline = wait.map(end).transpose()?;
        let target = rows.target.as_ref().unwrap_or(&self.tables.rows);
        let keys = rows.keys.iter();
        let keys = keys.map(|key| self.key_of_row(target, key, subject));
        let mut keys = keys.collect::<Result<Vec<_>>>()?;
        if *target == self.tables.rows {
            for key in &keys {
                self.insert_named_row(target, key, subject)?;
            }
        }
        if keys.len() > 1 {
            keys = self.sorted_keys(target, &keys, subject)?;
        }
        let slot = self.slot_for_rows(&parker, deadline, subject)?;
        let (isolation, idle) = (Some(rows.isolation), rows.idle_limit);
        let mut session = Session::begin(self, subject, isolation, idle, ROW_WAIT.as_secs(), slot)?;
        // The server has to time out before the socket does.
        session.statement_timeout = self.command_timeout.saturating_add(ROW_WAIT);
        while let Some((error, has_waited)) = lock_all(&mut session, target, &keys, deadline)? {
            if deadline.is_some_and(|end| time::now() >= end) {
                return Err(error);
            }
            let pause = match has_waited {
                true => Duration::ZERO,
                false => NOWAIT_PAUSE,
            };
            sleep_until(&parker, pause_end(pause, deadline), subject)?;
            session.restart()?;
        }
        session.leave_to_user()?;
        Ok(session)
    }

    pub(super) fn key_of_row(
        &self,
        target: &KeyedTable,
        key: &Value,
        subject: &Arc<str>,
    ) -> Result<Value> {
        self.check_own(&target.table, subject, self.deadline())?;
        let column = self.checked(&target.table, subject, self.deadline(), |found| {
            found.key_column(target.key.as_str()).cloned()
        })?;
        column.key(key.clone()).ok_or_else(|| {
            let (key, kind) = (literal(key), &column.kind);
            let by = format!("by the primary key, which is a column of the type {kind}");
            Error::unsupported(subject, format!("the key {key} cannot identify a row {by}"))
        })
    }

    /// Waits for a slot until `deadline`, not just one timeout, because users' transactions may keep slots for long.
    fn slot_for_rows(
        &self,
        parker: &Parker,
        deadline: Option<Instant>,
        subject: &Arc<str>,
    ) -> Result<Slot<Connection>> {
        loop {
            let patience = pause_end(SLOT_PAUSE, deadline).saturating_duration_since(time::now());
            match borrow(&self.pools.transactions, patience) {
                Ok(slot) => return Ok(slot),
                Err(CallError::Exhausted(_)) if deadline.is_none_or(|end| time::now() < end) => {
                    sleep_until(parker, time::now(), subject)?;
                }
                Err(error) => return Err(self.error(subject, error)),
            }
        }
    }

    /// Returns the stored keys without duplicates. In some collations, two spellings of a key identify the same row.
    fn sorted_keys(
        &self,
        target: &KeyedTable,
        keys: &[Value],
        subject: &Arc<str>,
    ) -> Result<Vec<Value>> {
        let KeyedTable { table, key } = target;
        // Each key has its own query, because for a list of keys the server may read the whole table.
        let select = format!("SELECT {key} FROM {table} WHERE {key} = ?");
        let mut found = Vec::with_capacity(keys.len());
        for wanted in keys {
            let params = Params::Positional(vec![wanted.clone()]);
            let keys = self.query(&select, params, self.deadline());
            let mut keys: Vec<Value> = keys.map_err(|error| self.error_of_users(subject, error))?;
            let key = keys.pop();
            found.push(key.ok_or_else(|| row_not_found(subject, self.node(), wanted))?);
        }
        found.sort_by_cached_key(|key| key.as_sql(true));
        found.dedup();
        Ok(found)
    }

    fn insert_named_row(
        &self,
        target: &KeyedTable,
        name: &Value,
        subject: &Arc<str>,
    ) -> Result<()> {
        if !matches!(name, Value::Bytes(name) if name.len() <= LONGEST_NAME) {
            let name = literal(name).chars().take(64).collect();
            let reason = "the name of a row is text or bytes, 255 bytes at most";
            return Err(Error::InvalidName { name, reason });
        }
        let KeyedTable { table, key } = target;
        let run = |statement: String| {
            self.query::<Row>(&statement, params! { "k" => name.clone() }, self.deadline())
        };
        // The read precedes the insert, because an insert would wait for a transaction that has locked the row.
        let made = match run(format!("SELECT 1 FROM {table} WHERE {key} = :k")) {
            // `INSERT IGNORE` would cut a long name, so that two names would share a row.
            Ok(found) if found.is_empty() => {
                run(format!("INSERT INTO {table} ({key}) VALUES (:k)"))
            }
            found => found,
        };
        match made {
            // 1062: another client has inserted the row since the read.
            Err(CallError::Server { code: 1062, .. }) => Ok(()),
            Err(error) if !error.is_busy() => Err(self.error(subject, error)),
            _ => Ok(()),
        }
    }
}

/// If another transaction has locked a row, returns the error, and whether the server waited for the row.
fn lock_all(
    session: &mut Session,
    target: &KeyedTable,
    keys: &[Value],
    deadline: Option<Instant>,
) -> Result<Option<(Error, bool)>> {
    let KeyedTable { table, key: column } = target;
    for key in keys {
        let waits = deadline.is_none_or(|end| end >= time::now() + ROW_WAIT);
        let nowait = if waits { "" } else { " NOWAIT" };
        let select = format!("SELECT 1 FROM {table} WHERE {column} = ? FOR UPDATE{nowait}");
        match session.query::<Row>(&select, Params::Positional(vec![key.clone()])) {
            Ok(found) if found.is_empty() => {
                return Err(row_not_found(&session.subject, &session.node, key));
            }
            Ok(_) => {}
            Err(error @ Error::Database(DatabaseError::WaitTimeout { .. })) => {
                return Ok(Some((error, waits)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn pause_end(pause: Duration, deadline: Option<Instant>) -> Instant {
    let end = time::now() + pause;
    deadline.map_or(end, |deadline| deadline.min(end))
}

pub(crate) fn sleep_until(parker: &Parker, deadline: Instant, subject: &Arc<str>) -> Result<()> {
    loop {
        let lock = Arc::clone(subject);
        match parker.park(Some(deadline)) {
            Wake::Permit | Wake::Look => {}
            Wake::TimedOut => return Ok(()),
            Wake::Interrupted => return Err(Error::Interrupted { lock }),
            Wake::Closed => return Err(Error::Closed { lock }),
        }
    }
}
