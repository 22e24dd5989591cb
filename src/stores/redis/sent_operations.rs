//! Operations that a quorum has sent to a node. Each operation has its own connection of the pool.
//!
//! If the quorum abandons a reply, the next user of the connection reads this reply first.

use std::time::Instant;

use redis::Value;

use crate::ground::error::Result;
use crate::ground::poll::Source;
use crate::ground::time;
use crate::stores::quorum::node::{Pending, PendingAnswer};
use crate::stores::redis::calls::{Attempts, Limit, Operation, note_in};
use crate::stores::redis::eval::Ticket;
use crate::stores::redis::kinds::Answers;
use crate::stores::redis::node::RedisNode;
use crate::stores::redis::transport::{Borrowed, CallError, NotReady, lacks_eval, lacks_script};
use crate::stores::redis::voting::borrow_voting;

struct SentOperation<'a, O> {
    node: &'a RedisNode,
    operation: O,
    /// `None` after the reply was read.
    borrowed: Option<Borrowed>,
    ticket: Ticket,
    attempts: Attempts,
}

impl<O> SentOperation<'_, O> {
    fn reply(&mut self, deadline: Instant) -> Result<Value, CallError> {
        let Some(mut borrowed) = self.borrowed.take() else {
            return Err(CallError::cut("the reply was read before"));
        };
        let connection = &mut borrowed.connection;
        let pool = &self.node.server.pool;
        let reply = match pool.receive(connection, &self.ticket, deadline) {
            Ok((reply, replica_ack)) => {
                self.attempts.replica_ack = replica_ack;
                if let Some(sent) = self.attempts.sent_since {
                    note_in(connection, &reply, self.attempts.not_after, sent);
                }
                Ok(reply)
            }
            // A user without the right to EVAL may have the right to EVALSHA. After NOSCRIPT, `receive` tries EVALSHA.
            Err(CallError::Server(text)) if self.ticket.by_text && lacks_eval(&text) => {
                Err(CallError::Server("NOSCRIPT".to_owned()))
            }
            Err(fault) => Err(fault),
        };
        pool.give_back(borrowed, &reply);
        reply
    }
}

impl<O: Operation> PendingAnswer<O::Answer> for SentOperation<'_, O> {
    fn source(&self) -> Option<Source<'_>> {
        let connection = &self.borrowed.as_ref()?.connection;
        (!connection.has_buffered()).then(|| connection.source())
    }

    fn is_next(&mut self) -> bool {
        let borrowed = self.borrowed.as_mut();
        borrowed.is_none_or(|it| it.connection.is_next())
    }

    fn not_after(&self) -> Option<i64> {
        let sent = self.attempts.sent_since;
        sent.map(|_| self.attempts.not_after)
    }

    fn receive(mut self: Box<Self>, deadline: Instant) -> Result<O::Answer> {
        let reply = self.reply(deadline);
        let (node, until) = (self.node, self.attempts.deadline);
        let this = &mut *self;
        let answer = match reply {
            Err(CallError::Server(text)) if lacks_script(&text) => None,
            reply => this.operation.answer(node, reply, &mut this.attempts),
        };
        answer.unwrap_or_else(|| this.operation.run(node, until))
    }
}

impl<O> Drop for SentOperation<'_, O> {
    fn drop(&mut self) {
        if let Some(mut borrowed) = self.borrowed.take() {
            self.ticket
                .leave(&mut borrowed.connection, self.attempts.deadline);
            self.node.server.pool.give_back(borrowed, &Ok(()));
        }
    }
}

impl RedisNode {
    pub(super) fn carry_out<'a, O: Operation + 'a>(
        &'a self,
        operation: O,
        deadline: Instant,
    ) -> Pending<'a, O::Answer> {
        let mut attempts = Attempts::new(deadline);
        let mut call = operation.call();
        self.complete(&mut call);
        let (mut borrowed, voting) = match borrow_voting(&self.server.pool, call.handle) {
            Ok(voting) => voting,
            Err(NotReady::NotConnected) => return Pending::NotConnected,
            Err(NotReady::Busy(of)) => return Pending::Busy(of),
            Err(NotReady::Unfit(reason)) => {
                let fault = CallError::Unfit(reason);
                return Pending::Ready(Err(self.error_of(&call, fault, deadline)));
            }
        };
        let (connection, pool) = (&mut borrowed.connection, &self.server.pool);
        if call.script.expires {
            let sent = self.facts.timeline.now();
            attempts.sent_since = Some(sent);
            attempts.not_after = connection.expiry(deadline, sent);
        }
        let limit = Limit {
            expiry: attempts.not_after,
            voting: voting.as_deref(),
        };
        // If the server may not know the script, the text of the script is sent at once. Without the text, the reply
        // could be NOSCRIPT. If no thread waited for this reply, the operation would never run.
        let number = pool.number(connection, &call);
        let how = (number, !connection.has_script(call.script));
        let sent = pool.send(connection, &call, limit, how, deadline);
        let ticket = match sent {
            Ok(ticket) => ticket,
            Err(fault) => {
                pool.give_back::<()>(borrowed, &Err(fault.clone()));
                // The server may have closed this connection while it was idle. The caller then uses another one.
                return match fault {
                    CallError::NotSent(_) if time::now() < deadline => Pending::NotConnected,
                    fault => Pending::Ready(operation.fail(self, fault, &mut attempts)),
                };
            }
        };
        if ticket.by_text && !Answers::are_of(number) {
            borrowed.connection.mark_loaded(call.script);
        }
        Pending::Sent(Box::new(SentOperation {
            node: self,
            operation,
            borrowed: Some(borrowed),
            ticket,
            attempts,
        }))
    }
}
