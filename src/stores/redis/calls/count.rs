//! Operations on a counter. The server executes each request once, however often the request arrives.

use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::error::{Error, Result};
use crate::ground::time;
use crate::store::{CountOp, CountStep, EXPIRY_SLACK};
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Answered, Attempts, Call, Operation, Read, Repeat, Unread};
use crate::stores::redis::kinds::Layout;
use crate::stores::redis::replies::integer_at;
use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::CallError;

pub(crate) struct Count<'a> {
    op: &'a CountOp<'a>,
    layout: &'static Layout,
    script: &'static Script,
    remembered: Duration,
}

impl<'a> Count<'a> {
    /// The server refuses attempts that arrive more than `EXPIRY_SLACK` after `deadline`. The server stores the reply
    /// until a later time, so that a repeated attempt gets the same reply.
    pub(crate) fn new(op: &'a CountOp<'a>, deadline: Instant) -> Result<Count<'a>> {
        let layout = Layout::of(op.counter.kind);
        let (script, reason) = match op.step {
            CountStep::Waiters => (&layout.waiters, "this store keeps no queue of waiters"),
            _ => (&layout.count, "a lock of this kind has no count"),
        };
        let Some(script) = script else {
            return Err(Error::unsupported(&op.counter.name, reason));
        };
        let left = deadline.saturating_duration_since(time::now());
        Ok(Count {
            op,
            layout,
            script,
            remembered: left + EXPIRY_SLACK * 2,
        })
    }
}

impl Operation for Count<'_> {
    type Answer = i64;

    fn call(&self) -> Call<'_> {
        let op = self.op;
        Call {
            lease: self.remembered,
            step: op.step,
            successor: op.permit,
            repeat: Repeat::Halfway { unsent: true },
            ..Call::in_layout(
                self.layout,
                self.script,
                &op.counter.name,
                Some(&op.request),
            )
        }
    }

    fn read(&mut self, _: &Redis, reply: &Value, _: &mut Attempts) -> Read<Self> {
        match (reply, integer_at(reply, 0), integer_at(reply, 2)) {
            (Value::Int(length), ..) => Ok(*length),
            (_, Some(1), Some(answer)) => Ok(answer),
            (_, Some(3), _) => Err(Unread::Outdated),
            (_, Some(4), _) => Err(Unread::Error(self.op.out_of_range())),
            _ => Err(Unread::Unexpected),
        }
    }

    fn unknown(&self, redis: &Redis, fault: CallError, attempts: &Attempts) -> Answered<Self> {
        let (lock, step) = (&self.op.counter.name, self.op.step);
        Err(match step {
            step if step.is_question() => redis.error_of(&self.call(), fault, attempts.deadline),
            step => redis.unknown(lock, None, step.name(), fault.into_reason()),
        })
    }
}
