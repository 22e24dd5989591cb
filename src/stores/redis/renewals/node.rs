//! The renewals of a node of a quorum: sent now, answered later.

use std::time::Instant;

use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::ground::poll::Source;
use crate::ground::time;
use crate::store::Renewal;
use crate::stores::quorum::node::{InFlight, Pending};
use crate::stores::quorum::quarantine::NodeHandle;
use crate::stores::redis::node::RedisNode;
use crate::stores::redis::renewals::{RenewalBatch, came_too_late, chunks_of, discount};
use crate::stores::redis::replies::integer_at;
use crate::stores::redis::transport::{CallError, Connection, lacks_script};
use crate::stores::redis::votes::vote_on;
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};

/// The renewals of one node under way, on the connection that it has for them.
struct SentRenewals<'a> {
    node: &'a RedisNode,
    connection: Option<Connection>,
    claims: &'a [Claim],
    chunks: Vec<RenewalBatch<'a>>,
    sent: BootInstant,
}

impl InFlight<Vec<Renewal>> for SentRenewals<'_> {
    fn source(&self) -> Option<Source<'_>> {
        let connection = self.connection.as_ref()?;
        (!connection.has_buffered()).then(|| connection.source())
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
                let reason = fault.into_reason().into_words();
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

impl RedisNode {
    /// Sends the renewals of `claims`, if `handle` has a vote.
    pub(in crate::stores::redis) fn send_renewals<'a>(
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
            Err(fault) => return unknown(fault.into_reason().into_words()),
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
            Err(fault @ CallError::NotSent(_)) if time::now() < deadline => {
                self.server.pool.give_back(connection, &Err(fault));
                Pending::NotConnected
            }
            Err(fault) => unknown(fault.into_reason().into_words()),
        }
    }
}
