use super::*;

#[test]
fn parts_of_a_reply_are_read_by_index() {
    let parts = [
        Value::Int(-7),
        Value::BulkString(b"bytes".to_vec()),
        Value::SimpleString("word".to_owned()),
        Value::Nil,
    ];
    let reply = Value::Array(parts.to_vec());
    let words = [0, 1, 2, 3].map(|at| item_at(&reply, at).map(text_of));
    assert_eq!(
        words,
        ["-7", "bytes", "word", ""].map(|it| Some(it.to_owned()))
    );
    assert_eq!(item_at(&reply, 4), None);
    assert_eq!(item_at(&Value::Int(1), 0), None);
    assert_eq!(integer_at(&reply, 0), Some(-7));
    assert_eq!(integer_at(&reply, 1), None);
    assert_eq!(integer_at(&reply, 4), None);
}

#[test]
fn an_empty_holder_means_a_free_lock() {
    assert_eq!(cause_of(&Value::Nil), LossCause::Gone);
    let holder = Value::BulkString(b"other:1".to_vec());
    assert_eq!(cause_of(&holder), LossCause::HeldBy("other:1".to_owned()));
}
