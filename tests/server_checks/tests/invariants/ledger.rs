//! The holds that clients rely on, compared with the keys.

use std::collections::BTreeMap;

use redlatch_server_checks::{Entry, Keyspace, Value};

use crate::calls::{Call, braced};

/// A hold as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    /// The last ms of its validity, by the server's clock.
    pub(crate) end: i64,
    /// The last ms at which the server may still have it: later than `end` if a failed request extended it, and for a
    /// side of a read-write lock, which ends for others in the ms in which its keys end.
    pub(crate) latest: i64,
    pub(crate) count: i64,
    /// The writer of its thread, for a reader inside that writer's hold.
    pub(crate) inside: String,
}

impl Hold {
    pub(crate) fn is_valid(&self, now: i64) -> bool {
        self.end >= now
    }
}

/// The holds by their visitors.
pub(crate) type Holds = BTreeMap<String, Hold>;

pub(crate) fn entry<'k>(keys: &'k Keyspace, key: &str) -> Option<&'k Entry> {
    keys.stored(&(0, key.as_bytes().to_vec()))
}

pub(crate) fn fields(keys: &Keyspace, key: &str) -> BTreeMap<String, String> {
    let Some(Value::Hash(fields)) = entry(keys, key).map(|it| &it.value) else {
        return BTreeMap::new();
    };
    let fields = fields
        .iter()
        .map(|(field, text)| (text_of(field), text_of(text)));
    fields.collect()
}

/// The members of a sorted set with their scores, in order.
pub(crate) fn members(keys: &Keyspace, key: &str) -> Vec<(String, i64)> {
    let Some(Value::Sorted(members)) = entry(keys, key).map(|it| &it.value) else {
        return Vec::new();
    };
    let members = members
        .iter()
        .map(|(name, score)| (text_of(name), score.whole()));
    members.collect()
}

pub(crate) fn score(keys: &Keyspace, key: &str, member: &str) -> Option<i64> {
    let members = members(keys, key);
    members
        .iter()
        .find(|(name, _)| name == member)
        .map(|(_, score)| *score)
}

pub(crate) fn items(keys: &Keyspace, key: &str) -> Vec<String> {
    match entry(keys, key).map(|it| &it.value) {
        Some(Value::List(items)) => items.iter().map(|it| text_of(it)).collect(),
        _ => Vec::new(),
    }
}

/// A string that is an integer.
pub(crate) fn number(keys: &Keyspace, key: &str) -> Option<i64> {
    match entry(keys, key).map(|it| &it.value) {
        Some(Value::String(text)) => text_of(text).parse().ok(),
        _ => None,
    }
}

pub(crate) fn text_of(bytes: &[u8]) -> String {
    // The ids of permits are letters.
    String::from_utf8_lossy(bytes).into_owned()
}

/// The last ms of a key, if there is one.
fn end_of(keys: &Keyspace, key: &str) -> Option<i64> {
    entry(keys, key).map(|it| it.expires.unwrap_or(i64::MAX))
}

/// Until when the keys keep the hold of a visitor; `None` if there are none.
pub(crate) fn kept_until(kind: &str, name: &str, visitor: &str, keys: &Keyspace) -> Option<i64> {
    let is_a_field = || fields(keys, name).contains_key(visitor);
    match kind {
        "token" => {
            let Value::String(token) = &entry(keys, name)?.value else {
                return None;
            };
            (token == visitor.as_bytes()).then(|| end_of(keys, name))?
        }
        "read-write" => {
            let own = end_of(
                keys,
                &format!("{}:{visitor}:rwlock_timeout:1", braced(name)),
            );
            let own = own.or_else(|| visitor.ends_with(":write").then_some(i64::MAX))?;
            Some(own.min(end_of(keys, name)?)).filter(|_| is_a_field())
        }
        "permits" | "permit ids" => {
            let taken = taken_key(kind, name);
            let ends = ids_of(kind, visitor)
                .into_iter()
                .map(|id| score(keys, &taken, &id));
            let ends: Option<Vec<i64>> = ends.collect();
            ends?.into_iter().min()
        }
        _ => end_of(keys, name).filter(|_| is_a_field()),
    }
}

/// The key of the acquired permits.
pub(crate) fn taken_key(kind: &str, name: &str) -> String {
    match kind {
        "permits" => format!("redlatch_sc:{}", braced(name)),
        _ => format!("{}:timeout", braced(name)),
    }
}

/// The members of the permits of a visitor.
pub(crate) fn ids_of(kind: &str, visitor: &str) -> Vec<String> {
    if kind == "permits" {
        return vec![visitor.to_owned()];
    }
    let bytes = visitor.as_bytes().chunks(32).map(|hex| {
        let byte = u8::from_str_radix(&text_of(&hex[..2]), 16).unwrap_or_default();
        char::from(byte).to_string().repeat(16)
    });
    bytes.collect()
}

/// The number of permits of a member.
pub(crate) fn permits_of(kind: &str, member: &str) -> i64 {
    match member.split_once('*') {
        Some((count, _)) if kind == "permits" => count.parse().unwrap_or_default(),
        _ => 1,
    }
}

/// An argument that is a number.
pub(crate) fn int(call: &Call, at: usize) -> i64 {
    call.args
        .get(at)
        .and_then(|it| it.parse().ok())
        .unwrap_or_default()
}
