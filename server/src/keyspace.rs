//! The keys of a server, with their expiry.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};

/// A key in one of the databases of a server.
pub type Key = (u32, Vec<u8>);

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// The fields of a hash with their values, in the order in which they were added.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// The members of a sorted set with their scores, ordered by score and member.
    Sorted(Vec<(Vec<u8>, Score)>),
    /// The items of a list.
    List(Vec<Vec<u8>>),
    /// The members of a set.
    Set(BTreeSet<Vec<u8>>),
}

/// The score of a member of a sorted set: any double except NaN.
#[derive(Clone, Copy)]
pub struct Score(f64);

/// The content and expiry of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The content of the key.
    pub value: Value,
    /// The last ms since 1970 in which the key exists. `None` if the key never expires.
    pub expires: Option<i64>,
}

/// A change of a key.
#[derive(Clone, Debug)]
pub struct Change {
    /// When the change happened, in ms since 1970.
    pub at: i64,
    /// The key.
    pub key: Key,
    /// The previous entry, even if it had expired.
    pub before: Option<Entry>,
    /// The new entry. `None` if the key was removed.
    pub after: Option<Entry>,
}

/// All keys of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keyspace {
    entries: BTreeMap<Key, Entry>,
}

impl Keyspace {
    /// Returns the entry of a key, unless it has expired at `now`, in ms since 1970.
    pub fn get(&self, key: &Key, now: i64) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| !entry.is_over(now))
    }

    /// Returns the entry of a key for changes in place, unless it has expired at `now`, in ms since 1970.
    pub fn get_mut(&mut self, key: &Key, now: i64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key);
        entry.filter(|entry| !entry.is_over(now))
    }

    /// Sets the entry of a key; `None` removes the key.
    pub fn put(&mut self, key: Key, entry: Option<Entry>, now: i64) -> Change {
        let before = self.replace(key.clone(), entry.clone());
        Change {
            at: now,
            key,
            before,
            after: entry,
        }
    }

    /// Sets the entry of a key. Returns the previous entry, even if it had expired.
    pub fn replace(&mut self, key: Key, entry: Option<Entry>) -> Option<Entry> {
        match entry {
            Some(entry) => self.entries.insert(key, entry),
            None => self.entries.remove(&key),
        }
    }

    /// Returns the entry of a key, even if it has expired.
    pub fn stored(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Removes the keys that have expired at `now`, in ms since 1970.
    pub fn remove_expired(&mut self, now: i64) {
        self.entries.retain(|_, entry| !entry.is_over(now));
    }

    /// Iterates over all keys in order. Expired keys that were not removed yet are included.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// Iterates mutably over all entries in the order of their keys.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Entry)> {
        self.entries.iter_mut()
    }
}

impl Entry {
    /// Returns whether the entry has expired at `now`, in ms since 1970.
    pub fn is_over(&self, now: i64) -> bool {
        self.expires.is_some_and(|end| now > end)
    }
}

impl Score {
    /// Creates a score. Returns `None` for NaN.
    pub fn new(score: f64) -> Option<Score> {
        (!score.is_nan()).then_some(Score(score))
    }

    /// Returns the score as a double.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns the integer part of the score, clamped to the range of `i64`.
    pub fn whole(self) -> i64 {
        self.0 as i64
    }
}

impl From<i64> for Score {
    fn from(score: i64) -> Score {
        Score(score as f64)
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Score) -> Ordering {
        // 0 and -0 are equal, as in Redis.
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Score) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Score) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

impl Hash for Score {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0 + 0.0).to_bits().hash(state);
    }
}

impl fmt::Debug for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
