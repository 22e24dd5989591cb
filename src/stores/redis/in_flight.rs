//! Requests of a quorum that are under way, each on a connection of the pool.
//!
//! An answer that nobody waits for any more is read by the next user of the connection; until then only requests of
//! the same hold may go behind it, which keeps them in order.

use std::time::{Duration, Instant};

use redis::Value;
use smallvec::SmallVec;

use crate::ground::claim::VisitorId;
use crate::ground::clock::BootInstant;
use crate::ground::poll::Source;
use crate::ground::time;
use crate::store::SETTLED;
use crate::stores::quorum::node::{InFlight, Pending};
use crate::stores::quorum::quarantine::Identity;
use crate::stores::redis::calls::Call;
use crate::stores::redis::node::RedisNode;
use crate::stores::redis::replies::is_another_history;
use crate::stores::redis::requests::{SentCopies, history_of};
use crate::stores::redis::transport::{CallError, CheckedOut, lacks_eval, lacks_script};
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};

/// A late answer may come this much after the request has expired, because our idea of the server's clock may be off.
pub(super) const LATENESS: Duration = Duration::from_millis(20);

/// One request under way on a connection of the pool.
pub(super) struct SentRequest<'a, F> {
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
    fn source(&self) -> Option<Source<'_>> {
        let connection = &self.checked_out.as_ref()?.connection;
        (!connection.has_buffered()).then(|| connection.source())
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

/// The outcome of sending a request.
#[allow(
    clippy::large_enum_variant,
    reason = "it lives for one statement, and a box would cost each request an allocation"
)]
pub(super) enum Transmission<'a> {
    Sent(SentRequest<'a, ()>),
    /// Nothing was sent, and another connection will do.
    NotConnected,
    Failed(CallError, SentCopies<'a>),
}

impl<'a> Transmission<'a> {
    /// The answer that `finish` makes of the reply.
    pub(super) fn then<T: 'a>(
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
    /// Sends a call of `visitor`. With `voting` it runs only on the server that was found to have a vote, which is true of
    /// this connection alone; with `replication` so many replicas have to have what it did.
    pub(super) fn transmit<'a>(
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
                    && time::now() < deadline;
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
}
