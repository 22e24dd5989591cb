use redis::Value;

use crate::ground::claim::LockId;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Answered, Attempts, Call, Operation, Read, Unread};
use crate::stores::redis::replies::integer_at;
use crate::stores::redis::transport::CallError;

pub(crate) struct ForceRelease<'a>(pub(crate) &'a LockId);

impl Operation for ForceRelease<'_> {
    type Answer = bool;

    fn call(&self) -> Call<'_> {
        let LockId { kind, name } = self.0;
        Call::new(*kind, |layout| &layout.force_release, name, None)
    }

    fn read(&mut self, _: &Redis, reply: &Value, _: &mut Attempts) -> Read<Self> {
        match integer_at(reply, 0) {
            Some(3) => Err(Unread::Outdated),
            Some(freed) => Ok(freed == 1),
            None => Err(Unread::Unexpected),
        }
    }

    fn unknown(&self, redis: &Redis, fault: CallError, _: &Attempts) -> Answered<Self> {
        Err(redis.unknown(&self.0.name, None, "forced release", fault.into_reason()))
    }
}
