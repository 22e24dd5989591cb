//! The commands that scripts call.

mod lists;
mod sorted;

use std::collections::{BTreeMap, BTreeSet};

use crate::keyspace::{Change, Entry, Key, Keyspace, Value};
use crate::reply::Reply;

/// A refusal. `redis.call` ends the script with it, which is `?` here; `redis.pcall` gives it to the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// The answer of a command.
pub type Answer<T> = Result<T, Refused>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";

/// The commands that are called by their words.
const CALLED: [&str; 7] = ["get", "set", "del", "incrby", "pexpire", "hget", "hset"];

impl Refused {
    /// The refusal with these words.
    pub fn new(text: impl Into<String>) -> Refused {
        Refused(text.into())
    }

    /// Whether it is one because the key is of another type.
    pub fn is_wrong_type(&self) -> bool {
        self.0.contains("WRONGTYPE")
    }
}

impl From<Refused> for Reply {
    fn from(refused: Refused) -> Reply {
        Reply::Error(refused.0)
    }
}

/// Whether a command writes, and needs memory for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Read,
    Write,
    Grow,
}

/// The connections that listen to each channel.
pub type Subscriptions = BTreeMap<Vec<u8>, BTreeSet<u64>>;

/// The part of a server that a script sees, besides its keys.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The database.
    pub database: u32,
    /// The server's clock, in microseconds since 1970.
    pub now: i64,
    /// The answer to INFO replication.
    pub replication: &'a str,
    /// The subscriptions to the channels that the script publishes to.
    pub subscriptions: &'a Subscriptions,
    /// The refusal of all writes, by a replica for example.
    pub refuses_writes: Option<&'a str>,
    /// Whether nothing that needs memory can be written.
    pub is_full: bool,
    /// The commands in lower case that the user may not run.
    pub denied: &'a BTreeSet<String>,
    /// Whether its keys are in a slot on its way to another server, which answers for those that are not here.
    pub is_leaving: bool,
}

/// A server as a script sees it.
#[derive(Debug)]
pub struct Redis<'a> {
    /// The keys.
    pub keys: &'a mut Keyspace,
    /// All else.
    pub around: Surroundings<'a>,
    /// The changes so far.
    pub changes: Vec<Change>,
    /// The messages so far: channel and text.
    pub published: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the script has called a command that writes: no later one is refused for what ails the server.
    has_written: bool,
}

