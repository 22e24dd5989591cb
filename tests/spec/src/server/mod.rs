//! A simulated Redis server: a state machine that gets requests and says what it sends.
//!
//! It has the commands that the library sends and no others. It reads no clock: each request comes with the time by the
//! server's own clock, in microseconds since 1970.

mod cluster;
mod dispatch;
mod info;
mod messages;
mod replication;
mod scripts;
mod sentinel;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::OnceLock;

use crate::commands::Subscriptions;
use crate::keyspace::{Key, Keyspace, Value};
use crate::reply::Reply;
use crate::request::{self, Unread};
use cluster::Cluster;
pub use cluster::{Address, SlotRange, slot};
pub use replication::{Changes, Snapshot};
use replication::{Replication, Step, Waiting};
use sentinel::Masters;

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The number that its run ids and replication ids are drawn from.
    pub seed: u64,
    /// The user and the password that it asks for; the user `default` needs no name.
    pub user: Option<(String, String)>,
    /// Whether it says that it forgets nothing by a restart: an append-only file that is synced with each write.
    pub remembers: bool,
    /// With fewer replicas than these it refuses writes; 0 to take them in any case.
    pub least_replicas: u32,
}

/// Bytes that go to one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The connection.
    pub connection: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The keys that a server still has after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// All keys.
    All,
    /// All keys, without the changes of the last ms before it went down.
    Lost(i64),
    /// No key.
    Nothing,
}

/// A server.
#[derive(Debug)]
pub struct Server {
    config: Config,
    /// The state of the generator of ids.
    random: u64,
    run_id: String,
    /// When it was started, by its own clock in microseconds.
    started: i64,
    /// When it went down, while it is.
    stopped: Option<i64>,
    keys: Keyspace,
    replication: Replication,
    connections: BTreeMap<u64, Connection>,
    channels: Subscriptions,
    shard_channels: Subscriptions,
    /// The hashes of the scripts that it has got.
    scripts: BTreeSet<String>,
    is_loading: bool,
    is_full: bool,
    refuses_writes: Option<String>,
    denied: BTreeSet<String>,
    /// The cluster that it belongs to.
    cluster: Option<Cluster>,
    /// Messages for the other servers of the cluster.
    broadcasts: Vec<(Vec<u8>, Vec<u8>)>,
    /// The masters that it names, if it is a sentinel.
    masters: Option<Masters>,
    out: Vec<Delivery>,
}

/// One connection.
#[derive(Debug, Default)]
struct Connection {
    input: Vec<u8>,
    is_authenticated: bool,
    database: u32,
    is_closing: bool,
    /// Whether its next request is for a slot on its way here.
    is_asking: bool,
    /// The number of steps when it wrote last.
    written: i64,
    /// Replicas that it waits for, and the requests behind that.
    waiting: Option<Waiting>,
    queued: VecDeque<Vec<Vec<u8>>>,
}

impl Server {
    /// A server without keys, started at this time.
    pub fn new(config: Config, now: i64) -> Server {
        let mut server = Server {
            random: config.seed,
            config,
            run_id: String::new(),
            started: now,
            stopped: None,
            keys: Keyspace::default(),
            replication: Replication::default(),
            connections: BTreeMap::new(),
            channels: Subscriptions::new(),
            shard_channels: Subscriptions::new(),
            scripts: BTreeSet::new(),
            is_loading: false,
            is_full: false,
            refuses_writes: None,
            denied: BTreeSet::new(),
            cluster: None,
            broadcasts: Vec::new(),
            masters: None,
            out: Vec::new(),
        };
        server.begin_run(now);
        server
    }

    /// Accepts a connection of this number, which no other one had.
    pub fn connect(&mut self, connection: u64) {
        if self.stopped.is_none() {
            self.connections.insert(connection, Connection::default());
        }
    }

    /// Notes that a connection has ended.
    pub fn disconnect(&mut self, connection: u64) {
        self.connections.remove(&connection);
        for channels in [&mut self.channels, &mut self.shard_channels] {
            channels.retain(|_, listeners| {
                listeners.remove(&connection);
                !listeners.is_empty()
            });
        }
    }

    /// Whether the connection is open; the server closes one that sends no requests, and all when it goes down.
    pub fn is_connected(&self, connection: u64) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Takes bytes that arrive on a connection, and runs the requests that are whole.
    pub fn feed(&mut self, now: i64, connection: u64, bytes: &[u8]) -> Vec<Delivery> {
        let Some(from) = self.connections.get_mut(&connection) else {
            return Vec::new();
        };
        from.input.extend(bytes);
        let input = std::mem::take(&mut from.input);
        let mut at = 0;
        let mut out = Vec::new();
        loop {
            match request::next(&input, &mut at) {
                Ok(request) => out.extend(self.command(now, connection, &request)),
                Err(Unread::More) => break,
                Err(Unread::Wrong(what)) => {
                    self.answer(
                        connection,
                        &Reply::Error(format!("ERR Protocol error: {what}")),
                    );
                    self.disconnect(connection);
                    out.append(&mut self.out);
                    break;
                }
            }
        }
        if let Some(from) = self.connections.get_mut(&connection) {
            from.input = input[at..].to_vec();
        }
        out
    }

