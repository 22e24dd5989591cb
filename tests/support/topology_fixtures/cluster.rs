//! A Redis Cluster of three shards, with a replica for each of them or without.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;

use super::node::Access;
use super::replicas::SWIFT;
use super::{AGREEMENT, Node, at_once};
use crate::support::{eventually, free_port, ms, product};

const SHARDS: usize = 3;
const SLOTS: usize = 16_384;

/// After this much silence, in ms, nodes consider another node down.
const NODE_TIMEOUT: &str = "1000";

/// A server abandons a manual failover after 5 s.
const MANUAL_FAILOVER: Duration = ms(6000);

/// Three masters, nodes 0 to 2 at first, and optionally their replicas, nodes 3 to 5.
pub struct Cluster {
    pub nodes: Vec<Node>,
    ids: Vec<String>,
}

impl Cluster {
    /// Starts three masters with a replica each.
    pub fn start() -> Cluster {
        Cluster::with(true, Access::default(), &[])
    }

    pub fn masters() -> Cluster {
        Cluster::with(false, Access::default(), &[])
    }

    /// Starts three masters, with or without replicas, all with arguments added.
    pub fn with(has_replicas: bool, access: Access<'_>, args: &[&str]) -> Cluster {
        let count = if has_replicas { 2 * SHARDS } else { SHARDS };
        // The default bus port is 10,000 above, among the kernel's ephemeral ports; before Redis 7 it cannot be set.
        let mut ports: Vec<_> = (0..count).map(|_| free_port().to_string()).collect();
        if let Some(certificates) = access.certificates {
            // Made before many threads need it at the same time.
            certificates.server();
        }
        let nodes = at_once(count, |index| {
            let own = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                NODE_TIMEOUT,
                "--cluster-announce-ip",
                "127.0.0.1",
                // A replica stands for election however old its data is; the tests control what was replicated.
                "--cluster-replica-validity-factor",
                "0",
            ];
            let bus = ["--cluster-port", &ports[index]];
            let bus = match product().is_before_7() {
                true => &[][..],
                false => &bus[..],
            };
            Node::start(&[&SWIFT[..], &own, bus, args].concat(), access)
        });
        if product().is_before_7() {
            let above = nodes.iter().map(|node| node.port() + 10_000);
            ports = above.map(|port| port.to_string()).collect();
        }
        let ids = nodes
            .iter()
            .map(|node| node.ask(&["CLUSTER", "MYID"]))
            .collect();
        let cluster = Cluster { nodes, ids };
        cluster.introduce(&ports);
        cluster
    }

    /// Assigns the slots and introduces the nodes to each other.
    fn introduce(&self, bus_ports: &[String]) {
        for (index, node) in self.nodes.iter().enumerate() {
            node.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < SHARDS {
                let (first, end) = (index * SLOTS / SHARDS, (index + 1) * SLOTS / SHARDS);
                let slots: Vec<_> = (first..end).map(|slot| slot.to_string()).collect();
                let slots: Vec<_> = slots.iter().map(String::as_str).collect();
                node.cmd(&[&["CLUSTER", "ADDSLOTS"][..], &slots].concat());
            }
        }
        // Every node meets every other, so that nothing waits for gossip. A node gives up a handshake that exceeds its
        // timeout, as it may on a busy machine, so they meet again until they know each other.
        let mut met = None::<Instant>;
        eventually(AGREEMENT, "the nodes know each other", || {
            if met.is_none_or(|met| met.elapsed() > Duration::from_secs(3)) {
                self.meet(bus_ports);
                met = Some(Instant::now());
            }
            self.nodes.iter().all(|node| {
                let nodes: String = node.ask(&["CLUSTER", "NODES"]);
                self.ids.iter().all(|id| {
                    nodes
                        .lines()
                        .any(|line| line.starts_with(id) && !line.contains("handshake"))
                })
            })
        });
        for (index, replica) in self.nodes.iter().enumerate().skip(SHARDS) {
            replica.cmd(&["CLUSTER", "REPLICATE", &self.ids[index - SHARDS]]);
        }
        for (index, replica) in self.nodes.iter().enumerate().skip(SHARDS) {
            let master = self.nodes[index - SHARDS].port();
            eventually(AGREEMENT, "the replica follows", || replica.follows(master));
        }
        self.wait_until_healthy();
    }

    fn meet(&self, bus_ports: &[String]) {
        for (index, node) in self.nodes.iter().enumerate() {
            for (other, bus) in self.nodes.iter().zip(bus_ports).take(index) {
                let port = other.port().to_string();
                node.cmd(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]);
            }
        }
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    pub fn slot_of(&self, key: &str) -> u16 {
        self.any().ask(&["CLUSTER", "KEYSLOT", key])
    }

    /// A name that starts with `stem`, with a slot of the shard whose master is `node`.
    pub fn name_at(&self, node: usize, stem: &str) -> String {
        (0..)
            .map(|number| format!("{stem}{number}"))
            .find(|name| self.owner_of(name) == node)
            .expect("every shard has names")
    }

    /// The node that serves the slot of `key`, according to a majority of the responsive nodes.
    pub fn owner_of(&self, key: &str) -> usize {
        let slot = self.slot_of(key);
        let mut found = None;
        eventually(AGREEMENT, "most nodes agree on an owner", || {
            found = self.owner_by_majority(slot);
            found.is_some()
        });
        found.expect("set when the wait is over")
    }

    fn owner_by_majority(&self, slot: u16) -> Option<usize> {
        let mut votes: HashMap<usize, usize> = HashMap::new();
        let answering: Vec<_> = self.answering().collect();
        for node in &answering {
            if let Some(owner) = self.owner_in(node, slot) {
                *votes.entry(owner).or_default() += 1;
            }
        }
        votes
            .into_iter()
            .find(|(_, votes)| *votes * 2 > answering.len())
            .map(|(owner, _)| owner)
    }

    /// The owner of a slot as `node` sees it.
    fn owner_in(&self, node: &Node, slot: u16) -> Option<usize> {
        let ranges: Vec<Vec<Value>> =
            redis::from_redis_value(node.try_cmd(&["CLUSTER", "SLOTS"]).ok()?).ok()?;
        ranges.into_iter().find_map(|range| {
            let [first, last, master, ..] = &range[..] else {
                return None;
            };
            let number = |value: &Value| redis::from_redis_value::<u16>(value.clone()).ok();
            if !(number(first)?..=number(last)?).contains(&slot) {
                return None;
            }
            let Value::Array(master) = master else {
                return None;
            };
            let port = number(master.get(1)?)?;
            self.nodes.iter().position(|node| node.has_port(port))
        })
    }

    /// The configuration epochs of all nodes as `node` sees them.
    fn epochs_in(&self, node: &Node) -> Vec<Option<String>> {
        let nodes: String = node.ask(&["CLUSTER", "NODES"]);
        let epoch = |id: &String| {
            let line = nodes.lines().find(|line| line.starts_with(id.as_str()))?;
            line.split(' ').nth(6).map(str::to_owned)
        };
        self.ids.iter().map(epoch).collect()
    }

    /// The running replica of the shard that node `master` serves.
    pub fn replica_of(&self, master: usize) -> Option<usize> {
        let port = self.nodes[master].port();
        (0..self.nodes.len()).find(|index| {
            *index != master && self.answers(*index) && self.nodes[*index].follows(port)
        })
    }

    /// Fails over the shard of `key` to its replica while both are up, and returns the old and the new master.
    pub fn failover(&self, key: &str) -> (usize, usize) {
        let old = self.owner_of(key);
        let new = self.replica_of(old).expect("the shard has a replica");
        // The election is abandoned silently if the old master or the votes take too long.
        eventually(AGREEMENT, "the replica has taken over", || {
            let asked = Instant::now();
            self.nodes[new].try_cmd(&["CLUSTER", "FAILOVER"]).ok();
            while !self.nodes[new].is_master() && asked.elapsed() < MANUAL_FAILOVER {
                thread::sleep(ms(50));
            }
            self.nodes[new].is_master()
        });
        self.wait_for_owner(key, new);
        (old, new)
    }

    /// Kills the master of the shard of `key`, and returns it together with the promoted replica.
    pub fn lose_owner(&self, key: &str) -> (usize, usize) {
        let old = self.owner_of(key);
        let new = self.replica_of(old).expect("the shard has a replica");
        self.nodes[old].kill();
        self.wait_for_owner(key, new);
        (old, new)
    }

    /// Waits until every responsive node names `owner` for the slot of `key`.
    pub fn wait_for_owner(&self, key: &str, owner: usize) {
        let slot = self.slot_of(key);
        eventually(AGREEMENT, "the nodes agree on the owner", || {
            self.nodes[owner].is_master()
                && self
                    .answering()
                    .all(|node| self.owner_in(node, slot) == Some(owner))
        });
    }

    /// Restarts a killed node and waits until it has joined.
    pub fn rejoin(&self, node: usize) {
        self.nodes[node].restart();
        self.wait_until_healthy();
    }

    /// Waits until all nodes reply, all slots are served and all replicas are up to date.
    pub fn wait_until_healthy(&self) {
        eventually(AGREEMENT, "the cluster is healthy", || {
            let says = |node: &Node, line: &str| {
                node.try_cmd(&["CLUSTER", "INFO"])
                    .and_then(|info| Ok(redis::from_redis_value::<String>(info)?))
                    .is_ok_and(|info| info.lines().any(|one| one == line))
            };
            self.nodes.iter().all(|node| {
                says(node, "cluster_state:ok")
                    && says(node, &format!("cluster_known_nodes:{}", self.nodes.len()))
                    && says(node, "cluster_slots_ok:16384")
            }) && self.nodes.iter().filter(|node| node.is_master()).count() == SHARDS
                && self
                    .nodes
                    .iter()
                    .filter(|node| !node.is_master())
                    .all(|node| node.told("master_link_status").as_deref() == Some("up"))
                && self.views_agree()
        });
    }

    /// Whether all nodes name the same owner for each slot.
    fn views_agree(&self) -> bool {
        [0, SLOTS / 2, SLOTS - 1].into_iter().all(|slot| {
            let slot = u16::try_from(slot).expect("a slot");
            let first = self.owner_in(&self.nodes[0], slot);
            first.is_some()
                && self
                    .nodes
                    .iter()
                    .all(|node| self.owner_in(node, slot) == first)
        })
    }

    /// Starts to move the slot of `key` to node `to`: new keys go there (ASK), old keys stay until they are moved.
    pub fn begin_migration(&self, key: &str, to: usize) -> Migration<'_> {
        let from = self.owner_of(key);
        assert_ne!(from, to, "the slot is there already");
        // A receiver that does not know the latest epoch claims the slot with an epoch that loses against an older
        // claim.
        eventually(AGREEMENT, "the nodes agree on the epochs", || {
            let mut views = self.answering().map(|node| self.epochs_in(node));
            let first = views.next();
            views.all(|view| Some(view) == first)
        });
        let slot = self.slot_of(key).to_string();
        self.nodes[to].cmd(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        self.nodes[from].cmd(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
        Migration {
            cluster: self,
            slot,
            from,
            to,
        }
    }

    /// Moves the slot of `key` with all its keys to node `to`.
    pub fn migrate(&self, key: &str, to: usize) {
        let migration = self.begin_migration(key, to);
        migration.move_keys();
        migration.finish();
    }

    fn migrate_key(&self, from: usize, port: &str, key: &str) {
        let mut words = vec!["MIGRATE", "127.0.0.1", port, key, "0", "5000", "REPLACE"];
        if let Some(password) = self.nodes[from].password() {
            words.extend(["AUTH", password]);
        }
        self.nodes[from].cmd(&words);
    }

    /// Whether the node's process runs and is not frozen, without waiting.
    fn answers(&self, node: usize) -> bool {
        is_awake(&self.nodes[node])
    }

    fn answering(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| is_awake(node))
    }

    fn any(&self) -> &Node {
        self.answering().next().expect("a node that answers")
    }
}

