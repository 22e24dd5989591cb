//! Where the locks of one client live: on one node, or spread over those of a cluster.

pub(crate) mod cluster;
pub(crate) mod connector;
pub(crate) mod replicas;
pub(crate) mod sentinel;

use std::sync::Arc;
use std::time::Instant;

use crate::stores::redis::keys;
use crate::stores::redis::scripts::Script;
use crate::stores::redis::server::Node;
use crate::stores::redis::subscriber::Wish;
use crate::stores::redis::topology::cluster::{Cluster, Listening};
use crate::stores::redis::transport::connection::{Fault, Wire};

pub(crate) enum Home {
    One(Box<Node>),
    Cluster(Cluster),
}

/// What keeps the messages of one channel coming while it is kept.
pub(crate) enum Keep {
    One { _wish: Wish },
    Cluster { _listening: Listening },
}

impl Home {
    /// Runs `talk` on a connection to the node that has this lock.
    pub(crate) fn with<T>(
        &self,
        lock: &str,
        until: Instant,
        mut talk: impl FnMut(&Node, &mut Wire) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        match self {
            Home::One(node) => node.with(until, |wire| talk(node, wire)),
            Home::Cluster(cluster) => cluster.with(lock, until, talk),
        }
    }

    /// Runs `talk` once for every node, with its part of the time, and returns what came of it with the name of the node.
    pub(crate) fn each<T>(
        &self,
        until: Instant,
        mut talk: impl FnMut(&Node, &mut Wire, Instant) -> Result<T, Fault>,
    ) -> Vec<(Arc<str>, Result<T, Fault>)> {
        match self {
            Home::One(node) => {
                let told = node.with(until, |wire| talk(node, wire, until));
                vec![(node.name(), told)]
            }
            Home::Cluster(cluster) => cluster.each(until, &mut talk),
        }
    }

    /// The name, in messages, of the node that has this lock.
    pub(crate) fn name(&self, lock: &str) -> Arc<str> {
        match self {
            Home::One(node) => node.name(),
            Home::Cluster(cluster) => cluster.name(lock),
        }
    }

    /// The name of all of it in messages.
    pub(crate) fn whole_name(&self) -> Arc<str> {
        match self {
            Home::One(node) => node.name(),
            Home::Cluster(cluster) => cluster.whole_name(),
        }
    }

    /// Makes the connection for the renewals of this lock, if that was not tried yet.
    pub(crate) fn get_ready_to_renew(&self, script: &Script, lock: &str, until: Instant) {
        match self {
            Home::One(node) => node.get_ready_to_renew(script, until),
            Home::Cluster(cluster) => {
                if let Some(member) = cluster.present(keys::slot(lock)) {
                    member.node.get_ready_to_renew(script, until);
                }
            }
        }
    }

    /// Whether the messages of this channel arrive.
    pub(crate) fn hears(&self, channel: &str) -> bool {
        match self {
            Home::One(node) => node.subscriber.hears(channel),
            Home::Cluster(cluster) => cluster.hears(channel),
        }
    }

    /// Wishes for the messages of `channel` while the answer is kept. Returns whether they arrive already.
    pub(crate) fn listen(&self, channel: &Arc<str>) -> (Keep, bool) {
        match self {
            Home::One(node) => {
                let (wish, is_live) = node.subscriber.listen(channel);
                (Keep::One { _wish: wish }, is_live)
            }
            Home::Cluster(cluster) => {
                let (listening, is_live) = cluster.listen(channel);
                let keep = Keep::Cluster {
                    _listening: listening,
                };
                (keep, is_live)
            }
        }
    }

    pub(crate) fn close(&self) {
        match self {
            Home::One(node) => node.close(),
            Home::Cluster(cluster) => cluster.close(),
        }
    }
}
