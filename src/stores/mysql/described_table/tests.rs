use super::*;

fn key(kind: &str, key: impl Into<Value>) -> Option<Value> {
    let column = Column {
        kind: kind.to_owned(),
        ..Column::default()
    };
    column.key(key.into())
}

#[test]
fn a_key_gets_the_type_of_its_column() {
    for kind in ["varchar", "varbinary", "uuid", "enum", "point"] {
        assert_eq!(key(kind, 5), Some(Value::from("5")));
        assert_eq!(key(kind, u64::MAX), Some(Value::from(u64::MAX.to_string())));
        assert_eq!(key(kind, "7x"), Some(Value::from("7x")));
    }
    for kind in ["int", "bigint", "year"] {
        assert_eq!(key(kind, 5), Some(Value::Int(5)), "{kind}");
    }
}

#[test]
fn a_key_of_another_kind_is_refused() {
    let day = Value::Date(2026, 1, 1, 0, 0, 0, 0);
    for kind in ["varchar", "int", "decimal", "date", "time"] {
        assert_eq!(key(kind, Value::NULL), None, "{kind}");
        assert_eq!(key(kind, 1.0), None, "{kind}");
        assert_eq!(key(kind, &day).is_some(), kind == "date");
    }
    for text in ["", "7", "7x", "abc"] {
        assert_eq!(key("int", text), None, "{text}");
    }
    for kind in ["decimal", "double", "time", "bit"] {
        assert_eq!(key(kind, 5), None, "{kind}");
    }
    for text in ["x", "2026-01-01x"] {
        assert_eq!(key("timestamp", text), None, "{text}");
    }
}
