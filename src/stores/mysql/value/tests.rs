#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use crate::stores::mysql::from_value::FromValue;
use crate::stores::mysql::row::{FromRow, Row};

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
