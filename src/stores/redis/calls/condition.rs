//! Operations on a condition.

use std::sync::Arc;

use redis::Value;

use crate::ground::claim::VisitorId;
use crate::store::{
    CONDITION_ENTRY_LIFE, ConditionAnswer, ConditionOp, ConditionStep, EntryInDoubt, InDoubt,
    Outcome,
};
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Answered, Attempts, Call, Operation, Read, Repeat, Unread};
use crate::stores::redis::kinds::CONDITION;
use crate::stores::redis::replies::{cause_of, integer_at, item_at};
use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::CallError;

#[derive(Clone, Copy)]
pub(in crate::stores::redis) struct ConditionCall<'c> {
    pub(in crate::stores::redis) name: &'c str,
    pub(in crate::stores::redis) step: &'static str,
    pub(in crate::stores::redis) amount: u32,
}

pub(super) fn place_call<'c>(
    script: &'c Script,
    lock: &'c Arc<str>,
    visitor: &'c VisitorId,
) -> Call<'c> {
    Call {
        lease: CONDITION_ENTRY_LIFE,
        ..Call::in_layout(&CONDITION.layout, script, lock, Some(visitor))
    }
}

pub(crate) struct Condition<'a>(pub(crate) &'a ConditionOp<'a>);

impl Operation for Condition<'_> {
    type Answer = Outcome<ConditionAnswer>;

    fn call(&self) -> Call<'_> {
        let op = self.0;
        let (script, hold, word, amount) = match op.step {
            ConditionStep::Enlist(hold) => (&CONDITION.look, Some(hold), "enlist", 0),
            ConditionStep::Look => (&CONDITION.look, None, "look", 0),
            ConditionStep::Leave => (&CONDITION.look, None, "leave", 0),
            ConditionStep::Signal(most) => (&CONDITION.signal, None, "", most),
        };
        Call {
            successor: hold,
            condition: Some(ConditionCall {
                name: op.condition,
                step: word,
                amount,
            }),
            // A repeated request finds the first request's result, or causes a spurious wakeup, which conditions allow.
            repeat: Repeat::Halfway { unsent: true },
            ..place_call(script, &op.lock.name, op.visitor)
        }
    }

    fn read(&mut self, redis: &Redis, reply: &Value, attempts: &mut Attempts) -> Read<Self> {
        let most = match self.0.step {
            ConditionStep::Signal(most) => Some(most),
            _ => None,
        };
        let answer = match (integer_at(reply, 0), integer_at(reply, 2), most) {
            (Some(0), ..) => ConditionAnswer::Waits,
            (Some(1), Some(count), Some(most)) => {
                // An earlier attempt may have signalled waiters that `count` does not include.
                if attempts.earlier_sent_since.is_some() && (count == 0 || most > 1) {
                    let reason = "the signal was sent twice and took effect, but the number of signalled waiters is \
                        not known";
                    let (lock, step) = (&self.0.lock.name, self.0.step.name());
                    return Err(redis.unknown(lock, None, step, reason.into()).into());
                }
                ConditionAnswer::Signalled(u32::try_from(count).unwrap_or(u32::MAX))
            }
            (Some(1), _, None) => ConditionAnswer::Woken,
            (Some(2), ..) => {
                let holder = item_at(reply, 2).unwrap_or(&Value::Nil);
                return Ok(Outcome::Gone(cause_of(holder)));
            }
            (Some(3), ..) => return Err(Unread::Outdated),
            (Some(4), ..) => ConditionAnswer::Left,
            _ => return Err(Unread::Unexpected),
        };
        Ok(Outcome::Done(answer))
    }

    fn unknown(&self, redis: &Redis, fault: CallError, attempts: &Attempts) -> Answered<Self> {
        let op = self.0;
        let error = match op.step {
            // The query can be repeated: a signalled waiter gets the same reply again.
            ConditionStep::Look => redis.error_of(&self.call(), fault, attempts.deadline),
            step => redis.unknown(&op.lock.name, None, step.name(), fault.into_reason()),
        };
        if matches!(op.step, ConditionStep::Signal(_)) {
            return Err(error);
        }
        let place = EntryInDoubt {
            condition: Arc::clone(op.condition),
            was_told: !matches!(op.step, ConditionStep::Enlist(_)),
        };
        let in_doubt = InDoubt::of_condition_entry(op.lock, op.visitor, place, attempts.not_after);
        Ok(Outcome::unknown(in_doubt, error))
    }
}
