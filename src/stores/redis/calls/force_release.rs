//! The release of a lock by somebody else than its holder.

use std::sync::Arc;

use redis::Value;

use crate::ground::claim::LockId;
use crate::ground::error::Result;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Call, Operation, SentCopies, Unread};
use crate::stores::redis::layout::Layout;
use crate::stores::redis::replies::integer_at;
use crate::stores::redis::transport::CallError;

/// Frees a lock whoever holds it.
pub(crate) struct ForceRelease<'a> {
    lock: &'a LockId,
    channel: Arc<str>,
}

impl<'a> ForceRelease<'a> {
    pub(crate) fn new(lock: &'a LockId) -> ForceRelease<'a> {
        let channel = (Layout::of(lock.kind).channel)(&lock.name);
        ForceRelease { lock, channel }
    }
}

impl Operation for ForceRelease<'_> {
    type Answer = bool;

    fn call(&self) -> Call<'_> {
        let LockId { kind, name } = self.lock;
        Call {
            expires: true,
            ..Call::new(
                &Layout::of(*kind).force_release,
                name,
                None,
                [&*self.channel],
            )
        }
    }

    fn read(&mut self, _: &Redis, reply: &Value, _: &mut SentCopies) -> Result<bool, Unread> {
        match integer_at(reply, 0) {
            Some(3) => Err(Unread::Outdated),
            Some(freed) => Ok(freed == 1),
            None => Err(Unread::Unexpected),
        }
    }

    fn unknown(&self, redis: &Redis, fault: CallError, _: &SentCopies) -> Result<bool> {
        Err(redis.unknown(&self.lock.name, None, "forced release", fault.into_reason()))
    }
}
