use std::sync::Arc;
use std::time::{Duration, Instant};

use ::mysql::{Params, Row, params};

use super::MySql;
use super::keys::{Ident, KeyedTable};
use super::pool::Request;
use crate::ground::error::database::DatabaseError;
use crate::ground::error::{Error, Result};
use crate::store::HealthWarning;

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) locks: Ident,
    /// The table of the rows that users lock by name.
    pub(super) rows: KeyedTable,
}

impl Tables {
    pub(super) fn named(locks: &str) -> Result<Tables> {
        Ok(Tables {
            locks: Ident::new(locks)?,
            rows: KeyedTable::new(&format!("{locks}_rows"), "resource")?,
        })
    }

    pub(super) fn advice(&self) -> String {
        let (locks, rows) = (&self.locks, &self.rows.table);
        format!(
            "Client::create_tables() creates {locks} and {rows}, Client::check_schema() checks them"
        )
    }

    fn all(&self) -> [(&Ident, &'static [Column]); 2] {
        [(&self.locks, &COLUMNS), (&self.rows.table, &COLUMNS[..1])]
    }
}

/// A column of a lock table: name, type, smallest size, and definition.
type Column = (&'static str, &'static str, u64, &'static str);

/// `Tables::rows` has only the first of these columns. Names are VARBINARY, because text collations treat different
/// names as equal. Times are DATETIME, because TIMESTAMP depends on the session's time zone and ends in 2038.
const COLUMNS: [Column; 6] = [
    ("resource", "varbinary", 255, "VARBINARY(255) NOT NULL"),
    ("owner", "varbinary", 128, "VARBINARY(128) NULL"),
    ("holds", "int", 0, "INT UNSIGNED NOT NULL"),
    ("fence", "bigint", 0, "BIGINT UNSIGNED NOT NULL"),
    ("acquired_at", "datetime", 6, "DATETIME(6) NOT NULL"),
    ("expires_at", "datetime", 6, "DATETIME(6) NOT NULL"),
];

impl MySql {
    fn tables_subject(&self) -> Arc<str> {
        self.tables.locks.as_str().into()
    }

    pub(crate) fn create_tables(&self) -> Result<()> {
        for (table, columns) in self.tables.all() {
            let column = |(name, .., sql): &Column| format!("{name} {sql}, ");
            let columns: String = columns.iter().map(column).collect();
            // The table has no second index and no AUTO_INCREMENT, because these cause deadlocks.
            let create = format!(
                "CREATE TABLE IF NOT EXISTS {table} ({columns}PRIMARY KEY (resource)) ENGINE=InnoDB"
            );
            self.query::<Row>(&create, Params::Empty, self.deadline())
                .map_err(|error| self.error(&self.tables_subject(), error))?;
        }
        self.check_schema()
    }

    pub(crate) fn check_schema(&self) -> Result<()> {
        self.known.lock().clear();
        for (table, _) in self.tables.all() {
            self.check_own(table, &table.as_str().into(), self.deadline())?;
        }
        Ok(())
    }

    /// Checks `table` if it belongs to this library. Without a primary key, a lock table would grant every lock.
    pub(super) fn check_own(
        &self,
        table: &Ident,
        subject: &Arc<str>,
        deadline: Instant,
    ) -> Result<()> {
        let own = self.tables.all().into_iter().find(|(own, _)| *own == table);
        let Some((_, columns)) = own else {
            return Ok(());
        };
        self.checked(table, subject, deadline, |found| {
            found.key_column("resource")?;
            for (name, kind, size, sql) in columns {
                let is_right = found.column(name).is_ok_and(|column| {
                    (column.kind == *kind || (column.kind == "bigint" && *name == "holds"))
                        && column.size >= *size
                        && (column.is_nullable || *name != "owner")
                });
                if !is_right {
                    return Err(format!("its column `{name}` has to be {sql}"));
                }
            }
            Ok(())
        })
    }

    pub(crate) fn purge(&self, free_for: Duration, limit: u32) -> Result<u64> {
        let subject = self.tables_subject();
        let free_for = i64::try_from(free_for.as_micros()).unwrap_or(i64::MAX);
        let params = params! { "us" => free_for, "k" => limit };
        let names = self.query(&self.statements.purgeable, params, self.deadline());
        let names: Vec<Vec<u8>> = names.map_err(|error| self.error(&subject, error))?;
        let mut purged = 0;
        for name in names {
            // Rows are deleted one at a time, because a delete of many rows could deadlock with acquisitions.
            let params = params! { "r" => name, "us" => free_for };
            let deadline = self.deadline();
            let touched = self.pools.run(Request::Once, deadline, |connection| {
                connection.execute(&self.statements.purge, params.clone(), deadline)
            });
            purged += touched.map_err(|error| self.error(&subject, error))?.1;
        }
        Ok(purged)
    }
}

pub(super) fn warnings(store: &MySql, deadline: Instant) -> Result<Vec<HealthWarning>> {
    let (subject, node) = (store.tables_subject(), store.node());
    let select = "SELECT @@global.read_only, @@global.innodb_flush_log_at_trx_commit, VERSION()";
    let settings = store.query(select, Params::Empty, deadline);
    let settings: Vec<(u8, u8, String)> = settings.map_err(|error| store.error(&subject, error))?;
    let mut found = Vec::new();
    for (read_only, flush, version) in settings {
        found.push(match read_only {
            0 => HealthWarning::ok(node, "role", "it takes writes"),
            _ => HealthWarning::danger(
                node,
                "role",
                "the server is read-only: it is not the primary and grants no locks",
                "use the address of the primary",
            ),
        });
        found.push(HealthWarning::ok(node, "version", version));
        let flushes = format!("innodb_flush_log_at_trx_commit is {flush}");
        found.push(match flush {
            1 => HealthWarning::ok(node, "persistence", flushes + ": locks outlive a restart"),
            _ => HealthWarning::note(
                node,
                "persistence",
                flushes + ": a crash may lose the last second of writes, and locks with them",
                "set innodb_flush_log_at_trx_commit to 1",
            ),
        });
    }
    store.known.lock().clear();
    found.push(match store.check_own(&store.tables.locks, &subject, deadline) {
        Ok(()) => {
            let message = format!("the table {subject} has the right definition");
            HealthWarning::ok(node, "lock-table", message)
        }
        Err(Error::Database(DatabaseError::Schema { reason, .. })) => HealthWarning::danger(
            node,
            "lock-table",
            reason,
            "create a missing table with Client::create_tables (redlatch create-tables); alter a wrong one, or drop \
                it first",
        ),
        Err(error) => return Err(error),
    });
    Ok(found)
}
