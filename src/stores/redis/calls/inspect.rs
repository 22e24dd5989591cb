use std::time::Duration;

use redis::Value;

use crate::ground::claim::{LockId, VisitorId};
use crate::store::Holding;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Attempts, Call, Operation, Read, Unread};
use crate::stores::redis::replies::{integer_at, item_at, text_of};

pub(crate) struct Inspect<'a> {
    pub(crate) lock: &'a LockId,
    pub(crate) visitor: Option<&'a VisitorId>,
}

impl Operation for Inspect<'_> {
    type Answer = Holding;

    fn call(&self) -> Call<'_> {
        let LockId { kind, name } = self.lock;
        Call::new(*kind, |layout| &layout.inspect, name, self.visitor)
    }

    fn read(&mut self, redis: &Redis, reply: &Value, _: &mut Attempts) -> Read<Self> {
        let name = &self.lock.name;
        let (exists, ttl) = (integer_at(reply, 0), integer_at(reply, 2));
        let (Some(exists), Some(count), Some(ttl)) = (exists, item_at(reply, 1), ttl) else {
            return Err(Unread::Unexpected);
        };
        let count = match (text_of(count), self.visitor) {
            (text, _) if text.is_empty() => 0,
            (text, Some(visitor)) => text.parse().map_err(|_| redis.corrupt(name, visitor))?,
            (_, None) => 0,
        };
        Ok(Holding {
            is_locked: exists == 1,
            count,
            remaining: u64::try_from(ttl).ok().map(Duration::from_millis),
        })
    }
}
