//! The tables: making them, and making sure that they are what the locks rely on.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::mysql::prelude::FromRow;
use ::mysql::{Params, Value, params};

use super::MySql;
use crate::ground::error::{Error, Result};
use crate::ground::sync::Mutex;
use crate::store::HealthWarning;

/// The name of a table or column, which can stand in a statement as it is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ident(Arc<str>);

impl Ident {
    /// Names are never quoted from what a user gives; what would need it is refused.
    pub(crate) fn new(name: &str) -> Result<Ident> {
        let mut bytes = name.bytes();
        let is_plain = bytes
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$')
            && name.len() <= 64;
        if !is_plain {
            return Err(Error::InvalidConfig {
                setting: "the name of a table or column",
                reason: format!(
                    "{:?} is not a letter or '_' followed by letters, digits, '_' and '$', 64 in all",
                    name.chars().take(70).collect::<String>()
                ),
            });
        }
        Ok(Ident(name.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it means the same column; case does not matter to a server.
    pub(crate) fn is(&self, other: &str) -> bool {
        self.0.eq_ignore_ascii_case(other)
    }

    pub(crate) fn quoted(&self) -> String {
        format!("`{}`", self.0)
    }
}

impl fmt::Debug for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A table and the column that is its primary key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Keyed {
    pub(crate) table: Ident,
    pub(crate) key: Ident,
}

impl Keyed {
    pub(crate) fn quoted(&self) -> (String, String) {
        (self.table.quoted(), self.key.quoted())
    }
}

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

/// What kind of column a primary key is, which decides the values that find a row there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Text,
    Integer,
    /// A decimal number, which comes and goes as text, or one with a floating point.
    Number,
    /// A date, with or without the time of day.
    Date,
    /// A time of day, or a span.
    Time,
    Other,
}

impl KeyKind {
    fn of(column: &Column) -> KeyKind {
        match &*column.kind {
            "year" | "bit" => KeyKind::Integer,
            "decimal" | "float" | "double" => KeyKind::Number,
            "date" | "datetime" | "timestamp" => KeyKind::Date,
            "time" => KeyKind::Time,
            _ if column.is_integer() => KeyKind::Integer,
            _ if column.is_text() => KeyKind::Text,
            _ => KeyKind::Other,
        }
    }

    /// The key in a form with which the server uses the index and finds no other row: for a number it would read every
    /// row of a text column, and to a number it would make 0 of any text.
    pub(super) fn fitting(self, key: Value, subject: &Arc<str>) -> Result<Value> {
        let refused = |reason: &str| {
            Err(Error::Unsupported {
                lock: Arc::clone(subject),
                reason: reason.to_owned(),
            })
        };
        match (self, key) {
            (_, Value::NULL) => refused("NULL is no key of a row"),
            (KeyKind::Text, Value::Int(key)) => Ok(Value::Bytes(key.to_string().into_bytes())),
            (KeyKind::Text, Value::UInt(key)) => Ok(Value::Bytes(key.to_string().into_bytes())),
            (_, Value::Float(_) | Value::Double(_)) => {
                refused("a key that is a floating point number finds no row for certain")
            }
            (KeyKind::Integer, Value::Bytes(_)) => refused(
                "the key is text and the primary key a number: give a number, as the server would take text for any",
            ),
            (KeyKind::Number, Value::Bytes(key)) if !is_number(&key) => {
                refused("the key is text that is no number, and the primary key is one")
            }
            (KeyKind::Date | KeyKind::Time, Value::Bytes(key)) if !is_date_or_time(&key) => {
                refused("the key is text that is no date or time, and the primary key is one")
            }
            (
                KeyKind::Text | KeyKind::Integer | KeyKind::Number | KeyKind::Time,
                Value::Date(..),
            ) => refused("the key is a date, and the primary key is none"),
            (
                KeyKind::Text | KeyKind::Integer | KeyKind::Number | KeyKind::Date,
                Value::Time(..),
            ) => refused("the key is a time, and the primary key is none"),
            (_, key) => Ok(key),
        }
    }
}

/// Whether it is a decimal number and nothing else.
fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let mut parts = digits.split(|byte| *byte == b'.');
    let is_part = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    parts.next().is_some_and(is_part) && parts.next().is_none_or(is_part) && parts.next().is_none()
}

/// Whether it has nothing in it but what dates and times are written with.
fn is_date_or_time(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_digit)
        && text
            .iter()
            .all(|byte| byte.is_ascii_digit() || b"-:. ".contains(byte))
}

/// What was found out about tables, so that it is asked once per client.
#[derive(Debug, Default)]
pub(super) struct Known {
    keys: Mutex<HashMap<Keyed, KeyKind>>,
    columns: Mutex<HashMap<(Ident, Ident), Column>>,
    /// Whether the lock table was found to be right.
    lock_table: AtomicBool,
}

/// One column as the server describes it.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    name: String,
    kind: String,
    is_nullable: bool,
    /// The longest value in bytes, of a text or binary column.
    length: Option<u64>,
    /// The decimals of a second.
    pub(crate) decimals: Option<u64>,
}

impl Column {
    pub(crate) fn is_integer(&self) -> bool {
        matches!(
            &*self.kind,
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint"
        )
    }

