//! The values of columns and parameters.

use std::fmt;
use std::time::Duration;

/// A value of a column or of a parameter.
///
/// Numbers, text, bytes, `bool`, `Option`, [`Duration`] and [`DateTime`] convert into a value;
/// [`FromValue`](crate::mysql::FromValue) converts back. A decimal number is text in both directions.
///
/// # Examples
///
/// ```
/// use redlatch::mysql::Value;
///
/// assert_eq!(Value::from(7), Value::Int(7));
/// assert_eq!(Value::from("paid"), Value::Bytes(b"paid".to_vec()));
/// assert_eq!(Value::from(None::<u32>), Value::Null);
/// assert_eq!(Value::from("it's").to_string(), r"'it\'s'");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// `NULL`.
    #[default]
    Null,
    /// Text in UTF-8, bytes, a decimal number, JSON or an ENUM.
    Bytes(Vec<u8>),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer or a BIT.
    UInt(u64),
    /// A FLOAT.
    Float(f32),
    /// A DOUBLE.
    Double(f64),
    /// A DATE, DATETIME or TIMESTAMP.
    DateTime(DateTime),
    /// A TIME.
    Time(Span),
}

/// A date and a time of day, in the time zone of the session: that of the server in a transaction, UTC elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime {
    /// 0 ..= 9999.
    pub year: u16,
    /// 1 ..= 12; 0 in the zero date.
    pub month: u8,
    /// 1 ..= 31; 0 in the zero date.
    pub day: u8,
    /// 0 ..= 23.
    pub hour: u8,
    /// 0 ..= 59.
    pub minute: u8,
    /// 0 ..= 59.
    pub second: u8,
    /// 0 ..= 999,999.
    pub micros: u32,
}

/// A TIME: a span of up to 838 hours, positive or negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Whether the span is negative.
    pub is_negative: bool,
    /// The length of the span, without its sign.
    pub length: Duration,
}

impl fmt::Display for Value {
    /// Writes the value as a literal of SQL, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Int(number) => write!(f, "{number}"),
            Value::UInt(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number}"),
            Value::Double(number) => write!(f, "{number}"),
            Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => write!(f, "'{}'", text.escape_debug()),
                Err(_) => {
                    f.write_str("x'")?;
                    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                    f.write_str("'")
                }
            },
            Value::DateTime(at) => write!(f, "'{at}'"),
            Value::Time(span) => {
                let seconds = span.length.as_secs();
                let sign = if span.is_negative { "-" } else { "" };
                write!(
                    f,
                    "'{sign}{:02}:{:02}:{:02}.{:06}'",
                    seconds / 3600,
                    seconds / 60 % 60,
                    seconds % 60,
                    span.length.subsec_micros()
                )
            }
        }
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}",
            self.year, self.month, self.day, self.hour, self.minute, self.second, self.micros
        )
    }
}

macro_rules! from_integers {
    ($variant:ident($wide:ty): $($number:ty),+) => {$(
        impl From<$number> for Value {
            fn from(number: $number) -> Value {
                // No type here is wider than 64 bits.
                Value::$variant(number as $wide)
            }
        }
    )+};
}

from_integers!(Int(i64): i8, i16, i32, i64, isize);
from_integers!(UInt(u64): u8, u16, u32, u64, usize);

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Int(i64::from(flag))
    }
}

impl From<f32> for Value {
    fn from(number: f32) -> Value {
        Value::Float(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Double(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Bytes(text.into_bytes())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Value {
        Value::from(text.as_str())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value::Bytes(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value::Bytes(bytes)
    }
}

impl From<DateTime> for Value {
    fn from(at: DateTime) -> Value {
        Value::DateTime(at)
    }
}

impl From<Duration> for Value {
    fn from(length: Duration) -> Value {
        Value::Time(Span {
            is_negative: false,
            length,
        })
    }
}

impl From<Span> for Value {
    fn from(span: Span) -> Value {
        Value::Time(span)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl From<&Value> for Value {
    fn from(value: &Value) -> Value {
        value.clone()
    }
}

/// Calls a macro for each length of tuple, with the type parameters and names of its fields.
macro_rules! for_tuples {
    ($call:ident) => {
        $call!(A a);
        $call!(A a, B b);
        $call!(A a, B b, C c);
        $call!(A a, B b, C c, D d);
        $call!(A a, B b, C c, D d, E e);
        $call!(A a, B b, C c, D d, E e, F f);
        $call!(A a, B b, C c, D d, E e, F f, G g);
        $call!(A a, B b, C c, D d, E e, F f, G g, H h);
        $call!(A a, B b, C c, D d, E e, F f, G g, H h, I i);
        $call!(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j);
        $call!(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k);
        $call!(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l);
    };
}
pub(super) use for_tuples;

#[cfg(test)]
mod tests;
