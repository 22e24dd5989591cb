//! Requests of a quorum: sent now, answered later, so that all nodes work at the same time.
//!
//! An answer that nobody waits for any more is read by whoever uses the connection next; until then only requests of
//! the same hold may go behind it, which keeps them in order. What turns out to need more than one request (a script
//! that the server does not know, a clock that was off) is done the blocking way.

use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use smallvec::SmallVec;

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::store::{
    Granted, HealthWarning, Holding, InDoubt, Outcome, Refusal, Released, Renewal, SETTLED, Store,
};
use crate::stores::quorum::node::{InFlight, Node as QuorumNode, Pending, Purpose};
use crate::stores::quorum::quarantine::{Identity, NodeHandle, Quarantined};
use crate::stores::redis::calls::{Call, ForceRelease, Inspect, Operation, Release, Resolve, Way};
use crate::stores::redis::scripts::Script;
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::connection::{CallError, Connection};
use crate::stores::redis::transport::pool::{CheckedOut, lacks_eval, lacks_script};
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};
use crate::stores::redis::{
    Heard, Redis, RenewalBatch, SentCopies, came_too_late, chunks_of, discount, history_of,
    integer_at, is_another_history, parse_count_reply, preflight, reason_of, server,
};

/// A late answer may come this much after the request has expired, because our idea of the server's clock may be off.
const LATENESS: Duration = Duration::from_millis(20);

/// A store on one server, as a node of a quorum.
pub(crate) struct RedisNode {
    redis: Arc<Redis>,
    server: Arc<server::Node>,
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

/// One request under way on a connection of the pool.
struct SentRequest<'a, F> {
    node: &'a RedisNode,
    /// `None` once its answer was read.
    checked_out: Option<CheckedOut>,
    visitor: Option<VisitorId>,
    copies: SentCopies<'a>,
    /// The number of the request, which its answer repeats.
    number: i64,
    tells_time: bool,
    by_text: bool,
    deadline: Instant,
    finish: Option<F>,
}

impl<T, F: FnOnce(Result<Value, CallError>, &SentCopies<'_>) -> T> InFlight<T>
    for SentRequest<'_, F>
{
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let connection = &self.checked_out.as_ref()?.connection;
        (!connection.has_buffered()).then(|| connection.fd())
    }

    fn not_after(&self) -> i64 {
        SentRequest::not_after(self)
    }

    fn receive(mut self: Box<Self>, deadline: Instant) -> Option<T> {
        let CheckedOut {
            mut connection,
            permit,
            replies_due,
            ..
        } = self.checked_out.take()?;
        let mut reply = Ok(Value::Nil);
        for _ in 0..replies_due {
            reply = connection.receive(deadline);
            if let Err(CallError::NoReply { .. }) = reply {
                break;
            }
        }
        if !matches!(reply, Err(CallError::NoReply { .. })) {
            reply = connection.answer(self.number, deadline);
        }
        if let (Some(wanted), Ok(_) | Err(CallError::Server(_))) = (self.copies.replication, &reply)
        {
            self.copies.replica_ack = ReplicaAck::of(connection.receive(deadline), wanted);
            // The answer of the script stands, but the one behind it may still come.
            connection.is_spent |= self.copies.replica_ack == ReplicaAck::NoAnswer;
        }
        if let (Ok(reply), Some(sent), true) = (&reply, self.copies.first_sent, self.tells_time) {
            connection.note_time_in(reply, self.copies.not_after, sent);
            if is_another_history(reply) {
                connection.forget_identity();
            }
        }
        match &reply {
            Err(CallError::Server(text)) if lacks_script(text) => {
                connection.has_forgotten_scripts()
            }
            // Who may not send scripts may call those that others have.
            Err(CallError::Server(text)) if self.by_text && lacks_eval(text) => {
                reply = Err(CallError::Server("NOSCRIPT".to_owned()));
            }
            _ => {}
        }
        if !connection.is_spent {
            self.node.server.pool.give_back(connection, &reply);
        }
        // What follows may need a connection again.
        drop(permit);
        let finish = self.finish.take()?;
        Some(finish(reply, &self.copies))
    }
}

impl<F> SentRequest<'_, F> {
    fn not_after(&self) -> i64 {
        if self.tells_time {
            self.copies.not_after
        } else {
            SETTLED
        }
    }
}

impl<F> Drop for SentRequest<'_, F> {
    fn drop(&mut self) {
        if let Some(CheckedOut {
            connection,
            replies_due,
            ..
        }) = self.checked_out.take()
        {
            let pool = &self.node.server.pool;
            let replies_due = replies_due + 1 + u32::from(self.copies.replication.is_some());
            let deadline = self.deadline + LATENESS;
            pool.check_in_unread(
                connection,
                replies_due,
                self.visitor.take(),
                self.not_after(),
                deadline,
            );
        }
    }
}

