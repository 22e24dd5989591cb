//! Parameters, values and rows of statements, in types of this library.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ground::error::{Error, Result};

/// A value of a column or of a parameter.
///
/// Numbers, text, bytes, `bool`, `Option`, [`Duration`] and [`DateTime`] convert into a value, and [`FromValue`] converts
/// back. A decimal number is text in both directions.
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
    /// Text in UTF-8, bytes, a decimal number, JSON, an ENUM.
    Bytes(Vec<u8>),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer, or a BIT.
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

/// A date and a time of day, in the time zone of the session: the server's in a transaction, UTC elsewhere.
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

/// A TIME: a span of up to 838 hours, or its opposite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Whether the span is negative.
    pub is_negative: bool,
    /// Its length.
    pub length: Duration,
}

impl fmt::Display for Value {
    /// Writes the value as a literal of SQL, text on one line.
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

macro_rules! integers {
    ($($signed:ty, $unsigned:ty;)*) => {$(
        impl From<$signed> for Value {
            fn from(number: $signed) -> Value {
                // No type here is wider than 64 bits.
                Value::Int(number as i64)
            }
        }

        impl From<$unsigned> for Value {
            fn from(number: $unsigned) -> Value {
                Value::UInt(number as u64)
            }
        }

        from_integers!($signed);
        from_integers!($unsigned);
    )*};
}

macro_rules! from_integers {
    ($number:ty) => {
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
    };
}

integers! {
    i8, u8;
    i16, u16;
    i32, u32;
    i64, u64;
    isize, usize;
}

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

/// A type that a [`Value`] can be converted into; a column that may be `NULL` is an `Option`.
pub trait FromValue: Sized {
    /// Converts the value into this type.
    ///
    /// # Errors
    ///
    /// The value itself, if it is not of this type.
    fn from_value(value: Value) -> std::result::Result<Self, Value>;

    /// Converts a value of a column of bytes (BINARY, BLOB), which are no digits of a number.
    ///
    /// # Errors
    ///
    /// The value itself, if it is not of this type.
    #[doc(hidden)]
    fn from_binary(value: Value) -> std::result::Result<Self, Value> {
        Self::from_value(value)
    }
}

/// The value of a column, of bytes or not.
fn converted<T: FromValue>(value: Value, is_binary: bool) -> std::result::Result<T, Value> {
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

/// The parameters of a statement: `()` for none, a tuple, array or `Vec` for `?`, [`Params::named`] for `:name`.
#[derive(Clone, Debug, Default)]
pub struct Params(pub(crate) Given);

#[derive(Clone, Debug, Default)]
pub(crate) enum Given {
    #[default]
    Nothing,
    InOrder(Vec<Value>),
    ByName(Vec<(String, Value)>),
}

impl Params {
    /// Makes parameters with names, each of which the statement may use more than once.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::mysql::{Params, Value};
    ///
    /// let params = Params::named([("id", Value::from(42)), ("note", "paid".into())]);
    /// # drop(params);
    /// ```
    pub fn named<N: Into<String>, V: Into<Value>>(
        params: impl IntoIterator<Item = (N, V)>,
    ) -> Params {
        let params = params.into_iter();
        Params(Given::ByName(
            params
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        ))
    }

    fn in_order(values: Vec<Value>) -> Params {
        Params(if values.is_empty() {
            Given::Nothing
        } else {
            Given::InOrder(values)
        })
    }
}

impl From<()> for Params {
    fn from((): ()) -> Params {
        Params::default()
    }
}

impl<V: Into<Value>> From<Vec<V>> for Params {
    fn from(values: Vec<V>) -> Params {
        Params::in_order(values.into_iter().map(Into::into).collect())
    }
}

impl<V: Into<Value>, const N: usize> From<[V; N]> for Params {
    fn from(values: [V; N]) -> Params {
        Params::in_order(values.into_iter().map(Into::into).collect())
    }
}

/// A row of an answer, with the names of its columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub(crate) columns: Arc<[String]>,
    /// Which of the columns are bytes, not text.
    pub(crate) binary: Arc<[bool]>,
    pub(crate) values: Vec<Value>,
}

impl Row {
    /// Returns the value of the first column of this name, upper and lower case alike.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is no such column, or its value is not of this type.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T> {
        let is_it = |name: &String| name.eq_ignore_ascii_case(column);
        let at = self.columns.iter().position(is_it);
        typed(at, &self.values, &self.binary, column)
    }

