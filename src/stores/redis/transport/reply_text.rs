//! Replies as text for messages, short and on one line.

use redis::Value;

/// How many bytes of what a server says are kept.
pub(super) const MOST_WORDS: usize = 256;

/// Shortens the words of a server to what a message may have, on one line.
pub(super) fn cut(text: &str) -> String {
    let mut end = text.len().min(MOST_WORDS);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (kept, rest) = text.split_at(end);
    let visible = |sign: char| if sign.is_control() { '\u{fffd}' } else { sign };
    let mut kept: String = kept.chars().map(visible).collect();
    if !rest.is_empty() {
        kept.push('…');
    }
    kept
}

/// Returns a reply as text, shortened for a message.
pub(crate) fn brief(value: &Value) -> String {
    let mut text = String::new();
    describe(value, &mut text);
    cut(&text)
}

fn describe(value: &Value, into: &mut String) {
    let bytes = match value {
        Value::Array(items) => {
            into.push('[');
            for (index, item) in items.iter().enumerate() {
                if into.len() > MOST_WORDS {
                    break;
                }
                if index > 0 {
                    into.push_str(", ");
                }
                describe(item, into);
            }
            into.push(']');
            return;
        }
        Value::Nil => return into.push_str("nothing"),
        Value::Okay => b"OK",
        Value::Int(number) => return into.push_str(&number.to_string()),
        Value::BulkString(bytes) => &**bytes,
        Value::SimpleString(text) => text.as_bytes(),
        Value::ServerError(error) => return into.push_str(&cut(&error.to_string())),
        // Nobody has asked for a later version of the protocol.
        _ => return into.push_str("a reply of another protocol"),
    };
    let bytes = bytes.get(..MOST_WORDS).unwrap_or(bytes);
    into.push_str(&format!("{:?}", String::from_utf8_lossy(bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error in an array.
    fn refusal() -> Value {
        let Ok(Value::Array(mut items)) = redis::parse_redis_value(b"*1\r\n-ERR no\r\n") else {
            unreachable!("it is an array");
        };
        items.remove(0)
    }

    #[test]
    fn replies_are_told_in_words() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        for (value, expected) in [
            (Value::Nil, "nothing"),
            (Value::Okay, "\"OK\""),
            (Value::Int(-7), "-7"),
            (text("a\nb"), "\"a\\nb\""),
            (Value::SimpleString("PONG".to_owned()), "\"PONG\""),
            (Value::Boolean(true), "a reply of another protocol"),
            (refusal(), "ResponseError: no"),
            (Value::Array(Vec::new()), "[]"),
            (
                Value::Array(vec![
                    Value::Int(1),
                    Value::Array(vec![Value::Nil]),
                    text("x"),
                ]),
                "[1, [nothing], \"x\"]",
            ),
        ] {
            assert_eq!(brief(&value), expected);
        }
    }

    #[test]
    fn long_replies_are_shortened() {
        let long = Value::BulkString(vec![b'x'; 1000]);
        let told = brief(&long);
        assert!(told.ends_with('…') && told.starts_with("\"xxx"), "{told}");
        assert_eq!(told.chars().count(), MOST_WORDS + 1);
        // No more items are looked at than can be told.
        let many = Value::Array(vec![Value::Int(1_234_567); 100_000]);
        let mut text = String::new();
        describe(&many, &mut text);
        assert!(
            text.len() > MOST_WORDS && text.len() < MOST_WORDS + 20,
            "{text}"
        );
        // The last item is the one with which there are more words than that.
        let items = |count: usize| {
            let mut items = vec![Value::Int(12); count];
            items[0] = Value::Int(123);
            Value::Array(items)
        };
        for (count, told) in [(64, 64), (65, 65), (66, 65), (80, 65)] {
            let mut text = String::new();
            describe(&items(count), &mut text);
            assert_eq!(text.matches("12").count(), told, "{count}");
        }
        let exact = "x".repeat(MOST_WORDS);
        assert_eq!(cut(&exact), exact);
        assert_eq!(cut(&(exact.clone() + "y")), exact.clone() + "…");
        // A sign is not cut in two.
        let wide = "x".repeat(MOST_WORDS - 1) + "ü";
        assert_eq!(cut(&wide), "x".repeat(MOST_WORDS - 1) + "…");
        assert_eq!(cut("a\r\nb"), "a\u{fffd}\u{fffd}b");
    }
}
