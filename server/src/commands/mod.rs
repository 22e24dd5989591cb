//! Commands that read and change keys, from clients or scripts.

mod hashes;
mod keys;
mod lists;
mod options;
mod ranges;
mod scan;
mod sets;
mod sorted;
mod strings;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use crate::keyspace::{Change, Entry, Key, Keyspace, Score, Value};
use crate::reply::Reply;
use crate::slot::slot;
pub(crate) use table::{Command, Does, OF_CONNECTIONS, command};
pub use table::{is_data_command, keys_of};

/// An error reply. `redis.call` raises it in the script, `redis.pcall` returns it to the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) String);

pub(crate) type Answer<T> = Result<T, Refused>;

pub(crate) type Hash = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) type Sorted = Vec<(Vec<u8>, Score)>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// The error for a command that needs memory on a server at `maxmemory`.
pub(crate) const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

impl Refused {
    pub(crate) fn new(text: impl Into<String>) -> Refused {
        Refused(text.into())
    }

    fn syntax() -> Refused {
        Refused::new("ERR syntax error")
    }
}

impl From<Refused> for Reply {
    fn from(refused: Refused) -> Reply {
        Reply::Error(refused.0)
    }
}

/// The connections subscribed to each channel.
pub type Subscriptions = BTreeMap<Vec<u8>, BTreeSet<u64>>;

static NO_SUBSCRIPTIONS: Subscriptions = BTreeMap::new();
static NO_COMMANDS: BTreeSet<String> = BTreeSet::new();
static NO_SLOTS: BTreeSet<u16> = BTreeSet::new();

/// The state of a server, except for its keys, as commands see it.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The database.
    pub database: u32,
    /// The server's clock, in microseconds since 1970.
    pub now: i64,
    /// The reply to INFO replication.
    pub replication: &'a str,
    /// The subscriptions to plain channels.
    pub subscriptions: &'a Subscriptions,
    /// The subscriptions to sharded channels.
    pub shard_subscriptions: &'a Subscriptions,
    /// The error for every write, such as a replica's `READONLY`.
    pub refuses_writes: Option<&'a str>,
    /// Whether commands that need memory fail, as at `maxmemory`.
    pub is_full: bool,
    /// The commands, in lower case, that the user may not run.
    pub denied: &'a BTreeSet<String>,
    /// Slots under migration. A key that is missing here may be on the target server.
    pub leaving: &'a BTreeSet<u16>,
    /// Whether scripts may use only their declared keys.
    pub keys_are_declared: bool,
    /// Whether changes and messages are recorded.
    pub collects: bool,
}

impl Default for Surroundings<'_> {
    fn default() -> Self {
        Surroundings {
            database: 0,
            now: 0,
            replication: "",
            subscriptions: &NO_SUBSCRIPTIONS,
            shard_subscriptions: &NO_SUBSCRIPTIONS,
            refuses_writes: None,
            is_full: false,
            denied: &NO_COMMANDS,
            leaving: &NO_SLOTS,
            keys_are_declared: false,
            collects: true,
        }
    }
}

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The channel.
    pub channel: Vec<u8>,
    /// The text.
    pub text: Vec<u8>,
    /// Whether the channel is sharded.
    pub is_sharded: bool,
}

/// The execution of one request on a keyspace: a command, or a script and its commands.
#[derive(Debug)]
pub struct Execution<'a> {
    keys: &'a mut Keyspace,
    around: Surroundings<'a>,
    changes: Vec<Change>,
    published: Vec<Message>,
    /// Whether the script has written. Redis then runs later commands of the script even if the server's state refuses
    /// them.
    has_written: bool,
    declared: Option<Vec<Vec<u8>>>,
}

pub(crate) trait Content: Default + 'static {
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    fn into_value(self) -> Value;
    fn is_gone(&self) -> bool;
}

macro_rules! content {
    ($type:ty, $variant:ident, $is_gone:expr) => {
        impl Content for $type {
            fn of(value: &Value) -> Option<&Self> {
                match value {
                    Value::$variant(content) => Some(content),
                    _ => None,
                }
            }

            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$variant(content) => Some(content),
                    _ => None,
                }
            }

            fn into_value(self) -> Value {
                Value::$variant(self)
            }

            fn is_gone(&self) -> bool {
                $is_gone(self)
            }
        }
    };
}

content!(Vec<u8>, String, |_: &Vec<u8>| false);
content!(Hash, Hash, Vec::is_empty);
content!(Sorted, Sorted, Vec::is_empty);
content!(Vec<Vec<u8>>, List, Vec::is_empty);
content!(BTreeSet<Vec<u8>>, Set, BTreeSet::is_empty);