    pub(crate) fn is_time(&self) -> bool {
        matches!(&*self.kind, "datetime" | "timestamp")
    }

    pub(crate) fn is_nullable(&self) -> bool {
        self.is_nullable
    }

    fn is_text(&self) -> bool {
        [
            "char", "text", "binary", "blob", "enum", "set", "uuid", "inet",
        ]
        .iter()
        .any(|part| self.kind.contains(part))
    }
}

/// A table as the server describes it.
#[derive(Debug)]
struct Description {
    columns: Vec<Column>,
    /// Index, column and whether only the first bytes of the column count.
    indexes: Vec<(String, String, bool)>,
}

impl Description {
    fn primary_key(&self) -> Vec<(&str, bool)> {
        self.indexes
            .iter()
            .filter(|(index, ..)| index == "PRIMARY")
            .map(|(_, column, is_cut)| (&**column, *is_cut))
            .collect()
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.columns
            .iter()
            .find(|column| column.name.eq_ignore_ascii_case(name))
    }
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

    fn describe(
        &self,
        table: &Ident,
        subject: &Arc<str>,
        deadline: Instant,
    ) -> Result<Description> {
        let of_table = || params! { "t" => table.as_str() };
        let engine: Vec<(Option<String>,)> = self.ask(
            "SELECT ENGINE FROM information_schema.TABLES \
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :t",
            of_table(),
            subject,
            deadline,
        )?;
        let Some((engine,)) = engine.into_iter().next() else {
            return Err(self.schema_error(
                subject,
                table,
                "it does not exist, or this user has no right to it",
            ));
        };
        let engine = engine.unwrap_or_else(|| "a view".to_owned());
        if !engine.eq_ignore_ascii_case("InnoDB") {
            return Err(self.schema_error(
                subject,
                table,
                &format!("its engine is {engine}, which locks no rows: it has to be InnoDB"),
            ));
        }
        type Told = (String, String, String, Option<u64>, Option<u64>);
        let columns: Vec<Told> = self.ask(
            "SELECT COLUMN_NAME, DATA_TYPE, IS_NULLABLE, CHARACTER_OCTET_LENGTH, DATETIME_PRECISION \
             FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :t",
            of_table(),
            subject,
            deadline,
        )?;
        let indexes: Vec<(String, String, Option<u64>)> = self.ask(
            "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS \
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :t ORDER BY INDEX_NAME, SEQ_IN_INDEX",
            of_table(),
            subject,
            deadline,
        )?;
        Ok(Description {
            columns: columns
                .into_iter()
                .map(|(name, kind, nullable, length, decimals)| Column {
                    name,
                    kind: kind.to_ascii_lowercase(),
                    is_nullable: nullable.eq_ignore_ascii_case("YES"),
                    length,
                    decimals,
                })
                .collect(),
            indexes: indexes
                .into_iter()
                .map(|(index, column, cut)| (index, column, cut.is_some()))
                .collect(),
        })
    }

    fn ask<T: FromRow>(
        &self,
        statement: &str,
        params: Params,
        subject: &Arc<str>,
        deadline: Instant,
    ) -> Result<Vec<T>> {
        let rows = self
            .rows(statement, params, deadline)
            .map_err(|fault| self.error(subject, fault))?;
        rows.into_iter()
            .map(|row| {
                T::from_row_opt(row).map_err(|_| Error::Unexpected {
                    lock: Arc::clone(subject),
                    node: Arc::clone(self.node()),
                    reason: "its description of a table cannot be read".to_owned(),
                })
            })
            .collect()
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_need_quoting_are_refused() {
        for name in ["a", "_a1$", "Tasks"] {
            assert_eq!(Ident::new(name).unwrap().quoted(), format!("`{name}`"));
        }
        let long = "x".repeat(65);
        for name in ["", "1a", "a`b", "a b", "a.b", "a;drop", "é", &long] {
            assert!(matches!(Ident::new(name), Err(Error::InvalidConfig { .. })));
        }
    }

    #[test]
    fn a_key_takes_the_form_that_the_index_has() {
        let subject: Arc<str> = "rows".into();
        let text = KeyKind::Text.fitting(Value::Int(5), &subject).unwrap();
        assert_eq!(text, Value::Bytes(b"5".to_vec()));
        let number = KeyKind::Integer.fitting(Value::Int(5), &subject).unwrap();
        assert_eq!(number, Value::Int(5));
        assert!(KeyKind::Other.fitting(Value::NULL, &subject).is_err());
        assert!(KeyKind::Text.fitting(Value::Double(1.0), &subject).is_err());
        let text = |text: &str| Value::Bytes(text.into());
        for key in ["", "7", "7x", "abc"] {
            assert!(KeyKind::Integer.fitting(text(key), &subject).is_err());
        }
        for key in ["", "-", ".5", "5.", "1.2.3", "1e3", "7x", " 7"] {
            assert!(KeyKind::Number.fitting(text(key), &subject).is_err());
        }
        for key in ["0", "-7.50", "7"] {
            assert!(KeyKind::Number.fitting(text(key), &subject).is_ok());
        }
    }
}
