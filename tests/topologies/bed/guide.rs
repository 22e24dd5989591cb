//! A node of a cluster that has no slots and tells any map.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::puppet::{Puppet, array, bulk, list};

/// Answers CLUSTER SLOTS with one master for all slots and its replicas; drop cuts its connections.
pub struct Guide {
    puppet: Puppet,
    map: Arc<Mutex<Map>>,
}

#[derive(Default)]
struct Map {
    /// What it calls the hosts of the nodes, and their ports; the first one is the master.
    nodes: Vec<(String, u16)>,
    /// The slot of all keys, and where it sends requests for them.
    target: (u16, String, u16),
}

impl Guide {
    /// Starts a node that knows of none.
    pub fn start() -> Guide {
        let map: Arc<Mutex<Map>> = Arc::default();
        let told = Arc::clone(&map);
        let puppet = Puppet::start(move |words| {
            let map = told.lock().unwrap_or_else(PoisonError::into_inner);
            map.reply(words)
        });
        Guide { puppet, map }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.puppet.addr()
    }

    /// The URL to give to a client.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// Tells of this master from now on, and of these replicas of it.
    pub fn tell(&self, master: SocketAddr, replicas: &[SocketAddr]) {
        let nodes = [&[master], replicas].concat();
        let place = |node: &SocketAddr| (node.ip().to_string(), node.port());
        self.map().nodes = nodes.iter().map(place).collect();
    }

    /// Tells from now on that it is the master itself, on a host called so, and redirects requests for keys of this slot
    /// to this port of that host.
    pub fn redirect(&self, slot: u16, host: &str, port: u16) {
        let mut map = self.map();
        map.nodes = vec![(host.to_owned(), self.addr().port())];
        map.target = (slot, host.to_owned(), port);
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    fn reply(&self, words: &[String]) -> String {
        let node = |(host, port): &(String, u16)| list(&[bulk(host), format!(":{port}\r\n")]);
        match &*words[0].to_ascii_lowercase() {
            "cluster" => {
                let slots = [":0\r\n", ":16383\r\n"].map(str::to_owned);
                let nodes = self.nodes.iter().map(node);
                list(&[list(&slots.into_iter().chain(nodes).collect::<Vec<_>>())])
            }
            "time" => array(&["1700000000", "0"]),
            "pubsub" => "-ERR unknown subcommand\r\n".to_owned(),
            "evalsha" | "eval" => {
                let (slot, host, port) = &self.target;
                format!("-MOVED {slot} {host}:{port}\r\n")
            }
            _ => "+OK\r\n".to_owned(),
        }
    }
}