    /// Returns the names of the columns, in the order of the statement.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(String::as_str)
    }

    /// Returns the values of the columns, in the same order.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the values and drops the names.
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }
}

/// The value at a place of a row as another type.
pub(crate) fn typed<T: FromValue>(
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

/// A type that a row can be converted into: a tuple of as many values as it has columns, one value, or a [`Row`].
pub trait FromRow: Sized {
    /// Converts the row into this type.
    ///
    /// # Errors
    ///
    /// The rest of the row, if it is not of this type.
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

macro_rules! tuples {
    ($($kind:ident $name:ident),+) => {
        impl<$($kind: Into<Value>),+> From<($($kind,)+)> for Params {
            fn from(($($name,)+): ($($kind,)+)) -> Params {
                Params::in_order(vec![$($name.into()),+])
            }
        }

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

tuples!(A a);
tuples!(A a, B b);
tuples!(A a, B b, C c);
tuples!(A a, B b, C c, D d);
tuples!(A a, B b, C c, D d, E e);
tuples!(A a, B b, C c, D d, E e, F f);
tuples!(A a, B b, C c, D d, E e, F f, G g);
tuples!(A a, B b, C c, D d, E e, F f, G g, H h);
tuples!(A a, B b, C c, D d, E e, F f, G g, H h, I i);
tuples!(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j);
tuples!(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k);
tuples!(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_what_it_fits_and_nothing_else() {
        assert_eq!(u8::from_value(Value::Int(255)), Ok(255));
        assert_eq!(u8::from_value(Value::Int(256)), Err(Value::Int(256)));
        assert_eq!(u8::from_value(Value::Int(-1)), Err(Value::Int(-1)));
        assert_eq!(i64::from_value(Value::from("-12")), Ok(-12));
        assert_eq!(i64::from_value(Value::from("x")), Err(Value::from("x")));
        assert_eq!(f64::from_value(Value::from("1.50")), Ok(1.5));
        for text in ["nan", "inf", "-infinity", "1e999"] {
            assert_eq!(f64::from_value(Value::from(text)), Err(Value::from(text)));
            assert_eq!(f32::from_value(Value::from(text)), Err(Value::from(text)));
        }
        assert_eq!(bool::from_value(Value::Int(2)), Err(Value::Int(2)));
        assert_eq!(String::from_value(Value::Int(1)), Err(Value::Int(1)));
        assert_eq!(Option::<u8>::from_value(Value::Null), Ok(None));
        assert_eq!(u8::from_value(Value::Null), Err(Value::Null));
    }

    #[test]
    fn a_row_is_a_tuple_of_its_length() {
        let row = Row {
            columns: ["id".to_owned(), "Note".to_owned()].into(),
            binary: [false, false].into(),
            values: vec![Value::Int(7), Value::Null],
        };
        let pair: (u32, Option<String>) = FromRow::from_row(row.clone()).unwrap();
        assert_eq!(pair, (7, None));
        assert_eq!(u32::from_row(row.clone()), Err(row.clone()));
        assert_eq!(<(u32, u32)>::from_row(row.clone()), Err(row.clone()));
        assert_eq!(row.get::<Option<u8>>("NOTE").unwrap(), None);
        assert!(row.get::<u8>("note").is_err() && row.get::<u8>("absent").is_err());
    }

    #[test]
    fn a_value_in_a_message_stays_on_its_line() {
        let text = Value::from("a'b\n\u{1b}[2J").to_string();
        assert_eq!(text, r"'a\'b\n\u{1b}[2J'");
        assert_eq!(Value::from(&[0xff_u8, 0][..]).to_string(), "x'ff00'");
        let span = Value::Time(Span {
            is_negative: true,
            length: Duration::from_millis(3_723_500),
        });
        assert_eq!(span.to_string(), "'-01:02:03.500000'");
    }
}
