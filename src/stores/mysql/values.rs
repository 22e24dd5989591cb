//! Re-exports the driver's types for users, and formats values for messages.

pub use ::mysql::prelude::{FromRow, FromValue, ToValue};
pub use ::mysql::{Column, FromRowError, FromValueError, Params, Row, Value, params};

use crate::ground::loss::printable;

/// The number of whole days in the longest TIME value, 838:59:59.
const LONGEST_TIME: u32 = 34;

pub(crate) fn literal(value: &Value) -> String {
    match value {
        // `as_sql` overflows if the number of days is too large.
        Value::Time(_, days, ..) if *days > LONGEST_TIME => "a TIME out of range".to_owned(),
        value => printable(&value.as_sql(true)),
    }
}

#[cfg(test)]
mod tests;
