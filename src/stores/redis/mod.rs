//! Locks on one Redis server, a master with replicas, Sentinel, or a Cluster. Most kinds have Redisson's format.

mod calls;
mod checks;
mod errors;
mod eval;
mod fences;
mod findings;
#[cfg(feature = "in-memory")]
pub(crate) mod in_memory;
mod keys;
mod kinds;
pub(crate) mod node;
mod open;
mod packed;
#[cfg(test)]
#[path = "random_replies/tests.rs"]
mod random_replies;
mod renewals;
mod replies;
mod scripts;
mod sent_operations;
mod server;
mod subscriber;
mod survey;
#[cfg(test)]
pub(crate) mod tests;
mod topology;
mod transport;
mod voting;
mod wait_replicas;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::error::Result;
use crate::ground::notify::Parker;
use crate::ground::reply::Reply;
use crate::ground::sync::Mutex;
use crate::store::{
    ConditionAnswer, ConditionOp, ConnectionCounter, ConnectionStats, CountOp, Delivery, Facts,
    Granted, Guarded, HealthWarning, Holding, InDoubt, Left, LockInfo, Outcome, Position,
    RedisOperations, Refusal, Released, Renewal, Store, StoreEntry, Subscription, SurveyOf,
};

use calls::{
    Acquire, Condition, Count, ForceRelease, HandOff, Inspect, Operation, Release, ReleaseLevel,
    Resolve,
};
use fences::Fences;
pub(crate) use kinds::flaw;
use kinds::{Layout, PLACES};
pub(crate) use open::Settings;
use renewals::Renewals;
use topology::Topology;
#[cfg(feature = "mysql")]
pub(crate) use transport::{CallError as Fault, Peer, Tunnel};
pub(crate) use transport::{Credentials, Identity, Mapper, Provider};
#[cfg(feature = "tls")]
pub(crate) use transport::{Pem, TlsConfig};
pub(crate) use wait_replicas::Replication;

pub(crate) struct Redis {
    topology: Topology,
    facts: Facts,
    traffic: Arc<ConnectionCounter>,
    replication: Option<Replication>,
    fences: Mutex<Fences>,
    patience: Duration,
    #[cfg(feature = "in-memory")]
    pub(crate) world: Option<Arc<in_memory::World>>,
}

impl Store for Redis {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        let outcome = Acquire::new(claim, self.fence_floor(claim)).run(self, deadline);
        self.prepare_renewal(claim, &outcome, deadline);
        outcome
    }

    fn release(
        &self,
        claim: &Claim,
        left: Left<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        match left {
            Left::Levels(keep) => ReleaseLevel::new(claim, keep, true).run(self, deadline),
            Left::Nothing | Left::NothingQuietly => {
                let is_cluster = matches!(self.topology, Topology::Cluster(_));
                let is_quiet = is_cluster && matches!(left, Left::NothingQuietly);
                Release { claim, is_quiet }.run(self, deadline)
            }
            Left::Successor(to) => {
                let floor = self.fence_floor(to);
                let from = claim;
                let outcome = HandOff { from, to, floor }.run(self, deadline);
                self.prepare_renewal(to, &outcome, deadline);
                outcome
            }
        }
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        let mut renewals = Renewals::new(self, None, claims, deadline);
        renewals.send(true);
        renewals.finish()
    }

    fn resolve(&self, in_doubt: &mut InDoubt, deadline: Instant) -> Result<bool> {
        Resolve(&*in_doubt).run(self, deadline)
    }

    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool> {
        ForceRelease(lock).run(self, deadline)
    }

    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding> {
        Inspect { lock, visitor }.run(self, deadline)
    }

    fn survey(
        &self,
        of: SurveyOf<'_>,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        match of {
            SurveyOf::One(lock) => self.describe_lock(lock, deadline),
            SurveyOf::All(scope) => self.survey_page(scope, position, deadline),
        }
    }

    fn subscribe(
        &self,
        lock: &LockId,
        entry: Option<StoreEntry<'_>>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        let LockId { kind, name } = lock;
        let layout = Layout::of(*kind);
        let place = match entry {
            Some(StoreEntry::OfCondition(condition, ticket)) => {
                let pieces = PLACES.pieces(name, condition).concat();
                let channel = [&*pieces, ":", ticket.as_str()].concat();
                return self.listen(channel.into(), true, source, parker);
            }
            Some(StoreEntry::OfLock(visitor)) => Some(visitor),
            None => None,
        };
        // If each queue entry has a channel of its own, a waiter without an entry gets no message, and polls.
        if layout.wakes.is_none() || layout.place_channel.is_some() && place.is_none() {
            let registration = self.facts.notifier.join(source, name, parker);
            return Subscription::of(registration, Delivery::Polling);
        }
        let own = layout.place_channel.zip(place);
        let channel: Arc<str> = match own {
            Some((channel, place)) => channel.pieces(name, place.as_str()).concat().into(),
            None => layout.channel.of(name).into(),
        };
        self.listen(channel, own.is_none(), source, parker)
    }

    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>> {
        checks::check(self, deadline)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn redis(&self) -> Option<&dyn RedisOperations> {
        Some(self)
    }

    fn connections(&self) -> ConnectionStats {
        self.topology.connections(&self.traffic)
    }

    fn close(&self) {
        self.topology.close();
    }

    fn node(&self, lock: Option<&str>) -> Arc<str> {
        match lock {
            Some(lock) => self.topology.name(lock),
            None => self.topology.whole_name(),
        }
    }
}

impl RedisOperations for Redis {
    fn guarded(
        &self,
        work: &Guarded<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Vec<Reply>, Duration>> {
        self.run_guarded(work, deadline)
    }

    fn count(&self, op: &CountOp<'_>, deadline: Instant) -> Result<i64> {
        Count::new(op, deadline)?.run(self, deadline)
    }

    fn condition(
        &self,
        op: &ConditionOp<'_>,
        deadline: Instant,
    ) -> Result<Outcome<ConditionAnswer>> {
        Condition(op).run(self, deadline)
    }
}

impl Redis {
    fn prepare_renewal<D, R>(
        &self,
        claim: &Claim,
        outcome: &Result<Outcome<D, R>>,
        deadline: Instant,
    ) {
        if claim.is_renewed && matches!(outcome, Ok(Outcome::Done(_))) {
            self.topology.prepare_renewal(&claim.name, deadline);
        }
    }

    fn listen(
        &self,
        channel: Arc<str>,
        lingers: bool,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        let registration = self.facts.notifier.join(source, &channel, parker);
        let (keep, is_live) = self.topology.listen(&channel, lingers);
        let delivery = match is_live {
            true => Delivery::Live,
            false => Delivery::Pending,
        };
        Subscription {
            keep: Some(keep),
            ..Subscription::of(registration, delivery)
        }
    }
}

impl std::panic::RefUnwindSafe for Redis {}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("node", &self.topology.whole_name())
            .finish_non_exhaustive()
    }
}
