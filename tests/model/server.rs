//! A server whose scripts are the specification of those of the library, in a state that finitely many of exist.

use redlatch_spec::scripts::{self, Args};
use redlatch_spec::{Entry, Keyspace, Redis, Reply, Subscriptions, Surroundings, Value};

/// The server's time in every state, in ms since 1970: as time passes, all that ends moves towards it.
pub(crate) const NOW: i64 = 1_700_000_000_000;

/// The number of each request.
const NUMBER: &[u8] = b"1";

/// What a script says and tells.
#[derive(Debug)]
pub(crate) struct Said {
    /// The parts of the answer; none where a small answer says that all was done.
    parts: Option<Vec<Reply>>,
    /// The channels of its messages.
    pub(crate) told: Vec<Vec<u8>>,
}

/// Runs the script of this name, whose last argument is the number of the request.
pub(crate) fn call(
    keys: &mut Keyspace,
    script: &str,
    names: &[&[u8]],
    args: &[&[u8]],
    listening: &Subscriptions,
) -> Said {
    let denied = Default::default();
    let around = Surroundings {
        database: 0,
        now: NOW * 1000,
        replication: "",
        subscriptions: listening,
        refuses_writes: None,
        is_full: false,
        denied: &denied,
        is_leaving: false,
    };
    let args = [args, &[NUMBER]].concat();
    let mut redis = Redis::new(keys, around);
    let spec = scripts::named(script).map(|script| script.spec);
    let answer = spec.map(|spec| spec(&mut redis, Args(names), Args(&args)));
    let parts = match answer {
        Some(Ok(Reply::Int(_))) => None,
        Some(Ok(Reply::Array(answer))) => match <[Reply; 2]>::try_from(answer) {
            Ok([_, Reply::Array(parts)]) => Some(parts),
            Ok([_, Reply::Int(_)]) => None,
            other => panic!("{script} answers {other:?}"),
        },
        other => panic!("{script} answers {other:?}"),
    };
    let told = redis.published.into_iter().map(|(channel, _)| channel);
    Said {
        parts,
        told: told.collect(),
    }
}

impl Said {
    /// Whether all was done that was asked for.
    pub(crate) fn is_done(&self) -> bool {
        self.parts.is_none()
    }

    /// The number in this part of a longer answer.
    pub(crate) fn number(&self, part: usize) -> i64 {
        match self.parts.as_ref().and_then(|parts| parts.get(part)) {
            Some(Reply::Int(number)) => *number,
            other => panic!("a number, not {other:?}, in {self:?}"),
        }
    }

    /// The text in this part of a longer answer.
    pub(crate) fn text(&self, part: usize) -> &[u8] {
        match self.parts.as_ref().and_then(|parts| parts.get(part)) {
            Some(Reply::Bulk(text)) => text,
            other => panic!("a text, not {other:?}, in {self:?}"),
        }
    }
}

/// Lets so many ms pass.
pub(crate) fn pass(keys: &mut Keyspace, time: i64) {
    keys.shift(-time);
    let over = keys.iter().filter(|(key, _)| keys.get(key, NOW).is_none());
    let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
    for key in over {
        keys.put(key, None, NOW);
    }
}

/// What stands under a name.
pub(crate) fn entry<'k>(keys: &'k Keyspace, name: &[u8]) -> Option<&'k Entry> {
    keys.get(&(0, name.to_vec()), NOW)
}

/// Puts something in its place.
pub(crate) fn put(keys: &mut Keyspace, name: &[u8], entry: Option<Entry>) {
    keys.put((0, name.to_vec()), entry, NOW);
}

/// The fields of a hash, the items of a list, or the members of a sorted set under a name.
pub(crate) fn members(keys: &Keyspace, name: &[u8]) -> Vec<Vec<u8>> {
    match entry(keys, name).map(|entry| &entry.value) {
        Some(Value::Hash(fields)) => fields.iter().map(|(field, _)| field.clone()).collect(),
        Some(Value::List(items)) => items.clone(),
        Some(Value::Sorted(members)) => members.iter().map(|(member, _)| member.clone()).collect(),
        Some(Value::String(_) | Value::Other) | None => Vec::new(),
    }
}
