//! A store on one server as a node of a quorum: requests are sent now and answered later, so that all nodes work at the
//! same time.
//!
//! A request that turns out to need a second one (because the server does not know the script, or a clock was off) is
//! done the blocking way.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;
use smallvec::SmallVec;

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::store::{
    Granted, HealthWarning, Holding, InDoubt, Outcome, Refusal, Released, Renewal, Store,
};
use crate::stores::quorum::node::{Node as QuorumNode, Pending, Purpose};
use crate::stores::quorum::quarantine::{Identity, NodeHandle, Quarantined};
use crate::stores::redis::calls::{Call, ForceRelease, Inspect, Operation, Release, Resolve, Way};
use crate::stores::redis::counts::{CountReply, Heard, parse_count_reply};
use crate::stores::redis::scripts::Script;
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{CallError, CheckedOut, Connection, lacks_script};
use crate::stores::redis::votes::{is_known, vote_of, vote_on};
use crate::stores::redis::{Redis, preflight, server};

/// A store on one server, as a node of a quorum.
pub(crate) struct RedisNode {
    redis: Arc<Redis>,
    pub(super) server: Arc<server::Node>,
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
    /// Carries an operation out: sends it now, to be answered later.
    fn carry_out<'a, O: Operation + 'a>(
        &'a self,
        operation: O,
        deadline: Instant,
    ) -> Pending<'a, Result<O::Answer>> {
        let pool = &self.server.pool;
        let checked_out = match pool.check_out(operation.visitor(), |_| true, deadline) {
            Ok(Some(checked_out)) => checked_out,
            Ok(None) => return Pending::NotConnected,
            Err(fault) => return Pending::Ready(Err(self.error(operation.lock(), fault))),
        };
        let way = Way {
            is_behind: checked_out.replies_due > 0,
            not_after: checked_out.not_after,
        };
        let visitor = operation.visitor().cloned();
        let sent = {
            let call = operation.call(&self.scripts);
            self.transmit(checked_out, &call, visitor, None, None, deadline)
        };
        sent.then(move |reply, _| {
            let answer = match reply {
                Err(CallError::Server(text)) if lacks_script(&text) => None,
                reply => operation.read(self, reply, way),
            };
            answer.unwrap_or_else(|| operation.run(self, deadline))
        })
    }

    /// A connection that leads to a server which may vote for `handle`; else why it may not. `None` if there is none to a
    /// server that is known.
    fn check_out_voting(
        &self,
        claim: &Claim,
        handle: &NodeHandle,
        deadline: Instant,
    ) -> Result<Option<(CheckedOut, Arc<Identity>)>> {
        let pool = &self.server.pool;
        let fault = |fault| self.error(&claim.name, fault);
        let Some(mut checked_out) = pool
            .check_out(Some(&claim.visitor), Connection::is_identified, deadline)
            .map_err(fault)?
        else {
            return Ok(None);
        };
        if checked_out.replies_due == 0 && !is_known(&mut checked_out.connection, handle) {
            // To ask who it is takes a time of its own.
            pool.give_back(checked_out.connection, &Ok(Value::Nil));
            return Ok(None);
        }
        while checked_out.replies_due > 0 && !is_known(&mut checked_out.connection, handle) {
            // The answer to the question who it is would come behind these.
            match checked_out.connection.receive(deadline) {
                Err(error @ CallError::NoReply { .. }) => return Err(fault(error)),
                _ => checked_out.replies_due -= 1,
            }
        }
        match vote_on(&mut checked_out.connection, handle, deadline) {
            Ok(identity) => Ok(Some((checked_out, identity))),
            Err(error) => {
                if checked_out.replies_due == 0 && matches!(error, CallError::NoVote(_)) {
                    pool.give_back(checked_out.connection, &Ok(Value::Nil));
                }
                Err(fault(error))
            }
        }
    }

    /// Sends the request that [`Redis::set_count`] sends.
    #[allow(clippy::too_many_arguments, reason = "it is one request, spelled out")]
    fn send_count<'a, T: 'a>(
        &'a self,
        checked_out: CheckedOut,
        claim: &'a Claim,
        script: &'a Script,
        counts: [u32; 2],
        voting: Option<(&'a NodeHandle, Arc<Identity>)>,
        deadline: Instant,
        finish: impl FnOnce(Result<CountReply, CallError>) -> T + 'a,
    ) -> Pending<'a, T> {
        let [known, wanted] = counts;
        let lease = claim.lease.as_millis().to_string();
        let (known_text, wanted_text) = (known.to_string(), wanted.to_string());
        let args = [claim.visitor.as_str(), &lease, &known_text, &wanted_text].map(str::as_bytes);
        let call = Call {
            script,
            lock: &claim.name,
            args: SmallVec::from(args),
            expires: true,
        };
        let visitor = Some(claim.visitor.clone());
        let identity = voting.as_ref().map(|(_, identity)| &**identity);
        let sent = self.transmit(
            checked_out,
            &call,
            visitor,
            identity,
            self.replication,
            deadline,
        );
        let handle = voting.as_ref().map(|(handle, _)| *handle);
        sent.then(move |reply, copies| {
            let again = || self.set_count(claim, script, counts, handle, deadline);
            finish(match reply {
                Ok(reply) => match parse_count_reply(&reply, copies.first_sent) {
                    Ok(Heard::CountReply(step)) => Ok(self.replicated(step, copies)),
                    Ok(Heard::TooLate | Heard::Counts(_) | Heard::AnotherHistory) => again(),
                    Err(fault) => Err(fault),
                },
                Err(CallError::Server(text)) if lacks_script(&text) => again(),
                Err(CallError::NoReply { reason, .. }) => Ok(CountReply::Unknown {
                    reason,
                    not_after: copies.not_after,
                }),
                Err(fault) => Err(fault),
            })
        })
    }
}

