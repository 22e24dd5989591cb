//! Redlock: a lock on several independent servers, which is held while a majority of them grants it.
//!
//! The [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/) describes the
//! algorithm. Each request goes to all its nodes with a free connection before any reply is read. Validity counts from
//! a time before the request was sent to the first node. The grants of a node that may have lost locks do not count
//! (`quarantine.rs`).

mod acquire;
mod breaker;
mod fan_out;
mod inspect;
mod links;
pub(crate) mod node;
mod placement;
pub(crate) mod quarantine;
mod release;
mod renew;
mod resolve;
mod survey;
mod tally;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::notify::Parker;
use crate::ground::sync::Mutex;
use crate::store::{
    ConnectionStats, Delivery, Facts, Granted, HealthWarning, Holding, InDoubt, Left, LockInfo,
    Outcome, Position, Refusal, Released, Renewal, Store, StoreEntry, Subscription, SurveyOf,
};
use crate::stores::quorum::breaker::Breaker;
use crate::stores::quorum::links::{Linked, Links};
use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::placement::Placement;
use crate::stores::quorum::quarantine::{Membership, NodeHandle, Quarantined};
use crate::stores::redis::node::RedisNode;

/// A set of nodes is stored as the bits of a `u64`.
pub(crate) const MOST_NODES: usize = 64;

/// The default node timeout is the lease divided by `NODE_SHARE`, within the bounds `NODE_TIMEOUTS`.
const NODE_SHARE: u32 = 200;
const NODE_TIMEOUTS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(150)];

/// The assumed round trip before the first measurement.
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Settings {
    /// `None` means the default, which depends on the lease.
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) max_lease: Duration,
    pub(crate) max_extensions: Option<u32>,
    pub(crate) trusts_new_nodes: bool,
    pub(crate) connect_timeout: Duration,
}

struct QuorumNode {
    index: usize,
    node: Arc<RedisNode>,
    handle: NodeHandle,
    links: Arc<Links>,
    breaker: Mutex<Breaker>,
    /// Keeps the client of the node alive.
    _keep: Arc<dyn Any + Send + Sync>,
}

pub(crate) struct Quorum {
    nodes: Vec<Arc<QuorumNode>>,
    links: Arc<Links>,
    needed: usize,
    settings: Settings,
    facts: Facts,
    placements: Mutex<HashMap<VisitorId, Placement>>,
    /// The smoothed duration of a successful acquisition or release, in ns; 0 before the first measurement.
    round_trip: AtomicU64,
}

impl Quorum {
    /// Returns an error if two nodes are the same server, or if a node belongs to a cluster or has an invalid setting.
    pub(crate) fn new(
        nodes: Vec<(Arc<RedisNode>, Arc<dyn Any + Send + Sync>)>,
        settings: Settings,
        deadline: Instant,
    ) -> Result<Quorum> {
        let (max_lease, trusts_new_nodes) = (settings.max_lease, settings.trusts_new_nodes);
        let membership = Arc::new(Membership::new(nodes.len(), max_lease, trusts_new_nodes));
        let links = Arc::new(Links::new(nodes.len(), settings.connect_timeout));
        let nodes = nodes.into_iter().enumerate();
        let nodes = nodes.map(|(index, (node, _keep))| QuorumNode {
            index,
            links: Arc::clone(&links),
            handle: NodeHandle::new(&membership, index, node.can_fail_over()),
            node,
            breaker: Mutex::default(),
            _keep,
        });
        let nodes: Vec<Arc<QuorumNode>> = nodes.map(Arc::new).collect();
        let areas: Vec<&str> = nodes.iter().map(|it| &*it.node.facts().area).collect();
        let facts = Facts {
            lacks: "a Redlock has no guarded writes, because the data is not on its nodes, and no conditions, \
                because its nodes would wake different threads; use a Client::lock on one server",
            ..Facts::of_composite(areas.join(", "), settings.max_lease)
        };
        let quorum = Quorum {
            needed: nodes.len() / 2 + 1,
            nodes,
            links,
            settings,
            facts,
            placements: Mutex::default(),
            round_trip: AtomicU64::new(0),
        };
        quorum.connect_all(deadline)?;
        Ok(quorum)
    }

