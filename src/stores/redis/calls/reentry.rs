//! Sets the count of a hold, for re-entry and for the release of one of several levels.

use redis::Value;

use crate::ground::claim::Claim;
use crate::store::Outcome;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Call, Repeat, Unread};
use crate::stores::redis::kinds::Layout;
use crate::stores::redis::replies::{cause_of, integer_at, item_at, text_of};
use crate::stores::redis::scripts::Script;

pub(super) struct SetCount<'a> {
    pub(super) claim: &'a Claim,
    pub(super) known: u32,
    pub(super) wanted: u32,
}

impl SetCount<'_> {
    /// Setting a count twice has the effect of setting it once, so the request can be repeated.
    pub(super) fn call(&self, script: fn(&'static Layout) -> &'static Script) -> Call<'_> {
        Call {
            known: self.known,
            wanted: self.wanted,
            repeat: Repeat::IfCut,
            ..Call::of(self.claim, script)
        }
    }

    pub(super) fn read_failure<D, R>(
        &mut self,
        redis: &Redis,
        reply: &Value,
    ) -> Result<Outcome<D, R>, Unread> {
        match (integer_at(reply, 0), item_at(reply, 2)) {
            (Some(2), Some(holder)) => Ok(Outcome::Gone(cause_of(holder))),
            (Some(3 | 6), _) => Err(Unread::Outdated),
            (Some(4), Some(count)) => match text_of(count).parse() {
                // An earlier request that got no reply, such as another re-entry, has changed the count.
                Ok(count) => {
                    self.known = count;
                    Err(Unread::Outdated)
                }
                Err(_) => Err(redis.corrupt(&self.claim.name, &self.claim.visitor).into()),
            },
            _ => Err(Unread::Unexpected),
        }
    }
}
