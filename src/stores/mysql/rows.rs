//! Locking rows of the user's tables by their primary key.
//!
//! The queue for a row is the server's, which is fair. Its waits are in whole seconds, so the rest of a wait is asked
//! for with `NOWAIT` every 20 ms; that is a sleep in a store, because nobody but the server could wake us.
//!
//! After a refusal the transaction is begun anew, and the rows are locked from the first one on: on a server with
//! `innodb_rollback_on_timeout` the ones before it are free again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::{Params, Value, params};

use super::keys::Keyed;
use super::{LONGEST_NAME, MySql, Session};
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::ground::notify::{Parker, Wake};
use crate::stores::permits::Permit;

pub(super) const NOWAIT_PAUSE: Duration = Duration::from_millis(20);

/// One statement waits for a row this long at most, in seconds; then it queues up again. So long it may take until an
/// interrupt, or the end of the client, is heard.
const LONGEST_ROW_WAIT: u64 = 1;

/// So long a wait for a connection lasts before interrupts and the end of the client are heard again.
const SLOT_PAUSE: Duration = Duration::from_millis(250);

/// What a row lock is to be like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) isolation: &'static str,
    pub(crate) idle_limit: Option<Duration>,
    /// `None` means for ever.
    pub(crate) wait: Option<Duration>,
    pub(crate) interrupt: Option<&'a Interrupt>,
}

impl MySql {
    /// Locks the rows with these keys, in one order for all callers, so that two callers never wait for each other.
    pub(crate) fn lock_rows(
        &self,
        target: Option<&Keyed>,
        keys: Vec<Value>,
        subject: &Arc<str>,
        wish: Wish<'_>,
    ) -> Result<Session> {
        let parker = self.notifier.parker();
        if let Some(interrupt) = wish.interrupt {
            interrupt.attach(&parker);
        }
        rest(&parker, Instant::now(), subject)?;
        if keys.is_empty() {
            return Err(Error::Unsupported {
                lock: Arc::clone(subject),
                reason: "no key was given, so there is no row to lock".to_owned(),
            });
        }
        let deadline = match wish.wait {
            Some(wait) => {
                Some(
                    Instant::now()
                        .checked_add(wait)
                        .ok_or_else(|| Error::InvalidWait {
                            lock: Arc::clone(subject),
                            wait,
                        })?,
                )
            }
            None => None,
        };
        let built_in;
        let target = match target {
            Some(target) => target,
            None => {
                built_in = self.tables.named_rows();
                &built_in
            }
        };
        let kind = self.primary_key(target, subject)?;
        let keys = keys
            .into_iter()
            .map(|key| kind.fitting(key, subject))
            .collect::<Result<Vec<_>>>()?;
        if *target == self.tables.named_rows() {
            for key in &keys {
                if key_bytes(key).is_none_or(|bytes| bytes > LONGEST_NAME) {
                    return Err(Error::InvalidName {
                        name: key.as_sql(true).chars().take(64).collect(),
                        reason: "the name of a row is text or bytes, 255 bytes at most",
                    });
                }
                self.make_named_row(target, key, subject)?;
            }
        }
        let keys = match &*keys {
            [_] => keys,
            _ => self.in_order(target, &keys, subject)?,
        };
        let permit = self.slot_for_rows(&parker, deadline, subject)?;
        let isolation = Some(wish.isolation);
        let mut session = Session::begin(self, subject, isolation, wish.idle_limit, permit)?;
        while let Some(refusal) = lock_each(&mut session, target, &keys, deadline)? {
            if deadline.is_some_and(|end| Instant::now() >= end) {
                return Err(refusal.error);
            }
            let pause_ends = if refusal.has_waited {
                Instant::now()
            } else {
                let pause_ends = Instant::now() + NOWAIT_PAUSE;
                deadline.map_or(pause_ends, |end| end.min(pause_ends))
            };
            rest(&parker, pause_ends, subject)?;
            session.begin_anew()?;
        }
        session.set_usual_row_wait()?;
        Ok(session)
    }

    /// The right to a connection, for which a row lock waits as it waits for the row: others may keep theirs for as long
    /// as they like.
    fn slot_for_rows(
        &self,
        parker: &Parker,
        deadline: Option<Instant>,
        subject: &Arc<str>,
    ) -> Result<Permit> {
        loop {
            let now = Instant::now();
            let pause_ends = now + SLOT_PAUSE;
            let pause_ends = deadline.map_or(pause_ends, |end| end.min(pause_ends));
            match self.pool.transaction_slot(pause_ends) {
                Ok(permit) => return Ok(permit),
                Err(fault) if deadline.is_some_and(|end| Instant::now() >= end) => {
                    return Err(self.error(subject, fault));
                }
                Err(_) => rest(parker, Instant::now(), subject)?,
            }
        }
    }

