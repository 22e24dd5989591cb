//! A simulated Redis server: [`redlatch_server::Server`] with clusters, sentinels, replication and persistence.
//!
//! It reads no clock: each request comes with the time by the server's own clock, in microseconds since 1970.

mod cluster;
mod replication;
mod requests;
mod sentinel;

use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;

use redlatch_server::{Delivery, Engine, Keyspace, Script, Value};

use crate::reply::Reply;
use cluster::Cluster;
pub use cluster::{Address, SlotRange};
pub use replication::{Changes, Snapshot};
use replication::{Replication, Step, Waiting};
use sentinel::Masters;

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The number that its run ids and replication ids are drawn from.
    pub seed: u64,
    /// The required user and password; the user `default` needs no name.
    pub user: Option<(String, String)>,
    /// Whether it claims to lose nothing in a restart: an append-only file that is synced with each write.
    pub remembers: bool,
    /// With fewer replicas than this it refuses writes; 0 accepts them always.
    pub least_replicas: u32,
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
    inner: redlatch_server::Server,
    /// When it stopped, while it is stopped.
    stopped: Option<i64>,
    replication: Replication,
    /// Whether the inner server has to be told about a change of the replication.
    is_replication_changed: bool,
    connections: BTreeMap<u64, Connection>,
    refuses_writes: Option<String>,
    /// The cluster that it belongs to.
    cluster: Option<Cluster>,
    /// Messages for the other servers of the cluster.
    broadcasts: Vec<(Vec<u8>, Vec<u8>)>,
    /// The masters that it names, if it is a sentinel.
    masters: Option<Masters>,
}

/// The state of a connection beside that in the inner server.
#[derive(Debug, Default)]
struct Connection {
    /// Whether its next request is for an imported slot.
    is_asking: bool,
    /// The number of steps at its last write.
    written: i64,
    /// A pending `WAIT`, and the requests after it.
    waiting: Option<Waiting>,
    queued: VecDeque<Vec<Vec<u8>>>,
}

const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
const ALONE: &str = "NOREPLICAS Not enough good replicas to write.";

impl Server {
    /// A server without keys, started at this time.
    pub fn new(config: Config, now: i64) -> Server {
        let inside = redlatch_server::Config {
            seed: config.seed,
            user: config.user.clone(),
            remembers: config.remembers,
            keys_are_declared: false,
            collects: true,
        };
        let mut server = Server {
            config,
            inner: redlatch_server::Server::with_engine(inside, now, engine()),
            stopped: None,
            replication: Replication::default(),
            is_replication_changed: true,
            connections: BTreeMap::new(),
            refuses_writes: None,
            cluster: None,
            broadcasts: Vec::new(),
            masters: None,
        };
        server.begin_history();
        server
    }

    /// Accepts a connection with a new number.
    pub fn connect(&mut self, connection: u64) {
        self.inner.connect(connection);
        if self.inner.is_connected(connection) {
            self.connections.insert(connection, Connection::default());
        }
    }

    /// Records that a connection has ended.
    pub fn disconnect(&mut self, connection: u64) {
        self.inner.disconnect(connection);
        self.connections.remove(&connection);
    }

    /// Whether the connection is open; the server closes idle connections, and all of them when it stops.
    pub fn is_connected(&self, connection: u64) -> bool {
        self.inner.is_connected(connection)
    }

    /// Runs one request of a connection. Returns the bytes sent to this and to other connections, in order.
    pub fn command(&mut self, now: i64, connection: u64, request: &[Vec<u8>]) -> Vec<Delivery> {
        let Some(from) = self.connections.get_mut(&connection) else {
            return Vec::new();
        };
        if from.waiting.is_some() {
            from.queued.push_back(request.to_vec());
            return Vec::new();
        }
        let request: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let sent = self.run(now, connection, &request);
        if !self.inner.is_connected(connection) {
            self.connections.remove(&connection);
        }
        sent
    }

