//! The rows of optimistic updates, and their changes.

use std::fmt;

use crate::ground::error::{Error, Result};
use crate::stores::mysql::values::{Column, FromValue, Row, Value};

/// A row as it was at the time of the read.
#[derive(Clone)]
pub struct VersionedRow {
    pub(crate) key: Value,
    /// The values of the requested columns, then the value of the `Check` column. An update writes only if the row still has
    /// this check value.
    pub(crate) row: Row,
}

/// New values for some of the columns of a row.
#[derive(Clone, Default)]
pub struct Changes(pub(crate) Vec<(String, Value)>);

/// The decision of the closure of [`Versioned::update_with`](crate::mysql::Versioned::update_with).
#[derive(Clone, Debug)]
pub enum Step<T> {
    /// Writes the changes in the first field. The update returns the second field as [`Outcome::value`].
    Set(Changes, T),
    /// Leaves the row unchanged. The update returns the `T` as [`Outcome::value`].
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
    /// For a number `T`, bytes of a BIT, BINARY or BLOB column are parsed as digits. Read such a column as `Vec<u8>`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if [`Client::versioned`](crate::Client::versioned) did not name the
    /// column, or if its value does not have this type. If a column may be NULL, read it as an `Option`.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T> {
        let mut columns = self.columns().iter().enumerate();
        let found = columns.find(|(_, known)| known.name_str().eq_ignore_ascii_case(column));
        let reason = match found.and_then(|(at, _)| self.row.as_ref(at)) {
            None => "is not in the row",
            Some(value) => match T::from_value_opt(value.clone()) {
                Ok(value) => return Ok(value),
                // The driver's error would show the value, which may be secret.
                Err(_) => "has another type; read a column that may be NULL as an Option",
            },
        };
        let reason = format!("the column {column:?} {reason}");
        Err(Error::unsupported(&column.into(), reason))
    }

    fn columns(&self) -> &[Column] {
        let all = self.row.columns_ref();
        all.split_last().map_or(all, |(_, asked_for)| asked_for)
    }

    /// Returns the primary key of the row.
    pub fn key(&self) -> &Value {
        &self.key
    }
}

impl Changes {
    /// Creates an empty list of changes. A write of an empty list only raises the value of the check column.
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

// Logs must not show values of a user's tables.
impl fmt::Debug for VersionedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionedRow").finish_non_exhaustive()
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|it| &it.0))
            .finish()
    }
}
