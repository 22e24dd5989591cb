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
