//! The driver's types that users of transactions and rows need, and how a value is written in a message.

use ::mysql::consts::ColumnType::{MYSQL_TYPE_JSON, MYSQL_TYPE_NEWDECIMAL};
pub use ::mysql::prelude::{FromRow, FromValue, ToValue};
pub use ::mysql::{Column, FromRowError, FromValueError, Params, Row, Value, params};

use crate::ground::loss::printable;

/// The number of the character set `binary`.
const BINARY: u16 = 63;

/// The days of the longest TIME, 838:59:59.
const LONGEST_TIME: u32 = 34;

/// Returns a value as a literal of SQL for a message, on one line.
pub(crate) fn literal(value: &Value) -> String {
    match value {
        // `as_sql` overflows if there are too many days.
        Value::Time(_, days, ..) if *days > LONGEST_TIME => "a TIME out of range".to_owned(),
        value => printable(&value.as_sql(true)),
    }
}

/// Returns whether a value is bytes or bits, which are no number even if each byte is a digit.
pub(crate) fn is_binary(column: &Column, value: &Value) -> bool {
    // Decimal numbers and JSON are text of this character set.
    let is_text = matches!(
        column.column_type(),
        MYSQL_TYPE_NEWDECIMAL | MYSQL_TYPE_JSON
    );
    matches!(value, Value::Bytes(_)) && column.character_set() == BINARY && !is_text
}

/// Returns whether a type reads digits as a number, so that it must not read a binary column.
pub(crate) fn reads_digits<T: FromValue>() -> bool {
    let reads = |text: &str| T::from_value_opt(Value::from(text)).is_ok();
    reads("1") && !reads("x")
}

#[cfg(test)]
mod tests;
