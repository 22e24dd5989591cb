//! Renews many claims with few calls of a script: at one server, in a Cluster, or at a node of a quorum.
//!
//! Claims without an outcome are grouped by server and slot, and sent in rounds. Each round writes all requests, then
//! reads the replies. So all servers work at the same time. In a quorum, the first round's replies are read later.
//!
//! A claim gets another round if a different request may succeed, for example to another node or outside of a batch.

mod answers;
mod batch;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::ground::error::Result;
use crate::ground::poll::Source;
use crate::ground::time;
use crate::store::Renewal;
use crate::stores::quorum::node::{Pending, PendingAnswer};
use crate::stores::quorum::quarantine::NodeHandle;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Call, Limit, pack};
use crate::stores::redis::node::RedisNode;
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{Borrowed, CallError, Connection, NotReady, encode, share};
use crate::stores::redis::voting::borrow_voting;
use batch::{Batch, Expected, OpenClaim, SentBatch, Server};

const ROUNDS: u32 = 6;

/// A proxy may send a whole batch to the server of its first key, which lacks the other keys.
const NOT_FOUND_TOGETHER: &str = "a batched renewal did not find it";

pub(super) struct Renewals<'a> {
    redis: &'a Redis,
    /// `None` outside of a quorum. In a quorum, a renewal is sent only to a server that has a vote.
    handle: Option<&'a NodeHandle>,
    claims: &'a [Claim],
    deadline: Instant,
    outcomes: Vec<Renewal>,
    open: Vec<OpenClaim>,
    sent: Vec<SentBatch<'a>>,
}

