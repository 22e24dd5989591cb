#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;

#[test]
fn a_key_takes_the_form_that_the_index_has() {
    let subject: Arc<str> = "rows".into();
    let text = KeyKind::Text.normalized(Value::Int(5), &subject).unwrap();
    assert_eq!(text, Value::Bytes(b"5".to_vec()));
    let number = KeyKind::Integer
        .normalized(Value::Int(5), &subject)
        .unwrap();
    assert_eq!(number, Value::Int(5));
    assert!(KeyKind::Other.normalized(Value::NULL, &subject).is_err());
    assert!(
        KeyKind::Text
            .normalized(Value::Double(1.0), &subject)
            .is_err()
    );
    let text = |text: &str| Value::Bytes(text.into());
    for key in ["", "7", "7x", "abc"] {
        assert!(KeyKind::Integer.normalized(text(key), &subject).is_err());
    }
    for key in ["", "-", ".5", "5.", "1.2.3", "1e3", "7x", " 7"] {
        assert!(KeyKind::Number.normalized(text(key), &subject).is_err());
    }
    for key in ["0", "-7.50", "7"] {
        assert!(KeyKind::Number.normalized(text(key), &subject).is_ok());
    }
}
