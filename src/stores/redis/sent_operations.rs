//! Requests of a quorum that are under way, each on a connection of the pool.
//!
//! An answer that nobody waits for any more is read by the next user of the connection; until then only requests of
//! the same hold may go behind it, which keeps them in order.

use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::claim::VisitorId;
use crate::ground::error::Result;
use crate::ground::poll::Source;
use crate::ground::time;
use crate::stores::quorum::node::{Pending, PendingAnswer};
use crate::stores::quorum::quarantine::Identity;
use crate::stores::redis::calls::{Call, Limit, Operation, SentCopies, note_in};
use crate::stores::redis::node::{NoConnection, RedisNode};
use crate::stores::redis::transport::{CallError, CheckedOut, lacks_eval, lacks_script};
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};

/// A late answer may come this much after the request has expired, because our idea of the server's clock may be off.
const LATENESS: Duration = Duration::from_millis(20);

/// One request under way on a connection of the pool.
struct SentRequest<'a> {
    node: &'a RedisNode,
    /// `None` once its answer was read.
    checked_out: Option<CheckedOut>,
    visitor: Option<VisitorId>,
    copies: SentCopies,
    /// The number of the request, which its answer repeats.
    number: i64,
    expires: bool,
    replication: Option<Replication>,
    by_text: bool,
}

impl SentRequest<'_> {
    fn not_after(&self) -> Option<i64> {
        self.expires.then_some(self.copies.not_after)
    }

    /// Notes that the requests before it have no answer either.
    fn lose_earlier(&mut self, due_until: Option<i64>) {
        let deadline = self.copies.deadline + LATENESS;
        let pool = &self.node.server.pool;
        pool.note_lost(self.visitor.clone(), due_until, deadline);
        self.copies.earlier_until = self.copies.earlier_until.max(due_until);
        self.copies.is_behind = false;
    }

    fn receive(&mut self, deadline: Instant) -> Option<Result<Value, CallError>> {
        let CheckedOut {
            mut connection,
            permit,
            replies_due,
            due_until,
            ..
        } = self.checked_out.take()?;
        let mut reply = Ok(Value::Nil);
        for _ in 0..replies_due {
            reply = connection.receive(deadline);
            if let Err(CallError::NoReply { .. }) = reply {
                self.lose_earlier(due_until);
                break;
            }
        }
        let copies = &mut self.copies;
        if !matches!(reply, Err(CallError::NoReply { .. })) {
            reply = connection.answer(self.number, deadline);
            if self.by_text {
                reply = reply.map_err(CallError::of_a_text);
            }
        }
        if let (Some(wanted), Ok(_) | Err(CallError::Server(_))) = (self.replication, &reply) {
            let replica_ack = ReplicaAck::of(connection.receive(deadline), wanted);
            // The answer of the script stands, but the one behind it may still come.
            connection.is_spent |= replica_ack == ReplicaAck::NoAnswer;
            copies.replica_ack = Some(replica_ack);
        }
        if let (Ok(reply), Some(sent)) = (&reply, copies.sent_since) {
            note_in(&mut connection, reply, copies.not_after, sent);
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
        Some(reply)
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        if let Some(CheckedOut {
            connection,
            replies_due,
            due_until,
            ..
        }) = self.checked_out.take()
        {
            let pool = &self.node.server.pool;
            let replies_due = replies_due + 1 + u32::from(self.replication.is_some());
            let deadline = self.copies.deadline + LATENESS;
            pool.check_in_unread(
                connection,
                replies_due,
                self.visitor.take(),
                self.not_after().max(due_until),
                deadline,
            );
        }
    }
}

/// An operation whose request is under way.
struct SentOperation<'a, O> {
    request: SentRequest<'a>,
    operation: O,
}

