//! The tables of the locks: creating, checking and purging them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::mysql::{Params, Value, params};

use super::MySql;
use super::describe::Column;
use super::key_kind::KeyKind;
use super::keys::{Ident, KeyedTable};
use crate::ground::error::database::DatabaseError;
use crate::ground::error::{Error, Result};
use crate::ground::sync::Mutex;
use crate::store::HealthWarning;

/// The names of the tables of the locks.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) locks: Ident,
    rows: KeyedTable,
}

impl Tables {
    pub(super) fn named(locks: &str) -> Result<Tables> {
        Ok(Tables {
            locks: Ident::new(locks)?,
            rows: KeyedTable {
                table: Ident::new(&format!("{locks}_rows"))?,
                key: Ident::new("resource")?,
            },
        })
    }

    pub(super) fn named_rows(&self) -> KeyedTable {
        self.rows.clone()
    }

    /// Returns the advice for a table that is missing or wrong.
    pub(super) fn advice(&self) -> String {
        format!(
            "Client::create_tables() makes `{}` and `{}`, Client::check_schema() looks at them",
            self.locks.as_str(),
            self.rows.table.as_str()
        )
    }
}

/// The tables as the server described them, asked once per client.
#[derive(Debug, Default)]
pub(super) struct SchemaCache {
    keys: Mutex<HashMap<KeyedTable, KeyKind>>,
    columns: Mutex<HashMap<(Ident, Ident), Column>>,
    /// Whether the lock table was checked and is right.
    lock_table: AtomicBool,
}

impl MySql {
    /// Creates the lock table and the table of the named rows, unless they exist.
    pub(crate) fn create_tables(&self) -> Result<()> {
        let subject: Arc<str> = self.tables.locks.as_str().into();
        let rows = self.tables.named_rows();
        let (table, key) = rows.quoted();
        let create_rows = format!(
            "CREATE TABLE IF NOT EXISTS {table} ({key} VARBINARY(255) NOT NULL PRIMARY KEY) ENGINE=InnoDB"
        );
        for statement in [&self.statements.create, &create_rows] {
            self.query(statement, Params::Empty, self.deadline())
                .map_err(|error| self.error(&subject, error))?;
        }
        self.check_schema()
    }

    /// Checks that both tables exist and are as the locks need them.
    pub(crate) fn check_schema(&self) -> Result<()> {
        let subject: Arc<str> = self.tables.locks.as_str().into();
        self.verify_lock_table(&subject, self.deadline())?;
        let rows = self.tables.named_rows();
        let subject: Arc<str> = rows.table.as_str().into();
        self.primary_key(&rows, &subject)?;
        Ok(())
    }

