//! Optimistic updates. Each row has a check column with a version number or a time. A row is written only if this column is
//! unchanged since the read.

use std::sync::Arc;

use ::mysql::{Column, Params, Row, Value};

use super::MySql;
use super::call_error::CallError;
use super::keys::{Ident, KeyedTable};
use super::pool::Request;
use crate::ground::error::{Error, Result};

#[derive(Debug)]
pub(crate) struct VersionedTable {
    pub(crate) target: KeyedTable,
    pub(crate) columns: Vec<Ident>,
    pub(crate) check: Ident,
    /// True if the check column has a time, false if it has a version number.
    pub(crate) is_time: bool,
}

impl MySql {
    /// The last column of the row is `table.check`.
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

    /// Returns false if the column `table.check` no longer has the value from `seen`.
    pub(crate) fn write_row(
        &self,
        table: &VersionedTable,
        key: &Value,
        seen: &Row,
        changes: &[(String, Value)],
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
        // The number of fractional digits of a second.
        let decimals = seen.columns_ref().last().map_or(0, Column::decimals).min(6);
        params.extend([key, seen_check]);
        // Each update changes the column `check`, so CLIENT_FOUND_ROWS does not change which rows the server counts.
        let next = if is_time {
            // The time rises by at least one unit of the column's precision, because less would be rounded away. The time
            // may be NULL before the first update.
            let unit = 10u64.pow(6 - u32::from(decimals));
            let now = format!("UTC_TIMESTAMP({decimals})");
            format!("GREATEST({now}, COALESCE({check} + INTERVAL {unit} MICROSECOND, {now}))")
        } else {
            format!("{check} + 1")
        };
        let KeyedTable { table, key: column } = target;
        let statement = format!(
            "UPDATE {table} SET {set}{check} = {next} WHERE {column} = ? AND {check} <=> ?"
        );
        let params = Params::Positional(params);
        let by = self.deadline();
        let written = self.pools.run(Request::Once, by, |connection| {
            connection.execute(&statement, params.clone(), by)
        });
        match written {
            Ok((_, touched)) => Ok(touched > 0),
            Err(CallError::NoReply { reason, .. }) => {
                Err(self.unknown(subject, None, "update", reason))
            }
            Err(error) => Err(self.error_of_users(subject, error)),
        }
    }
}
