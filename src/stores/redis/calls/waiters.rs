//! The question how many wait.

use redis::Value;

use crate::ground::claim::LockId;
use crate::ground::error::{Error, Result};
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Call, Operation, Read, SentCopies, Unread};
use crate::stores::redis::kinds::Layout;
use crate::stores::redis::scripts::Script;

/// Tells how many wait for a lock in its queue on the server.
pub(crate) struct Waiters<'a> {
    lock: &'a LockId,
    layout: &'static Layout,
    script: &'static Script,
}

impl<'a> Waiters<'a> {
    pub(crate) fn of(lock: &'a LockId) -> Result<Waiters<'a>> {
        let layout = Layout::of(lock.kind);
        let Some(script) = &layout.waiters else {
            let reason = "this store keeps no queue of waiters";
            return Err(Error::unsupported(&lock.name, reason));
        };
        Ok(Waiters {
            lock,
            layout,
            script,
        })
    }
}

impl Operation for Waiters<'_> {
    type Answer = i64;

    fn call(&self) -> Call<'_> {
        Call::in_layout(self.layout, self.script, &self.lock.name, None)
    }

    fn read(&mut self, _: &Redis, reply: &Value, _: &mut SentCopies) -> Read<Self> {
        match reply {
            Value::Int(length) => Ok(*length),
            _ => Err(Unread::Unexpected),
        }
    }
}
