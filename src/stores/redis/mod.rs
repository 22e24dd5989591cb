//! Locks on Redis, in Redisson's format: on one server, or behind the topologies of `topology`.

mod admission;
mod calls;
#[cfg(test)]
#[path = "drawn/tests.rs"]
mod drawn;
mod errors;
mod eval;
mod fences;
#[cfg(feature = "in-memory")]
pub(crate) mod in_memory;
mod keys;
mod kinds;
pub(crate) mod node;
mod open;
mod packed;
mod preflight;
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
    ConditionAnswer, ConditionOp, ConnectionStats, CountOp, Delivery, Facts, Granted, Guarded,
    HealthWarning, Holding, InDoubt, LockInfo, Outcome, Position, Refusal, Released, Renewal,
    Scope, Store, Subscription, Traffic,
};

use calls::{
    Acquire, Condition, Count, ForceRelease, HandOff, Inspect, Operation, Release, ReleaseLevel,
    Waiters,
};
use fences::Fences;
pub(crate) use kinds::flaw;
use kinds::{Layout, PLACES};
pub(crate) use open::Settings;
use topology::Topology;
#[cfg(feature = "mysql")]
pub(crate) use transport::{CallError as Fault, Peer, TlsConfig, Tunnel};
pub(crate) use transport::{Credentials, Identity, Mapper, Provider};
pub(crate) use wait_replicas::Replication;

/// The store of one client.
pub(crate) struct Redis {
    topology: Topology,
    facts: Facts,
    traffic: Arc<Traffic>,
    replication: Option<Replication>,
    fences: Mutex<Fences>,
    /// For how long a waiter in a queue on the server counts as alive behind the one before it.
    patience: Duration,
    /// The server itself, if it is in this process.
    #[cfg(feature = "in-memory")]
    pub(crate) world: Option<Arc<in_memory::World>>,
}

impl Store for Redis {
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>> {
        let floor = self.fence_floor(claim);
        Acquire::new(claim).drawing_from(floor).run(self, deadline)
    }

    fn release(&self, claim: &Claim, keep: u32, deadline: Instant) -> Result<Outcome<Released>> {
        match keep {
            0 => Release::new(claim).run(self, deadline),
            keep => ReleaseLevel::new(claim, keep).run(self, deadline),
        }
    }

    fn release_quietly(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Released>> {
        let is_cluster = matches!(self.topology, Topology::Cluster(_));
        let release = Release::new(claim);
        release.quiet(is_cluster).run(self, deadline)
    }

    fn hand_off(&self, from: &Claim, to: &Claim, deadline: Instant) -> Result<Outcome<Granted>> {
        let floor = self.fence_floor(to);
        HandOff::new(from, to)
            .drawing_from(floor)
            .run(self, deadline)
    }

    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal> {
        self.renew_all(claims, deadline)
    }

    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        self.resolve_all(in_doubts, deadline)
    }

    fn guarded(
        &self,
        work: &Guarded<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Vec<Reply>, Duration>> {
        self.run_guarded(work, deadline)
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

    fn waiters(&self, lock: &LockId, deadline: Instant) -> Result<u32> {
        Waiters::of(lock)?.run(self, deadline)
    }

    fn describe(&self, lock: &LockId, deadline: Instant) -> Result<LockInfo> {
        self.describe_lock(lock, deadline)
    }

    fn survey(
        &self,
        scope: &Scope,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>> {
        self.survey_page(scope, position, deadline)
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

    fn subscribe_place(&self, op: &ConditionOp<'_>, parker: &Arc<Parker>) -> Subscription {
        let mut channel = PLACES.pieces(&op.lock.name, op.condition).concat();
        channel.push(':');
        channel.push_str(op.visitor.as_str());
        self.listen(channel.into(), true, 0, parker)
    }

    fn subscribe(
        &self,
        lock: &LockId,
        place: Option<&VisitorId>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription {
        let LockId { kind, name } = lock;
        let layout = Layout::of(*kind);
        // Where each place has a channel of its own, nobody tells one that has no place.
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
        preflight::check(self, deadline)
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn prepare_renewal(&self, lock: &LockId, deadline: Instant) {
        self.topology.prepare_renewal(&lock.name, deadline);
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

impl Redis {
    /// Puts a visitor where it hears the messages of a channel.
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