    /// Checks the lock table, once per client: without its primary key, every client would get every lock.
    pub(super) fn check_lock_table(&self, lock: &Arc<str>, deadline: Instant) -> Result<()> {
        if !self.known.lock_table.load(Ordering::Acquire) {
            self.verify_lock_table(lock, deadline)?;
            self.known.lock_table.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn verify_lock_table(&self, subject: &Arc<str>, deadline: Instant) -> Result<()> {
        let found = self.describe(&self.tables.locks, subject, deadline)?;
        let wrong = |reason: String| Err(self.schema_error(subject, &self.tables.locks, &reason));
        if found.primary_key() != [("resource", false)] {
            // Without it, two visitors could each have a row, and both would have the lock.
            return wrong(
                "its primary key has to be the whole column `resource` and nothing else".to_owned(),
            );
        }
        if found.indexes.len() != 1 {
            return wrong("it has a second index, which brings deadlocks: drop it".to_owned());
        }
        type Wanted = (&'static str, &'static str, fn(&Column) -> bool);
        let wanted: [Wanted; 6] = [
            ("resource", "VARBINARY(255)", |c| {
                c.kind == "varbinary" && c.length >= Some(255)
            }),
            ("owner", "VARBINARY(128) NULL", |c| {
                c.kind == "varbinary" && c.length >= Some(128) && c.is_nullable
            }),
            ("holds", "INT UNSIGNED", |c| {
                c.kind == "int" || c.kind == "bigint"
            }),
            ("fence", "BIGINT UNSIGNED", |c| c.kind == "bigint"),
            ("acquired_at", "DATETIME(6)", |c| {
                c.kind == "datetime" && c.decimals == Some(6)
            }),
            ("expires_at", "DATETIME(6)", |c| {
                c.kind == "datetime" && c.decimals == Some(6)
            }),
        ];
        for (name, kind, is_right) in wanted {
            if !found.column(name).is_some_and(is_right) {
                return wrong(format!("its column `{name}` has to be {kind}"));
            }
        }
        Ok(())
    }

    /// Returns the kind of a primary key; fails if the key is another column, or the table cannot lock rows.
    pub(super) fn primary_key(&self, target: &KeyedTable, subject: &Arc<str>) -> Result<KeyKind> {
        if let Some(kind) = self.known.keys.lock().get(target) {
            return Ok(*kind);
        }
        let found = self.describe(&target.table, subject, self.deadline())?;
        let is_the_key = matches!(&*found.primary_key(), [(column, false)]
            if column.eq_ignore_ascii_case(target.key.as_str()));
        let Some(column) = found.column(target.key.as_str()).filter(|_| is_the_key) else {
            // A search by any other column would lock every row that it reads.
            return Err(self.schema_error(
                subject,
                &target.table,
                &format!(
                    "its primary key is not the column `{}` alone, and rows are locked by the primary key only",
                    target.key.as_str()
                ),
            ));
        };
        let kind = KeyKind::of(column);
        self.known.keys.lock().insert(target.clone(), kind);
        Ok(kind)
    }

    /// Returns the key of a row in the form for which the server uses the index.
    pub(crate) fn normalized_key(
        &self,
        target: &KeyedTable,
        key: Value,
        subject: &Arc<str>,
    ) -> Result<Value> {
        self.primary_key(target, subject)?.normalized(key, subject)
    }

    /// Returns the description of a column of a user's table.
    pub(crate) fn column(
        &self,
        table: &Ident,
        column: &Ident,
        subject: &Arc<str>,
    ) -> Result<Column> {
        let place = (table.clone(), column.clone());
        if let Some(known) = self.known.columns.lock().get(&place) {
            return Ok(known.clone());
        }
        let description = self.describe(table, subject, self.deadline())?;
        let Some(found) = description.column(column.as_str()) else {
            return Err(self.schema_error(
                subject,
                table,
                &format!("it has no column `{}`", column.as_str()),
            ));
        };
        self.known.columns.lock().insert(place, found.clone());
        Ok(found.clone())
    }

    pub(crate) fn schema_error(&self, subject: &Arc<str>, table: &Ident, reason: &str) -> Error {
        let advice = if *table == self.tables.locks || *table == self.tables.rows.table {
            format!("; {}", self.tables.advice())
        } else {
            String::new()
        };
        Error::Database(DatabaseError::Schema {
            lock: Arc::clone(subject),
            node: Arc::clone(self.node()),
            reason: format!("table `{}`: {reason}{advice}", table.as_str()),
        })
    }

    /// Deletes at most `limit` rows that have been free for `free_for`, and returns their number.
    pub(crate) fn purge(&self, free_for: Duration, limit: u32) -> Result<u64> {
        let subject: Arc<str> = self.tables.locks.as_str().into();
        let free_for = i64::try_from(free_for.as_micros()).unwrap_or(i64::MAX);
        let names: Vec<(Vec<u8>,)> = self.query_as(
            &self.statements.purgeable,
            params! { "us" => free_for, "k" => limit },
            &subject,
            self.deadline(),
        )?;
        let mut purged = 0;
        for (name,) in names {
            // One at a time, by the primary key: a sweep over many rows would deadlock with acquisitions.
            let params = params! { "r" => name, "us" => free_for };
            let touched = self.execute_once(&self.statements.purge, params, self.deadline());
            purged += touched.map_err(|error| self.error(&subject, error))?;
        }
        Ok(purged)
    }
}

/// Returns what is found about the settings of the server, and about the lock table.
pub(super) fn warnings(store: &MySql, deadline: Instant) -> Result<Vec<HealthWarning>> {
    let subject: Arc<str> = store.tables.locks.as_str().into();
    let node = store.node();
    let mut found = Vec::new();
    let settings: Vec<(u8, u8, String)> = store.query_as(
        "SELECT @@global.read_only, @@global.innodb_flush_log_at_trx_commit, VERSION()",
        Params::Empty,
        &subject,
        deadline,
    )?;
    if let Some((read_only, flush, version)) = settings.into_iter().next() {
        found.push(match read_only {
            0 => HealthWarning::ok(node, "role", "it takes writes"),
            _ => HealthWarning::danger(
                node,
                "role",
                "the server is read-only: it is no primary, and takes no locks",
                "use the address of the primary",
            ),
        });
        found.push(HealthWarning::ok(node, "version", version));
        found.push(match flush {
            1 => HealthWarning::ok(
                node,
                "persistence",
                "innodb_flush_log_at_trx_commit is 1: locks outlive a restart",
            ),
            flush => HealthWarning::note(
                node,
                "persistence",
                format!(
                    "innodb_flush_log_at_trx_commit is {flush}: a crash may lose the last second, and with it locks"
                ),
                "set innodb_flush_log_at_trx_commit to 1",
            ),
        });
    }
    match store.verify_lock_table(&subject, deadline) {
        Err(Error::Database(DatabaseError::Schema { reason, .. })) => {
            found.push(HealthWarning::danger(
                node,
                "lock-table",
                reason,
                "mend the table, or let Client::create_tables make it (redlatch create-tables)",
            ))
        }
        Err(error) => return Err(error),
        Ok(()) => found.push(HealthWarning::ok(
            node,
            "lock-table",
            format!("the table {subject} is as it has to be"),
        )),
    }
    Ok(found)
}
