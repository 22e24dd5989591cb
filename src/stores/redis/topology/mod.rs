//! Where the locks of one client live: on one node, or spread over those of a cluster.

pub(crate) mod cluster;
pub(crate) mod replicas;
pub(crate) mod sentinel;
pub(crate) mod single;

use std::sync::Arc;
use std::time::Instant;

use crate::store::{ConnectionStats, HealthWarning, Traffic};
use crate::stores::redis::keys;
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::cluster::Cluster;
use crate::stores::redis::transport::{Address, CallError, Connection, Hook, share};

pub(crate) enum Topology {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Topology {
    /// Runs `talk` on a connection to the node that has this lock.
    pub(crate) fn with<T>(
        &self,
        lock: &str,
        deadline: Instant,
        mut talk: impl FnMut(&Node, &mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        match self {
            Topology::One(node) => node.with(deadline, |connection| talk(node, connection)),
            Topology::Cluster(cluster) => cluster.with(lock, deadline, talk),
        }
    }

    /// Runs `talk` once for every node, with its part of the time, and returns what came of it with the name of the node.
    pub(crate) fn each<T>(
        &self,
        deadline: Instant,
        mut talk: impl FnMut(&Node, &mut Connection, Instant) -> Result<T, CallError>,
    ) -> Vec<(Arc<str>, Result<T, CallError>)> {
        match self {
            Topology::One(node) => {
                let told = node.with(deadline, |connection| talk(node, connection, deadline));
                vec![(node.name(), told)]
            }
            Topology::Cluster(cluster) => cluster.each(deadline, &mut talk),
        }
    }

    /// Runs `talk` at the first master that is not `done`, and returns that with its name; `None` if all are done. At the
    /// beginning the masters are looked up.
    pub(crate) fn at_next<T>(
        &self,
        done: &[Arc<str>],
        begins: bool,
        deadline: Instant,
        mut talk: impl FnMut(&Node, &mut Connection, &Arc<str>) -> Result<T, CallError>,
    ) -> Option<(Arc<str>, Result<T, CallError>)> {
        match self {
            Topology::One(_) if !done.is_empty() => None,
            Topology::One(node) => {
                // Whichever server it is, there is one.
                let name: Arc<str> = "the master".into();
                let told = node.with(deadline, |connection| talk(node, connection, &name));
                Some((name, told))
            }
            Topology::Cluster(cluster) => cluster.at_next(done, begins, deadline, &mut talk),
        }
    }

    /// Whether another server may take over from one of these.
    pub(crate) fn can_fail_over(&self) -> bool {
        match self {
            Topology::One(node) => node.pool.connector.can_fail_over(),
            Topology::Cluster(_) => true,
        }
    }

    /// Returns the findings of those who watch over the server, and about the servers that may take over.
    pub(crate) fn watchers(&self, deadline: Instant) -> Vec<HealthWarning> {
        match self {
            Topology::One(node) => node.pool.connector.watchers(deadline),
            Topology::Cluster(cluster) => unreachable_replicas(&cluster.replicas(), deadline),
        }
    }

    /// The name, in messages, of the node that has this lock.
    pub(crate) fn name(&self, lock: &str) -> Arc<str> {
        match self {
            Topology::One(node) => node.name(),
            Topology::Cluster(cluster) => cluster.name(lock),
        }
    }

    /// The name of all of it in messages.
    pub(crate) fn whole_name(&self) -> Arc<str> {
        match self {
            Topology::One(node) => node.name(),
            Topology::Cluster(cluster) => cluster.whole_name(),
        }
    }

    /// Makes the connection for the renewals of this lock, if that was not tried yet.
    pub(crate) fn prepare_renewal(&self, lock: &str, deadline: Instant) {
        match self {
            Topology::One(node) => node.prepare_renewal(deadline),
            Topology::Cluster(cluster) => {
                if let Some(shard) = cluster.present(keys::slot(lock)) {
                    shard.node.prepare_renewal(deadline);
                }
            }
        }
    }

    /// Whether the messages of `channel` arrive.
    pub(crate) fn hears(&self, channel: &str) -> bool {
        match self {
            Topology::One(node) => node.subscriber.hears(channel),
            Topology::Cluster(cluster) => cluster.hears(channel),
        }
    }

    /// Asks for the messages of `channel` until the guard is dropped, or somewhat longer if it `lingers`. Returns whether they
    /// arrive already.
    pub(crate) fn listen(&self, channel: &Arc<str>, lingers: bool) -> (Box<dyn Send>, bool) {
        match self {
            Topology::One(node) => {
                let (interest, is_live) = node.subscriber.listen(channel, lingers);
                (Box::new(interest), is_live)
            }
            Topology::Cluster(cluster) => {
                let (interest, is_live) = cluster.listen(channel, lingers);
                (Box::new(interest), is_live)
            }
        }
    }

    /// Calls `hook` whenever another server was found in the place of one of these.
    pub(crate) fn on_takeover(&self, hook: Hook) {
        match self {
            Topology::One(node) => node.pool.connector.master().on_takeover.add(hook),
            Topology::Cluster(cluster) => cluster.on_takeover.add(hook),
        }
    }

    /// Tells of the connections to all of these, which `traffic` counts.
    pub(crate) fn connections(&self, traffic: &Traffic) -> ConnectionStats {
        let (mut idle, mut is_down) = (0, false);
        let mut add = |node: &Node| {
            idle += node.pool.slots.idle() + node.renewals.slots.idle();
            is_down |= node.subscriber.is_down();
        };
        match self {
            Topology::One(node) => add(node),
            Topology::Cluster(cluster) => cluster.shards().iter().for_each(|it| add(&it.node)),
        }
        traffic.read(idle, is_down)
    }

    pub(crate) fn close(&self) {
        match self {
            Topology::One(node) => node.close(),
            Topology::Cluster(cluster) => cluster.close(),
        }
    }
}

/// So many replicas that cannot be reached are named: where all of many are silent, a check connects to no more of them.
const MOST_NAMED: usize = 6;

/// Connects to these servers, which were announced, and returns the findings about those that cannot be reached.
fn unreachable_replicas(replicas: &[Address], deadline: Instant) -> Vec<HealthWarning> {
    let unreachable = |(tried, replica): (usize, &Address)| {
        let by = share(deadline, replicas.len() - tried);
        let fault = Connection::connect(replica, by).err()?;
        // One that refuses in words was reached.
        (!matches!(fault, CallError::Server(_))).then(|| {
            HealthWarning::note(
                &replica.node,
                "reachable",
                format!("this replica cannot be reached: {}", fault.reason()),
                "map its address (Builder::map_address, --map), or let it announce a reachable address; after a \
                    failover to it no lock could be acquired",
            )
        })
    };
    let all = replicas.iter().enumerate();
    all.filter_map(unreachable).take(MOST_NAMED).collect()
}
