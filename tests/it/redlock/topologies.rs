//! Nodes with replicas that have to acknowledge.

use std::thread;

use redlatch::{Client, Redlock, RedlockBuilder};

use super::{LONG, NODE_TIMEOUT, SLACK};
use crate::support::{RedisServer, eventually, ms};

const LEASE: std::time::Duration = ms(3600);

fn builder(nodes: impl IntoIterator<Item = Client>) -> RedlockBuilder {
    Redlock::builder()
        .nodes(nodes)
        .max_lease(LONG)
        .node_timeout(NODE_TIMEOUT)
        .watchdog_timeout(LEASE)
        .trust_new_nodes()
}

/// A master that has one replica.
struct Pair {
    master: RedisServer,
    replica: RedisServer,
}

impl Pair {
    fn start() -> Pair {
        let fast = ["--repl-diskless-sync-delay", "0"];
        let (master, replica) = (RedisServer::with(&fast), RedisServer::with(&fast));
        replica.cmd(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        eventually(SLACK * 4, "the replica is there", || {
            master
                .info("slave0")
                .is_some_and(|line| line.contains("state=online"))
        });
        Pair { master, replica }
    }

    /// A client that waits for the replica, and finds the master on its own.
    fn client(&self) -> Client {
        let urls = [self.replica.url(), self.master.url()];
        let builder = Client::builder().wait_replicas(1, ms(300));
        builder.master_replicas(urls).unwrap()
    }
}

/// The silence of any one of three nodes fails no grant and no hold.
#[test]
fn a_frozen_node_does_not_delay_the_replicas_of_other_nodes() {
    let pairs: Vec<_> = (0..3).map(|_| Pair::start()).collect();
    let redlock = builder(pairs.iter().map(Pair::client)).build().unwrap();
    let held = redlock.lock("held").guard().unwrap();
    let lock = redlock.lock("a");
    for (index, victim) in pairs.iter().enumerate() {
        eventually(SLACK * 4, "all have it", || {
            let mut masters = pairs.iter().map(|pair| &pair.master);
            masters.all(|master| master.int(&["EXISTS", "held"]) == 1)
        });
        victim.master.freeze();
        for _ in 0..3 {
            assert!(lock.try_lock_for(SLACK).unwrap(), "node {index} is frozen");
            lock.unlock().unwrap();
        }
        thread::sleep(LEASE + ms(200));
        assert!(
            held.is_valid(),
            "node {index} is frozen: {:?}",
            held.lost().try_recv()
        );
        victim.master.thaw();
    }
    held.unlock().unwrap();
}
