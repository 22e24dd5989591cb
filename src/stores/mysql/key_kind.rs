//! The kinds of primary keys, and the values that find a row by its key.

use std::sync::Arc;

use ::mysql::Value;

use super::describe::Column;
use crate::ground::error::{Error, Result};

/// The kind of a primary key, which decides the values that find a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Text,
    Integer,
    /// A decimal number, which is text on the wire, or a floating point number.
    Number,
    /// A date, with or without a time of day.
    Date,
    /// A time of day, or a span.
    Time,
    Other,
}

impl KeyKind {
    pub(super) fn of(column: &Column) -> KeyKind {
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

    /// Returns the key in the form for which the server uses the index and finds no other row. For a number the server
    /// would read every row of a text column; compared with a number, any text would become 0.
    pub(super) fn normalized(self, key: Value, subject: &Arc<str>) -> Result<Value> {
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

/// Returns whether the text is a decimal number and nothing else.
fn is_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let mut parts = digits.split(|byte| *byte == b'.');
    let is_part = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    parts.next().is_some_and(is_part) && parts.next().is_none_or(is_part) && parts.next().is_none()
}

/// Returns whether the text consists of characters of dates and times only.
fn is_date_or_time(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_digit)
        && text
            .iter()
            .all(|byte| byte.is_ascii_digit() || b"-:. ".contains(byte))
}

#[cfg(test)]
mod tests;
