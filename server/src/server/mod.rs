//! The server: a state machine that takes requests and returns bytes.

mod channels;
mod clients;
mod dispatch;
mod info;
mod scripts;

use std::collections::{BTreeMap, BTreeSet};

use crate::commands::{Execution, Message, Subscriptions, Surroundings};
use crate::keyspace::{Change, Keyspace, Value};
use crate::reply::Reply;
use crate::request::{self, Unread};
use crate::script::{Engine, Script};

/// Settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The seed of the server's ids.
    pub seed: u64,
    /// The user and the password that clients need. The user `default` may be omitted.
    pub user: Option<(String, String)>,
    /// Whether the server reports an append-only file that is synced on each write.
    pub remembers: bool,
    /// Whether scripts may use only their declared keys.
    pub keys_are_declared: bool,
    /// Whether the server records changes and messages for [`Server::take_effects`].
    pub collects: bool,
}

/// Bytes for one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The connection.
    pub connection: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The effects of requests, in order.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// The changes of keys.
    pub changes: Vec<Change>,
    /// The published messages.
    pub published: Vec<Message>,
}

/// Expired keys are removed after this many commands.
const COMMANDS_BETWEEN_SWEEPS: u32 = 10_000;

/// An in-process Redis server.
#[derive(Debug)]
pub struct Server {
    config: Config,
    random: u64,
    run_id: String,
    /// The server's time when it started, in microseconds since 1970.
    started: i64,
    is_stopped: bool,
    keys: Keyspace,
    connections: BTreeMap<u64, Connection>,
    channels: Subscriptions,
    shard_channels: Subscriptions,
    engine: Engine,
    scripts: BTreeMap<String, Script>,
    is_loading: bool,
    is_full: bool,
    refuses_writes: Option<String>,
    denied: BTreeSet<String>,
    mode: &'static str,
    replication: String,
    leaving: BTreeSet<u16>,
    effects: Effects,
    /// The number of commands since expired keys were last removed.
    unswept: u32,
    out: Vec<Delivery>,
}

#[derive(Debug, Default)]
struct Connection {
    input: Vec<u8>,
    name: Vec<u8>,
    is_authenticated: bool,
    database: u32,
    is_closing: bool,
    /// The time of the first request, in microseconds since 1970. `None` before.
    since: Option<i64>,
}

impl Server {
    /// Creates a server without keys. It starts at `now`, in microseconds since 1970.
    pub fn new(config: Config, now: i64) -> Server {
        Server::with_engine(config, now, Engine::new())
    }

    /// Creates a server whose scripts run in `engine`, which several servers may share.
    pub fn with_engine(config: Config, now: i64, engine: Engine) -> Server {
        let mut server = Server {
            random: config.seed,
            config,
            run_id: String::new(),
            started: now,
            is_stopped: false,
            keys: Keyspace::default(),
            connections: BTreeMap::new(),
            channels: Subscriptions::new(),
            shard_channels: Subscriptions::new(),
            engine,
            scripts: BTreeMap::new(),
            is_loading: false,
            is_full: false,
            refuses_writes: None,
            denied: BTreeSet::new(),
            mode: "standalone",
            replication: String::new(),
            leaving: BTreeSet::new(),
            effects: Effects::default(),
            unswept: 0,
            out: Vec::new(),
        };
        server.run_id = server.draw_id();
        server.replication = info::alone(&server.draw_id());
        server
    }

    /// Accepts a connection. Its number must be new.
    pub fn connect(&mut self, connection: u64) {
        if !self.is_stopped {
            self.connections.insert(connection, Connection::default());
        }
    }

    /// Removes a connection that has ended.
    pub fn disconnect(&mut self, connection: u64) {
        self.connections.remove(&connection);
        for channels in [&mut self.channels, &mut self.shard_channels] {
            channels.retain(|_, listeners| {
                listeners.remove(&connection);
                !listeners.is_empty()
            });
        }
    }

    /// Returns whether the connection is open. The server closes a connection after QUIT, RESET or a protocol error. The
    /// stop of the server closes all connections.
    pub fn is_connected(&self, connection: u64) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Takes bytes from a connection, and runs all requests that are complete.
    pub fn feed(&mut self, now: i64, connection: u64, bytes: &[u8]) -> Vec<Delivery> {
        let Some(from) = self.connections.get_mut(&connection) else {
            return Vec::new();
        };
        from.input.extend(bytes);
        let input = std::mem::take(&mut from.input);
        let mut at = 0;
        let mut out = Vec::new();
        while self.is_connected(connection) {
            match request::next(&input, &mut at) {
                Ok(request) => out.extend(self.command(now, connection, &request)),
                Err(Unread::More) => break,
                Err(Unread::Wrong(what)) => {
                    let text = format!("ERR Protocol error: {what}");
                    self.answer(connection, &Reply::Error(text));
                    self.disconnect(connection);
                    out.append(&mut self.out);
                }
            }
        }
        if let Some(from) = self.connections.get_mut(&connection) {
            from.input = input[at..].to_vec();
        }
        out
    }

