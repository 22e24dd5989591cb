//! A store on one server as a node of a quorum: requests are sent now and answered later, so that all nodes work at the
//! same time.
//!
//! A request that turns out to need a second one (because the server does not know the script, or a clock was off) is
//! done the blocking way.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::store::{
    Granted, HealthWarning, Holding, InDoubt, Outcome, Refusal, Released, Renewal, Store,
};
use crate::stores::quorum::node::{Node as QuorumNode, Pending, Purpose};
use crate::stores::quorum::quarantine::{NodeHandle, Quarantined};
use crate::stores::redis::Identity;
use crate::stores::redis::admission::{is_known, vote_of, vote_on};
use crate::stores::redis::calls::{
    Acquire, Call, ForceRelease, Inspect, Release, ReleaseLevel, Resolve,
};
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{Borrowed, CallError, NotReady, Pool};
use crate::stores::redis::{Redis, preflight, server};

/// A store on one server, as a node of a quorum.
pub(crate) struct RedisNode {
    redis: Arc<Redis>,
    pub(super) server: Arc<server::Node>,
}

/// A connection, and which server it leads to where that has to have a vote.
type Voting = (Borrowed, Option<Arc<Identity>>);

/// Why there is no connection for a call.
pub(super) enum NoConnection {
    /// None is there on which the call can be sent without waiting for anything first, or others use all.
    NotReady(NotReady),
    Failed(CallError),
}

impl Redis {
    /// The store as a node of a quorum.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a cluster, whose servers take over from each other.
    pub(crate) fn as_node(self: &Arc<Redis>) -> Result<RedisNode> {
        match &self.topology {
            Topology::One(server) => Ok(RedisNode {
                redis: Arc::clone(self),
                server: Arc::clone(server),
            }),
            Topology::Cluster(_) => Err(Error::config(
                "the nodes of a quorum",
                format!("{}: {}", self.node(None), Quarantined::InCluster),
            )),
        }
    }
}

impl Deref for RedisNode {
    type Target = Redis;

    fn deref(&self) -> &Redis {
        &self.redis
    }
}

impl RedisNode {
    /// A connection for a call: where it is to have a vote, one that leads to a server which may vote, and which one that
    /// is.
    pub(super) fn check_out(
        &self,
        call: &Call<'_>,
        deadline: Instant,
    ) -> Result<Voting, NoConnection> {
        let pool = &self.server.pool;
        let mut borrowed = pool.borrow_ready().map_err(NoConnection::NotReady)?;
        let Some(handle) = call.handle else {
            return Ok((borrowed, None));
        };
        if !is_known(&mut borrowed.connection, handle) {
            // To ask who it is takes a time of its own.
            pool.give_back(borrowed, &Ok(()));
            return Err(NoConnection::NotReady(NotReady::NotConnected));
        }
        match vote_on(&mut borrowed.connection, handle, deadline) {
            Ok(identity) => Ok((borrowed, Some(identity))),
            Err(fault) => {
                let outcome: Result<(), _> = Err(fault.clone());
                pool.give_back(borrowed, &outcome);
                Err(NoConnection::Failed(fault))
            }
        }
    }
}

impl RedisNode {
    fn pool_for(&self, purpose: Purpose) -> &Pool {
        match purpose {
            Purpose::Request | Purpose::Vote => &self.server.pool,
            Purpose::Renewal => &self.server.renewals,
        }
    }
}

impl QuorumNode for RedisNode {
    fn store(&self) -> &dyn Store {
        &*self.redis
    }

    fn can_fail_over(&self) -> bool {
        self.server.pool.connector().can_fail_over()
    }

    fn is_ready(&self, purpose: Purpose) -> bool {
        let pool = self.pool_for(purpose);
        match pool.borrow_ready() {
            Ok(borrowed) => {
                let connection = &borrowed.connection;
                let is_ready = purpose == Purpose::Request || connection.is_identified();
                pool.give_back(borrowed, &Ok(()));
                is_ready
            }
            // Others use them.
            Err(NotReady::Busy(_)) => true,
            Err(NotReady::NotConnected) => false,
        }
    }

    fn connect(
        &self,
        handle: &NodeHandle,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Result<(), Quarantined>> {
        let pool = self.pool_for(purpose);
        pool.reopen();
        let vote = pool.with(deadline, |connection| vote_of(connection, handle, deadline));
        vote.map(|vote| vote.map(drop))
            .map_err(|fault| self.error(&"".into(), fault, deadline))
    }

    fn may_be_flushed(&self, deadline: Instant) -> Option<HealthWarning> {
        preflight::flushes(&self.redis, deadline)
    }

    fn may_change_id(&self, deadline: Instant) -> Option<HealthWarning> {
        preflight::changes_id(&self.redis, deadline)
    }

    fn send_acquire<'a>(
        &'a self,
        claim: &'a Claim,
        restored: bool,
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Outcome<Granted, Refusal>> {
        self.carry_out(Acquire::voted(claim, restored, handle), deadline)
    }

    fn send_release<'a>(
        &'a self,
        claim: &'a Claim,
        keep: u32,
        deadline: Instant,
    ) -> Pending<'a, Outcome<Released>> {
        match keep {
            0 => self.carry_out(Release::new(claim), deadline),
            keep => self.carry_out(ReleaseLevel::new(claim, keep), deadline),
        }
    }

    fn send_resolve<'a>(&'a self, in_doubt: InDoubt, deadline: Instant) -> Pending<'a, bool> {
        self.carry_out(Resolve(in_doubt), deadline)
    }

    fn send_force_release<'a>(&'a self, lock: &'a LockId, deadline: Instant) -> Pending<'a, bool> {
        self.carry_out(ForceRelease(lock), deadline)
    }

    fn send_inspect<'a>(
        &'a self,
        lock: &'a LockId,
        visitor: Option<&'a VisitorId>,
        deadline: Instant,
    ) -> Pending<'a, Holding> {
        self.carry_out(Inspect { lock, visitor }, deadline)
    }

    fn send_renew<'a>(
        &'a self,
        claims: &'a [Claim],
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Vec<Renewal>> {
        self.send_renewals(claims, handle, deadline)
    }
}