impl<'a> Redis<'a> {
    /// A server with these keys.
    pub fn new(keys: &'a mut Keyspace, around: Surroundings<'a>) -> Redis<'a> {
        Redis {
            keys,
            around,
            changes: Vec::new(),
            published: Vec::new(),
            has_written: false,
        }
    }

    /// TIME, in ms.
    pub fn time(&self) -> Answer<i64> {
        self.may("time", Does::Read)?;
        Ok(self.now())
    }

    /// The time in µs, as TIME tells it besides.
    pub fn micros(&self) -> i64 {
        self.around.now
    }

    /// INFO replication.
    pub fn replication(&self) -> Answer<&'a str> {
        self.may("info", Does::Read)?;
        Ok(self.around.replication)
    }

    /// EXISTS.
    pub fn exists(&self, key: &[u8]) -> Answer<bool> {
        self.may_reach("exists", Does::Read, key)?;
        Ok(self.entry(key).is_some())
    }

    /// PTTL: the ms left, -1 for ever, -2 for nothing there.
    pub fn pttl(&self, key: &[u8]) -> Answer<i64> {
        self.may_reach("pttl", Does::Read, key)?;
        Ok(self
            .entry(key)
            .map_or(-2, |entry| entry.expires.map_or(-1, |end| end - self.now())))
    }

    /// PEXPIRE. Returns whether the key was there; a lease that is over takes it away.
    pub fn pexpire(&mut self, key: &[u8], lease: &[u8]) -> Answer<bool> {
        self.may_change("pexpire", Does::Write, key)?;
        let lease = integer(lease)?;
        let end = (self.now().checked_add(lease))
            .ok_or_else(|| Refused::new("ERR invalid expire time in 'pexpire' command"))?;
        let Some(entry) = self.entry(key).cloned() else {
            return Ok(false);
        };
        let expires = Some(end);
        self.put(key, (lease > 0).then_some(Entry { expires, ..entry }));
        Ok(true)
    }

    /// DEL of one key. Returns whether it was there.
    pub fn del(&mut self, key: &[u8]) -> Answer<bool> {
        self.may_change("del", Does::Write, key)?;
        let was_there = self.entry(key).is_some();
        if was_there {
            self.put(key, None);
        }
        Ok(was_there)
    }

    /// GET.
    pub fn get(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.may_reach("get", Does::Read, key)?;
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Refused::new(WRONG_TYPE)),
        }
    }

    /// SET key text.
    pub fn set(&mut self, key: &[u8], text: &[u8]) -> Answer<()> {
        self.may_change("set", Does::Grow, key)?;
        let value = Value::String(text.to_vec());
        let expires = None;
        self.put(key, Some(Entry { value, expires }));
        Ok(())
    }

    /// SET key text PX lease.
    pub fn set_px(&mut self, key: &[u8], text: &[u8], lease: &[u8]) -> Answer<()> {
        self.may_change("set", Does::Grow, key)?;
        let end = self.now().checked_add(integer(lease)?);
        let end = end.filter(|end| *end > self.now());
        let end = end.ok_or_else(|| Refused::new("ERR invalid expire time in 'set' command"))?;
        let value = Value::String(text.to_vec());
        let expires = Some(end);
        self.put(key, Some(Entry { value, expires }));
        Ok(())
    }

    /// DECRBY. Returns the number then; one that is missing counts as 0.
    pub fn decrby(&mut self, key: &[u8], by: &[u8]) -> Answer<i64> {
        self.add("decrby", key, -integer(by)?)
    }

    /// INCRBY. Returns the number then; one that is missing counts as 0.
    pub fn incrby(&mut self, key: &[u8], by: &[u8]) -> Answer<i64> {
        self.may("incrby", Does::Grow)?;
        self.add("incrby", key, integer(by)?)
    }

    fn add(&mut self, command: &str, key: &[u8], by: i64) -> Answer<i64> {
        self.may_change(command, Does::Grow, key)?;
        let entry = self.entry(key).cloned();
        let (before, expires) = match &entry {
            None => (0, None),
            Some(Entry {
                value: Value::String(text),
                expires,
            }) => (integer(text)?, *expires),
            Some(_) => return Err(Refused::new(WRONG_TYPE)),
        };
        let sum = before
            .checked_add(by)
            .ok_or_else(|| Refused::new("ERR increment or decrement would overflow"))?;
        let value = Value::String(sum.to_string().into_bytes());
        self.put(key, Some(Entry { value, expires }));
        Ok(sum)
    }

    /// The key of a command of these words, if it is one that [`Redis::call`] knows.
    pub fn key_of<'w>(words: &[&'w [u8]]) -> Option<&'w [u8]> {
        let (name, rest) = words.split_first()?;
        let is_known = CALLED
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
        rest.first().copied().filter(|_| is_known)
    }

    /// A command as its words.
    pub fn call(&mut self, words: &[&[u8]]) -> Answer<Reply> {
        let (name, rest) = words.split_at(words.len().min(1));
        let name = String::from_utf8_lossy(&name.concat()).to_ascii_lowercase();
        Ok(match (&*name, rest) {
            ("get", [key]) => self.get(key)?.map_or(Reply::Nil, Reply::Bulk),
            ("set", [key, text]) => self.set(key, text).map(|()| Reply::OK)?,
            ("del", [key]) => i64::from(self.del(key)?).into(),
            ("incrby", [key, by]) => self.incrby(key, by)?.into(),
            ("pexpire", [key, life]) => i64::from(self.pexpire(key, life)?).into(),
            ("hget", [key, field]) => self.hget(key, field)?.map_or(Reply::Nil, Reply::Bulk),
            ("hset", [key, field, text]) => {
                let was_there = matches!(self.field(key, field), Ok(Some(_)));
                self.hset(key, field, text)?;
                i64::from(!was_there).into()
            }
            (name, _) if CALLED.contains(&name) => {
                let text = "ERR Wrong number of args calling Redis command from script";
                return Err(Refused::new(text));
            }
            _ => return Err(Refused::new("ERR Unknown Redis command called from script")),
        })
    }

    /// HLEN.
    pub fn hlen(&self, key: &[u8]) -> Answer<usize> {
        self.may_reach("hlen", Does::Read, key)?;
        Ok(self.fields(key)?.len())
    }

    /// HKEYS.
    pub fn hkeys(&self, key: &[u8]) -> Answer<Vec<Vec<u8>>> {
        self.may_reach("hkeys", Does::Read, key)?;
        let fields = self.fields(key)?.iter();
        Ok(fields.map(|(field, _)| field.clone()).collect())
    }

    /// HGETALL.
    pub fn hgetall(&self, key: &[u8]) -> Answer<Vec<(Vec<u8>, Vec<u8>)>> {
        self.may_reach("hgetall", Does::Read, key)?;
        Ok(self.fields(key)?.to_vec())
    }

    /// HGET.
    pub fn hget(&self, key: &[u8], field: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.may_reach("hget", Does::Read, key)?;
        self.field(key, field)
    }

    /// HEXISTS.
    pub fn hexists(&self, key: &[u8], field: &[u8]) -> Answer<bool> {
        self.may_reach("hexists", Does::Read, key)?;
        Ok(self.fields(key)?.iter().any(|(name, _)| name == field))
    }

    /// HSET of one field.
    pub fn hset(&mut self, key: &[u8], field: &[u8], text: &[u8]) -> Answer<()> {
        self.may_change("hset", Does::Grow, key)?;
        let mut fields = self.fields(key)?.to_vec();
        match fields.iter_mut().find(|(name, _)| name == field) {
            Some((_, old)) => *old = text.to_vec(),
            None => fields.push((field.to_vec(), text.to_vec())),
        }
        self.put_fields(key, fields);
        Ok(())
    }

    /// HINCRBY. Returns the number then; one that is missing counts as 0.
    pub fn hincrby(&mut self, key: &[u8], field: &[u8], by: i64) -> Answer<i64> {
        self.may_change("hincrby", Does::Grow, key)?;
        let fields = self.fields(key)?;
        let found = fields.iter().find(|(name, _)| name == field);
        let before = found.map_or(Ok(0), |(_, text)| integer(text));
        let before = before.map_err(|_| Refused::new("ERR hash value is not an integer"))?;
        let sum = before + by;
        let mut fields = fields.to_vec();
        let told = sum.to_string().into_bytes();
        match fields.iter_mut().find(|(name, _)| name == field) {
            Some((_, old)) => *old = told,
            None => fields.push((field.to_vec(), told)),
        }
        self.put_fields(key, fields);
        Ok(sum)
    }

    /// HDEL of one field. Returns whether it was there; a hash without fields goes.
    pub fn hdel(&mut self, key: &[u8], field: &[u8]) -> Answer<bool> {
        self.may_change("hdel", Does::Write, key)?;
        let mut fields = self.fields(key)?.to_vec();
        let before = fields.len();
        fields.retain(|(name, _)| name != field);
        let was_there = fields.len() < before;
        if was_there {
            self.put_fields(key, fields);
        }
        Ok(was_there)
    }

    /// PUBLISH, or SPUBLISH. Returns how many have heard it.
    pub fn publish(&mut self, channel: &[u8], text: &[u8]) -> Answer<i64> {
        self.may("publish", Does::Read)?;
        self.published.push((channel.to_vec(), text.to_vec()));
        Ok(self.listeners(channel))
    }

    /// PUBSUB NUMSUB of one channel.
    pub fn numsub(&self, channel: &[u8]) -> Answer<i64> {
        self.may("pubsub", Does::Read)?;
        Ok(self.listeners(channel))
    }

    /// Whether a command could write, which is not done.
    pub fn may_write(&self, command: &str) -> Answer<()> {
        self.may(command, Does::Grow)
    }

    /// Whether the user may run this command, and the server does.
    fn may(&self, command: &str, does: Does) -> Answer<()> {
        let around = &self.around;
        if around.denied.contains(command) {
            return Err(Refused::new(
                "ERR The user executing the script can't run this command or subcommand",
            ));
        }
        match around.refuses_writes {
            _ if self.has_written => Ok(()),
            Some(text) if does != Does::Read => Err(Refused::new(text)),
            _ if around.is_full && does == Does::Grow => Err(Refused::new(
                "OOM command not allowed when used memory > 'maxmemory'.",
            )),
            _ => Ok(()),
        }
    }

    /// As [`Redis::may`], of a command for one key.
    fn may_reach(&self, command: &str, does: Does, key: &[u8]) -> Answer<()> {
        self.may(command, does)?;
        if self.around.is_leaving && self.entry(key).is_none() {
            return Err(Refused::new(
                "ERR Script attempted to access a non local key in a cluster node",
            ));
        }
        Ok(())
    }

    /// As [`Redis::may_reach`], of a command that writes.
    fn may_change(&mut self, command: &str, does: Does, key: &[u8]) -> Answer<()> {
        self.may_reach(command, does, key)?;
        self.has_written = true;
        Ok(())
    }

    fn now(&self) -> i64 {
        self.around.now.div_euclid(1000)
    }

    fn listeners(&self, channel: &[u8]) -> i64 {
        let heard = self.around.subscriptions.get(channel);
        heard.map_or(0, |connections| connections.len() as i64)
    }

    fn key(&self, key: &[u8]) -> Key {
        (self.around.database, key.to_vec())
    }

    fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.keys.get(&self.key(key), self.now())
    }

    fn put(&mut self, key: &[u8], entry: Option<Entry>) {
        let change = self.keys.put(self.key(key), entry, self.now());
        self.changes.push(change);
    }

    fn fields(&self, key: &[u8]) -> Answer<&[(Vec<u8>, Vec<u8>)]> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(&[]),
            Some(Value::Hash(fields)) => Ok(fields),
            Some(_) => Err(Refused::new(WRONG_TYPE)),
        }
    }

    fn field(&self, key: &[u8], field: &[u8]) -> Answer<Option<Vec<u8>>> {
        let mut fields = self.fields(key)?.iter();
        let found = fields.find(|(name, _)| name == field);
        Ok(found.map(|(_, text)| text.clone()))
    }

    fn put_fields(&mut self, key: &[u8], fields: Vec<(Vec<u8>, Vec<u8>)>) {
        let expires = self.entry(key).and_then(|entry| entry.expires);
        let value = Value::Hash(fields);
        let is_empty = value == Value::Hash(Vec::new());
        self.put(key, (!is_empty).then_some(Entry { value, expires }));
    }
}

/// A number as Redis reads it.
pub(crate) fn integer(text: &[u8]) -> Answer<i64> {
    let number = std::str::from_utf8(text).ok();
    let number = number.and_then(|text| text.parse::<i64>().ok());
    number
        .filter(|number| number.to_string().as_bytes() == text)
        .ok_or_else(|| Refused::new(NO_INTEGER))
}
