//! Conversion of values, rows and parameters between the driver's types and the ones of this library.

use std::sync::Arc;
use std::time::Duration;

use ::mysql::consts::ColumnType;
use ::mysql::{Column, Params as DriverParams, Row as DriverRow, Value as DriverValue};

use super::parameters::{ParamValues, Params};
use super::row::Row;
use super::value::{DateTime, Span, Value};

/// The number of the character set `binary`.
const BINARY: u16 = 63;

pub(crate) fn to_driver(value: Value) -> DriverValue {
    match value {
        Value::Null => DriverValue::NULL,
        Value::Bytes(bytes) => DriverValue::Bytes(bytes),
        Value::Int(number) => DriverValue::Int(number),
        Value::UInt(number) => DriverValue::UInt(number),
        Value::Float(number) => DriverValue::Float(number),
        Value::Double(number) => DriverValue::Double(number),
        Value::DateTime(at) => DriverValue::Date(
            at.year, at.month, at.day, at.hour, at.minute, at.second, at.micros,
        ),
        Value::Time(span) => {
            let seconds = span.length.as_secs();
            // Each is a remainder of a division by 60 or 24.
            let part = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
            DriverValue::Time(
                span.is_negative,
                // A server refuses more than 34 days.
                u32::try_from(seconds / 86_400).unwrap_or(u32::MAX),
                part(seconds / 3600 % 24),
                part(seconds / 60 % 60),
                part(seconds % 60),
                span.length.subsec_micros(),
            )
        }
    }
}

pub(crate) fn from_driver(value: DriverValue) -> Value {
    match value {
        DriverValue::NULL => Value::Null,
        DriverValue::Bytes(bytes) => Value::Bytes(bytes),
        DriverValue::Int(number) => Value::Int(number),
        DriverValue::UInt(number) => Value::UInt(number),
        DriverValue::Float(number) => Value::Float(number),
        DriverValue::Double(number) => Value::Double(number),
        DriverValue::Date(year, month, day, hour, minute, second, micros) => {
            Value::DateTime(DateTime {
                year,
                month,
                day,
                hour,
                minute,
                second,
                micros,
            })
        }
        DriverValue::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let hours = u64::from(days) * 24 + u64::from(hours);
            let seconds = (hours * 60 + u64::from(minutes)) * 60 + u64::from(seconds);
            Value::Time(Span {
                is_negative,
                length: Duration::from_secs(seconds) + Duration::from_micros(micros.into()),
            })
        }
    }
}

pub(crate) fn params_to_driver(params: Params) -> DriverParams {
    match params.0 {
        ParamValues::Nothing => DriverParams::Empty,
        ParamValues::InOrder(values) => {
            DriverParams::Positional(values.into_iter().map(to_driver).collect())
        }
        ParamValues::ByName(values) => DriverParams::Named(
            values
                .into_iter()
                .map(|(name, value)| (name.into_bytes(), to_driver(value)))
                .collect(),
        ),
    }
}

/// Returns whether the values of a column are bytes, whose digits are no number.
pub(super) fn is_binary(column: &Column) -> bool {
    use ColumnType::{
        MYSQL_TYPE_BLOB, MYSQL_TYPE_GEOMETRY, MYSQL_TYPE_LONG_BLOB, MYSQL_TYPE_MEDIUM_BLOB,
        MYSQL_TYPE_STRING, MYSQL_TYPE_TINY_BLOB, MYSQL_TYPE_VAR_STRING, MYSQL_TYPE_VARCHAR,
    };
    column.character_set() == BINARY
        && matches!(
            column.column_type(),
            MYSQL_TYPE_BLOB
                | MYSQL_TYPE_GEOMETRY
                | MYSQL_TYPE_LONG_BLOB
                | MYSQL_TYPE_MEDIUM_BLOB
                | MYSQL_TYPE_STRING
                | MYSQL_TYPE_TINY_BLOB
                | MYSQL_TYPE_VAR_STRING
                | MYSQL_TYPE_VARCHAR
        )
}

/// Converts a BIT, which the driver returns as bytes, into a number; any other value stays as it is.
pub(super) fn bits_as_number(value: DriverValue, column: &Column) -> DriverValue {
    match value {
        DriverValue::Bytes(bytes)
            if column.column_type() == ColumnType::MYSQL_TYPE_BIT && bytes.len() <= 8 =>
        {
            let number = bytes
                .iter()
                .fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
            DriverValue::UInt(number)
        }
        value => value,
    }
}

/// Converts the rows of one answer.
pub(crate) fn rows_from_driver(rows: Vec<DriverRow>) -> Vec<Row> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let described = first.columns();
    let columns: Arc<[String]> = described
        .iter()
        .map(|column| column.name_str().into_owned())
        .collect();
    let binary: Arc<[bool]> = described.iter().map(is_binary).collect();
    rows.into_iter()
        .map(|row| Row {
            columns: Arc::clone(&columns),
            binary: Arc::clone(&binary),
            // This `unwrap` does not panic: it turns a row into its values.
            values: DriverRow::unwrap(row)
                .into_iter()
                .zip(&*described)
                .map(|(value, column)| from_driver(bits_as_number(value, column)))
                .collect(),
        })
        .collect()
}
