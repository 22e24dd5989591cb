//! A store on one server as a node of a quorum. The quorum first sends a request to each node, then reads the replies.
//! So all nodes work at the same time.
//!
//! If a request needs a second attempt, the reader of its reply blocks until the second reply arrives.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::store::{Granted, Holding, InDoubt, Outcome, Refusal, Released, Store};
use crate::stores::quorum::node::{Pending, Purpose};
use crate::stores::quorum::quarantine::{NodeHandle, Quarantined};
use crate::stores::redis::calls::{Acquire, ForceRelease, Inspect, Release, ReleaseLevel, Resolve};
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{Connection, NotReady, Pool};
use crate::stores::redis::voting::vote_of;
use crate::stores::redis::{Redis, server};

pub(crate) struct RedisNode {
    redis: Arc<Redis>,
    pub(super) server: Arc<server::Node>,
}

impl Redis {
    pub(crate) fn as_node(self: &Arc<Redis>) -> Result<RedisNode> {
        match &self.topology {
            Topology::One(server) => Ok(RedisNode {
                redis: Arc::clone(self),
                server: Arc::clone(server),
            }),
            Topology::Cluster(_) => Err(Error::config(
                "the nodes of a Redlock",
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
    fn pool_for(&self, purpose: Purpose) -> &Pool {
        match purpose {
            Purpose::Request | Purpose::Vote => &self.server.pool,
            Purpose::Renewal => &self.server.renewals,
        }
    }

    /// Whether a failover can replace the server of this node by a server with other data.
    pub(crate) fn can_fail_over(&self) -> bool {
        self.server.pool.connector.can_fail_over()
    }

    pub(crate) fn is_ready(&self, purpose: Purpose) -> bool {
        let pool = self.pool_for(purpose);
        match pool.borrow_ready() {
            Ok(borrowed) => {
                let identity = &borrowed.connection.identity;
                let is_ready = purpose == Purpose::Request || identity.is_some();
                pool.give_back(borrowed, &Ok(()));
                is_ready
            }
            // Other requests use all connections, so the server is treated as reachable.
            Err(NotReady::Busy(_)) => true,
            Err(NotReady::NotConnected | NotReady::Unfit(_)) => false,
        }
    }

    pub(crate) fn connect(
        &self,
        handle: &NodeHandle,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Result<(), Quarantined>> {
        let pool = self.pool_for(purpose);
        pool.slots.reopen();
        let vote = |connection: &mut Connection| vote_of(connection, handle, deadline);
        // If no further connection can be made, renewals share the connections of requests.
        let vote = pool.with(deadline, vote).or_else(|fault| match purpose {
            Purpose::Renewal if fault.is_unsent() => self.server.pool.with(deadline, vote),
            _ => Err(fault),
        });
        vote.map(|vote| vote.map(drop))
            .map_err(|fault| self.error_about(self.server.name(), &"".into(), &[], fault))
    }

    /// If `restored` is true, the server lost this hold. The request then acquires the whole count of `claim` again.
    pub(crate) fn send_acquire<'a>(
        &'a self,
        claim: &'a Claim,
        restored: bool,
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Outcome<Granted, Refusal>> {
        self.carry_out(Acquire::voted(claim, restored, handle), deadline)
    }

    pub(crate) fn send_release<'a>(
        &'a self,
        claim: &'a Claim,
        keep: u32,
        deadline: Instant,
    ) -> Pending<'a, Outcome<Released>> {
        let is_quiet = false;
        match keep {
            0 => self.carry_out(Release { claim, is_quiet }, deadline),
            keep => self.carry_out(ReleaseLevel::new(claim, keep, true), deadline),
        }
    }

    pub(crate) fn send_resolve<'a>(
        &'a self,
        in_doubt: InDoubt,
        deadline: Instant,
    ) -> Pending<'a, bool> {
        self.carry_out(Resolve(in_doubt), deadline)
    }

    pub(crate) fn send_force_release<'a>(
        &'a self,
        lock: &'a LockId,
        deadline: Instant,
    ) -> Pending<'a, bool> {
        self.carry_out(ForceRelease(lock), deadline)
    }

    pub(crate) fn send_inspect<'a>(
        &'a self,
        lock: &'a LockId,
        visitor: Option<&'a VisitorId>,
        deadline: Instant,
    ) -> Pending<'a, Holding> {
        self.carry_out(Inspect { lock, visitor }, deadline)
    }
}
