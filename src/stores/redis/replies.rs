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

pub(super) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

pub(super) fn field_of(fields: &Value, wanted: &str) -> Option<String> {
    let Value::Array(fields) = fields else {
        return None;
    };
    fields.chunks(2).find_map(|field| match field {
        [name, value] if text_of(name) == wanted => Some(text_of(value)),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