    /// Stops: all connections end.
    pub fn stop(&mut self, now: i64) {
        self.stopped.get_or_insert(now);
        self.inner.stop();
        self.connections.clear();
        self.replication.unlink();
        self.is_replication_changed = true;
    }

    /// Stops the server if it runs, and starts it.
    pub fn restart(&mut self, now: i64, persistence: Persistence) {
        self.stop(now);
        let stopped = self.stopped.take().unwrap_or(now).div_euclid(1000);
        self.inner.restart(now);
        let steps = self.begin_history();
        match persistence {
            Persistence::All => {}
            Persistence::Nothing => self.keys().clear(),
            Persistence::Lost(ms) => {
                let changes = steps.into_iter().rev();
                for change in changes.flat_map(|step| step.into_iter().rev()) {
                    if change.at > stopped - ms {
                        self.keys().replace(change.key, change.before);
                    }
                }
            }
        }
    }

    /// Deletes all keys, as FLUSHALL does.
    pub fn flush(&mut self, now: i64) {
        self.inner.refuse_writes(None);
        self.inner.flush(now);
        self.absorb(None);
    }

    /// Drops the cached scripts, as SCRIPT FLUSH does.
    pub fn forget_scripts(&mut self) {
        self.inner.forget_scripts();
    }

    /// Sets whether it replies `LOADING` to everything.
    pub fn set_loading(&mut self, is_loading: bool) {
        self.inner.set_loading(is_loading);
    }

    /// Sets whether it is at `maxmemory`.
    pub fn set_full(&mut self, is_full: bool) {
        self.inner.set_full(is_full);
    }

    /// Sets the refusal of all writes, such as `MISCONF …`; `None` to take them again.
    pub fn refuse_writes(&mut self, refusal: Option<&str>) {
        self.refuses_writes = refusal.map(str::to_owned);
    }

    /// Sets the forbidden commands, in lower case.
    pub fn deny(&mut self, commands: &[&str]) {
        self.inner.deny(commands);
    }

    /// The keys, for direct access.
    pub fn keys(&mut self) -> &mut Keyspace {
        self.inner.keys()
    }

    /// The content of a key of database 0 at this time, and its TTL in ms, -1 for none.
    pub fn look(&self, now: i64, key: &str) -> Option<(&Value, i64)> {
        self.inner.look(now, key)
    }

    /// The number of subscribers of a channel without sharded messages.
    pub fn listeners(&self, channel: &str) -> usize {
        self.inner.listeners(channel)
    }

    /// The number of connections, and of their subscriptions.
    pub fn clients(&self) -> (usize, usize) {
        self.inner.clients()
    }

    /// The id of its present run.
    pub fn run_id(&self) -> &str {
        self.inner.run_id()
    }

    /// The id of the history of its keys.
    pub fn replication_id(&self) -> &str {
        &self.replication.id
    }

    /// Starts a history of the keys. Returns the steps of the previous one.
    fn begin_history(&mut self) -> VecDeque<Step> {
        self.is_replication_changed = true;
        let id = self.inner.draw_id();
        self.replication.begin(id)
    }
}

/// A reply on its way to a connection.
fn delivery(connection: u64, reply: &Reply) -> Delivery {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    Delivery { connection, bytes }
}

/// The engine that all simulated servers of this process share.
pub(crate) fn engine() -> Engine {
    static ENGINE: LazyLock<Engine> = LazyLock::new(Engine::new);
    ENGINE.clone()
}

/// Initializes what all servers share, once for all processes forked from this one.
///
/// # Panics
///
/// If a script of the library is not valid Lua.
pub fn warm_up() {
    for script in crate::scripts::ALL.iter() {
        for text in [script.text.to_owned(), script.sharded_text()] {
            let compiled = engine().compile(&Script::new(text));
            assert_eq!(compiled, Ok(()), "{}", script.name);
        }
    }
}
