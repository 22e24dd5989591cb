//! A cluster node without slots that reports any slot map.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fake_server::{FakeServer, array, bulk, list};

/// Replies to CLUSTER SLOTS with any masters and replicas; dropping it cuts its connections.
pub struct FakeClusterNode {
    server: FakeServer,
    map: Arc<Mutex<Map>>,
}

const LAST_SLOT: u16 = 16383;

/// The host of a node, as the node reports it, and its port.
fn place(node: SocketAddr) -> (String, u16) {
    (node.ip().to_string(), node.port())
}

/// The first and the last slot, and their nodes with host and port, the master first.
type Range = (u16, u16, Vec<(String, u16)>);

#[derive(Default)]
struct Map {
    ranges: Vec<Range>,
}

impl FakeClusterNode {
    /// Starts a node with an empty slot map.
    pub fn start() -> FakeClusterNode {
        let map: Arc<Mutex<Map>> = Arc::default();
        let told = Arc::clone(&map);
        let server = FakeServer::start(move |words| {
            let mut map = told.lock().unwrap_or_else(PoisonError::into_inner);
            map.reply(words)
        });
        FakeClusterNode { server, map }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// The URL to give to a client.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Reports this master and these replicas of it from now on.
    pub fn tell(&self, master: SocketAddr, replicas: &[SocketAddr]) {
        let nodes = [&[master], replicas].concat();
        self.map().ranges = vec![(0, LAST_SLOT, nodes.into_iter().map(place).collect())];
    }

    /// Reports from now on that the first master has the lower half of the slots, and the second one the upper half.
    pub fn tell_halves(&self, first: SocketAddr, second: SocketAddr) {
        let middle = LAST_SLOT / 2;
        self.map().ranges = vec![
            (0, middle, vec![place(first)]),
            (middle + 1, LAST_SLOT, vec![place(second)]),
        ];
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    fn reply(&mut self, words: &[String]) -> String {
        let node = |(host, port): &(String, u16)| list(&[bulk(host), format!(":{port}\r\n")]);
        match &*words[0].to_ascii_lowercase() {
            "cluster" => {
                let range = |(first, last, nodes): &Range| {
                    let slots = [first, last].map(|slot| format!(":{slot}\r\n"));
                    let nodes = nodes.iter().map(node);
                    list(&slots.into_iter().chain(nodes).collect::<Vec<_>>())
                };
                list(&self.ranges.iter().map(range).collect::<Vec<_>>())
            }
            "time" => array(&["1700000000", "0"]),
            "pubsub" => "-ERR unknown subcommand\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        }
    }
}