    /// The keys as they stand in the table, each once, in one order for everybody: whether two ways to write a key mean
    /// the same row depends on the column's collation.
    fn in_order(&self, target: &Keyed, keys: &[Value], subject: &Arc<str>) -> Result<Vec<Value>> {
        let (table, key) = target.quoted();
        // One key at a time: with a list the server may choose to read the whole table.
        let select = format!("SELECT {key} FROM {table} WHERE {key} = ?");
        let mut found = Vec::with_capacity(keys.len());
        for wanted in keys {
            let rows = self
                .rows(
                    &select,
                    Params::Positional(vec![wanted.clone()]),
                    self.deadline(),
                )
                .map_err(|fault| self.error_of_users(subject, fault))?;
            let row = rows
                .into_iter()
                .next()
                .and_then(|mut row| row.take::<Value, _>(0));
            found.push(row.ok_or_else(|| self.no_row(subject, wanted))?);
        }
        found.sort_by_cached_key(|key| key.as_sql(true));
        found.dedup();
        Ok(found)
    }

    fn no_row(&self, subject: &Arc<str>, key: &Value) -> Error {
        Error::RowNotFound {
            lock: Arc::clone(subject),
            node: Arc::clone(self.node()),
            key: key.as_sql(true),
        }
    }

    /// Makes the row of a name, which then stays.
    fn make_named_row(&self, target: &Keyed, name: &Value, subject: &Arc<str>) -> Result<()> {
        let (table, key) = target.quoted();
        let deadline = self.deadline();
        let look = format!("SELECT 1 FROM {table} WHERE {key} = :k");
        // Without IGNORE, which would cut a name that is too long and so make one of two.
        let make = format!("INSERT INTO {table} ({key}) VALUES (:k)");
        // An insert would wait for whoever has the row locked.
        let found = self.rows(&look, params! { "k" => name.clone() }, deadline);
        if !found
            .map_err(|fault| self.error(subject, fault))?
            .is_empty()
        {
            return Ok(());
        }
        match self.rows(&make, params! { "k" => name.clone() }, deadline) {
            Ok(_) => Ok(()),
            // Somebody has made it meanwhile, and may have locked it.
            Err(fault) if fault.is_busy() || fault.is_duplicate() => Ok(()),
            Err(fault) => Err(self.error(subject, fault)),
        }
    }
}

/// How long a key is that is text or bytes.
fn key_bytes(key: &Value) -> Option<usize> {
    match key {
        Value::Bytes(bytes) => Some(bytes.len()),
        _ => None,
    }
}

/// A row was locked by somebody else.
struct Refusal {
    error: Error,
    /// Whether the server has waited for it, in whole seconds.
    has_waited: bool,
}

/// Tries to lock all rows by the deadline, and says if one of them could not be had.
fn lock_each(
    session: &mut Session,
    target: &Keyed,
    keys: &[Value],
    deadline: Option<Instant>,
) -> Result<Option<Refusal>> {
    let (table, column) = target.quoted();
    let select = format!("SELECT 1 FROM {table} WHERE {column} = :k FOR UPDATE");
    let nowait = format!("{select} NOWAIT");
    for key in keys {
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        let seconds = left.map_or(LONGEST_ROW_WAIT, |left| {
            left.as_secs().min(LONGEST_ROW_WAIT)
        });
        let params = params! { "k" => key.clone() };
        let outcome = if seconds > 0 {
            session.set_row_wait(seconds)?;
            session.lock_row(&select, params, Duration::from_secs(seconds))
        } else {
            session.lock_row(&nowait, params, Duration::ZERO)
        };
        match outcome {
            Ok(rows) if rows.is_empty() => return Err(session.row_not_found(key)),
            Ok(_) => {}
            Err(error @ Error::WaitTimeout { .. }) => {
                return Ok(Some(Refusal {
                    error,
                    has_waited: seconds > 0,
                }));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Sleeps until `until`. An interrupt and the client's end are errors.
pub(crate) fn rest(parker: &Parker, deadline: Instant, subject: &Arc<str>) -> Result<()> {
    loop {
        let lock = Arc::clone(subject);
        match parker.park(Some(deadline)) {
            Wake::Permit => {}
            Wake::TimedOut => return Ok(()),
            Wake::Interrupted => return Err(Error::Interrupted { lock }),
            Wake::Closed => return Err(Error::Closed { lock }),
        }
    }
}
