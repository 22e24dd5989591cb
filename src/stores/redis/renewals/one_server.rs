//! The renewals of one server.

use std::time::Instant;

use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::ground::error::Result;
use crate::ground::time;
use crate::store::Renewal;
use crate::stores::redis::Redis;
use crate::stores::redis::errors::may_be_for_one_key;
use crate::stores::redis::renewals::{RenewalBatch, came_too_late, chunks_of, discount};
use crate::stores::redis::replies::{integer_at, plain};
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport;
use crate::stores::redis::transport::{CallError, Connection};
use crate::stores::redis::wait_replicas::ReplicaAck;

impl Redis {
    pub(in crate::stores::redis) fn renew_all(
        &self,
        claims: &[Claim],
        deadline: Instant,
    ) -> Vec<Renewal> {
        if claims.is_empty() {
            return Vec::new();
        }
        let node = match &self.topology {
            Topology::One(node) => node,
            Topology::Cluster(cluster) => {
                return cluster.renew(&self.scripts.renew, claims, self.replication, deadline);
            }
        };
        let mut outcomes = Vec::with_capacity(claims.len());
        let talked = node.renewing(deadline, |connection| {
            self.renew_on(node, connection, claims, deadline, &mut outcomes)?;
            self.count_replicas(connection, deadline, &mut outcomes);
            Ok(())
        });
        if let Err(fault) = talked {
            let reason = fault.into_reason().into_words();
            if self.replication.is_some() {
                discount(&mut outcomes, &reason);
            }
            outcomes.resize(claims.len(), Renewal::Unknown(reason));
        }
        outcomes
    }

    /// Writes all batches, then reads all replies. Answers that came before a fault are in `outcomes`, too.
    pub(in crate::stores::redis) fn renew_on(
        &self,
        node: &Node,
        connection: &mut Connection,
        claims: &[Claim],
        deadline: Instant,
        outcomes: &mut Vec<Renewal>,
    ) -> Result<(), CallError> {
        let sent = BootInstant::now();
        let chunks = chunks_of(claims, connection, deadline, sent);
        let by_text = node.pool.uses_text();
        if !by_text {
            let mut packed = Vec::new();
            for chunk in &chunks {
                chunk.pack(&self.scripts.renew, false, &mut packed);
            }
            connection.send(&packed, deadline)?;
        }
        self.read_renewals(node, connection, &chunks, sent, by_text, deadline, outcomes)
    }

    /// Asks for the replicas, if they count. A renewal that they lack does not count.
    pub(in crate::stores::redis) fn count_replicas(
        &self,
        connection: &mut Connection,
        deadline: Instant,
        outcomes: &mut [Renewal],
    ) {
        let Some(wanted) = self.replication else {
            return;
        };
        let answer = connection.call(&wanted.question(deadline), deadline);
        let replica_ack = ReplicaAck::of(answer, wanted);
        connection.is_spent |= replica_ack == ReplicaAck::NoAnswer;
        if let Some(flaw) = replica_ack.flaw(wanted) {
            discount(outcomes, &flaw);
        }
    }

