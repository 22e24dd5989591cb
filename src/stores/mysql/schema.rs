//! The tables: making them, and making sure that they are what the locks rely on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::mysql::{Params, Value, params};

use super::MySql;
use super::describe::Column;
use super::keys::{Ident, KeyKind, Keyed};
use crate::ground::error::{Error, Result};
use crate::ground::sync::Mutex;
use crate::store::HealthWarning;

/// The tables of the locks themselves.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) locks: Ident,
    rows: Keyed,
}

impl Tables {
    pub(super) fn named(locks: &str) -> Result<Tables> {
        Ok(Tables {
            locks: Ident::new(locks)?,
            rows: Keyed {
                table: Ident::new(&format!("{locks}_rows"))?,
                key: Ident::new("resource")?,
            },
        })
    }

    pub(super) fn named_rows(&self) -> Keyed {
        self.rows.clone()
    }

    /// What to do if a table is not as it should be.
    pub(super) fn advice(&self) -> String {
        format!(
            "Client::create_tables() makes `{}` and `{}`, Client::check_schema() looks at them",
            self.locks.as_str(),
            self.rows.table.as_str()
        )
    }
}

/// What was found out about tables, so that it is asked once per client.
#[derive(Debug, Default)]
pub(super) struct Known {
    keys: Mutex<HashMap<Keyed, KeyKind>>,
    columns: Mutex<HashMap<(Ident, Ident), Column>>,
    /// Whether the lock table was found to be right.
    lock_table: AtomicBool,
}

impl MySql {
    /// Makes the lock table and that of the named rows, unless they are there.
    pub(crate) fn create_tables(&self) -> Result<()> {
        let subject: Arc<str> = self.tables.locks.as_str().into();
        let rows = self.tables.named_rows();
        let (table, key) = rows.quoted();
        let create_rows = format!(
            "CREATE TABLE IF NOT EXISTS {table} ({key} VARBINARY(255) NOT NULL PRIMARY KEY) ENGINE=InnoDB"
        );
        for statement in [&self.statements.create, &create_rows] {
            self.rows(statement, Params::Empty, self.deadline())
                .map_err(|fault| self.error(&subject, fault))?;
        }
        self.check_schema()
    }

    /// Makes sure that both tables are there and are what the locks rely on.
    pub(crate) fn check_schema(&self) -> Result<()> {
        let subject: Arc<str> = self.tables.locks.as_str().into();
        self.look_at_lock_table(&subject, self.deadline())?;
        let rows = self.tables.named_rows();
        let subject: Arc<str> = rows.table.as_str().into();
        self.primary_key(&rows, &subject)?;
        Ok(())
    }

    /// As [`MySql::check_schema`] for the lock table, once per client: without its primary key everybody would get
    /// every lock.
    pub(super) fn check_lock_table(&self, lock: &Arc<str>, deadline: Instant) -> Result<()> {
        if !self.known.lock_table.load(Ordering::Acquire) {
            self.look_at_lock_table(lock, deadline)?;
            self.known.lock_table.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn look_at_lock_table(&self, subject: &Arc<str>, deadline: Instant) -> Result<()> {
        let found = self.describe(&self.tables.locks, subject, deadline)?;
        let flaw = |reason: String| Err(self.schema_error(subject, &self.tables.locks, &reason));
        if found.primary_key() != [("resource", false)] {
            // Without it two visitors could each have a row of their own, and both the lock.
            return flaw(
                "its primary key has to be the whole column `resource` and nothing else".to_owned(),
            );
        }
        if found.indexes.len() != 1 {
            return flaw("it has a second index, which brings deadlocks: drop it".to_owned());
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
                return flaw(format!("its column `{name}` has to be {kind}"));
            }
        }
        Ok(())
    }

    /// What the primary key of a table is like; an error if it is not the column said, or rows cannot be locked there.
    pub(super) fn primary_key(&self, target: &Keyed, subject: &Arc<str>) -> Result<KeyKind> {
        if let Some(kind) = self.known.keys.lock().get(target) {
            return Ok(*kind);
        }
        let found = self.describe(&target.table, subject, self.deadline())?;
        let is_the_key = matches!(&*found.primary_key(), [(column, false)]
            if column.eq_ignore_ascii_case(target.key.as_str()));
        let Some(column) = found.column(target.key.as_str()).filter(|_| is_the_key) else {
            // Any other column would lock every row that is read on the way.
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

    /// The key of a row in a form with which the server uses the index.
    pub(crate) fn fitting_key(
        &self,
        target: &Keyed,
        key: Value,
        subject: &Arc<str>,
    ) -> Result<Value> {
        self.primary_key(target, subject)?.fitting(key, subject)
    }

    /// A column of a user's table.
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
        Error::Schema {
            lock: Arc::clone(subject),
            node: Arc::clone(self.node()),
            reason: format!("table `{}`: {reason}{advice}", table.as_str()),
        }
    }

    /// Forgets names that have been free for `free_for`, at most `limit` of them. Returns how many.
    pub(crate) fn purge(&self, free_for: Duration, limit: u32) -> Result<u64> {
        let subject: Arc<str> = self.tables.locks.as_str().into();
        let free_for = i64::try_from(free_for.as_micros()).unwrap_or(i64::MAX);
        let names: Vec<(Vec<u8>,)> = self.ask(
            &self.statements.purgeable,
            params! { "us" => free_for, "k" => limit },
            &subject,
            self.deadline(),
        )?;
        let mut purged = 0;
        for (name,) in names {
            // One at a time, by the primary key: a sweep over many rows is what deadlocks with acquisitions.
            let params = params! { "r" => name, "us" => free_for };
            let touched = self.run_once(&self.statements.purge, params, self.deadline());
            purged += touched.map_err(|fault| self.error(&subject, fault))?;
        }
        Ok(purged)
    }
}

/// What about the server and the table endangers locks.
pub(super) fn warnings(store: &MySql, deadline: Instant) -> Result<Vec<HealthWarning>> {
    let subject: Arc<str> = store.tables.locks.as_str().into();
    let mut warnings = Vec::new();
    let mut warn = |message: String| {
        warnings.push(HealthWarning {
            node: Arc::clone(store.node()),
            message,
        });
    };
    let settings: Vec<(u8, u8)> = store.ask(
        "SELECT @@global.read_only, @@global.innodb_flush_log_at_trx_commit",
        Params::Empty,
        &subject,
        deadline,
    )?;
    if let Some((read_only, flush)) = settings.into_iter().next() {
        if read_only != 0 {
            warn("the server is read-only: it is no primary, and takes no locks".to_owned());
        }
        if flush != 1 {
            warn(format!(
                "innodb_flush_log_at_trx_commit is {flush}: a crash may lose the last second, and with it locks; set it to 1"
            ));
        }
    }
    match store.look_at_lock_table(&subject, deadline) {
        Err(Error::Schema { reason, .. }) => warn(reason),
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    Ok(warnings)
}