impl<'a> Renewals<'a> {
    pub(super) fn new(
        redis: &'a Redis,
        handle: Option<&'a NodeHandle>,
        claims: &'a [Claim],
        deadline: Instant,
    ) -> Renewals<'a> {
        Renewals {
            redis,
            handle,
            claims,
            deadline,
            outcomes: vec![Renewal::Unknown(String::new()); claims.len()],
            open: (0..claims.len())
                .map(|index| OpenClaim {
                    index,
                    ..OpenClaim::default()
                })
                .collect(),
            sent: Vec::new(),
        }
    }

    pub(super) fn finish(mut self) -> Vec<Renewal> {
        self.read_all();
        for _ in 1..ROUNDS {
            if self.open.is_empty() || time::now() >= self.deadline {
                break;
            }
            self.send(false);
            self.read_all();
        }
        self.outcomes
    }

    fn note(&mut self, index: usize, outcome: Renewal) {
        if let Some(place) = self.outcomes.get_mut(index) {
            *place = outcome;
        }
    }

    /// Notes an unknown outcome for the claims at `indices`. With `again`, these claims get another round.
    fn unknown(&mut self, indices: &[usize], reason: &str, again: Option<&OpenClaim>) {
        for index in indices {
            self.note(*index, Renewal::Unknown(reason.to_owned()));
            self.open.extend(again.map(|open| OpenClaim {
                index: *index,
                asked: open.asked.clone(),
                is_single: open.is_single || indices.len() == 1,
            }));
        }
    }

    pub(super) fn send(&mut self, is_first: bool) {
        let batches = self.batches(is_first);
        let is_cluster = matches!(self.redis.topology, Topology::Cluster(_));
        let count = batches.len();
        for (index, batch) in batches.into_iter().enumerate() {
            // In a Cluster, the unsent batches and the reading of replies share the time until the deadline.
            let shares = if is_cluster { count - index + 1 } else { 1 };
            let by = share(self.deadline, shares);
            let mut connection = match self.connection(&batch.server, by) {
                Ok(connection) => connection,
                Err(fault) => {
                    // In a Cluster, the next round may find a new master of the slot. In a quorum, the node may be
                    // connected in the background before the next round.
                    let is_passing =
                        self.handle.is_some() && matches!(fault, CallError::NotSent(_));
                    self.was_not_sent(&batch, fault, is_cluster || is_passing);
                    continue;
                }
            };
            let sent = self.redis.facts.timeline.now();
            let (packed, expected) = self.pack(&batch, &mut connection.connection, sent);
            match connection.connection.send(&packed, by) {
                Ok(()) => self.sent.push(SentBatch {
                    batch,
                    connection,
                    sent,
                    expected,
                    fault: None,
                }),
                Err(fault) => {
                    let renewals = &batch.server.renewals;
                    renewals.give_back::<()>(connection, &Err(fault.clone()));
                    self.was_not_sent(&batch, fault, true);
                }
            }
        }
    }

    fn was_not_sent(&mut self, batch: &Batch<'_>, fault: CallError, is_open: bool) {
        batch.server.suspect();
        let reason = fault.into_reason().into_words();
        let again = is_open.then(OpenClaim::default);
        for part in &batch.parts {
            self.unknown(part, &reason, again.as_ref());
        }
    }

    fn connection(&self, server: &Node, deadline: Instant) -> Result<Borrowed, CallError> {
        let Some(handle) = self.handle else {
            return server
                .renewals
                .borrow(deadline)
                .or_else(|fault| match fault {
                    fault if fault.is_unsent() => server.pool.borrow(deadline),
                    fault => Err(fault),
                });
        };
        let borrowed = borrow_voting(&server.renewals, Some(handle));
        match borrowed.or_else(|none| match none {
            NotReady::NotConnected => borrow_voting(&server.pool, Some(handle)),
            none => Err(none),
        }) {
            Ok((borrowed, _)) => Ok(borrowed),
            Err(NotReady::Unfit(reason)) => Err(CallError::Unfit(reason)),
            Err(_) => Err(CallError::NotSent(
                "the renewal connection is not connected".into(),
            )),
        }
    }

    /// Claims whose node may no longer be the master wait for the second round, which refreshes the slot map first.
    fn batches(&mut self, is_first: bool) -> Vec<Batch<'a>> {
        let (topology, claims) = (&self.redis.topology, self.claims);
        let open = std::mem::take(&mut self.open);
        let server_of = |open: &OpenClaim| match &open.asked {
            Some(shard) => Some(Server::Shard(Arc::clone(shard))),
            None => Server::of(topology, &claims.get(open.index)?.name),
        };
        let is_doubtful =
            |open: &OpenClaim| server_of(open).is_none_or(|server| server.is_doubtful());
        if let Topology::Cluster(cluster) = topology
            && !is_first
            && open.iter().any(is_doubtful)
        {
            // If the refresh fails, the known slot map is used.
            let _ = cluster.refresh(share(self.deadline, 2));
        }
        let mut batches: Vec<Batch<'a>> = Vec::new();
        for open in open {
            if is_first && is_doubtful(&open) {
                let reason = "the deadline expired before it could be asked".to_owned();
                self.note(open.index, Renewal::Unknown(reason));
                self.open.push(open);
                continue;
            }
            let (Some(claim), Some(server)) = (claims.get(open.index), server_of(&open)) else {
                self.unknown(&[open.index], "no node is known to serve its slot", None);
                continue;
            };
            let is_asking = open.asked.is_some();
            let is_there = |batch: &&mut Batch<'_>| {
                batch.is_asking == is_asking && std::ptr::eq(&*batch.server, &*server)
            };
            match batches.iter_mut().find(is_there) {
                Some(batch) => batch.add(&open, claim),
                None => {
                    let mut batch = Batch::new(server, is_asking);
                    batch.add(&open, claim);
                    batches.push(batch);
                }
            }
        }
        // Connecting takes time, so batches for servers with an idle connection are sent first.
        batches.sort_by_key(|batch| batch.server.renewals.slots.idle() == 0);
        batches
    }

    fn pack(
        &self,
        batch: &Batch<'_>,
        connection: &mut Connection,
        sent: BootInstant,
    ) -> (Vec<u8>, VecDeque<Expected>) {
        let limit = Limit {
            expiry: connection.expiry(self.deadline, sent),
            voting: None,
        };
        let uses_text = batch.server.pool.uses_text();
        let mut packed = Vec::new();
        let mut expected = VecDeque::with_capacity(batch.parts.len() + 1);
        for (part, indices) in batch.parts.iter().enumerate() {
            if batch.is_asking {
                packed.extend(encode(&["ASKING"]));
                expected.push_back(Expected::Nothing);
            }
            let claims = indices.iter().filter_map(|index| self.claims.get(*index));
            let calls = claims.map(|claim| Call::of(claim, |layout| &layout.renew));
            let calls: Vec<Call<'_>> = calls.collect();
            let Some(first @ Call { script, .. }) = calls.first() else {
                continue;
            };
            // The first call on a connection sends the text, because the server may not know the script.
            let by_text = uses_text || !connection.has_script(script);
            let number = batch.server.pool.number(connection, first);
            if batch.server.pool.dialect().is_none() {
                connection.mark_loaded(script);
            }
            pack(script, &calls, by_text, limit, number, &mut packed);
            expected.push_back(Expected::Part {
                part,
                number,
                by_text,
            });
        }
        if let Some(replication) = self.redis.replication {
            packed.extend(replication.question(self.deadline));
            expected.push_back(Expected::Replicas(replication));
        }
        (packed, expected)
    }
}

impl PendingAnswer<Vec<Renewal>> for Renewals<'_> {
    fn source(&self) -> Option<Source<'_>> {
        let connection = &self.sent.first()?.connection.connection;
        (!connection.has_buffered()).then(|| connection.source())
    }

    fn is_next(&mut self) -> bool {
        let first = self.sent.first_mut();
        first.is_none_or(|it| it.connection.connection.is_next())
    }

    fn receive(mut self: Box<Self>, deadline: Instant) -> Result<Vec<Renewal>> {
        self.deadline = deadline;
        Ok(self.finish())
    }
}

impl RedisNode {
    pub(crate) fn send_renew<'a>(
        &'a self,
        claims: &'a [Claim],
        handle: &'a NodeHandle,
        deadline: Instant,
    ) -> Pending<'a, Vec<Renewal>> {
        let mut renewals = Renewals::new(self, Some(handle), claims, deadline);
        renewals.send(true);
        if !renewals.sent.is_empty() {
            Pending::Sent(Box::new(renewals))
        } else if renewals.open.is_empty() {
            Pending::Ready(Ok(renewals.outcomes))
        } else {
            // Nothing was sent, so the caller may use another connection.
            Pending::NotConnected
        }
    }
}
