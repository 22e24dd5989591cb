//! Requests to the server of a lock. `Attempts` holds the state of the attempts of one request.

use std::time::Instant;

use redis::Value;

use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::store::InDoubt;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Call, Limit};
use crate::stores::redis::replies::integer_at;
use crate::stores::redis::topology::Topology;
use crate::stores::redis::transport::{CallError, Connection};
use crate::stores::redis::voting::vote_of;
use crate::stores::redis::wait_replicas::ReplicaAck;

impl Redis {
    pub(in crate::stores::redis) fn complete(&self, call: &mut Call<'_>) {
        call.patience = self.patience;
        call.replication = self.replication.filter(|_| call.replicates);
        call.is_in_cluster = matches!(self.topology, Topology::Cluster(_));
    }

    pub(in crate::stores::redis) fn ask(
        &self,
        call: &mut Call<'_>,
        deadline: Instant,
        attempts: &mut Attempts,
    ) -> Result<Value, CallError> {
        self.complete(call);
        self.topology.with(call.lock, deadline, |node, connection| {
            if !call.script.expires {
                let reply = node.pool.eval(connection, call, Limit::default(), deadline);
                return reply.map(|(reply, _)| reply);
            }
            // Another connection may lead to another server, so the server is identified on this connection.
            let voting = match call.handle {
                Some(handle) => match vote_of(connection, handle, deadline)? {
                    Ok(identity) => Some(identity),
                    Err(abstention) => return Err(CallError::Unfit(abstention.to_string())),
                },
                None => None,
            };
            let sent = self.facts.timeline.now();
            attempts.earlier_sent_since = attempts.sent_since;
            attempts.sent_since = Some(attempts.earlier_sent_since.unwrap_or(sent));
            let expiry = connection.expiry(deadline, sent);
            let until = call.valid_until.map(|end| connection.surely_before(end));
            let expiry = expiry.min(until.unwrap_or(i64::MAX));
            attempts.not_after = attempts.not_after.max(expiry);
            let voting = voting.as_deref();
            let limit = Limit { expiry, voting };
            let reply = node.pool.eval(connection, call, limit, deadline);
            if !matches!(reply, Ok(_) | Err(CallError::NoReply { .. })) {
                attempts.last_did_not_run();
            }
            let (reply, replica_ack) = reply?;
            attempts.replica_ack = replica_ack;
            note_in(connection, &reply, expiry, sent);
            Ok(reply)
        })
    }
}

pub(in crate::stores::redis) fn note_in(
    connection: &mut Connection,
    reply: &Value,
    expiry: i64,
    sent: BootInstant,
) {
    connection.note_time_in(reply, expiry, sent);
    // A script replies 6 if another server may have taken over the address. So the identity is queried again.
    if integer_at(reply, 0) == Some(6) {
        connection.identity = None;
    }
}

pub(crate) struct Attempts {
    pub(crate) deadline: Instant,
    /// The send time of the oldest attempt that may have run. `None` if no attempt can have run.
    pub(crate) sent_since: Option<BootInstant>,
    /// Like `sent_since`, but without the last attempt.
    pub(crate) earlier_sent_since: Option<BootInstant>,
    /// The server time, in ms, after which the server refuses all attempts.
    pub(crate) not_after: i64,
    pub(in crate::stores::redis) replica_ack: Option<ReplicaAck>,
}

impl Attempts {
    pub(crate) fn new(deadline: Instant) -> Attempts {
        Attempts {
            deadline,
            sent_since: None,
            earlier_sent_since: None,
            not_after: 0,
            replica_ack: None,
        }
    }

    pub(crate) fn last_did_not_run(&mut self) {
        self.sent_since = self.earlier_sent_since;
    }

    /// Called only if another attempt follows.
    pub(crate) fn last_is_unanswered(&mut self) {
        self.earlier_sent_since = Some(*self.sent_since.get_or_insert_with(BootInstant::now));
    }

    pub(crate) fn are_in_doubt(&self) -> bool {
        self.sent_since.is_some()
    }

    /// Returns the in-doubt request of an earlier attempt that got no reply and may still run.
    pub(super) fn leftover(&self, claim: &Claim) -> Option<InDoubt> {
        let earlier = self.earlier_sent_since;
        earlier.map(|_| claim.in_doubt(self.not_after))
    }

    pub(super) fn replicas_missing(&self) -> Option<ReplicaAck> {
        let replica_ack = self.replica_ack.as_ref();
        let is_missing = |it: &&ReplicaAck| **it != ReplicaAck::Enough;
        replica_ack.filter(is_missing).cloned()
    }
}