impl<'a> Execution<'a> {
    /// Starts the execution of a request on these keys.
    pub fn new(keys: &'a mut Keyspace, around: Surroundings<'a>) -> Execution<'a> {
        Execution {
            keys,
            around,
            changes: Vec::new(),
            published: Vec::new(),
            has_written: false,
            declared: None,
        }
    }

    /// Runs a client's command and returns its reply.
    pub fn command(&mut self, words: &[&[u8]]) -> Reply {
        let answer = match words.split_first() {
            Some((name, args)) => match command(name) {
                Some(command) => self.run(command, args),
                None => Err(Refused::new("ERR unknown command")),
            },
            None => Err(Refused::new("ERR empty command")),
        };
        answer.unwrap_or_else(Reply::from)
    }

    /// Returns the changes and the messages of the execution, in order.
    pub fn finish(self) -> (Vec<Change>, Vec<Message>) {
        (self.changes, self.published)
    }

    /// Runs a command like `redis.pcall` and returns its reply.
    pub fn call(&mut self, words: &[&[u8]]) -> Reply {
        self.try_call(words).unwrap_or_else(Reply::from)
    }

    pub(crate) fn try_call(&mut self, words: &[&[u8]]) -> Answer<Reply> {
        let unknown = || Refused::new("ERR Unknown Redis command called from script");
        let (name, args) = words.split_first().ok_or_else(unknown)?;
        let Some(command) = command(name) else {
            return Err(match table::is_of_connections(name) {
                true => Refused::new("ERR This Redis command is not allowed from script"),
                false => unknown(),
            });
        };
        if !command.takes(args.len()) {
            let text = "ERR Wrong number of args calling Redis command from script";
            return Err(Refused::new(text));
        }
        if self.around.denied.contains(command.name) {
            let text = "ERR The user executing the script can't run this command or subcommand";
            return Err(Refused::new(text));
        }
        self.may_reach(command, args)?;
        self.run(command, args)
    }

    pub(crate) fn refuse_writes(&mut self, refusal: &'a str) {
        self.around.refuses_writes = Some(refusal);
    }

    pub(crate) fn declare(&mut self, keys: &[&[u8]]) {
        self.declared = Some(keys.iter().map(|key| key.to_vec()).collect());
    }

    fn run(&mut self, command: &Command, args: &[&[u8]]) -> Answer<Reply> {
        if !command.takes(args.len()) {
            let name = command.name;
            let text = format!("ERR wrong number of arguments for '{name}' command");
            return Err(Refused(text));
        }
        if !self.has_written && command.does != Does::Read {
            if let Some(refusal) = self.around.refuses_writes {
                return Err(Refused::new(refusal));
            }
            if self.around.is_full && command.does == Does::Grow {
                return Err(Refused::new(FULL));
            }
        }
        self.is_here(command, args)?;
        self.has_written |= command.does != Does::Read;
        (command.run)(self, args)
    }

    fn may_reach(&self, command: &Command, args: &[&[u8]]) -> Answer<()> {
        let Some(declared) = self.declared.as_ref() else {
            return Ok(());
        };
        if !self.around.keys_are_declared {
            return Ok(());
        }
        let mut keys = command.keys(args).into_iter();
        match keys.find(|key| declared.iter().all(|it| it != key)) {
            None => Ok(()),
            Some(key) => {
                let key = String::from_utf8_lossy(key);
                let text = format!("ERR Script used the undeclared key '{key}'");
                Err(Refused(text.replace(['\r', '\n'], " ")))
            }
        }
    }

    /// Refuses a script's access to a key that may already be on the target server. A client's command is redirected
    /// instead.
    fn is_here(&self, command: &Command, args: &[&[u8]]) -> Answer<()> {
        if self.declared.is_none() || self.around.leaving.is_empty() {
            return Ok(());
        }
        let is_elsewhere =
            |key: &&[u8]| self.around.leaving.contains(&slot(key)) && self.entry(key).is_none();
        match command.keys(args).iter().any(is_elsewhere) {
            true => Err(Refused::new(
                "ERR Script attempted to access a non local key in a cluster node",
            )),
            false => Ok(()),
        }
    }

    /// The server's time, in ms since 1970.
    fn now(&self) -> i64 {
        self.around.now.div_euclid(1000)
    }

    fn key(&self, key: &[u8]) -> Key {
        (self.around.database, key.to_vec())
    }

    fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.keys.get(&self.key(key), self.now())
    }

    /// Returns an error if the key has another type.
    fn read<C: Content>(&self, key: &[u8]) -> Answer<Option<&C>> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => match C::of(&entry.value) {
                None => Err(Refused::new(WRONG_TYPE)),
                found => Ok(found),
            },
        }
    }

    /// Changes the content of a key in place. Creates a missing key, and removes a key that becomes empty.
    fn edit<C: Content, T>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut C) -> Answer<T>,
    ) -> Answer<T> {
        let (key, now) = (self.key(key), self.now());
        let before = match self.around.collects {
            true => self.keys.stored(&key).cloned(),
            false => None,
        };
        let result;
        let mut is_gone = false;
        if let Some(entry) = self.keys.get_mut(&key, now) {
            let content = C::of_mut(&mut entry.value).ok_or_else(|| Refused::new(WRONG_TYPE))?;
            result = change(content)?;
            is_gone = content.is_gone();
        } else {
            let mut content = C::default();
            result = change(&mut content)?;
            if content.is_gone() {
                return Ok(result);
            }
            let value = content.into_value();
            let expires = None;
            self.keys
                .replace(key.clone(), Some(Entry { value, expires }));
        }
        if is_gone {
            self.keys.replace(key.clone(), None);
        }
        self.note(key, before);
        Ok(result)
    }

    fn put(&mut self, key: &[u8], entry: Option<Entry>) {
        let key = self.key(key);
        let before = self.keys.replace(key.clone(), entry);
        self.note(key, before);
    }

    fn note(&mut self, key: Key, before: Option<Entry>) {
        let after = self.keys.stored(&key);
        if self.around.collects && before.as_ref() != after {
            let after = after.cloned();
            self.changes.push(Change {
                at: self.now(),
                key,
                before,
                after,
            });
        }
    }
}