impl RedisNode {
    fn send_release_level<'a>(
        &'a self,
        claim: &'a Claim,
        keep: u32,
        deadline: Instant,
    ) -> Pending<'a, Result<Outcome<Released>>> {
        let checked_out = match self
            .server
            .pool
            .check_out(Some(&claim.visitor), |_| true, deadline)
        {
            Ok(Some(checked_out)) => checked_out,
            Ok(None) => return Pending::NotConnected,
            Err(fault) => return Pending::Ready(Err(self.error(&claim.name, fault))),
        };
        let script = &self.scripts.release_level;
        let counts = [claim.count, keep];
        self.send_count(
            checked_out,
            claim,
            script,
            counts,
            None,
            deadline,
            move |step| self.level_of(claim, step),
        )
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
                .with(deadline, |connection| vote_of(connection, handle, deadline)),
        };
        vote.map(|vote| vote.map(drop))
            .map_err(|fault| self.error(&"".into(), fault))
    }

    fn may_be_flushed(&self, deadline: Instant) -> Option<HealthWarning> {
        preflight::flushes(&self.redis, deadline)
    }

    fn send_acquire<'a>(
        &'a self,
        claim: &'a Claim,
        restored: bool,
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Result<Outcome<Granted, Refusal>>> {
        let (checked_out, identity) = match self.check_out_voting(claim, handle, deadline) {
            Ok(Some(checked_out)) => checked_out,
            Ok(None) => return Pending::NotConnected,
            Err(error) => return Pending::Ready(Err(error)),
        };
        let counts = if restored {
            [0, claim.count]
        } else {
            [claim.count, claim.count.saturating_add(1)]
        };
        let script = &self.scripts.of(claim.kind).acquire;
        let voting = Some((handle, identity));
        self.send_count(
            checked_out,
            claim,
            script,
            counts,
            voting,
            deadline,
            move |step| self.acquired(claim, counts, step, deadline),
        )
    }

    fn send_release<'a>(
        &'a self,
        claim: &'a Claim,
        keep: u32,
        deadline: Instant,
    ) -> Pending<'a, Result<Outcome<Released>>> {
        match keep {
            0 => self.carry_out(Release::new(claim), deadline),
            keep => self.send_release_level(claim, keep, deadline),
        }
    }

    fn send_resolve<'a>(
        &'a self,
        in_doubt: InDoubt,
        deadline: Instant,
    ) -> Pending<'a, Result<bool>> {
        self.carry_out(Resolve::new(in_doubt), deadline)
    }

    fn send_force_release<'a>(
        &'a self,
        lock: &'a LockId,
        deadline: Instant,
    ) -> Pending<'a, Result<bool>> {
        self.carry_out(ForceRelease::new(lock), deadline)
    }

    fn send_inspect<'a>(
        &'a self,
        lock: &'a LockId,
        visitor: Option<&'a VisitorId>,
        deadline: Instant,
    ) -> Pending<'a, Result<Holding>> {
        self.carry_out(Inspect { lock, visitor }, deadline)
    }

    fn send_renew<'a>(
        &'a self,
        claims: &'a [Claim],
        handle: &NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Vec<Renewal>> {
        self.send_renewals(claims, handle, deadline)
    }
}