    /// Runs one request of a connection. Returns what is sent, to this and to other connections, in this order.
    pub fn command(&mut self, now: i64, connection: u64, request: &[Vec<u8>]) -> Vec<Delivery> {
        if let Some(from) = self.connections.get_mut(&connection)
            && from.waiting.is_some()
        {
            from.queued.push_back(request.to_vec());
        } else if self.connections.contains_key(&connection) && !request.is_empty() {
            let request: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            if let Some(reply) = self.run(now, connection, &request) {
                self.answer(connection, &reply);
            }
            if self
                .connections
                .get(&connection)
                .is_some_and(|it| it.is_closing)
            {
                self.disconnect(connection);
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Goes down: all connections end.
    pub fn stop(&mut self, now: i64) {
        self.stopped.get_or_insert(now);
        self.connections.clear();
        self.channels.clear();
        self.shard_channels.clear();
        self.replication.unlink();
    }

    /// Goes down, if it is not, and comes back.
    pub fn restart(&mut self, now: i64, persistence: Persistence) {
        self.stop(now);
        let stopped = self.stopped.take().unwrap_or(now).div_euclid(1000);
        let steps = self.begin_run(now);
        match persistence {
            Persistence::All => {}
            Persistence::Nothing => self.keys.clear(),
            Persistence::Lost(ms) => {
                for change in steps
                    .into_iter()
                    .rev()
                    .flat_map(|step| step.into_iter().rev())
                {
                    if change.at > stopped - ms {
                        self.keys.put(change.key, change.before, change.at);
                    }
                }
            }
        }
        self.scripts.clear();
    }

    /// Takes all keys away, as FLUSHALL does.
    pub fn flush(&mut self, now: i64) {
        let keys: Vec<Key> = self.keys.iter().map(|(key, _)| key.clone()).collect();
        let changes = keys.into_iter();
        let changes = changes.map(|key| self.keys.put(key, None, now.div_euclid(1000)));
        self.replication.record(changes.collect());
    }

    /// Forgets the scripts that it has got, as SCRIPT FLUSH does.
    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// Sets whether it answers everything with `LOADING`.
    pub fn set_loading(&mut self, is_loading: bool) {
        self.is_loading = is_loading;
    }

    /// Sets whether it has no memory left.
    pub fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Sets the refusal of all writes, such as `MISCONF …`; `None` to take them again.
    pub fn refuse_writes(&mut self, refusal: Option<&str>) {
        self.refuses_writes = refusal.map(str::to_owned);
    }

    /// Sets the commands, in lower case, that nobody may run.
    pub fn deny(&mut self, commands: &[&str]) {
        self.denied = commands.iter().map(ToString::to_string).collect();
    }

    /// The keys, to look at or to change behind everybody's back.
    pub fn keys(&mut self) -> &mut Keyspace {
        &mut self.keys
    }

    /// The content of a key of database 0 at this time, and the ms left of it, -1 for ever.
    pub fn look(&self, now: i64, key: &str) -> Option<(&Value, i64)> {
        let now = now.div_euclid(1000);
        let entry = self.keys.get(&(0, key.as_bytes().to_vec()), now)?;
        Some((&entry.value, entry.expires.map_or(-1, |end| end - now)))
    }

    /// How many listen to a channel whose messages are not sharded.
    pub fn listeners(&self, channel: &str) -> usize {
        let listeners = self.channels.get(channel.as_bytes());
        listeners.map_or(0, BTreeSet::len)
    }

    /// The number of its connections, and that of the subscriptions on them.
    pub fn clients(&self) -> (usize, usize) {
        let listeners = self.channels.values().chain(self.shard_channels.values());
        (self.connections.len(), listeners.map(BTreeSet::len).sum())
    }

    /// The id of its present run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The id of the history of its keys.
    pub fn replication_id(&self) -> &str {
        &self.replication.id
    }

    /// Begins a run. Returns the steps of the one before.
    fn begin_run(&mut self, now: i64) -> VecDeque<Step> {
        self.started = now;
        self.run_id = self.draw_id();
        let id = self.draw_id();
        self.replication.begin(id)
    }

    /// A new id of 40 hexadecimal digits (splitmix64).
    fn draw_id(&mut self) -> String {
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

    fn answer(&mut self, connection: u64, reply: &Reply) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        self.out.push(Delivery { connection, bytes });
    }
}

/// Computes what all servers share, so that processes that are forked from this one need not.
pub fn warm_up() {
    known_scripts();
}

/// The scripts by their hashes.
fn known_scripts() -> &'static scripts::Known {
    static KNOWN: OnceLock<scripts::Known> = OnceLock::new();
    KNOWN.get_or_init(crate::scripts::by_hash)
}
