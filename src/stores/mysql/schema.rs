//! The tables of the locks: creating, checking and purging them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::{Params, Row, params};

use super::MySql;
use super::keys::{Ident, KeyedTable};
use crate::ground::error::database::DatabaseError;
use crate::ground::error::{Error, Result};
use crate::store::HealthWarning;

/// The names of the tables of the locks.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) locks: Ident,
    /// The table of the named rows.
    pub(super) rows: KeyedTable,
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

    pub(super) fn has(&self, table: &Ident) -> bool {
        *table == self.locks || *table == self.rows.table
    }

    /// Returns the advice for a table that is missing.
    pub(super) fn advice(&self) -> String {
        format!(
            "Client::create_tables() makes `{}` and `{}`, Client::check_schema() looks at them",
            self.locks.as_str(),
            self.rows.table.as_str()
        )
    }

    /// Returns the advice for a table that exists and is wrong, which `CREATE TABLE IF NOT EXISTS` leaves as it is.
    pub(super) fn advice_for_wrong(table: &Ident) -> String {
        let table = table.as_str();
        format!(
            "alter `{table}`, or drop it while no lock is held and call Client::create_tables()"
        )
    }
}

/// The columns of the lock table: name, kind, least size, and type in SQL. The table of the named rows has the first one.
///
/// Bytes, because text of some collations and lengths would make one lock of two names.
const COLUMNS: [(&str, &str, u64, &str); 6] = [
    ("resource", "varbinary", 255, "VARBINARY(255)"),
    ("owner", "varbinary", 128, "VARBINARY(128) NULL"),
    ("holds", "int", 0, "INT UNSIGNED"),
    ("fence", "bigint", 0, "BIGINT UNSIGNED"),
    ("acquired_at", "datetime", 6, "DATETIME(6)"),
    ("expires_at", "datetime", 6, "DATETIME(6)"),
];

impl MySql {
    /// Creates the lock table and the table of the named rows, unless they exist.
    pub(crate) fn create_tables(&self) -> Result<()> {
        let subject: Arc<str> = self.tables.locks.as_str().into();
        let (table, key) = self.tables.rows.quoted();
        let create_rows = format!(
            "CREATE TABLE IF NOT EXISTS {table} ({key} VARBINARY(255) NOT NULL PRIMARY KEY) ENGINE=InnoDB"
        );
        for statement in [&self.statements.create, &create_rows] {
            self.query::<Row>(statement, Params::Empty, self.deadline())
                .map_err(|error| self.error(&subject, error))?;
        }
        self.check_schema()
    }

    /// Checks that both tables exist and are as the locks need them.
    pub(crate) fn check_schema(&self) -> Result<()> {
        self.known.lock().clear();
        for table in [&self.tables.locks, &self.tables.rows.table] {
            self.check_own(table, &table.as_str().into(), self.deadline())?;
        }
        Ok(())
    }

    /// Checks a table of the locks. Without its primary key, every client would get every lock.
    pub(super) fn check_own(
        &self,
        table: &Ident,
        subject: &Arc<str>,
        deadline: Instant,
    ) -> Result<()> {
        let columns = match *table == self.tables.locks {
            true => &COLUMNS[..],
            false => &COLUMNS[..1],
        };
        self.checked(table, subject, deadline, |found| {
            found.key_column("resource")?;
            if found.indexed != 1 {
                return Err("it has a second index, which brings deadlocks: drop it".to_owned());
            }
            let is_right = |(name, kind, size, _): &&(&str, &str, u64, &str)| {
                found.column(name).is_ok_and(|column| {
                    (column.kind == *kind || (column.kind == "bigint" && *name == "holds"))
                        && column.size >= *size
                        && (column.is_nullable || *name != "owner")
                })
            };
            match columns.iter().find(|column| !is_right(column)) {
                Some((name, _, _, sql)) => Err(format!("its column `{name}` has to be {sql}")),
                None => Ok(()),
            }
        })
    }

    /// Deletes at most `limit` rows that have been free for `free_for`, and returns their number.
    pub(crate) fn purge(&self, free_for: Duration, limit: u32) -> Result<u64> {
        let subject: Arc<str> = self.tables.locks.as_str().into();
        let free_for = i64::try_from(free_for.as_micros()).unwrap_or(i64::MAX);
        let params = params! { "us" => free_for, "k" => limit };
        let names = self.query(&self.statements.purgeable, params, self.deadline());
        let names: Vec<Vec<u8>> = names.map_err(|error| self.error(&subject, error))?;
        let mut purged = 0;
        for name in names {
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
    let select = "SELECT @@global.read_only, @@global.innodb_flush_log_at_trx_commit, VERSION()";
    let settings = store.query(select, Params::Empty, deadline);
    let settings: Vec<(u8, u8, String)> = settings.map_err(|error| store.error(&subject, error))?;
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
    store.known.lock().clear();
    found.push(
        match store.check_own(&store.tables.locks, &subject, deadline) {
            Ok(()) => {
                let message = format!("the table {subject} is as it has to be");
                HealthWarning::ok(node, "lock-table", message)
            }
            Err(Error::Database(DatabaseError::Schema { reason, .. })) => HealthWarning::danger(
                node,
                "lock-table",
                reason,
                "make a missing table with Client::create_tables (redlatch create-tables); alter a wrong one, or drop it first",
            ),
            Err(error) => return Err(error),
        },
    );
    Ok(found)
}
