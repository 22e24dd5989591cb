//! A store on one server as a node of a quorum: requests are sent now and answered later, so that all nodes work at the
//! same time.
//!
//! A request that turns out to need a second one (because the server does not know the script, or a clock was off) is
//! done the blocking way.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::store::{
    Granted, HealthWarning, Holding, InDoubt, Outcome, Refusal, Released, Renewal, Store,
};
use crate::stores::connection_limit::NoPermit;
use crate::stores::quorum::node::{Node as QuorumNode, Pending, Purpose};
use crate::stores::quorum::quarantine::{Identity, NodeHandle, Quarantined};
use crate::stores::redis::admission::{is_known, vote_of, vote_on};
use crate::stores::redis::calls::{
    Acquire, Call, ForceRelease, Inspect, Release, ReleaseLevel, Resolve,
};
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{CallError, CheckedOut, Connection};
use crate::stores::redis::{Redis, preflight, server};

/// A store on one server, as a node of a quorum.
pub(crate) struct RedisNode {
    redis: Arc<Redis>,
    pub(super) server: Arc<server::Node>,
}

/// A connection, and which server it leads to where that has to have a vote.
type Voting = (CheckedOut, Option<Arc<Identity>>);

/// Why there is no connection for a call.
pub(super) enum NoConnection {
    /// None is there on which the call can be sent without waiting for anything first.
    NotConnected,
    /// Others use as many as may be in use at once: this many.
    Busy(u32),
    Failed(CallError),
}

impl From<NoPermit> for NoConnection {
    fn from(none: NoPermit) -> NoConnection {
        NoConnection::Busy(none.of)
    }
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
        let Some(handle) = call.handle else {
            let checked_out = pool.check_out(call.visitor, |_| true)?;
            return Ok((checked_out.ok_or(NoConnection::NotConnected)?, None));
        };
        let is_right = Connection::is_identified;
        let checked_out = pool.check_out(call.visitor, is_right)?;
        let mut checked_out = checked_out.ok_or(NoConnection::NotConnected)?;
        if checked_out.replies_due == 0 && !is_known(&mut checked_out.connection, handle) {
            // To ask who it is takes a time of its own.
            pool.give_back(checked_out.connection, &Ok(Value::Nil));
            return Err(NoConnection::NotConnected);
        }
        let voting = loop {
            let connection = &mut checked_out.connection;
            if checked_out.replies_due == 0 || is_known(connection, handle) {
                break vote_on(connection, handle, deadline);
            }
            // The answer to the question who it is would come behind these.
            match connection.receive(deadline) {
                Err(fault @ CallError::NoReply { .. }) => break Err(fault),
                _ => checked_out.replies_due -= 1,
            }
        };
        match voting {
            Ok(identity) => Ok((checked_out, Some(identity))),
            Err(fault) => {
                let reply = Err(fault.clone());
                pool.check_in(checked_out, &reply, call.visitor, deadline);
                Err(NoConnection::Failed(fault))
            }
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

    fn is_ready(&self, purpose: Purpose<'_>) -> bool {
        let pool = &self.server.pool;
        match purpose {
            Purpose::Request(visitor) => pool.is_warm(visitor, |_| true),
            Purpose::Vote(visitor) => pool.is_warm(Some(visitor), Connection::is_identified),
            Purpose::Renewal => self.server.is_ready_to_renew(),
        }
    }

    fn reserve(&self, until: Instant) -> Result<()> {
        let reserved = self.server.pool.reserve(until);
        reserved.map_err(|fault| self.error(&"".into(), fault, until))
    }

    fn connect(
        &self,
        handle: &NodeHandle,
        purpose: Purpose<'_>,
        deadline: Instant,
    ) -> Result<Result<(), Quarantined>> {
        let server = &self.server;
        server.pool.serve_a_quorum();
        let vote = match purpose {
            Purpose::Renewal => server.take_renewing(deadline).and_then(|mut connection| {
                let vote = vote_of(&mut connection, handle, deadline)?;
                server.put_renewing(connection);
                Ok(vote)
            }),
            Purpose::Request(_) | Purpose::Vote(_) => server
                .pool
                .make_ready(deadline, |connection| vote_of(connection, handle, deadline)),
        };
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
