//! Requests of a quorum that are under way, each on a connection of the pool.
//!
//! An answer that nobody waits for any more is read by the next user of the connection, before its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use redis::Value;

use crate::ground::error::Result;
use crate::ground::poll::Source;
use crate::ground::time;
use crate::stores::quorum::node::{Pending, PendingAnswer};
use crate::stores::redis::Identity;
use crate::stores::redis::admission::borrow_voting;
use crate::stores::redis::calls::{Call, Limit, Operation, SentCopies, note_in};
use crate::stores::redis::eval::Ticket;
use crate::stores::redis::node::RedisNode;
use crate::stores::redis::transport::{Borrowed, CallError, NotReady, lacks_eval, lacks_script};

/// One request under way on a connection of the pool.
struct SentRequest<'a> {
    node: &'a RedisNode,
    /// `None` once its answer was read.
    borrowed: Option<Borrowed>,
    ticket: Ticket,
    copies: SentCopies,
    expires: bool,
    /// Whether somebody else has read its answer.
    answered: Arc<AtomicBool>,
}

impl SentRequest<'_> {
    fn receive(&mut self, deadline: Instant) -> Option<Result<Value, CallError>> {
        let mut borrowed = self.borrowed.take()?;
        let connection = &mut borrowed.connection;
        let pool = &self.node.server.pool;
        let reply = pool.receive(connection, &self.ticket, deadline);
        let reply = match reply {
            Ok((reply, replica_ack)) => {
                self.copies.replica_ack = replica_ack;
                if let Some(sent) = self.copies.sent_since {
                    note_in(connection, &reply, self.copies.not_after, sent);
                }
                Ok(reply)
            }
            // Who may not send scripts may call those that others have.
            Err(CallError::Server(text)) if self.ticket.by_text && lacks_eval(&text) => {
                Err(CallError::Server("NOSCRIPT".to_owned()))
            }
            Err(fault) => Err(fault),
        };
        pool.give_back(borrowed, &reply);
        Some(reply)
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        if let Some(mut borrowed) = self.borrowed.take() {
            let answered = Arc::clone(&self.answered);
            self.ticket
                .leave(&mut borrowed.connection, self.copies.deadline, answered);
            self.node.server.pool.give_back(borrowed, &Ok(()));
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
        let connection = &self.request.borrowed.as_ref()?.connection;
        (!connection.has_buffered()).then(|| connection.source())
    }

    fn not_after(&self) -> Option<i64> {
        let request = &self.request;
        request.expires.then_some(request.copies.not_after)
    }

    fn answered(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.request.answered)
    }

    fn receive(mut self: Box<Self>, deadline: Instant) -> Option<Result<O::Answer>> {
        let reply = self.request.receive(deadline)?;
        let SentOperation { request, operation } = &mut *self;
        let node = request.node;
        let answer = match reply {
            Err(CallError::Server(text)) if lacks_script(&text) => None,
            reply => operation.answer(node, reply, &mut request.copies),
        };
        Some(answer.unwrap_or_else(|| operation.run(node, request.copies.deadline)))
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
            match borrow_voting(&self.server.pool, call.handle) {
                Ok((borrowed, voting)) => {
                    self.transmit(borrowed, &call, voting.as_deref(), deadline)
                }
                Err(NotReady::NotConnected) => Transmission::NotConnected,
                Err(NotReady::Busy(of)) => return Pending::Busy(of),
                Err(NotReady::Unfit(reason)) => {
                    let fault = CallError::Unfit(reason);
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
        mut borrowed: Borrowed,
        call: &Call<'_>,
        voting: Option<&Identity>,
        deadline: Instant,
    ) -> Transmission<'a> {
        let connection = &mut borrowed.connection;
        let mut copies = SentCopies::new(deadline);
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
        let how = (connection.number(), !connection.has_script(call.script));
        let call = &self.completed(*call);
        match self
            .server
            .pool
            .send(connection, call, limit, how, deadline)
        {
            Ok(ticket) => Transmission::Sent(SentRequest {
                node: self,
                borrowed: Some(borrowed),
                ticket,
                copies,
                expires: call.script.expires,
                answered: Arc::default(),
            }),
            Err(fault) => {
                // The server may have closed a connection that lay idle. Nothing was sent, so another one will do.
                let may_go_elsewhere =
                    matches!(fault, CallError::NotSent(_)) && time::now() < deadline;
                let outcome: Result<(), _> = Err(fault.clone());
                self.server.pool.give_back(borrowed, &outcome);
                match may_go_elsewhere {
                    true => Transmission::NotConnected,
                    false => Transmission::Failed(fault, copies),
                }
            }
        }
    }
}
