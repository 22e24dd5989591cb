//! The servers of a client: one node (single, replicas, Sentinel), or a cluster.

mod cluster;
mod replicas;
mod sentinel;
mod single;

use std::sync::Arc;
use std::time::Instant;

use crate::store::{ConnectionCounter, ConnectionStats, HealthWarning};
use crate::stores::redis::keys;
use crate::stores::redis::server::Node;
use crate::stores::redis::transport::{Address, CallError, Connection, Hook, share};
pub(super) use cluster::{Cluster, Redirection, Shard};
pub(super) use replicas::Replicas;
pub(super) use sentinel::Sentinels;
pub(super) use single::Single;

pub(crate) enum Topology {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Topology {
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

    /// Runs `talk` on every master, each with an equal share of the time.
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

    /// Runs `talk` on the first master that is not in `done`. If `begins`, refreshes the slot map of a Cluster first.
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
                // The caller stores the name in `done`, so the name must stay the same during a failover.
                let name: Arc<str> = "the master".into();
                let told = node.with(deadline, |connection| talk(node, connection, &name));
                Some((name, told))
            }
            Topology::Cluster(cluster) => cluster.at_next(done, begins, deadline, &mut talk),
        }
    }

    pub(crate) fn can_fail_over(&self) -> bool {
        match self {
            Topology::One(node) => node.pool.connector.can_fail_over(),
            Topology::Cluster(_) => true,
        }
    }

    pub(crate) fn watchers(&self, deadline: Instant) -> Vec<HealthWarning> {
        match self {
            Topology::One(node) => node.pool.connector.watchers(deadline),
            Topology::Cluster(cluster) => unreachable_replicas(&cluster.replicas(), deadline),
        }
    }

    pub(crate) fn name(&self, lock: &str) -> Arc<str> {
        match self {
            Topology::One(node) => node.name(),
            Topology::Cluster(cluster) => cluster.name(lock),
        }
    }

    pub(crate) fn whole_name(&self) -> Arc<str> {
        match self {
            Topology::One(node) => node.name(),
            Topology::Cluster(cluster) => Arc::clone(&cluster.whole_name),
        }
    }

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

    pub(crate) fn hears(&self, channel: &str) -> bool {
        match self {
            Topology::One(node) => node.subscriber.hears(channel),
            Topology::Cluster(cluster) => cluster.hears(channel),
        }
    }

    /// Subscribes until the returned value is dropped. Also returns whether the subscription is active already.
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

    pub(crate) fn on_takeover(&self, hook: Hook) {
        match self {
            Topology::One(node) => node.pool.connector.master().on_takeover.add(hook),
            Topology::Cluster(cluster) => cluster.on_takeover.add(hook),
        }
    }

    pub(crate) fn connections(&self, traffic: &ConnectionCounter) -> ConnectionStats {
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

/// A check stops after this many unreachable replicas.
const MOST_NAMED: usize = 6;

fn unreachable_replicas(replicas: &[Address], deadline: Instant) -> Vec<HealthWarning> {
    let unreachable = |(tried, replica): (usize, &Address)| {
        let by = share(deadline, replicas.len() - tried);
        let fault = Connection::connect(replica, by).err()?;
        // A replica that sends an error reply is reachable.
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
