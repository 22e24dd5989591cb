//! A Redis in this process, for tests: its clock, the connections to it, and the faults that a test asks for.
//!
//! A request runs on the thread that writes it. The replies go through a pair of sockets, so that a client reads, polls and
//! listens as it does on a network.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redlatch_server::{Config, Delivery, Server, next};

use crate::ground::clock::Timeline;
use crate::ground::process;
use crate::ground::sync::Mutex;
use crate::stores::redis::kinds::{KINDS, Layout, RIGHTS};

/// The name of the server in messages.
pub(crate) const NODE: &str = "in memory";

/// The time of a server that begins, in microseconds since 1970: the year 2020.
const BEGIN: i64 = 1_577_836_800_000_000;

/// A server, with a clock of its own.
pub(crate) struct World {
    pub(crate) timeline: Timeline,
    /// The server's clock, in microseconds, when the timeline begins.
    epoch: i64,
    state: Mutex<State>,
}

struct State {
    server: Server,
    last_connection: u64,
    connections: HashMap<u64, FarEnd>,
    faults: Faults,
}

/// The server's end of a connection.
struct FarEnd {
    stream: UnixStream,
    /// The bytes of a request of which the rest is still to come.
    received: Vec<u8>,
    /// The bytes that were not sent yet, because the client has to read first.
    unsent: Vec<u8>,
    is_lost: Arc<AtomicBool>,
}

/// The faults that a test has asked for.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) renewals_to_drop: u32,
    pub(crate) messages_to_lose: u32,
    pub(crate) answers_to_lose: u32,
    pub(crate) is_silent: bool,
}

/// The client's end of a connection to a server in this process.
pub(crate) struct Link {
    world: Arc<World>,
    connection: u64,
    /// Whether it ended because a test lost an answer.
    is_lost: Arc<AtomicBool>,
    pid: u32,
}

const LOST: &str = "the in-memory server gave no reply";

/// The scripts that faults tell apart.
struct Hashes {
    renewals: HashSet<String>,
    /// Of requests in the background.
    aside: HashSet<String>,
}

static HASHES: LazyLock<Hashes> = LazyLock::new(|| {
    let layouts = || KINDS.into_iter().map(Layout::of);
    Hashes {
        renewals: layouts().map(|it| it.renew.hash.clone()).collect(),
        aside: layouts()
            .map(|it| &it.resolve)
            .chain([&*RIGHTS])
            .map(|it| it.hash.clone())
            .collect(),
    }
});

impl Default for World {
    fn default() -> World {
        let timeline = Timeline::of_a_world();
        // It remembers all, and has always been there: a quorum need not wait for it.
        let config = Config {
            seed: fastrand::u64(..),
            remembers: true,
            ..Config::default()
        };
        World {
            epoch: BEGIN.saturating_sub(timeline.now().as_micros()),
            timeline,
            state: Mutex::new(State {
                server: Server::new(config, 0),
                last_connection: 0,
                connections: HashMap::new(),
                faults: Faults::default(),
            }),
        }
    }
}

impl World {
    /// Opens a connection. Returns what is written to, and what is read from.
    pub(crate) fn connect(self: &Arc<World>) -> io::Result<(Arc<Link>, UnixStream)> {
        let (near, far) = UnixStream::pair()?;
        far.set_nonblocking(true)?;
        let mut state = self.state.lock();
        if state.faults.is_silent {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        state.last_connection += 1;
        let connection = state.last_connection;
        state.server.connect(connection);
        let is_lost = Arc::new(AtomicBool::new(false));
        let end = FarEnd {
            stream: far,
            received: Vec::new(),
            unsent: Vec::new(),
            is_lost: Arc::clone(&is_lost),
        };
        state.connections.insert(connection, end);
        let link = Link {
            world: Arc::clone(self),
            connection,
            is_lost,
            pid: process::id(),
        };
        Ok((Arc::new(link), near))
    }

    pub(crate) fn fail(&self, change: impl FnOnce(&mut Faults)) {
        let mut state = self.state.lock();
        change(&mut state.faults);
        if state.faults.is_silent {
            let all: Vec<u64> = state.connections.keys().copied().collect();
            all.into_iter().for_each(|connection| state.cut(connection));
        }
    }

    /// Has all clients renew all holds now.
    pub(crate) fn renew_all(&self) {
        self.timeline.advance(Duration::ZERO);
    }

    /// Takes away the keys of these names, and returns whether there was one.
    pub(crate) fn expire(&self, names: [&str; 2]) -> bool {
        let now = self.now();
        let mut state = self.state.lock();
        names.iter().any(|name| {
            let was_there = state.server.look(now, name).is_some();
            let key = (0, name.as_bytes().to_vec());
            state.server.keys().put(key, None, now / 1000);
            was_there
        })
    }

    /// The server's clock, in microseconds since 1970.
    fn now(&self) -> i64 {
        self.epoch.saturating_add(self.timeline.now().as_micros())
    }
}

impl State {
    /// Runs the requests of a connection that are whole.
    fn take(&mut self, now: i64, connection: u64, bytes: &[u8]) {
        let Some(end) = self.connections.get_mut(&connection) else {
            return;
        };
        end.received.extend_from_slice(bytes);
        let received = std::mem::take(&mut end.received);
        let mut at = 0;
        while let Ok(request) = next(&received, &mut at) {
            self.run(now, connection, &request);
        }
        if let Some(end) = self.connections.get_mut(&connection) {
            end.received
                .extend_from_slice(received.get(at..).unwrap_or_default());
        }
    }

