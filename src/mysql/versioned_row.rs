//! The rows that an optimistic update reads, and the changes that it makes to them.

use std::fmt;
use std::sync::Arc;

use crate::ground::error::Result;
use crate::stores::mysql::Ident;
use crate::stores::mysql::from_value::FromValue;
use crate::stores::mysql::row::convert_column;
use crate::stores::mysql::value::Value;

/// A row as it was read.
#[derive(Clone)]
pub struct VersionedRow {
    pub(crate) key: Value,
    pub(crate) columns: Arc<[Ident]>,
    pub(crate) values: Vec<Value>,
    /// For each value, whether it is bytes and not text.
    pub(crate) binary: Vec<bool>,
    pub(crate) seen: Value,
    /// The decimals of a second of the check, if it is a time.
    pub(crate) decimals: u8,
}

/// New values for some of the columns of a row.
#[derive(Clone, Default)]
pub struct Changes(pub(crate) Vec<(String, Value)>);

/// The decision of a closure about a row.
#[derive(Clone, Debug)]
pub enum Step<T> {
    /// Writes these values, and returns the second field.
    Set(Changes, T),
    /// Leaves the row as it is, and returns the field.
    Stop(T),
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome<T> {
    /// The value that the closure returned in the last attempt.
    pub value: T,
    /// The number of attempts.
    pub attempts: u32,
    /// Whether the row was written.
    pub written: bool,
}

impl VersionedRow {
    /// Returns the value of a column.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if [`Client::versioned`](crate::Client::versioned) did not name the
    /// column, or its value is not of this type; a column that may be NULL is an `Option`.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T> {
        let at = self.columns.iter().position(|known| known.is(column));
        convert_column(at, &self.values, &self.binary, column)
    }

    /// Returns the key.
    pub fn key(&self) -> &Value {
        &self.key
    }
}

impl Changes {
    /// Makes an empty list of changes; to write it still counts as an update of the row.
    pub fn new() -> Changes {
        Changes::default()
    }

    /// Adds a new value for a column.
    #[must_use]
    pub fn set(mut self, column: &str, value: impl Into<Value>) -> Changes {
        self.0.push((column.to_owned(), value.into()));
        self
    }
}

// Values of a user's tables do not belong in logs.
impl fmt::Debug for VersionedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionedRow")
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(column, _)| column))
            .finish()
    }
}
