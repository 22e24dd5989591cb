//! The keys of a server, each with the time at which it ends.

use std::collections::BTreeMap;

/// No score that is a time in ms is so large, that of a permit without an end included.
const LEAST_MICROS: i64 = 1_000_000_000_000_000;

/// A key in one of the databases of a server.
pub type Key = (u32, Vec<u8>);

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// The fields of a hash in the order in which they came.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// The members of a sorted set with their scores, by these.
    Sorted(Vec<(Vec<u8>, i64)>),
    /// The items of a list.
    List(Vec<Vec<u8>>),
    /// A set or anything else that no lock is made of.
    Other,
}

/// A key that is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its content.
    pub value: Value,
    /// The last millisecond of the server's clock at which it is there; `None` for ever.
    pub expires: Option<i64>,
}

/// A change of one key.
#[derive(Clone, Debug)]
pub struct Change {
    /// The server's time in ms.
    pub at: i64,
    /// The key.
    pub key: Key,
    /// Its entry before, expired or not.
    pub before: Option<Entry>,
    /// Its entry now.
    pub after: Option<Entry>,
}

/// All keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keyspace {
    entries: BTreeMap<Key, Entry>,
}

impl Keyspace {
    /// The entry of a key that is there at this time, in ms.
    pub fn get(&self, key: &Key, now: i64) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| !entry.is_over(now))
    }

    /// Puts something under the key, or nothing.
    pub fn put(&mut self, key: Key, entry: Option<Entry>, now: i64) -> Change {
        let before = match entry.clone() {
            Some(entry) => self.entries.insert(key.clone(), entry),
            None => self.entries.remove(&key),
        };
        Change {
            at: now,
            key,
            before,
            after: entry,
        }
    }

    /// The times at which a key, or what a member of it stands for, ends.
    pub fn ends(&self) -> impl Iterator<Item = i64> {
        let of_members = |value: &Value| match value {
            Value::Sorted(members) => members.iter().map(|(_, score)| *score).collect(),
            Value::Hash(fields) => {
                let times = fields.iter().filter_map(|(_, text)| time_in(text));
                // Those who wait to write are forgotten some time after their ends, and waited for a while behind their arrival.
                let of_notes = times.flat_map(|(came, time)| {
                    let (patience, time) = (came.map(|came| came / 1000 + 3000), time.abs());
                    // Those who are silent at a fair lock are noted with a time alone; some time after it others are, or they go.
                    let gone = [1000, 1500, 10_000].map(|it| (came.is_none()).then_some(time + it));
                    let ends = [Some(time), came.map(|_| time + 6000), patience];
                    ends.into_iter().chain(gone)
                });
                of_notes.flatten().collect()
            }
            _ => Vec::new(),
        };
        let entries = self.entries.values();
        entries.flat_map(move |entry| of_members(&entry.value).into_iter().chain(entry.expires))
    }

    /// Moves the end of each key: `later` ms later, or earlier if that is below zero.
    pub fn shift(&mut self, later: i64) {
        for entry in self.entries.values_mut() {
            if let Some(end) = &mut entry.expires {
                *end += later;
            }
            // The scores of all sorted sets are times, large ones in µs.
            match &mut entry.value {
                Value::Sorted(members) => {
                    for (_, score) in members {
                        *score += if *score > LEAST_MICROS {
                            later * 1000
                        } else {
                            later
                        };
                    }
                }
                Value::Hash(fields) => {
                    for (_, text) in fields {
                        *text = match time_in(text) {
                            Some((Some(came), time)) => {
                                format!("{}:{}", came + later * 1000, time + later).into_bytes()
                            }
                            Some((None, time)) => {
                                (time + later * time.signum()).to_string().into_bytes()
                            }
                            None => continue,
                        };
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes all keys away.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// All keys, expired ones included until something else is put there.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }
}

impl Entry {
    fn is_over(&self, now: i64) -> bool {
        self.expires.is_some_and(|end| now > end)
    }
}

/// The time in ms that the value of a field is or ends with, below zero if a sign marks it, and the time in µs before it, if there
/// is one.
pub fn time_in(text: &[u8]) -> Option<(Option<i64>, i64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (came, time) = match text.split_once(':') {
        Some((came, time)) => (Some(came.parse().ok()?), time),
        None => (None, text),
    };
    let time: i64 = time.parse().ok()?;
    // No count is so large, and no time in µs so small.
    (1_000_000_000_000..100_000_000_000_000)
        .contains(&time.abs())
        .then_some((came, time))
}
