//! Requests to the server that has a lock, and what is known of the copies that were sent.

use std::time::Instant;

use redis::Value;

use crate::ground::clock::BootInstant;
use crate::ground::error::Result;
use crate::stores::quorum::quarantine::{Identity, NodeHandle};
use crate::stores::redis::Redis;
use crate::stores::redis::replies::is_another_history;
use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::CallError;
use crate::stores::redis::votes::vote_on;
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};

impl Redis {
    /// Calls a script whose outcome does not change if it is called twice.
    pub(super) fn call(
        &self,
        script: &Script,
        key: &str,
        args: &[&[u8]],
        deadline: Instant,
    ) -> Result<Value, CallError> {
        self.topology.with(key, deadline, |node, connection| {
            node.pool.eval(connection, script, &[key], args, deadline)
        })
    }

    /// Calls a script whose last argument is the server time after which it is refused; where a quorum asks, the
    /// replication id of the server that may vote comes behind that.
    pub(super) fn call_timed(
        &self,
        script: &Script,
        key: &str,
        args: &[&[u8]],
        deadline: Instant,
        copies: &mut SentCopies<'_>,
    ) -> Result<Value, CallError> {
        self.topology.with(key, deadline, |node, connection| {
            // On the connection that the request takes, for another one may lead to another server.
            let voting = match copies.handle {
                Some(handle) => Some(vote_on(connection, handle, deadline)?),
                None => None,
            };
            let sent = BootInstant::now();
            copies.unanswered = copies.first_sent;
            copies.first_sent = Some(copies.unanswered.unwrap_or(sent));
            let expiry = connection.expiry(deadline, sent);
            copies.not_after = copies.not_after.max(expiry);
            let text = expiry.to_string();
            let args = match history_of(voting.as_deref()) {
                Some(history) => [args, &[text.as_bytes(), history]].concat(),
                None => [args, &[text.as_bytes()]].concat(),
            };
            let keys = [key];
            let reply = match copies.replication {
                None => node.pool.eval(connection, script, &keys, &args, deadline),
                Some(wanted) => node
                    .pool
                    .eval_replicated(connection, script, &keys, &args, wanted, deadline)
                    .map(|(reply, replica_ack)| {
                        copies.replica_ack = replica_ack;
                        reply
                    }),
            };
            if !matches!(reply, Ok(_) | Err(CallError::NoReply { .. })) {
                copies.last_did_not_run();
            }
            let reply = reply?;
            connection.note_time_in(&reply, expiry, sent);
            if is_another_history(&reply) {
                connection.forget_identity();
            }
            Ok(reply)
        })
    }
}

/// The copies of one request that were sent, as far as known.
#[derive(Default)]
pub(super) struct SentCopies<'v> {
    /// The node that has to have a vote at the server that gets one.
    pub(super) handle: Option<&'v NodeHandle>,
    /// Before the first one that may have run.
    pub(super) first_sent: Option<BootInstant>,
    /// The same of those before the last one: they got no answer.
    pub(super) unanswered: Option<BootInstant>,
    /// The server refuses all of them after this time of its clock.
    pub(super) not_after: i64,
    /// How many replicas have to have it, and what they said of the last one.
    pub(super) replication: Option<Replication>,
    pub(super) replica_ack: ReplicaAck,
}

impl SentCopies<'_> {
    /// Notes that the last copy has not run, which says nothing of those before it.
    pub(super) fn last_did_not_run(&mut self) {
        self.first_sent = self.unanswered;
    }

    /// Whether a copy may have run, or may yet run.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.first_sent.is_some()
    }

    pub(super) fn replicated(replication: Option<Replication>) -> Self {
        SentCopies {
            replication,
            ..SentCopies::default()
        }
    }
}

/// The replication id that a script compares, so that nobody votes for a server that has become another one.
pub(super) fn history_of(voting: Option<&Identity>) -> Option<&[u8]> {
    let history = voting?.history.as_bytes();
    (!history.is_empty()).then_some(history)
}