/// Whether the node replies soon.
fn is_awake(node: &Node) -> bool {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    let limit = std::time::Duration::from_millis(500);
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&node.addr(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(b"PING\r\n")?;
        stream.read(&mut [0; 16])
    };
    ask().is_ok_and(|read| read > 0)
}

/// A slot that migrates from one node to another.
#[must_use]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    /// The source node.
    pub from: usize,
    /// The target node.
    pub to: usize,
}

impl Migration<'_> {
    /// Moves all keys of the slot, with their TTLs.
    pub fn move_keys(&self) {
        let from = &self.cluster.nodes[self.from];
        loop {
            let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]);
            if keys.is_empty() {
                return;
            }
            for key in keys {
                self.move_key(&key);
            }
        }
    }

    /// Moves one key, if it exists.
    pub fn move_key(&self, key: &str) {
        let port = self.cluster.nodes[self.to].port().to_string();
        self.cluster.migrate_key(self.from, &port, key);
    }

    /// Makes the receiver the owner of the slot, on all nodes.
    pub fn finish(self) {
        let owner = &self.cluster.ids[self.to];
        let slot = self.slot.parse().expect("a slot");
        // The target first, so that the slot always has an owner; replicas learn it from their masters.
        let order = [self.to, self.from].into_iter();
        let others =
            (0..self.cluster.nodes.len()).filter(|node| ![self.from, self.to].contains(node));
        let order: Vec<_> = order.chain(others).collect();
        let tell = |node: &Node| {
            let words = ["CLUSTER", "SETSLOT", &self.slot, "NODE", owner];
            if is_awake(node) && node.is_master() {
                let _ = node.try_cmd(&words);
            }
        };
        for node in &order {
            tell(&self.cluster.nodes[*node]);
        }
        // A message in flight between nodes may undo it, so the command is repeated for each node without it.
        eventually(AGREEMENT, "the nodes know the new owner", || {
            let mut lagging = self
                .cluster
                .answering()
                .filter(|node| self.cluster.owner_in(node, slot) != Some(self.to))
                .peekable();
            let all_know = lagging.peek().is_none();
            lagging.for_each(tell);
            all_know
        });
    }

    /// Leaves the slot with its old owner. Moved keys can return only after that, because a migrating node accepts no
    /// keys of the slot: for a moment they are missing, which is a data loss for clients.
    pub fn abandon(self) {
        let [from, to] = [self.from, self.to].map(|node| &self.cluster.nodes[node]);
        let port = from.port().to_string();
        let keys: Vec<String> = to.ask(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "1000"]);
        from.cmd(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]);
        for key in keys {
            self.cluster.migrate_key(self.to, &port, &key);
        }
        to.cmd(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]);
    }
}