impl<O: Operation> PendingAnswer<O::Answer> for SentOperation<'_, O> {
    fn source(&self) -> Option<Source<'_>> {
        let connection = &self.request.checked_out.as_ref()?.connection;
        (!connection.has_buffered()).then(|| connection.source())
    }

    fn not_after(&self) -> Option<i64> {
        self.request.not_after()
    }

    fn receive(mut self: Box<Self>, deadline: Instant) -> Option<Result<O::Answer>> {
        let reply = self.request.receive(deadline)?;
        let SentOperation { request, operation } = &mut *self;
        let node = request.node;
        let answer = match reply {
            Err(CallError::Server(text)) if lacks_script(&text) => None,
            reply => operation.answer(node, reply, &mut request.copies),
        };
        Some(answer.unwrap_or_else(|| {
            let SentCopies {
                deadline,
                earlier_until,
                ..
            } = request.copies;
            let again = SentCopies {
                earlier_until,
                ..SentCopies::new(deadline)
            };
            operation.run_as(node, again)
        }))
    }
}

/// The outcome of sending a request.
#[allow(
    clippy::large_enum_variant,
    reason = "it lives for one statement, and a box would cost each request an allocation"
)]
enum Transmission<'a> {
    Sent(SentRequest<'a>),
    /// Nothing was sent, and another connection will do.
    NotConnected,
    Failed(CallError, SentCopies),
}

impl RedisNode {
    /// Carries an operation out: sends it now, to be answered later.
    pub(super) fn carry_out<'a, O: Operation + 'a>(
        &'a self,
        operation: O,
        deadline: Instant,
    ) -> Pending<'a, O::Answer> {
        let transmission = {
            let call = operation.call();
            match self.check_out(&call, deadline) {
                Ok((checked_out, voting)) => {
                    self.transmit(checked_out, &call, voting.as_deref(), deadline)
                }
                Err(NoConnection::NotConnected) => Transmission::NotConnected,
                Err(NoConnection::Busy(of)) => return Pending::Busy(of),
                Err(NoConnection::Failed(fault)) => {
                    return Pending::Ready(Err(self.error_of(&call, fault, deadline)));
                }
            }
        };
        match transmission {
            Transmission::Sent(request) => {
                Pending::Sent(Box::new(SentOperation { request, operation }))
            }
            Transmission::NotConnected => Pending::NotConnected,
            Transmission::Failed(fault, mut copies) => {
                Pending::Ready(operation.fail(self, fault, &mut copies))
            }
        }
    }

    /// Sends a call. With `voting` it runs only on the server that was found to have a vote, which is true of this
    /// connection alone.
    fn transmit<'a>(
        &'a self,
        mut checked_out: CheckedOut,
        call: &Call<'_>,
        voting: Option<&Identity>,
        deadline: Instant,
    ) -> Transmission<'a> {
        let connection = &mut checked_out.connection;
        let mut copies = SentCopies::new(deadline);
        copies.is_behind = checked_out.replies_due > 0;
        copies.earlier_until = checked_out.not_after;
        if call.script.expires {
            let sent = self.facts.timeline.now();
            copies.sent_since = Some(sent);
            copies.not_after = connection.expiry(deadline, sent);
        }
        let limit = Limit {
            expiry: copies.not_after,
            voting,
        };
        // Nobody may be there any more to send it again if the server does not know it.
        let by_text = self.server.pool.uses_text() || !connection.has_script(call.script);
        let number = connection.number();
        let mut packed = Vec::new();
        call.pack(by_text, limit, number, &mut packed);
        let replication = self.replication.filter(|_| call.replicates);
        if let Some(wanted) = replication {
            packed.extend(wanted.question(deadline));
        }
        connection.mark_loaded(call.script);
        match connection.send(&packed, deadline) {
            Ok(()) => Transmission::Sent(SentRequest {
                node: self,
                checked_out: Some(checked_out),
                visitor: call.visitor.cloned(),
                copies,
                number,
                expires: call.script.expires,
                replication,
                by_text,
            }),
            Err(fault) => {
                // The server may have closed a connection that lay idle. Nothing was sent, so another one will do.
                let may_go_elsewhere = matches!(fault, CallError::NotSent(_))
                    && checked_out.replies_due == 0
                    && time::now() < deadline;
                let reply = Err(fault);
                let late = deadline + LATENESS;
                let pool = &self.server.pool;
                pool.check_in(checked_out, &reply, call.visitor, late);
                match reply {
                    Err(fault) if !may_go_elsewhere => Transmission::Failed(fault, copies),
                    _ => Transmission::NotConnected,
                }
            }
        }
    }
}