    /// Reads the replies to all batches; with `by_text` they have yet to be sent.
    #[allow(clippy::too_many_arguments, reason = "it is one request, spelled out")]
    pub(in crate::stores::redis) fn read_renewals(
        &self,
        node: &Node,
        connection: &mut Connection,
        chunks: &[RenewalBatch<'_>],
        sent: BootInstant,
        mut by_text: bool,
        deadline: Instant,
        outcomes: &mut Vec<Renewal>,
    ) -> Result<(), CallError> {
        let ask_by_text = |connection: &mut Connection, chunk: &RenewalBatch<'_>| {
            let mut packed = Vec::new();
            chunk.pack(&self.scripts.renew, true, &mut packed);
            connection.ask(&packed, deadline)?;
            connection.answer(chunk.number, deadline)
        };
        let mut alone = Vec::new();
        let mut late = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            let mut reply = if by_text {
                ask_by_text(connection, chunk)
            } else {
                connection.answer(chunk.number, deadline)
            };
            if let Err(CallError::Server(text)) = &reply {
                if transport::lacks_evalsha(text) {
                    node.pool.note_evalsha_is_off();
                }
                if transport::lacks_script(text) {
                    if !by_text {
                        // The replies to the chunks behind this one say the same, and have to be read first.
                        for _ in chunks.iter().skip(index + 1) {
                            if let Err(fault @ CallError::NoReply { .. }) =
                                connection.receive(deadline)
                            {
                                return Err(fault);
                            }
                        }
                        by_text = true;
                    }
                    reply = ask_by_text(connection, chunk);
                }
            }
            match reply {
                Ok(reply) => {
                    if let Some(now) = integer_at(&reply, 0) {
                        connection.note_time(now, sent);
                    }
                    if came_too_late(&reply) {
                        late.push((outcomes.len(), chunk.claims));
                    }
                    chunk.read(&reply, outcomes);
                }
                // It takes no writes any more, so the connection is of no use.
                Err(CallError::Server(text)) if text.starts_with("READONLY") => {
                    return Err(CallError::Server(text));
                }
                Err(CallError::Server(text)) => {
                    if chunk.claims.len() > 1 && may_be_for_one_key(&text) {
                        let begin = outcomes.len();
                        alone.extend(begin..begin + chunk.claims.len());
                    }
                    let unknown = Renewal::Unknown(plain(&text));
                    outcomes.resize(outcomes.len() + chunk.claims.len(), unknown);
                }
                Err(fault) => return Err(fault),
            }
        }
        self.renew_alone(connection, chunks, &alone, by_text, deadline, outcomes)?;
        self.renew_late(connection, &late, by_text, deadline, outcomes)
    }

    /// Renews once more what was refused as too late: the answers have told the server's time.
    pub(in crate::stores::redis) fn renew_late(
        &self,
        connection: &mut Connection,
        late: &[(usize, &[Claim])],
        by_text: bool,
        deadline: Instant,
        outcomes: &mut [Renewal],
    ) -> Result<(), CallError> {
        if late.is_empty() || time::now() >= deadline {
            return Ok(());
        }
        let sent = BootInstant::now();
        let mut packed = Vec::new();
        let mut again = Vec::with_capacity(late.len());
        for (begin, claims) in late {
            for chunk in chunks_of(claims, connection, deadline, sent) {
                chunk.pack(&self.scripts.renew, by_text, &mut packed);
                again.push((*begin, chunk));
            }
        }
        connection.send(&packed, deadline)?;
        for (begin, chunk) in again {
            let mut renewed = Vec::with_capacity(chunk.claims.len());
            match connection.answer(chunk.number, deadline) {
                Ok(reply) => {
                    if let Some(now) = integer_at(&reply, 0) {
                        connection.note_time(now, sent);
                    }
                    chunk.read(&reply, &mut renewed);
                }
                Err(CallError::Server(_)) => continue,
                Err(fault) => return Err(fault),
            }
            for (place, outcome) in outcomes.iter_mut().skip(begin).zip(renewed) {
                *place = outcome;
            }
        }
        Ok(())
    }

    /// Renews one by one those that were refused together, because what was refused may be one of them. A key that is
    /// refused hides that the server lacks the script, so that may come to light only here.
    pub(in crate::stores::redis) fn renew_alone(
        &self,
        connection: &mut Connection,
        chunks: &[RenewalBatch<'_>],
        alone: &[usize],
        by_text: bool,
        deadline: Instant,
        outcomes: &mut [Renewal],
    ) -> Result<(), CallError> {
        if alone.is_empty() {
            return Ok(());
        }
        let claims = chunks.iter().flat_map(|chunk| {
            let one_by_one = chunk.claims.chunks(1);
            one_by_one.map(|claims| (claims, chunk.not_after))
        });
        let claims: Vec<_> = claims.collect();
        let mut left = alone.to_vec();
        for by_text in [by_text, true] {
            let mut packed = Vec::new();
            let mut sent = Vec::with_capacity(left.len());
            for index in left.drain(..) {
                let Some(&(claims, not_after)) = claims.get(index) else {
                    continue;
                };
                let chunk = RenewalBatch {
                    claims,
                    not_after,
                    number: connection.number(),
                };
                chunk.pack(&self.scripts.renew, by_text, &mut packed);
                sent.push((index, chunk));
            }
            connection.send(&packed, deadline)?;
            for (index, chunk) in sent {
                let mut outcome = Vec::with_capacity(1);
                match connection.answer(chunk.number, deadline) {
                    Ok(reply) => chunk.read(&reply, &mut outcome),
                    Err(CallError::Server(text)) => {
                        if transport::lacks_script(&text) && !by_text {
                            left.push(index);
                        }
                        outcome.push(Renewal::Unknown(plain(&text)));
                    }
                    Err(fault) => return Err(fault),
                }
                for (place, outcome) in outcomes.iter_mut().skip(index).zip(outcome) {
                    *place = outcome;
                }
            }
            if left.is_empty() {
                break;
            }
        }
        Ok(())
    }
}
