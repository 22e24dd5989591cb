//! A Redis server in this process, for tests. A test controls the server's clock and injects faults.
//!
//! A request runs on the thread that writes it. Replies go through a socket pair, so a client reads, polls and
//! subscribes as on a network.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redlatch_server::{Config, Delivery, Server, TOO_LONG, next};

use crate::ground::clock::Timeline;
use crate::ground::process;
use crate::ground::sync::Mutex;
use crate::stores::redis::kinds::{KINDS, Layout, RIGHTS};

pub(crate) const NODE: &str = "in memory";

/// The time of a new server, in µs since 1970: the beginning of the year 2020.
const BEGIN: i64 = 1_577_836_800_000_000;

pub(crate) struct World {
    pub(crate) timeline: Timeline,
    /// The server's time when the timeline begins, in µs since 1970.
    epoch: i64,
    state: Mutex<State>,
}

struct State {
    server: Server,
    last_connection: u64,
    connections: HashMap<u64, FarEnd>,
    faults: Faults,
}

struct FarEnd {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    is_lost: Arc<AtomicBool>,
}

#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) renewals_to_drop: u32,
    pub(crate) messages_to_lose: u32,
    pub(crate) answers_to_lose: u32,
    pub(crate) is_silent: bool,
}

pub(crate) struct Link {
    world: Arc<World>,
    connection: u64,
    /// Whether the connection ended because a reply was dropped.
    is_lost: Arc<AtomicBool>,
    pid: u32,
}

const LOST: &str = "the in-memory server gave no reply";

/// The hashes of scripts with their own rules for injected faults: renewals, and scripts whose replies are not dropped.
struct Hashes {
    renewals: HashSet<String>,
    aside: HashSet<String>,
}

static HASHES: LazyLock<Hashes> = LazyLock::new(|| {
    let layouts = || KINDS.into_iter().map(Layout::of);
    Hashes {
        renewals: layouts().map(|it| it.renew.hash()).collect(),
        aside: layouts()
            .map(|it| &it.resolve)
            .chain([&*RIGHTS])
            .map(|it| it.hash())
            .collect(),
    }
});

impl Default for World {
    fn default() -> World {
        let timeline = Timeline::of_in_memory_server();
        // With `remembers`, the server reports that it syncs every write to disk.
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
    /// Returns the link to which the client writes, and the stream from which it reads.
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

    /// `advance` makes all clients renew all holds, even if the clock does not move.
    pub(crate) fn renew_all(&self) {
        self.timeline.advance(Duration::ZERO);
    }

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

    /// The server's time, in µs since 1970.
    fn now(&self) -> i64 {
        self.epoch.saturating_add(self.timeline.now().as_micros())
    }
}

impl State {
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
        let is_renewal = matches!(&script, Some(it) if HASHES.renewals.contains(it));
        if is_renewal && self.faults.renewals_to_drop > 0 {
            self.faults.renewals_to_drop -= 1;
            let bytes = b"-ERR a test dropped this renewal\r\n".to_vec();
            self.send(&Delivery { connection, bytes });
            return;
        }
        // A script without keys only checks the server, so its reply is not dropped.
        let has_keys = request.get(2).is_some_and(|count| count != b"0");
        let may_lose =
            has_keys && !is_renewal && script.is_some_and(|it| !HASHES.aside.contains(&it));
        let mut is_lost = may_lose && self.faults.answers_to_lose > 0;
        let deliveries = self.server.command(now, connection, request);
        // After NOSCRIPT, the client sends the request again as text, so this reply is not dropped.
        let is_refused = |it: &Delivery| it.bytes.starts_with(b"-NOSCRIPT");
        is_lost &= !deliveries.iter().any(is_refused);
        self.faults.answers_to_lose -= u32::from(is_lost);
        // A script that was stopped after too long may have written. Without its error reply, the outcome is unknown.
        is_lost |= deliveries.iter().any(|it| is_of_endless(&it.bytes));
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

    /// `lost` has the last dropped message. Its further copies are also dropped, so that it reaches no subscriber.
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
    fn send_rest(&mut self) {
        // A write fails if the client is gone, or while the socket's buffer is full.
        while !self.unsent.is_empty()
            && let Ok(sent) = self.stream.write(&self.unsent)
        {
            self.unsent.drain(..sent);
        }
    }
}

impl Link {
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.world.state.lock();
        if !state.connections.contains_key(&self.connection) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.take(self.world.now(), self.connection, bytes);
        Ok(bytes.len())
    }

    /// Called after each read, because a read makes space in the socket's buffer.
    pub(crate) fn received(&self, received: io::Result<usize>) -> io::Result<usize> {
        let mut state = self.world.state.lock();
        if let Some(end) = state.connections.get_mut(&self.connection) {
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
        // In a forked child, the mutex may be locked forever.
        if self.pid == process::id() {
            self.world.state.lock().cut(self.connection);
        }
    }
}

fn is_of_endless(reply: &[u8]) -> bool {
    let text = TOO_LONG.as_bytes();
    reply.starts_with(b"-") && reply.windows(text.len()).any(|words| words == text)
}

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
