//! The hand-off of a hold to another visitor of the same process.

use std::time::Instant;

use redis::Value;

use crate::ground::claim::Claim;
use crate::ground::error::{Reason, Result};
use crate::ground::time;
use crate::store::{Granted, Outcome};
use crate::stores::redis::keys;
use crate::stores::redis::replies::{cause_of, integer_at, item_at};
use crate::stores::redis::requests::SentCopies;
use crate::stores::redis::transport::{CallError, brief};
use crate::stores::redis::wait_replicas::ReplicaAck;
use crate::stores::redis::{RUNAWAY_CLOCK, Redis};

impl Redis {
    pub(super) fn hand_off_twice(
        &self,
        from: &Claim,
        to: &Claim,
        deadline: Instant,
    ) -> Result<Outcome<Granted>> {
        let channel = keys::channel(&from.name);
        let script = &self.scripts.of(from.kind).transfer;
        let lease = to.lease.as_millis().to_string();
        let args = [from.visitor.as_str(), to.visitor.as_str(), &lease, &channel];
        let args = args.map(str::as_bytes);
        let now = time::now();
        let half = now + deadline.saturating_duration_since(now) / 2;
        let mut copies = SentCopies::replicated(self.replication);
        // A copy finds what the first one did, so a lost reply is asked for once more.
        let reply = match self.call_timed(script, &from.name, &args, half, &mut copies) {
            Err(CallError::NoReply { .. }) => {
                self.call_timed(script, &from.name, &args, deadline, &mut copies)
            }
            reply => reply,
        };
        let reply = match reply {
            // The answer has put our idea of the server's clock right.
            Ok(reply)
                if integer_at(&reply, 0) == Some(3)
                    && copies.unanswered.is_none()
                    && time::now() < deadline =>
            {
                copies.last_did_not_run();
                self.call_timed(script, &from.name, &args, deadline, &mut copies)
            }
            reply => reply,
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(fault) if copies.first_sent.is_none() => {
                return Err(self.error(&from.name, fault));
            }
            Err(fault) => return Ok(self.transfer_unknown(from, to, &copies, fault.into_reason())),
        };
        match (integer_at(&reply, 0), item_at(&reply, 2), copies.first_sent) {
            (Some(1), ..)
                if self.replication.is_some() && copies.replica_ack != ReplicaAck::Enough =>
            {
                self.transfer_back(from, to, &copies, deadline)
            }
            (Some(1), Some(Value::Int(listeners)), Some(sent)) => {
                self.pass_late_copies_on(from, to);
                Ok(Outcome::Done(Granted {
                    sent,
                    fence: None,
                    others_wait: *listeners < 0
                        || *listeners > i64::from(self.topology.is_live(&channel)),
                    leftover: None,
                }))
            }
            (Some(2), Some(holder), _) => Ok(Outcome::Gone(cause_of(holder))),
            (Some(3), ..) => {
                copies.last_did_not_run();
                if copies.is_in_doubt() {
                    return Ok(self.transfer_unknown(from, to, &copies, RUNAWAY_CLOCK.into()));
                }
                Err(self.error(&from.name, CallError::Server(RUNAWAY_CLOCK.to_owned())))
            }
            _ if copies.unanswered.is_some() => {
                Ok(self.transfer_unknown(from, to, &copies, brief(&reply).into()))
            }
            _ => Err(self.unexpected(&from.name, &reply)),
        }
    }

    /// A hand-over of which a copy got no answer.
    pub(super) fn transfer_unknown(
        &self,
        from: &Claim,
        to: &Claim,
        copies: &SentCopies<'_>,
        reason: Reason,
    ) -> Outcome<Granted> {
        Outcome::Unknown {
            in_doubt: from.in_doubt(0),
            successor: Some(Box::new(to.in_doubt(copies.not_after))),
            error: self.unknown(&from.name, Some(&from.visitor), "hand-over", reason),
        }
    }

    /// Gives a hold back to the one that it came from, because too few replicas have the other one.
    pub(super) fn transfer_back(
        &self,
        from: &Claim,
        to: &Claim,
        copies: &SentCopies<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Granted>> {
        let channel = keys::channel(&from.name);
        let lease = to.lease.as_millis().to_string();
        let args = [to.visitor.as_str(), from.visitor.as_str(), &lease, &channel];
        let script = &self.scripts.of(from.kind).transfer;
        let args = args.map(str::as_bytes);
        let mut again = SentCopies::default();
        let reply = self.call_timed(script, &from.name, &args, deadline, &mut again);
        match &reply {
            Ok(reply) if integer_at(reply, 0) == Some(1) => {
                Err(self.unreplicated(&from.name, copies.replica_ack.clone()))
            }
            _ => {
                let reason = "too few replicas have it, and it could not be undone";
                let (lock, visitor) = (&from.name, Some(&from.visitor));
                Ok(Outcome::Unknown {
                    in_doubt: from.in_doubt(again.not_after),
                    successor: Some(Box::new(to.in_doubt(copies.not_after))),
                    error: self.unknown(lock, visitor, "hand-over", reason.into()),
                })
            }
        }
    }
}
