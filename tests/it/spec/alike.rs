//! What two servers say and have, compared.

use redis::Value;
use redlatch_spec::{Entry, Value as Content};

use super::both::{LONGEST_STEP, MARGIN};

/// Numbers above this are times: no key that is looked at ends so soon, and nothing else is so many.
const LEAST_TIME: i64 = MARGIN - LONGEST_STEP - 10;

/// Numbers above this are times in µs, as fencing tokens mostly are.
const LEAST_MICROS: i64 = 100_000_000_000_000;

/// The bits of a small answer, below the number of the request.
const SMALL: i64 = 1 << 22;

/// The content of a key as text, and when it ends.
pub(super) fn content(found: &Value) -> (String, i64) {
    if *found == Value::Nil {
        return ("nothing".to_owned(), -2);
    }
    let (kind, content, end): (String, Value, i64) = redis::from_redis_value_ref(found).unwrap();
    let text = match &*kind {
        "list" => format!(
            "{:?}",
            redis::from_redis_value::<Vec<String>>(content).unwrap()
        ),
        "zset" => format!("{:?}", scores(found)),
        "string" => format!("{:?}", redis::from_redis_value::<String>(content).unwrap()),
        _ => format!(
            "{:?}",
            redis::from_redis_value::<Vec<(String, String)>>(content).unwrap()
        ),
    };
    (text, end)
}

/// The members of a sorted set that was found, with their scores.
pub(super) fn scores(found: &Value) -> Vec<(String, i64)> {
    match redis::from_redis_value_ref::<(String, Value, i64)>(found) {
        Ok((kind, content, _)) if kind == "zset" => redis::from_redis_value(content).unwrap(),
        _ => Vec::new(),
    }
}

/// The fields of a hash that was found, with their values.
pub(super) fn values(found: &Value) -> Vec<(String, String)> {
    match redis::from_redis_value_ref::<(String, Value, i64)>(found) {
        Ok((kind, content, _)) if kind == "hash" => redis::from_redis_value(content).unwrap(),
        _ => Vec::new(),
    }
}

pub(super) fn described(entry: Option<&Entry>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match entry.map(|entry| &entry.value) {
        None => "nothing".to_owned(),
        Some(Content::Other) => "another type".to_owned(),
        Some(Content::List(items)) => {
            format!("{:?}", items.iter().map(|it| text(it)).collect::<Vec<_>>())
        }
        Some(Content::String(bytes)) => format!("{:?}", text(bytes)),
        Some(Content::Sorted(members)) => {
            let members = members.iter().map(|(name, score)| (text(name), *score));
            format!("{:?}", members.collect::<Vec<_>>())
        }
        Some(Content::Hash(fields)) => {
            let fields = fields
                .iter()
                .map(|(field, count)| (text(field), text(count)));
            format!("{:?}", fields.collect::<Vec<_>>())
        }
    }
}

/// The entry with the token that stands there, if it is the time and differs from that here by less than the step took.
pub(super) fn token_near(real: &str, spec: Option<&Entry>, took: i64) -> Option<Entry> {
    let real = real.trim_matches('"');
    let entry = spec.filter(|entry| matches!(entry.value, Content::String(_)))?;
    let here: i64 = described(spec).trim_matches('"').parse().ok()?;
    let there: i64 = real.parse().ok()?;
    let is_near = there.min(here) > LEAST_MICROS && (there - here).abs() <= took * 1000;
    is_near.then(|| Entry {
        value: Content::String(real.as_bytes().to_vec()),
        ..entry.clone()
    })
}

/// The words of an error without the number of the line.
pub(super) fn error_of(value: &Value) -> Option<String> {
    let Value::ServerError(error) = value else {
        return None;
    };
    let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
    if is_denial(text.as_bytes()) {
        return Some("denied".to_owned());
    }
    let (text, _) = text.split_once(" on @user_script:").unwrap_or((&text, ""));
    Some(text.to_owned())
}

/// Whether these are the words by which a script hears that the user may not run a command: they change with the version.
fn is_denial(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("can't run this command") || text.contains("ACL failure in script")
}

/// Whether two answers are the same, but for times that differ by less than `took`.
pub(super) fn is_alike(real: &Value, spec: &Value, number: i64, took: i64) -> bool {
    let is_near = |real: i64, spec: i64| {
        let span = match real.min(spec) {
            LEAST_MICROS.. => took * 1000,
            _ => took,
        };
        real == spec || real.min(spec) > LEAST_TIME && (real - spec).abs() <= span
    };
    match (real, spec) {
        (Value::Int(real), Value::Int(spec)) if real / SMALL == number => {
            spec / SMALL == number && is_near(real % SMALL, spec % SMALL)
        }
        (real, spec) => is_alike_within(real, spec, &is_near),
    }
}

fn is_alike_within(real: &Value, spec: &Value, is_near: &dyn Fn(i64, i64) -> bool) -> bool {
    match (real, spec) {
        (Value::Int(real), Value::Int(spec)) => is_near(*real, *spec),
        (Value::Array(real), Value::Array(spec)) => {
            let mut pairs = real.iter().zip(spec);
            real.len() == spec.len()
                && pairs.all(|(real, spec)| is_alike_within(real, spec, is_near))
        }
        (Value::ServerError(_), Value::ServerError(_)) => true,
        (Value::BulkString(real), Value::BulkString(spec)) if is_denial(real) => is_denial(spec),
        (real, spec) => real == spec,
    }
}
