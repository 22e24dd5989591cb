//! The types that a value converts into.

use std::time::Duration;

use super::value::{DateTime, Span, Value};

macro_rules! from_integers {
    ($($number:ty),+) => {$(
        impl FromValue for $number {
            fn from_value(value: Value) -> std::result::Result<$number, Value> {
                let number = match &value {
                    Value::Int(number) => <$number>::try_from(*number).ok(),
                    Value::UInt(number) => <$number>::try_from(*number).ok(),
                    // A SUM of integers comes as a decimal number.
                    Value::Bytes(text) => parsed(text),
                    _ => None,
                };
                number.ok_or(value)
            }

            fn from_binary(value: Value) -> std::result::Result<$number, Value> {
                Err(value)
            }
        }
    )+};
}

from_integers!(i8, u8, i16, u16, i32, u32, i64, u64, isize, usize);

/// A type that a [`Value`] converts into; a column that may be `NULL` needs an `Option`.
pub trait FromValue: Sized {
    /// Converts the value into this type.
    ///
    /// # Errors
    ///
    /// The value itself, if it is of another type or out of range.
    fn from_value(value: Value) -> std::result::Result<Self, Value>;

    /// Converts a value of a binary column (BINARY, BLOB), whose bytes are never read as a number.
    ///
    /// # Errors
    ///
    /// The value itself, if it is of another type.
    #[doc(hidden)]
    fn from_binary(value: Value) -> std::result::Result<Self, Value> {
        Self::from_value(value)
    }
}

/// Converts the value of a column, which is binary or not.
pub(super) fn converted<T: FromValue>(
    value: Value,
    is_binary: bool,
) -> std::result::Result<T, Value> {
    if is_binary {
        T::from_binary(value)
    } else {
        T::from_value(value)
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> std::result::Result<Value, Value> {
        Ok(value)
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> std::result::Result<Option<T>, Value> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }

    fn from_binary(value: Value) -> std::result::Result<Option<T>, Value> {
        match value {
            Value::Null => Ok(None),
            value => T::from_binary(value).map(Some),
        }
    }
}

impl FromValue for bool {
    fn from_value(value: Value) -> std::result::Result<bool, Value> {
        match value {
            Value::Int(0) | Value::UInt(0) => Ok(false),
            Value::Int(1) | Value::UInt(1) => Ok(true),
            value => Err(value),
        }
    }
}

impl FromValue for f32 {
    fn from_value(value: Value) -> std::result::Result<f32, Value> {
        match &value {
            Value::Float(number) => Ok(*number),
            Value::Bytes(text) => parsed(text)
                .filter(|number: &f32| number.is_finite())
                .ok_or(value),
            _ => Err(value),
        }
    }

    fn from_binary(value: Value) -> std::result::Result<f32, Value> {
        Err(value)
    }
}

impl FromValue for f64 {
    fn from_value(value: Value) -> std::result::Result<f64, Value> {
        match &value {
            Value::Float(number) => Ok(f64::from(*number)),
            Value::Double(number) => Ok(*number),
            Value::Bytes(text) => parsed(text)
                .filter(|number: &f64| number.is_finite())
                .ok_or(value),
            _ => Err(value),
        }
    }

    fn from_binary(value: Value) -> std::result::Result<f64, Value> {
        Err(value)
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> std::result::Result<String, Value> {
        match value {
            Value::Bytes(bytes) => {
                String::from_utf8(bytes).map_err(|error| Value::Bytes(error.into_bytes()))
            }
            value => Err(value),
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: Value) -> std::result::Result<Vec<u8>, Value> {
        match value {
            Value::Bytes(bytes) => Ok(bytes),
            value => Err(value),
        }
    }
}

impl FromValue for DateTime {
    fn from_value(value: Value) -> std::result::Result<DateTime, Value> {
        match value {
            Value::DateTime(at) => Ok(at),
            value => Err(value),
        }
    }
}

impl FromValue for Span {
    fn from_value(value: Value) -> std::result::Result<Span, Value> {
        match value {
            Value::Time(span) => Ok(span),
            value => Err(value),
        }
    }
}

impl FromValue for Duration {
    fn from_value(value: Value) -> std::result::Result<Duration, Value> {
        match value {
            Value::Time(Span {
                is_negative: false,
                length,
            }) => Ok(length),
            value => Err(value),
        }
    }
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
