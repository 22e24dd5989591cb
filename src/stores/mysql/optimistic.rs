//! Optimistic updates: a row is read together with its check column, and written only if that has not changed.

use std::sync::Arc;
use std::time::Instant;

use ::mysql::{Column, Params, Row, Value};

use super::call_error::CallError;
use super::keys::{Ident, KeyedTable};
use super::rows::NOWAIT_PAUSE;
use super::{MySql, ROW_WAIT, TABLE_WAIT, sleep_until};
use crate::ground::error::Result;
use crate::ground::time;

/// The length of a time without decimals as text.
const TIME_LENGTH: usize = "2026-01-01 00:00:00".len();

/// A row to read, and the columns wanted.
pub(crate) struct Lookup<'a> {
    pub(crate) target: &'a KeyedTable,
    pub(crate) key: &'a Value,
    pub(crate) columns: &'a [Ident],
    pub(crate) check: &'a Ident,
    pub(crate) subject: &'a Arc<str>,
}

/// New values for a row that was read before.
pub(crate) struct Update<'a> {
    pub(crate) lookup: Lookup<'a>,
    pub(crate) set: &'a [(&'a Ident, &'a Value)],
    /// The row as it was read, with the check as its last column.
    pub(crate) seen: &'a Row,
    /// Whether the check is a time, not a number.
    pub(crate) is_time: bool,
}

impl Update<'_> {
    /// Returns the check as it was read.
    fn seen_check(&self) -> Value {
        let last = self.seen.len().saturating_sub(1);
        self.seen.as_ref(last).cloned().unwrap_or(Value::NULL)
    }

    /// Returns the decimals of a second that the check had when it was read, if it is a time.
    fn decimals(&self) -> u8 {
        let columns = self.seen.columns_ref();
        columns.last().map_or(0, Column::decimals)
    }
}

impl MySql {
    /// Reads the columns and, behind them, the check of a row; `None` if there is no such row.
    pub(crate) fn read_row(&self, lookup: &Lookup<'_>) -> Result<Option<Row>> {
        let key = self.key_of_row(lookup.target, lookup.key, lookup.subject)?;
        let (table, key_column) = lookup.target.quoted();
        let mut columns: Vec<String> = lookup.columns.iter().map(Ident::quoted).collect();
        columns.push(lookup.check.quoted());
        let statement = format!(
            "SELECT {} FROM {table} WHERE {key_column} = ?",
            columns.join(", ")
        );
        let rows = self
            .query(&statement, Params::Positional(vec![key]), self.deadline())
            .map_err(|error| self.error_of_users(lookup.subject, error))?;
        Ok(rows.into_iter().next())
    }

    /// Writes a row if it is unchanged since it was read, and returns whether it was.
    ///
    /// If a transaction has the row locked, this waits until `deadline`, at most as long as any statement waits for a row.
    pub(crate) fn write_row(&self, update: &Update<'_>, deadline: Option<Instant>) -> Result<bool> {
        let Lookup {
            target, subject, ..
        } = update.lookup;
        let column = update.lookup.check.as_str();
        let key = self.key_of_row(target, update.lookup.key, subject)?;
        self.checked(&target.table, subject, self.deadline(), |found| {
            found.check_rises(column, update.is_time)
        })?;
        let (table, key_column) = target.quoted();
        let check = update.lookup.check.quoted();
        let set = update.set.iter();
        let set: String = set
            .map(|(column, _)| format!("{} = ?, ", column.quoted()))
            .collect();
        let mut params: Vec<Value> = update.set.iter().map(|set| set.1.clone()).collect();
        params.extend([key.clone(), update.seen_check()]);
        // A time may be NULL before the first update. The check always changes, so the count of affected rows is right
        // whether it counts found or changed rows. If the column's precision was altered since the read, the step could be
        // rounded away: then the row counts as changed. The length of a time as text tells its precision.
        let still = if update.is_time {
            let decimals = usize::from(update.decimals());
            let length = TIME_LENGTH + usize::from(decimals > 0) + decimals;
            format!("({check} IS NULL OR CHAR_LENGTH({check}) = {length})")
        } else {
            format!("{check} IS NOT NULL")
        };
        let statement = format!(
            "UPDATE {table} SET {set}{} WHERE {key_column} = ? AND {check} <=> ? AND {still}",
            next_check(update)
        );
        let look = format!("SELECT 1 FROM {table} WHERE {key_column} = ? FOR UPDATE NOWAIT");
        let key = Params::Positional(vec![key]);
        let params = Params::Positional(params);
        let parker = self.facts.notifier.parker();
        let written = loop {
            // The server waits in whole seconds, for the table and then for the row. A shorter wait asks again and again.
            let longest = (TABLE_WAIT + ROW_WAIT) * 6 / 5;
            let end = deadline.filter(|end| *end < time::now() + longest);
            let request_deadline = self.deadline();
            let written = self.pools.once(request_deadline, |connection| {
                if end.is_some() {
                    let free = connection.query::<Row>(&look, key.clone(), request_deadline);
                    free.map_err(CallError::before_sending)?;
                }
                let (_, touched) =
                    connection.execute(&statement, params.clone(), request_deadline)?;
                Ok(touched)
            });
            let now = time::now();
            match (written, end) {
                (Err(error), Some(end)) if error.is_busy() && now < end => {
                    sleep_until(&parker, end.min(now + NOWAIT_PAUSE), subject)?;
                }
                (written, _) => break written,
            }
        };
        match written {
            Ok(touched) => Ok(touched > 0),
            Err(CallError::NoReply { reason, .. }) => {
                Err(self.unknown(subject, None, "update", reason))
            }
            Err(CallError::Server { code, text }) if is_full(code, &text, column) => {
                let reason = format!(
                    "its column `{column}` has no larger value ({text}): make its type wider"
                );
                Err(self.schema_error(subject, &target.table, &reason))
            }
            Err(error) => Err(self.error_of_users(subject, error)),
        }
    }
}

/// Returns the assignment that raises the check.
fn next_check(update: &Update<'_>) -> String {
    let check = update.lookup.check.quoted();
    if !update.is_time {
        return format!("{check} = {check} + 1");
    }
    let decimals = update.decimals().min(6);
    // One unit of its own precision, since less would be rounded away.
    let unit = 10u64.pow(6 - u32::from(decimals));
    let now = format!("UTC_TIMESTAMP({decimals})");
    format!("{check} = GREATEST({now}, COALESCE({check} + INTERVAL {unit} MICROSECOND, {now}))")
}

/// Returns whether an error means that the check has reached its largest value. 1264 and 1690 are for numbers, 1292 and
/// 1441 for times.
fn is_full(code: u16, text: &str, check: &str) -> bool {
    let (text, check) = (text.to_ascii_lowercase(), check.to_ascii_lowercase());
    matches!(code, 1264 | 1690 | 1292 | 1441) && text.contains(&check)
}
