//! The rows of answers, and the types that rows convert into.

use std::sync::Arc;

use super::from_value::{FromValue, converted};
use super::value::{Value, for_tuples};
use crate::ground::error::{Error, Result};

/// A row of an answer, with the names of its columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub(crate) columns: Arc<[String]>,
    /// For each column, whether it is bytes and not text.
    pub(crate) binary: Arc<[bool]>,
    pub(crate) values: Vec<Value>,
}

impl Row {
    /// Returns the value of the first column of this name; case does not matter.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is no such column, or its value is of another type.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T> {
        let is_it = |name: &String| name.eq_ignore_ascii_case(column);
        let at = self.columns.iter().position(is_it);
        convert_column(at, &self.values, &self.binary, column)
    }

    /// Returns the names of the columns, in the order of the statement.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(String::as_str)
    }

    /// Returns the values of the columns, in the same order.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the values, without the names.
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }
}

/// Converts the value at an index of a row.
pub(crate) fn convert_column<T: FromValue>(
    at: Option<usize>,
    values: &[Value],
    binary: &[bool],
    column: &str,
) -> Result<T> {
    let unsupported = |reason| Error::Unsupported {
        lock: column.into(),
        reason,
    };
    let value = at
        .and_then(|at| Some((values.get(at)?, *binary.get(at)?)))
        .ok_or_else(|| unsupported(format!("the row has no column {column:?}")));
    let (value, is_binary) = value?;
    converted(value.clone(), is_binary).map_err(|_| {
        unsupported(format!(
            "the value of the column {column:?} is not of the type asked for; one that may be NULL is an Option"
        ))
    })
}

/// A type that a row converts into: a tuple with one field per column, a single value, or a [`Row`].
pub trait FromRow: Sized {
    /// Converts the row into this type.
    ///
    /// # Errors
    ///
    /// The row itself, if it is of another type.
    fn from_row(row: Row) -> std::result::Result<Self, Row>;
}

impl FromRow for Row {
    fn from_row(row: Row) -> std::result::Result<Row, Row> {
        Ok(row)
    }
}

impl<T: FromValue> FromRow for T {
    fn from_row(row: Row) -> std::result::Result<T, Row> {
        match (&*row.values, &*row.binary) {
            ([value], [is_binary]) => converted(value.clone(), *is_binary).map_err(|_| row),
            _ => Err(row),
        }
    }
}

macro_rules! into_tuple {
    ($($kind:ident $name:ident),+) => {
        impl<$($kind: FromValue),+> FromRow for ($($kind,)+) {
            fn from_row(row: Row) -> std::result::Result<Self, Row> {
                let [$($name),+] = &*row.values else {
                    return Err(row);
                };
                let mut binary = row.binary.iter().copied();
                match ($(converted::<$kind>($name.clone(), binary.next().unwrap_or(false)),)+) {
                    ($(Ok($name),)+) => Ok(($($name,)+)),
                    _ => Err(row),
                }
            }
        }
    };
}

for_tuples!(into_tuple);