    fn run(&mut self, now: i64, connection: u64, request: &[Vec<u8>]) {
        let script = script_of(request);
        let is_renewal = script
            .as_ref()
            .is_some_and(|it| HASHES.renewals.contains(it));
        if is_renewal && self.faults.renewals_to_drop > 0 {
            self.faults.renewals_to_drop -= 1;
            let bytes = b"-ERR a test dropped this renewal\r\n".to_vec();
            self.send(&Delivery { connection, bytes });
            return;
        }
        // A script without keys is one with which a client looks at the server.
        let has_keys = request.get(2).is_some_and(|count| count != b"0");
        let may_lose =
            has_keys && !is_renewal && script.is_some_and(|it| !HASHES.aside.contains(&it));
        let mut is_lost = may_lose && self.faults.answers_to_lose > 0;
        let deliveries = self.server.command(now, connection, request);
        // One that did not run because the server lacks the script comes again with its text.
        is_lost &= !deliveries
            .iter()
            .any(|it| it.bytes.starts_with(b"-NOSCRIPT"));
        self.faults.answers_to_lose -= u32::from(is_lost);
        let mut lost_message = None;
        for delivery in deliveries {
            let is_answer = delivery.connection == connection;
            if !(is_lost && is_answer || self.loses(&delivery.bytes, &mut lost_message)) {
                self.send(&delivery);
            }
        }
        if is_lost {
            if let Some(end) = self.connections.get(&connection) {
                end.is_lost.store(true, Ordering::SeqCst);
            }
            self.cut(connection);
        }
    }

    /// Whether a test loses this message: to all who listen, or to nobody.
    fn loses(&mut self, bytes: &[u8], lost: &mut Option<Vec<u8>>) -> bool {
        let is_new = lost.as_deref() != Some(bytes);
        if !bytes.starts_with(b"*3\r\n$7\r\nmessage\r\n")
            || is_new && self.faults.messages_to_lose == 0
        {
            return false;
        }
        self.faults.messages_to_lose -= u32::from(is_new);
        *lost = Some(bytes.to_vec());
        true
    }

    fn send(&mut self, delivery: &Delivery) {
        if let Some(end) = self.connections.get_mut(&delivery.connection) {
            end.unsent.extend_from_slice(&delivery.bytes);
            end.send_rest();
        }
    }

    fn cut(&mut self, connection: u64) {
        self.server.disconnect(connection);
        self.connections.remove(&connection);
    }
}

impl FarEnd {
    /// Sends what there is room for.
    fn send_rest(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => {
                    self.unsent.drain(..sent);
                }
                // The client is gone, or will read.
                Err(_) => return,
            }
        }
    }
}

impl Link {
    /// Sends requests, which have run when it returns.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.world.state.lock();
        if !state.connections.contains_key(&self.connection) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.take(self.world.now(), self.connection, bytes);
        Ok(bytes.len())
    }

    /// Makes use of the room that a read leaves, and tells why nothing more comes.
    pub(crate) fn received(&self, received: io::Result<usize>) -> io::Result<usize> {
        if let Some(end) = self
            .world
            .state
            .lock()
            .connections
            .get_mut(&self.connection)
        {
            end.send_rest();
        }
        match received {
            Ok(0) if self.is_lost.load(Ordering::SeqCst) => Err(io::Error::other(LOST)),
            received => received,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // In a forked child nobody may ever unlock the mutex.
        if self.pid == process::id() {
            self.world.state.lock().cut(self.connection);
        }
    }
}

/// The hash of the script that a request runs.
fn script_of(request: &[Vec<u8>]) -> Option<String> {
    let [command, script, ..] = request else {
        return None;
    };
    let script = String::from_utf8_lossy(script);
    if command.eq_ignore_ascii_case(b"EVALSHA") {
        return Some(script.into_owned());
    }
    let is_text = command.eq_ignore_ascii_case(b"EVAL");
    is_text.then(|| redis::Script::new(&script).get_hash().to_owned())
}

#[cfg(test)]
pub(crate) mod tests;
