//! Tables as the server describes them. Each client checks a table at its first use.

use std::sync::Arc;
use std::time::Instant;

use ::mysql::{Value, params};

use super::MySql;
use super::keys::Ident;
use crate::ground::error::database::DatabaseError;
use crate::ground::error::{Error, Result};

/// Returns one row per column of the table `:t`. The query uses no `GROUP_CONCAT`, whose result the server may truncate.
const DESCRIBE: &str = "SELECT COLUMN_NAME, LOWER(DATA_TYPE), \
     COALESCE(CHARACTER_OCTET_LENGTH, DATETIME_PRECISION, 0), IS_NULLABLE = 'YES', \
     (SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :t), \
     (SELECT IF(COUNT(*) = 1 AND COUNT(SUB_PART) = 0, MIN(COLUMN_NAME), NULL) FROM information_schema.STATISTICS \
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :t AND INDEX_NAME = 'PRIMARY') \
     FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :t";

const MISSING: &str = "it does not exist, or this user has no right to read it";

#[derive(Clone, Debug, Default)]
pub(super) struct Column {
    name: String,
    pub(super) kind: String,
    /// The largest length in bytes, or the number of fractional digits of a second.
    pub(super) size: u64,
    pub(super) is_nullable: bool,
    /// The engine of the table; `None` for a view.
    engine: Option<String>,
    /// The primary key of the table, if it is one whole column.
    key: Option<String>,
}

#[derive(Debug)]
pub(super) struct Table(Vec<Column>);

impl MySql {
    /// Each client requests the description of a table once, and again after each failed check.
    pub(super) fn checked<T>(
        &self,
        table: &Ident,
        subject: &Arc<str>,
        deadline: Instant,
        check: impl Fn(&Table) -> Result<T, String>,
    ) -> Result<T> {
        let known = self.known.lock().get(table).cloned();
        if let Some(Ok(value)) = known.map(|known| check(&known)) {
            return Ok(value);
        }
        let rows = self.query(DESCRIBE, params! { "t" => table.as_str() }, deadline);
        let rows = rows.map_err(|error| self.error(subject, error))?;
        let column = |(name, kind, size, is_nullable, engine, key)| Column {
            name,
            kind,
            size,
            is_nullable,
            engine,
            key,
        };
        let found = Arc::new(Table(rows.into_iter().map(column).collect()));
        let value = check(&found).map_err(|reason| self.schema_error(subject, table, &reason))?;
        self.known.lock().insert(table.clone(), found);
        Ok(value)
    }

    pub(super) fn schema_error(&self, subject: &Arc<str>, table: &Ident, reason: &str) -> Error {
        let is_own = *table == self.tables.locks || *table == self.tables.rows.table;
        let advice = match reason {
            _ if !is_own => String::new(),
            MISSING => format!("; {}", self.tables.advice()),
            // `Client::create_tables` does not change an existing table, so the user has to alter or drop the table.
            _ => format!(
                "; alter {table}, or drop it while no lock is held and call Client::create_tables()"
            ),
        };
        Error::Database(DatabaseError::Schema {
            lock: Arc::clone(subject),
            node: Arc::clone(self.node()),
            reason: format!("table {table}: {reason}{advice}"),
        })
    }
}

impl Table {
    pub(super) fn column(&self, name: &str) -> Result<&Column, String> {
        let is_it = |column: &&Column| column.name.eq_ignore_ascii_case(name);
        let found = self.0.iter().find(is_it);
        found.ok_or_else(|| format!("it has no column `{name}`"))
    }

    /// The key must have an index. Without an index, the server would lock every row that it reads.
    pub(super) fn key_column(&self, name: &str) -> Result<&Column, String> {
        let table = self.0.first().ok_or(MISSING)?;
        let engine = table.engine.as_deref().unwrap_or("a view");
        if !engine.eq_ignore_ascii_case("InnoDB") {
            let flaw = "which locks no rows: it has to be InnoDB";
            return Err(format!("its engine is {engine}, {flaw}"));
        }
        match &table.key {
            Some(key) if key.eq_ignore_ascii_case(name) => self.column(name),
            _ => Err(format!(
                "its primary key is not exactly the column `{name}`; rows are locked by primary key only"
            )),
        }
    }

    /// Checks the version or time column that an optimistic update compares before it writes.
    pub(super) fn check_rises(&self, name: &str, is_time: bool) -> Result<(), String> {
        let column = self.column(name)?;
        let reason = if is_time && !matches!(&*column.kind, "datetime" | "timestamp") {
            "holds the time of the last update, so it has to be a DATETIME or TIMESTAMP"
        } else if !is_time && (!column.is_integer() || column.is_nullable) {
            // NULL + 1 is NULL, so a NULL version would never change, and no conflict would be found.
            "holds the version, so it has to be an integer and NOT NULL"
        } else {
            return Ok(());
        };
        Err(format!("its column `{name}` {reason}"))
    }
}

impl Column {
    fn is_integer(&self) -> bool {
        ["tinyint", "smallint", "mediumint", "int", "bigint"].contains(&&*self.kind)
    }

    /// Converts a key to the type of the column; `None` if no safe conversion exists. Without this function, the server
    /// would read every row if the key is a number and the column is a text. In an integer column, the text `7x` would
    /// find 7.
    pub(super) fn key(&self, key: Value) -> Option<Value> {
        let kind = match &*self.kind {
            "date" | "datetime" | "timestamp" => "date",
            "bit" | "decimal" | "float" | "double" | "time" => return None,
            kind if kind == "year" || self.is_integer() => "int",
            _ => "text",
        };
        let is_in_date = |byte: &u8| byte.is_ascii_digit() || b"-:. ".contains(byte);
        match (&key, kind) {
            (Value::Int(_) | Value::UInt(_), "text") => {
                Some(Value::Bytes(key.as_sql(true).into_bytes()))
            }
            (Value::Bytes(text), "date") if !text.iter().all(is_in_date) => None,
            (Value::Int(_) | Value::UInt(_), "int")
            | (Value::Bytes(_), "text" | "date")
            | (Value::Date(..), "date") => Some(key),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