    /// Connects to all nodes at the same time, and identifies their servers. Later requests identify the servers that cannot
    /// be identified now.
    fn connect_all(&self, deadline: Instant) -> Result<()> {
        let connect = |node| QuorumNode::connect_aside(node, Purpose::Request);
        let attempts: Vec<_> = self.nodes.iter().map(connect).collect();
        for attempt in &attempts {
            self.links.wait([attempt].into_iter(), deadline);
            match attempt.end() {
                Some(Linked::NoVote(why @ (Quarantined::SameAs(_) | Quarantined::InCluster))) => {
                    let (node, all) = (attempt.node.name(), self.node(None));
                    let reason = format!("{node}: {why}; the nodes are {all}");
                    return Err(Error::config("the nodes of a Redlock", reason));
                }
                Some(Linked::Failed(error @ Error::InvalidConfig { .. })) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn round_trip(&self) -> Duration {
        match self.round_trip.load(Ordering::Relaxed) {
            0 => FIRST_ROUND_TRIP,
            nanos => Duration::from_nanos(nanos),
        }
    }

    fn note_round_trip(&self, took: Duration) {
        let before = self.round_trip();
        let smoothed = (before * 7 + took) / 8;
        let nanos = u64::try_from(smoothed.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.store(nanos.max(1), Ordering::Relaxed);
    }

    fn node_timeout(&self, lease: Duration) -> Duration {
        self.settings.node_timeout.unwrap_or_else(|| {
            let [least, most] = NODE_TIMEOUTS;
            (lease / NODE_SHARE).clamp(least, most)
        })
    }

    fn all(&self) -> u64 {
        (0..self.nodes.len()).fold(0, |nodes, index| nodes | bit(index))
    }
}

impl Store for Quorum {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        self.acquire_by_majority(claim, deadline)
    }

    fn release(
        &self,
        claim: &Claim,
        left: Left<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        match left {
            Left::Levels(keep) => self.release_level_by_majority(claim, keep, deadline),
            _ => self.release_by_majority(claim, deadline),
        }
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        self.renew_by_majority(claims, deadline)
    }

    fn resolve(&self, in_doubt: &mut InDoubt, deadline: Instant) -> Result<bool> {
        self.forget(in_doubt);
        Ok(self.settle(in_doubt, self.settings.max_lease, deadline))
    }

    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool> {
        self.force_release_by_majority(lock, deadline)
    }

    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        self.inspect_by_majority(lock, visitor, deadline)
    }

    fn survey(
        &self,
        of: SurveyOf<'_>,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        match of {
            SurveyOf::One(lock) => self.describe_by_majority(lock, deadline),
            SurveyOf::All(_) => self.survey_nodes(of, position, deadline),
        }
    }

    fn subscribe(
        &self,
        lock: &LockId,
        _: Option<StoreEntry<'_>>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        let number = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let (first, sources) = (source + 1, number(self.nodes.len()));
        parker.need(first, sources, number(self.needed));
        let registration = self.facts.notifier.join(source, &lock.name, parker);
        let nodes = (first..).zip(&self.nodes);
        let parts = nodes.map(|(source, it)| it.node.subscribe(lock, None, source, parker));
        let parts: Vec<Subscription> = parts.collect();
        Subscription {
            registration,
            delivery: Delivery::joint(&parts, self.needed),
            sources: sources + 1,
            jitter: self.round_trip(),
            keep: Some(Box::new(parts)),
        }
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        self.check_all(deadline)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn connections(&self) -> ConnectionStats {
        let mut all = ConnectionStats::default();
        for node in &self.nodes {
            all.add(node.node.connections());
        }
        all
    }

    fn node(&self, _lock: Option<&str>) -> Arc<str> {
        let names: Vec<_> = self.nodes.iter().map(|node| node.name()).collect();
        names.join(", ").into()
    }
}

impl QuorumNode {
    fn name(&self) -> Arc<str> {
        self.node.node(None)
    }

    fn unreachable(&self, reason: &str) -> Error {
        Error::unreachable("".into(), self.name(), reason.into())
    }
}

fn bits(nodes: &[usize]) -> u64 {
    nodes.iter().fold(0, |bits, index| bits | bit(*index))
}

fn bit(index: usize) -> u64 {
    1 << (index % MOST_NODES)
}
