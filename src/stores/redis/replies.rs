//! The parts of a reply.

use redis::Value;

use crate::ground::loss::LossCause;

pub(super) fn cause_of(holder: &Value) -> LossCause {
    match text_of(holder) {
        holder if holder.is_empty() => LossCause::Gone,
        holder => LossCause::held_by(&holder),
    }
}

pub(super) fn item_at(reply: &Value, index: usize) -> Option<&Value> {
    match reply {
        Value::Array(items) => items.get(index),
        _ => None,
    }
}

pub(super) fn integer_at(reply: &Value, index: usize) -> Option<i64> {
    match item_at(reply, index)? {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

/// Returns a server's words without the hashes and lines of scripts, which only their authors can use.
pub(in crate::stores::redis) fn plain(text: &str) -> String {
    // Redis 7: `WRONGTYPE … script: 6b1b…, on @user_script:12.`
    let text = match text.rsplit_once(" script: ") {
        Some((text, script)) if script.starts_with(|sign: char| sign.is_ascii_hexdigit()) => text,
        _ => text,
    };
    // Redis 6: `ERR Error running script (call to f_6b1b…): @user_script:12: WRONGTYPE …`
    let text = match text.split_once("Error running script (call to f_") {
        Some((_, rest)) => rest.split_once("): ").map_or(rest, |(_, text)| text),
        None => text,
    };
    let mut words = text.split(' ').peekable();
    let mut plain = Vec::new();
    while let Some(word) = words.next() {
        let Some((_, line)) = word.split_once("user_script:") else {
            plain.push(word);
            continue;
        };
        // `@user_script: 12: …`
        if line.is_empty() {
            words.next_if(|word| word.starts_with(|sign: char| sign.is_ascii_digit()));
        }
    }
    let plain = plain.join(" ");
    // By this word of theirs we know that it passes.
    match plain.strip_prefix("TRYAGAIN ") {
        Some(rest) => rest.to_owned(),
        None => plain,
    }
}

#[cfg(test)]
mod tests;
