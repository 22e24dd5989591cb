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

use crate::ground::claim::{Claim, Kind, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::store::{Aloft, Attempt, Flight, Holding, InDoubt, Release, Renewal, SETTLED, Store};
use crate::stores::quorum::quarantine::{Identity, NodeHandle, Quarantined};
use crate::stores::redis::scripts::Script;
use crate::stores::redis::server::Node;
use crate::stores::redis::transport::connection::{CallError, Connection};
use crate::stores::redis::transport::pool::{CheckedOut, lacks_eval, lacks_script};
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};
use crate::stores::redis::{
    Heard, Redis, RenewalBatch, SentCopies, came_too_late, chunks_of, discount, history_of,
    integer_at, is_another_history, keys, parse_count_reply, reason_of,
};

/// A late answer may come this much after the request has expired, because our idea of the server's clock may be off.
const LATENESS: Duration = Duration::from_millis(20);

/// A store on one node, whose requests need nothing behind them.
#[derive(Clone, Copy)]
pub(super) struct Alone<'a> {
    pub(super) redis: &'a Redis,
    pub(super) node: &'a Node,
}

impl Deref for Alone<'_> {
    type Target = Redis;

    fn deref(&self) -> &Redis {
        self.redis
    }
}

/// What is asked about one key.
struct Request<'r> {
    script: &'r Script,
    key: &'r str,
    visitor: &'r VisitorId,
    args: &'r [&'r [u8]],
    /// Whether the server time after which it is refused is its last argument, and its answer tells the time.
    expires: bool,
    /// Which server was found to have a vote, which is true of this connection alone; its history is the argument
    /// behind the last.
    voting: Option<Arc<Identity>>,
    /// How many replicas have to have what it did.
    replication: Option<Replication>,
}

/// One request under way on a connection of the pool.
struct Flying<'a, F> {
    alone: Alone<'a>,
    /// `None` once it has landed.
    boarded: Option<CheckedOut>,
    visitor: VisitorId,
    copies: SentCopies<'a>,
    /// The number of the request, which its answer repeats.
    number: i64,
    tells_time: bool,
    by_text: bool,
    deadline: Instant,
    finish: Option<F>,
}

impl<T, F: FnOnce(Result<Value, CallError>, &SentCopies<'_>) -> T> Aloft<T> for Flying<'_, F> {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let connection = &self.boarded.as_ref()?.connection;
        (!connection.has_buffered()).then(|| connection.fd())
    }

    fn not_after(&self) -> i64 {
        Flying::not_after(self)
    }

    fn land(mut self: Box<Self>, deadline: Instant) -> Option<T> {
        let CheckedOut {
            mut connection,
            permit,
            replies_due,
            ..
        } = self.boarded.take()?;
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
            self.alone.node.pool.give_back(connection, &reply);
        }
        // What follows may need a connection again.
        drop(permit);
        let finish = self.finish.take()?;
        Some(finish(reply, &self.copies))
    }
}

impl<F> Flying<'_, F> {
    fn not_after(&self) -> i64 {
        if self.tells_time {
            self.copies.not_after
        } else {
            SETTLED
        }
    }
}

impl<F> Drop for Flying<'_, F> {
    fn drop(&mut self) {
        if let Some(CheckedOut {
            connection,
            replies_due,
            ..
        }) = self.boarded.take()
        {
            let pool = &self.alone.node.pool;
            let replies_due = replies_due + 1 + u32::from(self.copies.replication.is_some());
            let deadline = self.deadline + LATENESS;
            pool.check_in_unread(
                connection,
                replies_due,
                self.visitor.clone(),
                self.not_after(),
                deadline,
            );
        }
    }
}

/// The renewals of one node under way, on the connection that it has for them.
struct Renewing<'a> {
    alone: Alone<'a>,
    connection: Option<Connection>,
    claims: &'a [Claim],
    chunks: Vec<RenewalBatch<'a>>,
    sent: BootInstant,
}

