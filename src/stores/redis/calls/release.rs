//! The release of a whole hold.

use redis::Value;

use crate::ground::claim::Claim;
use crate::ground::events;
use crate::store::{Outcome, Released};
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Answered, Call, Operation, Read, Repeat, SentCopies, Unread};
use crate::stores::redis::kinds::Layout;
use crate::stores::redis::replies::{cause_of, integer_at, item_at, text_of};
use crate::stores::redis::transport::CallError;

/// Gives a whole hold back.
pub(crate) struct Release<'a> {
    claim: &'a Claim,
    /// It publishes nothing where a message goes to every node of a cluster.
    is_quiet: bool,
}

impl<'a> Release<'a> {
    pub(crate) fn new(claim: &'a Claim) -> Release<'a> {
        Release {
            claim,
            is_quiet: false,
        }
    }

    /// Has it publish nothing where a message goes to every node of a cluster.
    pub(crate) fn quiet(self, is_quiet: bool) -> Release<'a> {
        Release { is_quiet, ..self }
    }

    fn released(&self, redis: &Redis, heard: u64) -> Released {
        Released {
            // Mostly nobody at all has heard of it.
            others: match heard {
                0 => 0,
                heard => redis
                    .others_of(self.claim, heard)
                    .try_into()
                    .unwrap_or(u32::MAX),
            },
            ..Released::default()
        }
    }
}

impl Operation for Release<'_> {
    type Answer = Outcome<Released>;

    fn call(&self) -> Call<'_> {
        Call {
            is_quiet: self.is_quiet,
            // The first request may have done it, and the second one finds that out.
            repeat: Repeat::Halfway { unsent: true },
            ..Call::of(self.claim, |layout| &layout.release)
        }
    }

    fn read(&mut self, redis: &Redis, reply: &Value, copies: &mut SentCopies) -> Read<Self> {
        let claim = self.claim;
        Ok(match (reply, integer_at(reply, 0), item_at(reply, 1)) {
            (Value::Int(heard), ..) => {
                Outcome::Done(self.released(redis, u64::try_from(*heard).unwrap_or_default()))
            }
            (_, Some(1), Some(error)) => {
                events::waiters_not_told(&claim.name, &text_of(error));
                Outcome::Done(Released::default())
            }
            // The first copy did it: nobody else can have freed this visitor's hold and nothing proves a loss.
            (_, Some(0), Some(_)) if copies.earlier_sent_since.is_some() => {
                Outcome::Done(Released::default())
            }
            (_, Some(0), Some(holder)) => Outcome::Gone(cause_of(holder)),
            _ => return Err(Unread::Unexpected),
        })
    }

    /// Any later answer settles it: the request itself can only free.
    fn unknown(&self, redis: &Redis, fault: CallError, copies: &SentCopies) -> Answered<Self> {
        Ok(redis.not_known(self.claim, "release", fault.into_reason(), copies))
    }
}

impl Redis {
    /// How many of those who hear its messages are no waiters of this client's queue: other processes, and waiters here that
    /// want it together with other locks.
    pub(super) fn others_of(&self, claim: &Claim, heard: u64) -> u64 {
        let channel = Layout::of(claim.kind).channel.of(&claim.name);
        if !self.topology.hears(&channel) {
            return heard;
        }
        let here = self.facts.notifier.waiters_for_several(&channel);
        heard.saturating_sub(1) + u64::try_from(here).unwrap_or(u64::MAX)
    }
}
