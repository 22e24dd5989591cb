//! Optimistic updates: a row is read together with its check column, and written only if that has not changed.

use std::sync::Arc;
use std::time::Instant;

use ::mysql::{Column, Params, Row, Value};

use super::call_error::CallError;
use super::keys::{Ident, KeyedTable};
use super::pool::Request;
use super::rows::NOWAIT_PAUSE;
use super::{MySql, ROW_WAIT, TABLE_WAIT, sleep_until};
use crate::ground::error::{Error, Result};
use crate::ground::time;

/// The length of a time without decimals as text.
const TIME_LENGTH: usize = "2026-01-01 00:00:00".len();

/// A table whose rows are updated, and the columns that are read and written.
#[derive(Debug)]
pub(crate) struct VersionedTable {
    pub(crate) target: KeyedTable,
    pub(crate) columns: Vec<Ident>,
    pub(crate) check: Ident,
    /// Whether the check is a time, not a number.
    pub(crate) is_time: bool,
}

impl MySql {
    /// Reads the columns and, behind them, the check of a row; `None` if there is no such row.
    pub(crate) fn read_row(
        &self,
        table: &VersionedTable,
        key: &Value,
        subject: &Arc<str>,
    ) -> Result<Option<Row>> {
        let key = self.key_of_row(&table.target, key, subject)?;
        let columns = table.columns.iter().map(|column| format!("{column}, "));
        let (columns, check) = (columns.collect::<String>(), &table.check);
        let KeyedTable { table, key: column } = &table.target;
        let statement = format!("SELECT {columns}{check} FROM {table} WHERE {column} = ?");
        let rows = self.query(&statement, Params::Positional(vec![key]), self.deadline());
        let rows: Vec<Row> = rows.map_err(|error| self.error_of_users(subject, error))?;
        Ok(rows.into_iter().next())
    }

    /// Writes a row if it is unchanged since it was `seen`, with the check as the last column; returns whether it was.
    ///
    /// If a transaction has the row locked, this waits until `deadline`, at most as long as any statement waits for a row.
    pub(crate) fn write_row(
        &self,
        table: &VersionedTable,
        key: &Value,
        seen: &Row,
        changes: &[(String, Value)],
        deadline: Option<Instant>,
        subject: &Arc<str>,
    ) -> Result<bool> {
        let (target, check, is_time) = (&table.target, &table.check, table.is_time);
        let key = self.key_of_row(target, key, subject)?;
        self.checked(&target.table, subject, self.deadline(), |found| {
            found.check_rises(check.as_str(), is_time)
        })?;
        let (mut set, mut params) = (String::new(), Vec::new());
        for (name, value) in changes {
            let column = table.columns.iter().find(|column| column.is(name));
            let column = column.ok_or_else(|| {
                let reason = format!("Client::versioned did not name the column {name:?}");
                Error::unsupported(subject, reason)
            })?;
            set += &format!("{column} = ?, ");
            params.push(value.clone());
        }
        let last = seen.len().saturating_sub(1);
        let seen_check = seen.as_ref(last).cloned().unwrap_or(Value::NULL);
        // The decimals of a second that the check had when it was read, if it is a time.
        let decimals = seen.columns_ref().last().map_or(0, Column::decimals).min(6);
        params.extend([key.clone(), seen_check]);
        // A time may be NULL before the first update. The check always changes, so the count of affected rows is right
        // whether it counts found or changed rows. If the column's precision was altered since the read, the step could be
        // rounded away: then the row counts as changed. The length of a time as text tells its precision.
        let (next, still) = if is_time {
            // One unit of its own precision, since less would be rounded away.
            let unit = 10u64.pow(6 - u32::from(decimals));
            let now = format!("UTC_TIMESTAMP({decimals})");
            let length = TIME_LENGTH + usize::from(decimals > 0) + usize::from(decimals);
            (
                format!("GREATEST({now}, COALESCE({check} + INTERVAL {unit} MICROSECOND, {now}))"),
                format!("({check} IS NULL OR CHAR_LENGTH({check}) = {length})"),
            )
        } else {
            (format!("{check} + 1"), format!("{check} IS NOT NULL"))
        };
        let KeyedTable { table, key: column } = target;
        let statement = format!(
            "UPDATE {table} SET {set}{check} = {next} WHERE {column} = ? AND {check} <=> ? AND {still}"
        );
        let look = format!("SELECT 1 FROM {table} WHERE {column} = ? FOR UPDATE NOWAIT");
        let key = Params::Positional(vec![key]);
        let params = Params::Positional(params);
        let parker = self.facts.notifier.parker();
        let written = loop {
            // The server waits in whole seconds, for the table and then for the row. A shorter wait asks again and again.
            let longest = (TABLE_WAIT + ROW_WAIT) * 6 / 5;
            let end = deadline.filter(|end| *end < time::now() + longest);
            let request_deadline = self.deadline();
            let written = self
                .pools
                .run(Request::Once, request_deadline, |connection| {
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
            Err(error) => Err(self.error_of_users(subject, error)),
        }
    }
}
