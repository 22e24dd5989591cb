//! The hand-off of a hold to a waiter of the same process.

use redis::Value;

use crate::ground::claim::Claim;
use crate::store::{Granted, Outcome, Released};
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Answered, Attempts, Call, Operation, Read, Repeat, Unread};
use crate::stores::redis::replies::{cause_of, integer_at, item_at};
use crate::stores::redis::transport::CallError;

/// A client with `wait_replicas` does not hand holds off: see `Facts::hands_off`.
pub(crate) struct HandOff<'a> {
    pub(crate) from: &'a Claim,
    pub(crate) to: &'a Claim,
    pub(crate) floor: u64,
}

impl Operation for HandOff<'_> {
    type Answer = Outcome<Released>;

    fn call(&self) -> Call<'_> {
        Call {
            successor: Some(&self.to.visitor),
            lease: self.to.lease,
            floor: self.floor,
            // A repeated request returns the same result. If nothing was sent, the caller releases the hold.
            repeat: Repeat::Halfway { unsent: false },
            ..Call::of(self.from, |layout| &layout.transfer)
        }
    }

    fn read(&mut self, redis: &Redis, reply: &Value, attempts: &mut Attempts) -> Read<Self> {
        let (from, to) = (self.from, self.to);
        match (integer_at(reply, 0), item_at(reply, 2), attempts.sent_since) {
            (Some(1), Some(Value::Int(listeners)), Some(sent)) => {
                let token = integer_at(reply, 3);
                let fence = match token.map(|token| redis.drawn(to, token, self.floor)) {
                    // The new holder's fencing token is too small, and the old holder no longer has the lock.
                    Some(Err(error)) => {
                        return Ok(Outcome::unknown(from.in_doubt(attempts.not_after), error));
                    }
                    fence => fence.and_then(Result::ok),
                };
                Ok(Outcome::Done(Released {
                    others: redis.other_receivers(from, *listeners),
                    successor: Some(Granted {
                        fence,
                        ..Granted::at(sent)
                    }),
                    leftover: None,
                }))
            }
            // The first attempt may have handed off the lock, and the successor's lease may have ended since.
            (Some(2), Some(_), _) if attempts.earlier_sent_since.is_some() => {
                let reason = "a repeated request got no reply, and neither hold exists";
                let fault = CallError::NotSent(reason.into());
                Ok(self.unknown(redis, fault, attempts)?)
            }
            (Some(2), Some(holder), _) => Ok(Outcome::Gone(cause_of(holder))),
            (Some(3), ..) => Err(Unread::Outdated),
            _ => Err(Unread::Unexpected),
        }
    }

    fn unknown(&self, redis: &Redis, fault: CallError, attempts: &Attempts) -> Answered<Self> {
        Ok(redis.not_known(self.from, "hand-over", fault.into_reason(), attempts))
    }
}
