//! A master and its replicas at fixed addresses, without sentinels.

use super::node::Access;
use super::{AGREEMENT, Node, at_once};
use crate::support::eventually;

/// Arguments for a fast start of replication, which takes seconds by default.
pub const SWIFT: [&str; 4] = [
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "1",
];

/// One master and its replicas; node 0 is the master at first.
pub struct Replicas {
    pub nodes: Vec<Node>,
}

impl Replicas {
    /// Starts a master with `count` replicas and waits until they follow.
    pub fn start(count: usize) -> Replicas {
        Replicas::with(count, &[])
    }

    /// Starts a master with `count` replicas, all with arguments added.
    pub fn with(count: usize, args: &[&str]) -> Replicas {
        let args = [&SWIFT[..], args].concat();
        let master = Node::start(&args, Access::default());
        let port = master.port().to_string();
        let replicas = at_once(count, |_| {
            Node::start(
                &[&args[..], &["--replicaof", "127.0.0.1", &port]].concat(),
                Access::default(),
            )
        });
        let set = Replicas {
            nodes: std::iter::once(master).chain(replicas).collect(),
        };
        let all: Vec<_> = (1..=count).collect();
        set.wait_until_following(0, &all);
        set
    }

    /// The URLs of all servers, the first master's first.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    /// Makes `node` a master; the other roles stay.
    pub fn promote(&self, node: usize) {
        self.nodes[node].cmd(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Makes `node` a replica of `master`, and waits until it has all of the master's data.
    pub fn follow(&self, node: usize, master: usize) {
        let port = self.nodes[master].port().to_string();
        self.nodes[node].cmd(&["REPLICAOF", "127.0.0.1", &port]);
        self.wait_until_following(master, &[node]);
    }

    /// Makes `node` the master of all others without losing data: the old master stops first.
    pub fn switch_to(&self, node: usize) {
        let port = self.nodes[node].port().to_string();
        let old = self
            .nodes
            .iter()
            .position(Node::is_master)
            .expect("a master");
        self.nodes[old].cmd(&["FAILOVER", "TO", "127.0.0.1", &port]);
        eventually(AGREEMENT, "the old master follows", || {
            self.nodes[old].follows(self.nodes[node].port())
        });
        for (index, other) in self.nodes.iter().enumerate() {
            if ![node, old].contains(&index) {
                other.cmd(&["REPLICAOF", "127.0.0.1", &port]);
            }
        }
    }

    fn wait_until_following(&self, master: usize, replicas: &[usize]) {
        let port = self.nodes[master].port();
        for replica in replicas {
            eventually(AGREEMENT, "the replica follows", || {
                self.nodes[*replica].follows(port)
            });
        }
        eventually(AGREEMENT, "the master knows its replicas", || {
            self.nodes[master].replicas_online() >= replicas.len()
        });
        // A master sends its changes to a new replica only after the first acknowledgement, up to one second later.
        self.nodes[master].replicate(replicas.len(), "new");
        self.nodes[master].cmd(&["DEL", "support-mark:{new}"]);
    }
}