    /// Runs one request of a connection. Returns the bytes for this connection and for others, in order.
    pub fn command<W: AsRef<[u8]>>(
        &mut self,
        now: i64,
        connection: u64,
        request: &[W],
    ) -> Vec<Delivery> {
        let request: Vec<&[u8]> = request.iter().map(AsRef::as_ref).collect();
        let Some(from) = self.connections.get_mut(&connection) else {
            return Vec::new();
        };
        from.since.get_or_insert(now);
        self.sweep(now);
        if let Some(reply) = self.run(now, connection, &request) {
            self.answer(connection, &reply);
        }
        let from = self.connections.get(&connection);
        if from.is_some_and(|it| it.is_closing) {
            self.disconnect(connection);
        }
        std::mem::take(&mut self.out)
    }

    /// Stops the server. All connections end, and the server accepts no connection.
    pub fn stop(&mut self) {
        self.is_stopped = true;
        self.connections.clear();
        self.channels.clear();
        self.shard_channels.clear();
    }

    /// Restarts the server. Its keys remain, its scripts are lost.
    pub fn restart(&mut self, now: i64) {
        self.stop();
        self.is_stopped = false;
        self.scripts.clear();
        self.started = now;
        self.run_id = self.draw_id();
    }

    /// Returns whether the server is stopped.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Removes all keys, as FLUSHALL does.
    pub fn flush(&mut self, now: i64) {
        self.execute(0, now, |execution| execution.command(&[b"FLUSHALL"]));
    }

    /// Removes all scripts, as SCRIPT FLUSH does.
    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// Sets whether the server replies with the error `LOADING`.
    pub fn set_loading(&mut self, is_loading: bool) {
        self.is_loading = is_loading;
    }

    /// Sets whether commands that need memory fail, as at `maxmemory`.
    pub fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Sets the error for all writes, such as `MISCONF …`; `None` to allow them.
    pub fn refuse_writes(&mut self, refusal: Option<&str>) {
        if self.refuses_writes.as_deref() != refusal {
            self.refuses_writes = refusal.map(str::to_owned);
        }
    }

    /// Sets the commands that no user may run, in lower case.
    pub fn deny(&mut self, commands: &[&str]) {
        self.denied = commands.iter().map(ToString::to_string).collect();
    }

    /// Sets whether scripts may use only their declared keys, as [`Config::keys_are_declared`] does.
    pub fn set_keys_are_declared(&mut self, are_declared: bool) {
        self.config.keys_are_declared = are_declared;
    }

    /// Sets the mode that INFO and HELLO report: `standalone`, `cluster` or `sentinel`.
    pub fn set_mode(&mut self, mode: &'static str) {
        self.mode = mode;
    }

    /// Sets the reply to INFO replication.
    pub fn set_replication(&mut self, info: String) {
        self.replication = info;
    }

    /// Sets the slots under migration. A script that uses a missing key of such a slot gets an error.
    pub fn set_leaving(&mut self, slots: BTreeSet<u16>) {
        self.leaving = slots;
    }

    /// Returns the keys. A test may inspect or change them without a request.
    pub fn keys(&mut self) -> &mut Keyspace {
        &mut self.keys
    }

    /// Returns all keys.
    pub fn all_keys(&self) -> &Keyspace {
        &self.keys
    }

    /// Returns the content of a key of database 0, and its TTL in ms. The TTL is -1 if the key never expires.
    pub fn look(&self, now: i64, key: &str) -> Option<(&Value, i64)> {
        let now = now.div_euclid(1000);
        let entry = self.keys.get(&(0, key.as_bytes().to_vec()), now)?;
        Some((&entry.value, entry.expires.map_or(-1, |end| end - now)))
    }

    /// Returns the number of connections, and the number of their subscriptions.
    pub fn clients(&self) -> (usize, usize) {
        let listeners = self.channels.values().chain(self.shard_channels.values());
        (self.connections.len(), listeners.map(BTreeSet::len).sum())
    }

    /// Returns the run id.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Returns the effects of requests since the last call. Empty unless [`Config::collects`] is set.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Creates an id of 40 hexadecimal digits.
    pub fn draw_id(&mut self) -> String {
        let mut id = String::new();
        while id.len() < 40 {
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut drawn = self.random;
            drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            id += &format!("{:016x}", drawn ^ (drawn >> 31));
        }
        id.truncate(40);
        id
    }

    /// Runs `work` on the keys, sends its messages, and records its effects.
    fn execute(
        &mut self,
        database: u32,
        now: i64,
        work: impl FnOnce(&mut Execution<'_>) -> Reply,
    ) -> Reply {
        let around = Surroundings {
            database,
            now,
            replication: &self.replication,
            subscriptions: &self.channels,
            shard_subscriptions: &self.shard_channels,
            refuses_writes: self.refuses_writes.as_deref(),
            is_full: self.is_full,
            denied: &self.denied,
            leaving: &self.leaving,
            keys_are_declared: self.config.keys_are_declared,
            collects: self.config.collects,
        };
        let mut execution = Execution::new(&mut self.keys, around);
        let reply = work(&mut execution);
        let (changes, published) = execution.finish();
        for message in &published {
            self.deliver(message);
        }
        if self.config.collects {
            self.effects.changes.extend(changes);
            self.effects.published.extend(published);
        }
        reply
    }

    fn sweep(&mut self, now: i64) {
        self.unswept += 1;
        if self.unswept > COMMANDS_BETWEEN_SWEEPS {
            self.unswept = 0;
            self.keys.remove_expired(now.div_euclid(1000));
        }
    }

    fn answer(&mut self, connection: u64, reply: &Reply) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        self.out.push(Delivery { connection, bytes });
    }
}
