//! Nodes that are more than one plain server: with replicas that have to acknowledge, behind several addresses, with TLS.

use std::thread;

use redlatch::{Client, Redlock, RedlockBuilder};

use super::{LONG, NODE_TIMEOUT, SLACK};
use crate::support::{RedisServer, eventually, ms};

const LEASE: std::time::Duration = ms(1800);

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

    /// A client that waits for the replica, and finds the master by itself or not.
    fn client(&self, may_move: bool) -> Client {
        let builder = Client::builder().wait_replicas(1, ms(300));
        match may_move {
            false => builder.open(&self.master.url()).unwrap(),
            true => {
                let urls = [self.replica.url(), self.master.url()];
                builder.master_replicas(urls).unwrap()
            }
        }
    }
}

/// The silence of one of three nodes costs no grant and no hold, whichever it is: `victims` are frozen in turn, `masters`
/// have the keys.
fn one_silent_node_costs_nothing<'a>(
    redlock: &Redlock,
    masters: impl Iterator<Item = &'a RedisServer> + Clone,
    victims: impl Iterator<Item = &'a RedisServer>,
) {
    let all_have_it = || {
        eventually(SLACK * 4, "all have it", || {
            let mut masters = masters.clone();
            masters.all(|master| master.int(&["EXISTS", "held"]) == 1)
        })
    };
    let held = redlock.lock("held").guard().unwrap();
    let lock = redlock.lock("a");
    for (index, victim) in victims.enumerate() {
        all_have_it();
        victim.freeze();
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
        victim.thaw();
    }
    held.unlock().unwrap();
}

#[test]
fn a_frozen_node_takes_no_time_of_those_whose_replicas_answer() {
    let pairs: Vec<_> = (0..3).map(|_| Pair::start()).collect();
    let redlock = builder(pairs.iter().map(|pair| pair.client(true)));
    one_silent_node_costs_nothing(
        &redlock.build().unwrap(),
        pairs.iter().map(|pair| &pair.master),
        pairs.iter().map(|pair| &pair.master),
    );
}