/// The renewals of one node under way, on the connection that it has for them.
struct SentRenewals<'a> {
    node: &'a RedisNode,
    connection: Option<Connection>,
    claims: &'a [Claim],
    chunks: Vec<RenewalBatch<'a>>,
    sent: BootInstant,
}

impl InFlight<Vec<Renewal>> for SentRenewals<'_> {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let connection = self.connection.as_ref()?;
        (!connection.has_buffered()).then(|| connection.fd())
    }

    fn receive(mut self: Box<Self>, deadline: Instant) -> Option<Vec<Renewal>> {
        let mut connection = self.connection.take()?;
        let mut outcomes = Vec::with_capacity(self.claims.len());
        let node = self.node;
        let read = match node.replication {
            Some(wanted) => self.read_replicated(&mut connection, wanted, deadline, &mut outcomes),
            None => node.read_renewals(
                &node.server,
                &mut connection,
                &self.chunks,
                self.sent,
                false,
                deadline,
                &mut outcomes,
            ),
        };
        match read {
            Ok(()) if !connection.is_spent => node.server.put_renewing(connection),
            Ok(()) => {}
            Err(fault) => {
                let reason = reason_of(fault).into_words();
                if node.replication.is_some() {
                    discount(&mut outcomes, &reason);
                }
                outcomes.resize(self.claims.len(), Renewal::Unknown(reason));
            }
        }
        Some(outcomes)
    }
}

impl SentRenewals<'_> {
    /// Reads the answers to all batches, and the one that says how many replicas have them.
    fn read_replicated(
        &self,
        connection: &mut Connection,
        wanted: Replication,
        deadline: Instant,
        outcomes: &mut Vec<Renewal>,
    ) -> Result<(), CallError> {
        let mut late = Vec::new();
        for chunk in &self.chunks {
            match connection.answer(chunk.number, deadline) {
                Ok(reply) => {
                    if came_too_late(&reply) {
                        late.push((outcomes.len(), chunk.claims));
                    }
                    if let Some(now) = integer_at(&reply, 0) {
                        connection.note_time(now, self.sent);
                    }
                    chunk.read(&reply, outcomes);
                }
                Err(CallError::Server(text)) if !text.starts_with("READONLY") => {
                    if lacks_script(&text) {
                        // It goes with its text the next time.
                        connection.has_forgotten_scripts();
                    }
                    outcomes.extend(chunk.claims.iter().map(|_| Renewal::Unknown(text.clone())));
                }
                Err(fault) => return Err(fault),
            }
        }
        let replica_ack = ReplicaAck::of(connection.receive(deadline), wanted);
        connection.is_spent |= replica_ack == ReplicaAck::NoAnswer;
        if let Some(flaw) = replica_ack.flaw(wanted) {
            discount(outcomes, &flaw);
        }
        if !late.is_empty() && !connection.is_spent {
            let by_text = self.node.server.pool.uses_text();
            self.node
                .renew_late(connection, &late, by_text, deadline, outcomes)?;
            self.node.count_replicas(connection, deadline, outcomes);
        }
        Ok(())
    }
}

