//! The servers, queried past their proxies.

use redis::Connection;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness;
use crate::harness::bare;
use crate::support::RedisServer;

pub(crate) struct Node {
    server: RedisServer,
    admin: Connection,
}

/// The server's counters since its start.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Reads from sockets; equal to the number of requests if every client waits for each reply.
    pub(crate) requests: u64,
    pub(crate) connections: u64,
}

impl Node {
    pub(crate) fn start() -> Node {
        let server = RedisServer::start();
        Node {
            admin: bare::connect(&server.url()),
            server,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        let url = self.server.url();
        let (_, port) = url.rsplit_once(':').expect("a port");
        port.parse().expect("a port")
    }

    pub(crate) fn version(&self) -> String {
        harness::version(&self.server)
    }

    pub(crate) fn counts(&mut self) -> Counts {
        let info: String = redis::cmd("INFO")
            .arg("stats")
            .query(&mut self.admin)
            .expect("INFO");
        let number = |name: &str| {
            let mut lines = info.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.parse().ok())
        };
        Counts {
            requests: number("total_reads_processed")
                .expect("a Redis of 6.0 or newer counts reads"),
            connections: number("total_connections_received").expect("a number"),
        }
    }

    /// The difference, without this query.
    pub(crate) fn since(&mut self, before: Counts) -> Counts {
        let now = self.counts();
        Counts {
            requests: now.requests - before.requests - 1,
            connections: now.connections - before.connections,
        }
    }

    /// How many keys have this prefix.
    pub(crate) fn keys(&mut self, prefix: &str) -> usize {
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg(format!("{prefix}*"))
            .query(&mut self.admin)
            .expect("KEYS");
        keys.len()
    }

    /// Stops the processes. The kernel still accepts connections and requests.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.server.pid())
            .ok()
            .and_then(Pid::from_raw);
        kill_process(id.expect("a process id"), signal).expect("the server runs");
    }
}
