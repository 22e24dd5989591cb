//! Reads the replies to renewals, and finds the claims that need another round.

use std::mem::take;
use std::time::{Duration, Instant};

use redis::Value;

use super::batch::{Batch, Expected, OpenClaim, SentBatch};
use super::{NOT_FOUND_TOGETHER, Renewals};
use crate::ground::loss::LossCause;
use crate::store::Renewal;
use crate::stores::redis::errors::may_be_for_one_key;
use crate::stores::redis::replies::{cause_of, integer_at};
use crate::stores::redis::topology::{Redirection, Topology};
use crate::stores::redis::transport::{
    CallError, LATENESS, lacks_eval, lacks_evalsha, lacks_script, plain, share,
};
use crate::stores::redis::wait_replicas::ReplicaAck;

impl Renewals<'_> {
    pub(super) fn read_all(&mut self) {
        let sent = take(&mut self.sent);
        let rest = (1..=sent.len()).rev();
        for (mut one, rest) in sent.into_iter().zip(rest) {
            let read = self.read(&mut one, share(self.deadline, rest));
            self.end(one, read);
        }
    }

    fn read(&mut self, one: &mut SentBatch<'_>, by: Instant) -> Result<(), CallError> {
        while let Some(expected) = one.expected.front() {
            let connection = &mut one.connection.connection;
            let reply = connection.read_deferred(by).and_then(|()| match *expected {
                Expected::Part {
                    number,
                    by_text: true,
                    ..
                } => connection.answer(number, by).map_err(CallError::of_eval),
                Expected::Part { number, .. } => connection.answer(number, by),
                Expected::Nothing | Expected::Replicas(_) => connection.receive(by),
            });
            let reply = match reply {
                Ok(reply) => Ok(reply),
                Err(CallError::Server(text)) => Err(text),
                Err(fault) => return Err(fault),
            };
            match (one.expected.pop_front(), reply) {
                (Some(Expected::Part { part, .. }), Ok(reply)) => self.answered(one, part, &reply),
                (Some(Expected::Part { part, by_text, .. }), Err(text)) => {
                    self.refused(one, part, by_text, text);
                }
                (Some(Expected::Replicas(wanted)), reply) => {
                    let replica_ack = ReplicaAck::of(reply.map_err(CallError::Server), wanted);
                    self.discount(&one.batch, replica_ack.flaw(wanted));
                }
                (Some(Expected::Nothing) | None, _) => {}
            }
        }
        Ok(())
    }

    /// If the request was in time, the reply lists only the claims that were not renewed for their whole lease.
    fn answered(&mut self, one: &mut SentBatch<'_>, part: usize, reply: &Value) {
        if let Some(now) = integer_at(reply, 0) {
            one.connection.connection.note_time(now, one.sent);
        }
        let indices = one.batch.part(part);
        let items = match reply {
            Value::Array(items) if integer_at(reply, 1) == Some(1) => items.as_slice(),
            _ => {
                // The request was late. The reply has corrected the clock offset, so the claims get another round.
                let again = OpenClaim {
                    asked: one.batch.asked(),
                    ..OpenClaim::default()
                };
                let reason = "it reached the server after its deadline";
                return self.unknown(indices, reason, Some(&again));
            }
        };
        let is_together = indices.len() > 1
            && self.handle.is_none()
            && matches!(self.redis.topology, Topology::One(_));
        for index in indices {
            self.note(*index, Renewal::Renewed);
        }
        for other in items.get(2..).unwrap_or_default().chunks(2) {
            let [Value::Int(at), what] = other else {
                continue;
            };
            let at = usize::try_from(at.saturating_sub(1)).ok();
            let outcome = match what {
                Value::Int(life @ 1..) => {
                    Renewal::RenewedFor(Duration::from_millis(life.unsigned_abs()))
                }
                Value::Int(_) => Renewal::Lost(LossCause::Gone),
                holder => Renewal::Lost(cause_of(holder)),
            };
            match at.and_then(|at| indices.get(at)) {
                Some(index) if is_together && matches!(outcome, Renewal::Lost(_)) => {
                    let again = OpenClaim::default();
                    self.unknown(&[*index], NOT_FOUND_TOGETHER, Some(&again));
                }
                Some(index) => self.note(*index, outcome),
                None => {}
            }
        }
    }

    fn refused(&mut self, one: &mut SentBatch<'_>, part: usize, by_text: bool, text: String) {
        let server = &one.batch.server;
        let indices = one.batch.part(part);
        let words = plain(&text);
        if lacks_evalsha(&text) {
            server.pool.note_evalsha(false);
        }
        if lacks_script(&text) {
            one.connection.connection.has_forgotten_scripts();
        }
        // A user without the right to EVAL may have the right to EVALSHA, so the next round sends the hash.
        let is_other_way = lacks_script(&text) || by_text && lacks_eval(&text);
        let may_be_for_one = text.starts_with("TRYAGAIN") || may_be_for_one_key(&text);
        let fault = CallError::Server(text);
        let redirection = Redirection::of(&fault);
        let (asked, is_redirected) = match (&self.redis.topology, server.shard(), redirection) {
            (Topology::Cluster(cluster), Some(shard), Some(it)) => {
                let target = cluster.follow(&it, shard);
                (it.is_ask.then_some(target), true)
            }
            // If the next round only switches between EVALSHA and EVAL, an earlier ASK still determines the node.
            _ => (one.batch.asked(), false),
        };
        let is_again = is_redirected || is_other_way;
        // A single claim may have caused the error, for example by a key at another node. So each claim is sent alone.
        let is_split = !is_again && may_be_for_one && indices.len() > 1;
        let again = OpenClaim {
            asked: asked.filter(|_| is_again),
            is_single: is_split,
            ..OpenClaim::default()
        };
        self.unknown(indices, &words, (is_again || is_split).then_some(&again));
        if fault.is_not_master() {
            one.fault = Some(fault);
        }
    }

    /// If `flaw` says that too few replicas acknowledged the batch, the outcome of its renewals is unknown.
    fn discount(&mut self, batch: &Batch<'_>, flaw: Option<String>) {
        let Some(flaw) = flaw else { return };
        for index in batch.parts.iter().flatten() {
            if let Some(outcome @ (Renewal::Renewed | Renewal::RenewedFor(_))) =
                self.outcomes.get_mut(*index)
            {
                *outcome = Renewal::Unknown(flaw.clone());
            }
        }
    }

    /// After a timeout the connection is kept: connecting to a distant server may exceed the next renewal's deadline.
    fn end(&mut self, mut one: SentBatch<'_>, read: Result<(), CallError>) {
        let (batch, server) = (&one.batch, &one.batch.server);
        let outcome = one.fault.map_or(read, Err);
        if outcome.as_ref().is_err_and(CallError::is_timeout) {
            for expected in &one.expected {
                let connection = &mut one.connection.connection;
                let number = match *expected {
                    Expected::Part { number, .. } => Some(number),
                    Expected::Nothing | Expected::Replicas(_) => None,
                };
                connection.defer_reply(number, self.deadline + LATENESS);
            }
            server.renewals.give_back(one.connection, &Ok(()));
        } else {
            server.renewals.give_back(one.connection, &outcome);
        }
        let Err(fault) = outcome else { return };
        server.suspect();
        let reason = fault.into_reason().into_words();
        for expected in &one.expected {
            match *expected {
                Expected::Nothing => {}
                Expected::Part { part, .. } => self.unknown(batch.part(part), &reason, None),
                Expected::Replicas(wanted) => {
                    self.discount(batch, ReplicaAck::NoAnswer.flaw(wanted));
                }
            }
        }
    }
}