/// What became of sending a request.
enum Transmission<'a> {
    Sent(SentRequest<'a, ()>),
    /// Nothing was sent, and another connection will do.
    NotConnected,
    Failed(CallError, SentCopies<'a>),
}

impl<'a> Transmission<'a> {
    /// The answer that `finish` makes of the reply.
    fn then<T: 'a>(
        self,
        finish: impl FnOnce(Result<Value, CallError>, &SentCopies<'_>) -> T + 'a,
    ) -> Pending<'a, T> {
        match self {
            Transmission::Sent(mut sent) => Pending::Sent(Box::new(SentRequest {
                node: sent.node,
                checked_out: sent.checked_out.take(),
                visitor: sent.visitor.take(),
                copies: std::mem::take(&mut sent.copies),
                number: sent.number,
                tells_time: sent.tells_time,
                by_text: sent.by_text,
                deadline: sent.deadline,
                finish: Some(finish),
            })),
            Transmission::NotConnected => Pending::NotConnected,
            Transmission::Failed(fault, copies) => Pending::Ready(finish(Err(fault), &copies)),
        }
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

    /// Sends a call of `visitor`. With `voting` it runs only on the server that was found to have a vote, which is true of
    /// this connection alone; with `replication` so many replicas have to have what it did.
    fn transmit<'a>(
        &'a self,
        mut checked_out: CheckedOut,
        call: &Call<'_>,
        visitor: Option<VisitorId>,
        voting: Option<&Identity>,
        replication: Option<Replication>,
        deadline: Instant,
    ) -> Transmission<'a> {
        let mut copies = SentCopies::replicated(replication);
        let sent = BootInstant::now();
        let expiry = checked_out.connection.expiry(deadline, sent);
        let text = expiry.to_string();
        let mut args: SmallVec<[&[u8]; 6]> = call.args.iter().copied().collect();
        if call.expires {
            args.push(text.as_bytes());
            args.extend(history_of(voting));
        }
        copies.first_sent = Some(sent);
        copies.not_after = expiry;
        // Nobody may be there any more to send it again if the server does not know it.
        let by_text =
            self.server.pool.uses_text() || !checked_out.connection.has_script(call.script);
        let number = checked_out.connection.number();
        let mut packed = call.script.pack(by_text, &[call.lock], &args, number);
        if let Some(wanted) = replication {
            packed.extend(wanted.question(deadline));
        }
        checked_out.connection.mark_loaded(call.script);
        match checked_out.connection.send(&packed, deadline) {
            Ok(()) => Transmission::Sent(SentRequest {
                node: self,
                checked_out: Some(checked_out),
                visitor,
                copies,
                number,
                tells_time: call.expires,
                by_text,
                deadline,
                finish: None,
            }),
            Err(fault) => {
                // The server may have closed a connection that lay idle. Nothing was sent, so another one will do.
                let may_go_elsewhere = matches!(fault, CallError::NotSent(_))
                    && checked_out.replies_due == 0
                    && Instant::now() < deadline;
                let reply = Err(fault);
                if checked_out.replies_due == 0 {
                    self.server.pool.give_back(checked_out.connection, &reply);
                }
                drop(checked_out.permit);
                match reply {
                    Err(fault) if !may_go_elsewhere => Transmission::Failed(fault, copies),
                    _ => Transmission::NotConnected,
                }
            }
        }
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
        finish: impl FnOnce(Result<super::CountReply, CallError>) -> T + 'a,
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
                Err(CallError::NoReply { reason, .. }) => Ok(super::CountReply::Unknown {
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
        let unknown = |reason: String| Pending::Ready(vec![Renewal::Unknown(reason); claims.len()]);
        let Some(mut connection) = self.server.take_ready_to_renew(deadline) else {
            return Pending::NotConnected;
        };
        match vote_on(&mut connection, handle, deadline) {
            Ok(_) => {}
            Err(CallError::NoVote(abstention)) => {
                self.server.put_renewing(connection);
                return unknown(abstention);
            }
            Err(fault) => return unknown(reason_of(fault).into_words()),
        }
        let sent = BootInstant::now();
        let chunks = chunks_of(claims, &mut connection, deadline, sent);
        let script = &self.scripts.renew;
        // What is asked behind the renewals has its answer behind theirs, so none of them may be asked again.
        let is_unknown = self.replication.is_some() && !connection.has_script(script);
        let by_text = self.server.pool.uses_text() || is_unknown;
        let mut packed = Vec::new();
        for chunk in &chunks {
            chunk.pack(script, by_text, &mut packed);
        }
        if let Some(wanted) = self.replication {
            connection.mark_loaded(script);
            packed.extend(wanted.question(deadline));
        }
        match connection.send(&packed, deadline) {
            Ok(()) => Pending::Sent(Box::new(SentRenewals {
                node: self,
                connection: Some(connection),
                claims,
                chunks,
                sent,
            })),
            // Nothing was sent, so another connection will do.
            Err(fault @ CallError::NotSent(_)) if Instant::now() < deadline => {
                self.server.pool.give_back(connection, &Err(fault));
                Pending::NotConnected
            }
            Err(fault) => unknown(reason_of(fault).into_words()),
        }
    }
}

/// Asks a server who it is, and whether it may vote.
pub(super) fn vote_of(
    connection: &mut Connection,
    handle: &NodeHandle,
    deadline: Instant,
) -> Result<Result<Arc<Identity>, Quarantined>, CallError> {
    let identity = connection.identify(deadline)?;
    match handle.admit(&identity) {
        Err(Quarantined::Outdated) => {
            connection.forget_identity();
            let identity = connection.identify(deadline)?;
            Ok(handle.admit(&identity).map(|()| identity))
        }
        vote => Ok(vote.map(|()| identity)),
    }
}

/// Which server it is, if it may vote.
pub(super) fn vote_on(
    connection: &mut Connection,
    handle: &NodeHandle,
    deadline: Instant,
) -> Result<Arc<Identity>, CallError> {
    vote_of(connection, handle, deadline)?
        .map_err(|abstention| CallError::NoVote(abstention.to_string()))
}

/// Whether the server need not be asked who it is to know whether it may vote.
fn is_known(connection: &mut Connection, handle: &NodeHandle) -> bool {
    let admitted = connection.identity().map(|identity| handle.admit(identity));
    match admitted {
        Some(Err(Quarantined::Outdated)) => {
            connection.forget_identity();
            false
        }
        admitted => admitted.is_some(),
    }
}
