//! Commands for keys of any type, and commands without keys.

use super::options::{Unit, is};
use super::{Answer, Entry, Execution, Message, Refused, Subscriptions, scan};
use crate::keyspace::{Key, Value};
use crate::number::integer;
use crate::reply::{Reply, array};

pub(super) fn exists(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let found = args.iter().filter(|key| on.entry(key).is_some());
    Ok(found.count().into())
}

pub(super) fn del(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let mut count = 0_usize;
    for key in args {
        if on.entry(key).is_some() {
            on.put(key, None);
            count += 1;
        }
    }
    Ok(count.into())
}

pub(super) fn kind(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let name = on
        .entry(args[0])
        .map_or("none", |entry| name_of(&entry.value));
    Ok(Reply::Status(name.into()))
}

pub(super) fn name_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Hash(_) => "hash",
        Value::Sorted(_) => "zset",
        Value::List(_) => "list",
        Value::Set(_) => "set",
    }
}

pub(super) fn rename(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let entry = on.entry(args[0]).cloned();
    let entry = entry.ok_or_else(|| Refused::new("ERR no such key"))?;
    if args[0] != args[1] {
        on.put(args[0], None);
        on.put(args[1], Some(entry));
    }
    Ok(Reply::OK)
}

pub(super) fn flush(on: &mut Execution<'_>, is_all: bool) -> Answer<Reply> {
    let is_meant = |key: &Key| is_all || key.0 == on.around.database;
    let keys = on.keys.iter().map(|(key, _)| key);
    let keys: Vec<Key> = keys.filter(|key| is_meant(key)).cloned().collect();
    for key in keys {
        let before = on.keys.replace(key.clone(), None);
        on.note(key, before);
    }
    Ok(Reply::OK)
}

pub(super) fn dbsize(on: &mut Execution<'_>, _: &[&[u8]]) -> Answer<Reply> {
    let (database, now) = (on.around.database, on.now());
    let keys = on.keys.iter();
    let keys = keys.filter(|(key, entry)| key.0 == database && !entry.is_over(now));
    Ok(keys.count().into())
}

pub(super) fn set_end(
    on: &mut Execution<'_>,
    command: &str,
    unit: Unit,
    args: &[&[u8]],
) -> Answer<Reply> {
    let option = args.get(2).map(|option| option.to_ascii_uppercase());
    let option = option.as_deref().unwrap_or_default();
    if !matches!(option, b"" | b"NX" | b"XX" | b"GT" | b"LT") {
        let option = String::from_utf8_lossy(args[2]);
        return Err(Refused(format!("ERR Unsupported option {option}")));
    }
    let invalid = || Refused(format!("ERR invalid expire time in '{command}' command"));
    let (time, now) = (integer(args[1])?, on.now());
    let end = unit.end(time, now).ok_or_else(invalid)?;
    let Some(entry) = on.entry(args[0]) else {
        return Ok(Reply::Int(0));
    };
    let is_meant = match (option, entry.expires) {
        (b"NX", expires) => expires.is_none(),
        (b"XX", expires) => expires.is_some(),
        (b"GT", expires) => expires.is_some_and(|before| end > before),
        (b"LT", expires) => expires.is_none_or(|before| end < before),
        _ => true,
    };
    if is_meant && end <= now {
        on.put(args[0], None);
    } else if is_meant {
        expire_at(on, args[0], Some(end));
    }
    Ok(is_meant.into())
}

pub(super) fn expire_at(on: &mut Execution<'_>, key: &[u8], expires: Option<i64>) {
    let (key, now) = (on.key(key), on.now());
    let before = match on.around.collects {
        true => on.keys.stored(&key).cloned(),
        false => None,
    };
    if let Some(entry) = on.keys.get_mut(&key, now) {
        entry.expires = expires;
    }
    on.note(key, before);
}

pub(super) fn persist(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let ends = on
        .entry(args[0])
        .is_some_and(|entry| entry.expires.is_some());
    if ends {
        expire_at(on, args[0], None);
    }
    Ok(ends.into())
}

/// Replies -2 if the key does not exist, and -1 if it never expires.
pub(super) fn told_end(
    on: &mut Execution<'_>,
    args: &[&[u8]],
    tell: impl Fn(i64, i64) -> i64,
) -> Answer<Reply> {
    let (entry, now) = (on.entry(args[0]), on.now());
    let tell = |end| tell(end, now);
    Ok(entry
        .map_or(-2, |entry| entry.expires.map_or(-1, tell))
        .into())
}

pub(super) fn time(on: &mut Execution<'_>, _: &[&[u8]]) -> Answer<Reply> {
    let now = on.around.now;
    let (seconds, micros) = (now.div_euclid(1_000_000), now.rem_euclid(1_000_000));
    Ok(array![
        seconds.to_string().into_bytes(),
        micros.to_string().into_bytes()
    ])
}

pub(super) fn echo(_: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    Ok(args[0].into())
}

pub(super) fn ping(_: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let text = args.first().map(Reply::text);
    Ok(text.unwrap_or(Reply::Status("PONG".into())))
}

/// INFO in a script replies with the replication section, whichever section is requested.
pub(super) fn info(on: &mut Execution<'_>, _: &[&[u8]]) -> Answer<Reply> {
    Ok(on.around.replication.into())
}

fn listeners(subscriptions: &Subscriptions, channel: &[u8]) -> usize {
    subscriptions
        .get(channel)
        .map_or(0, |listeners| listeners.len())
}

pub(super) fn tell(on: &mut Execution<'_>, args: &[&[u8]], is_sharded: bool) -> Answer<Reply> {
    on.published.push(Message {
        channel: args[0].to_vec(),
        text: args[1].to_vec(),
        is_sharded,
    });
    let subscriptions = match is_sharded {
        true => on.around.shard_subscriptions,
        false => on.around.subscriptions,
    };
    Ok(listeners(subscriptions, args[0]).into())
}

pub(super) fn pubsub(on: &mut Execution<'_>, args: &[&[u8]]) -> Answer<Reply> {
    let (word, channels) = (args[0], &args[1..]);
    let is_sharded = word.get(..5).is_some_and(|begin| is(begin, "SHARD"));
    let (word, subscriptions) = match is_sharded {
        true => (&word[5..], on.around.shard_subscriptions),
        false => (word, on.around.subscriptions),
    };
    if is(word, "NUMSUB") {
        let numbers = channels.iter().flat_map(|channel| {
            [
                Reply::text(channel),
                listeners(subscriptions, channel).into(),
            ]
        });
        return Ok(Reply::Array(numbers.collect()));
    }
    if is(word, "CHANNELS") && channels.len() < 2 {
        let fits = |channel: &&Vec<u8>| {
            channels
                .first()
                .is_none_or(|pattern| scan::fits(pattern, channel))
        };
        let channels: Vec<Vec<u8>> = subscriptions.keys().filter(fits).cloned().collect();
        return Ok(channels.into());
    }
    if is(word, "NUMPAT") && !is_sharded {
        return Ok(Reply::Int(0));
    }
    let word = String::from_utf8_lossy(args[0]);
    Err(Refused(format!(
        "ERR unknown subcommand '{word}'. Try PUBSUB HELP."
    )))
}

pub(super) fn with(value: Value, expires: Option<i64>) -> Option<Entry> {
    Some(Entry { value, expires })
}