impl Aloft<Vec<Renewal>> for Renewing<'_> {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        let connection = self.connection.as_ref()?;
        (!connection.has_buffered()).then(|| connection.fd())
    }

    fn land(mut self: Box<Self>, deadline: Instant) -> Option<Vec<Renewal>> {
        let mut connection = self.connection.take()?;
        let mut outcomes = Vec::with_capacity(self.claims.len());
        let redis = self.alone;
        let read = match redis.replication {
            Some(wanted) => self.read_replicated(&mut connection, wanted, deadline, &mut outcomes),
            None => redis.read_renewals(
                redis.node,
                &mut connection,
                &self.chunks,
                self.sent,
                false,
                deadline,
                &mut outcomes,
            ),
        };
        match read {
            Ok(()) if !connection.is_spent => redis.node.put_renewing(connection),
            Ok(()) => {}
            Err(fault) => {
                let reason = reason_of(fault).into_words();
                if redis.replication.is_some() {
                    discount(&mut outcomes, &reason);
                }
                outcomes.resize(self.claims.len(), Renewal::Unknown(reason));
            }
        }
        Some(outcomes)
    }
}

impl Renewing<'_> {
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
            let by_text = self.alone.node.pool.uses_text();
            self.alone
                .renew_late(connection, &late, by_text, deadline, outcomes)?;
            self.alone.count_replicas(connection, deadline, outcomes);
        }
        Ok(())
    }
}

