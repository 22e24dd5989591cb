use redis::Value;

use crate::ground::claim::Claim;
use crate::ground::events;
use crate::store::{Outcome, Released};
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Answered, Attempts, Call, Operation, Read, Repeat, Unread};
use crate::stores::redis::kinds::Layout;
use crate::stores::redis::replies::{cause_of, integer_at, item_at, text_of};
use crate::stores::redis::transport::CallError;

pub(crate) struct Release<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) is_quiet: bool,
}

impl Operation for Release<'_> {
    type Answer = Outcome<Released>;

    fn call(&self) -> Call<'_> {
        Call {
            is_quiet: self.is_quiet,
            // If the first attempt released the hold, the second attempt changes nothing.
            repeat: Repeat::Halfway { unsent: true },
            ..Call::of(self.claim, |layout| &layout.release)
        }
    }

    fn read(&mut self, redis: &Redis, reply: &Value, attempts: &mut Attempts) -> Read<Self> {
        let claim = self.claim;
        Ok(match (reply, integer_at(reply, 0), item_at(reply, 1)) {
            (Value::Int(receivers), ..) => Outcome::Done(Released {
                others: redis.other_receivers(claim, *receivers),
                ..Released::default()
            }),
            (_, Some(1), Some(error)) => {
                events::waiters_not_told(&claim.name, &text_of(error));
                Outcome::Done(Released::default())
            }
            // An unanswered earlier attempt may have released the hold. In any case, the hold is gone.
            (_, Some(0), Some(_)) if attempts.earlier_sent_since.is_some() => {
                Outcome::Done(Released::default())
            }
            (_, Some(0), Some(holder)) => Outcome::Gone(cause_of(holder)),
            _ => return Err(Unread::Unexpected),
        })
    }

    fn unknown(&self, redis: &Redis, fault: CallError, attempts: &Attempts) -> Answered<Self> {
        Ok(redis.not_known(self.claim, "release", fault.into_reason(), attempts))
    }
}

impl Redis {
    /// Returns a sum: the other subscribers that received the message, and the waiters of this client that listen to
    /// several sources. Returns 1 if the server cannot count the receivers (`receivers` is -1).
    pub(super) fn other_receivers(&self, claim: &Claim, receivers: i64) -> u32 {
        let Ok(receivers) = u32::try_from(receivers) else {
            return 1;
        };
        if receivers == 0 {
            return 0;
        }
        let channel = Layout::of(claim.kind).channel.of(&claim.name);
        if !self.topology.hears(&channel) {
            return receivers;
        }
        let here = self.facts.notifier.waiters_for_several(&channel);
        (receivers - 1).saturating_add(u32::try_from(here).unwrap_or(u32::MAX))
    }
}
