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

/// Returns the text of an error reply with its code first, and without the hash and the line of a script.
///
/// Redis 7 and later append them: `READONLY … script: 6b1b…, on @user_script:12.`, Valkey without the hash. Before 7 they come
/// first: `ERR Error running script (call to f_6b1b…): @user_script:12: @user_script: 12: -READONLY …`.
pub(super) fn without_script(text: &str) -> String {
    let text = match text.rsplit_once(" script: ") {
        Some((text, script)) if script.contains("@user_script:") => text,
        _ => text,
    };
    let text = match text.split_once("Error running script (call to f_") {
        Some((_, rest)) => rest.split_once("): ").map_or(rest, |(_, text)| text),
        None => text,
    };
    let mut words = text.split(' ').peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let Some((_, line)) = word.split_once("user_script:") else {
            kept.push(word);
            continue;
        };
        // `@user_script: 12: …`
        if line.is_empty() {
            words.next_if(|word| word.starts_with(|sign: char| sign.is_ascii_digit()));
        }
    }
    let kept = kept.join(" ");
    kept.strip_prefix('-').map(str::to_owned).unwrap_or(kept)
}

/// Returns the text of an error reply for a message. The code `TRYAGAIN` only says that it passes.
pub(crate) fn plain(text: &str) -> String {
    let text = without_script(text);
    match text.strip_prefix("TRYAGAIN ") {
        Some(rest) => rest.to_owned(),
        None => text,
    }
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

    /// Error replies of Redis 6.2.5, 7.0.15, 8.0.2 and Valkey 9.1.2.
    #[test]
    fn an_error_of_a_script_begins_with_its_code() {
        let of_6 = "ERR Error running script (call to f_6b1bf486c81ceb7edf3c093f4c48582e38c0e791): @user_script:";
        let of_7 = " script: 6b1bf486c81ceb7edf3c093f4c48582e38c0e791, on @user_script:25.";
        for text in [
            "READONLY You can't write against a read only replica.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
            "NOPERM User app has no permissions",
            "WRONGTYPE Operation against a key",
        ] {
            for said in [
                format!("{of_6}12: @user_script: 12: -{text}"),
                format!("{of_6}12: {text}"),
                format!("@user_script: 12: -{text}"),
                format!("{text}{of_7}"),
                format!("{text} script: on @user_script:1."),
                text.to_owned(),
            ] {
                assert_eq!(without_script(&said), text, "{said}");
            }
        }
        for (said, text) in [
            (
                "ERR user_script:30: attempt to compare nil script: 6b1b, on @user_script:30.",
                "ERR attempt to compare nil",
            ),
            ("ERR no such script: named", "ERR no such script: named"),
        ] {
            assert_eq!(without_script(said), text);
        }
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