impl<'a> Alone<'a> {
    fn launch<T: 'a>(
        self,
        mut boarded: CheckedOut,
        request: &Request<'_>,
        deadline: Instant,
        finish: impl FnOnce(Result<Value, CallError>, &SentCopies<'_>) -> T + 'a,
    ) -> Flight<'a, T> {
        let mut copies = SentCopies::replicated(request.replication);
        let sent = BootInstant::now();
        let expiry = boarded.connection.expiry(deadline, sent);
        let text = expiry.to_string();
        let args = match history_of(&request.voting) {
            Some(history) => &[request.args, &[text.as_bytes(), history]].concat(),
            None if request.expires => &[request.args, &[text.as_bytes()]].concat(),
            None => request.args,
        };
        copies.first_sent = Some(sent);
        copies.not_after = expiry;
        // Nobody may be there any more to send it again if the server does not know it.
        let by_text = self.node.pool.uses_text() || !boarded.connection.has_script(request.script);
        let number = boarded.connection.number();
        let mut packed = request.script.pack(by_text, &[request.key], args, number);
        if let Some(wanted) = request.replication {
            packed.extend(wanted.question(deadline));
        }
        boarded.connection.mark_loaded(request.script);
        match boarded.connection.send(&packed, deadline) {
            Ok(()) => Flight::Aloft(Box::new(Flying {
                alone: self,
                boarded: Some(boarded),
                visitor: request.visitor.clone(),
                copies,
                number,
                tells_time: request.expires,
                by_text,
                deadline,
                finish: Some(finish),
            })),
            Err(fault) => {
                // The server may have closed a connection that lay idle. Nothing was sent, so another one will do.
                let may_go_elsewhere = matches!(fault, CallError::NotSent(_))
                    && boarded.replies_due == 0
                    && Instant::now() < deadline;
                let reply = Err(fault);
                if boarded.replies_due == 0 {
                    self.node.pool.give_back(boarded.connection, &reply);
                }
                drop(boarded.permit);
                if may_go_elsewhere {
                    return Flight::Cold;
                }
                Flight::Landed(finish(reply, &copies))
            }
        }
    }

    /// A connection that leads to a server which may vote for `handle`; else why it may not. `None` if there is none to a
    /// server that is known.
    fn board_voting(
        self,
        claim: &Claim,
        handle: &NodeHandle,
        deadline: Instant,
    ) -> Result<Option<(CheckedOut, Arc<Identity>)>> {
        let pool = &self.node.pool;
        let fault = |fault| self.error(&claim.name, fault);
        let Some(mut boarded) = pool
            .check_out(&claim.visitor, Connection::is_identified, deadline)
            .map_err(fault)?
        else {
            return Ok(None);
        };
        if boarded.replies_due == 0 && !is_known(&mut boarded.connection, handle) {
            // To ask who it is takes a time of its own.
            pool.give_back(boarded.connection, &Ok(Value::Nil));
            return Ok(None);
        }
        while boarded.replies_due > 0 && !is_known(&mut boarded.connection, handle) {
            // The answer to the question who it is would come behind these.
            match boarded.connection.receive(deadline) {
                Err(error @ CallError::NoReply { .. }) => return Err(fault(error)),
                _ => boarded.replies_due -= 1,
            }
        }
        match vote_on(&mut boarded.connection, handle, deadline) {
            Ok(identity) => Ok(Some((boarded, identity))),
            Err(error) => {
                if boarded.replies_due == 0 && matches!(error, CallError::NoVote(_)) {
                    pool.give_back(boarded.connection, &Ok(Value::Nil));
                }
                Err(fault(error))
            }
        }
    }

    pub(super) fn fly_acquire(
        self,
        claim: &'a Claim,
        restored: bool,
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Flight<'a, Result<Attempt>> {
        let (boarded, identity) = match self.board_voting(claim, handle, deadline) {
            Ok(Some(boarded)) => boarded,
            Ok(None) => return Flight::Cold,
            Err(error) => return Flight::Landed(Err(error)),
        };
        let counts = if restored {
            [0, claim.count]
        } else {
            [claim.count, claim.count.saturating_add(1)]
        };
        let script = &self.redis.scripts.of(claim.kind).acquire;
        let voting = Some((handle, identity));
        self.fly_count(
            boarded,
            claim,
            script,
            counts,
            voting,
            deadline,
            move |step| self.acquired(claim, counts, step, deadline),
        )
    }

    /// Sends the request that [`Redis::set_count`] sends.
    #[allow(clippy::too_many_arguments, reason = "it is one request, spelled out")]
    fn fly_count<T: 'a>(
        self,
        boarded: CheckedOut,
        claim: &'a Claim,
        script: &'a Script,
        counts: [u32; 2],
        voting: Option<(&'a NodeHandle, Arc<Identity>)>,
        deadline: Instant,
        finish: impl FnOnce(Result<super::CountReply, CallError>) -> T + 'a,
    ) -> Flight<'a, T> {
        let [known, wanted] = counts;
        let lease = claim.lease.as_millis().to_string();
        let (known_text, wanted_text) = (known.to_string(), wanted.to_string());
        let args = [claim.visitor.as_str(), &lease, &known_text, &wanted_text].map(str::as_bytes);
        let request = Request {
            script,
            key: &claim.name,
            visitor: &claim.visitor,
            args: &args,
            expires: true,
            voting: voting.as_ref().map(|(_, identity)| Arc::clone(identity)),
            replication: self.replication,
        };
        let handle = voting.as_ref().map(|(handle, _)| *handle);
        self.launch(boarded, &request, deadline, move |reply, copies| {
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

    pub(super) fn fly_release_level(
        self,
        claim: &'a Claim,
        deadline: Instant,
    ) -> Flight<'a, Result<Release>> {
        let boarded = match self.node.pool.check_out(&claim.visitor, |_| true, deadline) {
            Ok(Some(boarded)) => boarded,
            Ok(None) => return Flight::Cold,
            Err(fault) => return Flight::Landed(Err(self.error(&claim.name, fault))),
        };
        let script = &self.redis.scripts.release_level;
        let (known, wanted) = (claim.count, claim.count.saturating_sub(1).max(1));
        let counts = [known, wanted];
        self.fly_count(
            boarded,
            claim,
            script,
            counts,
            None,
            deadline,
            move |step| self.level_of(claim, step),
        )
    }

    pub(super) fn fly_release(
        self,
        claim: &'a Claim,
        deadline: Instant,
    ) -> Flight<'a, Result<Release>> {
        let boarded = match self.node.pool.check_out(&claim.visitor, |_| true, deadline) {
            Ok(Some(boarded)) => boarded,
            Ok(None) => return Flight::Cold,
            Err(fault) => return Flight::Landed(Err(self.error(&claim.name, fault))),
        };
        let not_after = boarded.not_after;
        let channel = keys::channel(&claim.name);
        let request = Request {
            script: &self.scripts.of(claim.kind).release,
            key: &claim.name,
            visitor: &claim.visitor,
            args: &[claim.visitor.as_str().as_bytes(), channel.as_bytes()],
            expires: false,
            voting: None,
            replication: None,
        };
        let channel = Arc::clone(&channel);
        self.launch(boarded, &request, deadline, move |reply, _| match reply {
            Ok(reply) => match self.release_of(claim, &channel, &reply) {
                // It is not there yet.
                Ok(Release::NotHeld(_)) if not_after != SETTLED => Ok(Release::Unknown {
                    in_doubt: claim.in_doubt(not_after),
                    error: Error::Unavailable {
                        lock: Arc::clone(&claim.name),
                        node: self.node.name(),
                        reason: "an earlier request of this hold may still be on its way"
                            .to_owned(),
                    },
                }),
                release => release.map_err(|fault| self.error(&claim.name, fault)),
            },
            Err(CallError::Server(text)) if lacks_script(&text) => self.release(claim, deadline),
            Err(CallError::NoReply { reason, .. }) => Ok(Release::Unknown {
                in_doubt: claim.in_doubt(0),
                error: self.unknown(&claim.name, Some(&claim.visitor), "release", reason),
            }),
            Err(fault) => Err(self.error(&claim.name, fault)),
        })
    }

    pub(super) fn fly_withdraw(
        self,
        mut in_doubt: InDoubt,
        deadline: Instant,
    ) -> Flight<'a, Result<bool>> {
        let boarded = match self
            .node
            .pool
            .check_out(&in_doubt.visitor, |_| true, deadline)
        {
            Ok(Some(boarded)) => boarded,
            Ok(None) => return Flight::Cold,
            Err(fault) => return Flight::Landed(Err(self.error(&in_doubt.name, fault))),
        };
        // Behind the request in doubt on the same connection it comes after it.
        let is_behind = boarded.replies_due > 0;
        let not_after = boarded.not_after;
        let channel = keys::channel(&in_doubt.name);
        let name = Arc::clone(&in_doubt.name);
        let visitor = in_doubt.visitor.clone();
        let request = Request {
            script: &self.scripts.of(in_doubt.kind).resolve,
            key: &name,
            visitor: &visitor,
            args: &[visitor.as_str().as_bytes(), channel.as_bytes()],
            expires: false,
            voting: None,
            replication: None,
        };
        self.launch(boarded, &request, deadline, move |reply, _| match reply {
            Ok(Value::Int(now)) => Ok(is_behind || now > in_doubt.not_after(0).max(not_after)),
            Ok(reply) => Err(self.unexpected(&in_doubt.name, &reply)),
            Err(CallError::Server(text)) if lacks_script(&text) => {
                self.resolve(&mut in_doubt, deadline)
            }
            Err(fault) => Err(self.error(&in_doubt.name, fault)),
        })
    }

    pub(super) fn fly_force_release(
        self,
        kind: Kind,
        name: &'a Arc<str>,
        deadline: Instant,
    ) -> Flight<'a, Result<bool>> {
        // No hold has this visitor, so it goes behind nobody's request.
        let nobody = Kind::Reentrant.visitor("", 0, 0);
        let boarded = match self.node.pool.check_out(&nobody, |_| true, deadline) {
            Ok(Some(boarded)) => boarded,
            Ok(None) => return Flight::Cold,
            Err(fault) => return Flight::Landed(Err(self.error(name, fault))),
        };
        let channel = keys::channel(name);
        let request = Request {
            script: &self.scripts.of(kind).force_release,
            key: name,
            visitor: &nobody,
            args: &[channel.as_bytes()],
            expires: true,
            voting: None,
            replication: None,
        };
        self.launch(boarded, &request, deadline, move |reply, _| match reply {
            Ok(reply) => match super::integer_at(&reply, 0) {
                Some(3) => self.force_release(kind, name, deadline),
                Some(freed) => Ok(freed == 1),
                None => Err(self.unexpected(name, &reply)),
            },
            Err(CallError::Server(text)) if lacks_script(&text) => {
                self.force_release(kind, name, deadline)
            }
            Err(CallError::NoReply { reason, .. }) => {
                Err(self.unknown(name, None, "forced release", reason))
            }
            Err(fault) => Err(self.error(name, fault)),
        })
    }

    pub(super) fn fly_inspect(
        self,
        kind: Kind,
        name: &'a Arc<str>,
        visitor: Option<&'a VisitorId>,
        deadline: Instant,
    ) -> Flight<'a, Result<Holding>> {
        let nobody = Kind::Reentrant.visitor("", 0, 0);
        let boarded = match self
            .node
            .pool
            .check_out(visitor.unwrap_or(&nobody), |_| true, deadline)
        {
            Ok(Some(boarded)) => boarded,
            Ok(None) => return Flight::Cold,
            Err(fault) => return Flight::Landed(Err(self.error(name, fault))),
        };
        let field = visitor.map_or("", VisitorId::as_str);
        let request = Request {
            script: &self.scripts.of(kind).inspect,
            key: name,
            visitor: visitor.unwrap_or(&nobody),
            args: &[field.as_bytes()],
            expires: false,
            voting: None,
            replication: None,
        };
        self.launch(boarded, &request, deadline, move |reply, _| match reply {
            Ok(reply) => self.holding_of(name, visitor, &reply),
            Err(CallError::Server(text)) if lacks_script(&text) => {
                self.inspect(kind, name, visitor, deadline)
            }
            Err(fault) => Err(self.error(name, fault)),
        })
    }

    pub(super) fn fly_renew(
        self,
        claims: &'a [Claim],
        handle: &NodeHandle,
        deadline: Instant,
    ) -> Flight<'a, Vec<Renewal>> {
        let unknown = |reason: String| Flight::Landed(vec![Renewal::Unknown(reason); claims.len()]);
        let Some(mut connection) = self.node.take_ready_to_renew(deadline) else {
            return Flight::Cold;
        };
        match vote_on(&mut connection, handle, deadline) {
            Ok(_) => {}
            Err(CallError::NoVote(abstention)) => {
                self.node.put_renewing(connection);
                return unknown(abstention);
            }
            Err(fault) => return unknown(reason_of(fault).into_words()),
        }
        let sent = BootInstant::now();
        let chunks = chunks_of(claims, &mut connection, deadline, sent);
        let script = &self.scripts.renew;
        // What is asked behind the renewals has its answer behind theirs, so none of them may be asked again.
        let is_unknown = self.replication.is_some() && !connection.has_script(script);
        let by_text = self.node.pool.uses_text() || is_unknown;
        let mut packed = Vec::new();
        for chunk in &chunks {
            chunk.pack(script, by_text, &mut packed);
        }
        if let Some(wanted) = self.replication {
            connection.mark_loaded(script);
            packed.extend(wanted.question(deadline));
        }
        match connection.send(&packed, deadline) {
            Ok(()) => Flight::Aloft(Box::new(Renewing {
                alone: self,
                connection: Some(connection),
                claims,
                chunks,
                sent,
            })),
            // Nothing was sent, so another connection will do.
            Err(fault @ CallError::NotSent(_)) if Instant::now() < deadline => {
                self.node.pool.give_back(connection, &Err(fault));
                Flight::Cold
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
