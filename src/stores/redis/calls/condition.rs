//! Operations on a condition: enlist, query, leave, signal.

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

/// The condition of a request, and the operation on it.
#[derive(Clone, Copy)]
pub(in crate::stores::redis) struct ConditionCall<'c> {
    pub(in crate::stores::redis) name: &'c str,
    pub(in crate::stores::redis) step: &'static str,
    pub(in crate::stores::redis) amount: u32,
}

/// A request about the queue of a condition.
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

/// Enters the queue of a condition, queries it, leaves it, or signals its waiters.
pub(crate) struct Condition<'a>(pub(crate) &'a ConditionOp<'a>);

impl Condition<'_> {
    /// Whether the first of two attempts may have signalled waiters that `count` does not include.
    fn may_have_run_twice(&self, count: i64, attempts: &Attempts) -> bool {
        let most = match self.0.step {
            ConditionStep::Signal(most) => most,
            _ => return false,
        };
        attempts.earlier_sent_since.is_some() && (count == 0 || most > 1)
    }
}

impl Operation for Condition<'_> {
    type Answer = Outcome<ConditionAnswer>;

    fn call(&self) -> Call<'_> {
        let ConditionOp {
            lock,
            condition,
            visitor,
            step,
        } = self.0;
        let (hold, word, amount) = match step {
            ConditionStep::Enlist(hold) => (Some(*hold), "enlist", 0),
            ConditionStep::Look => (None, "look", 0),
            ConditionStep::Leave => (None, "leave", 0),
            ConditionStep::Signal(most) => (None, "", *most),
        };
        let call = match step {
            ConditionStep::Signal(_) => place_call(&CONDITION.signal, &lock.name, visitor),
            _ => place_call(&CONDITION.look, &lock.name, visitor),
        };
        Call {
            successor: hold,
            condition: Some(ConditionCall {
                name: condition,
                step: word,
                amount,
            }),
            // A repeated request finds the result of the first, or wakes a waiter spuriously, which is allowed.
            repeat: Repeat::Halfway { unsent: true },
            ..call
        }
    }

    fn read(&mut self, redis: &Redis, reply: &Value, attempts: &mut Attempts) -> Read<Self> {
        let signals = matches!(self.0.step, ConditionStep::Signal(_));
        let answer = match (integer_at(reply, 0), integer_at(reply, 2)) {
            (Some(0), _) => ConditionAnswer::Waits,
            (Some(1), Some(count)) if signals => {
                if self.may_have_run_twice(count, attempts) {
                    let reason = "the signal was sent twice and took effect, but the number of signalled waiters is \
                        not known";
                    return Err(Unread::Error(redis.unknown(
                        &self.0.lock.name,
                        None,
                        self.0.step.name(),
                        reason.to_owned().into(),
                    )));
                }
                ConditionAnswer::Signalled(u32::try_from(count).unwrap_or(u32::MAX))
            }
            (Some(1), _) if !signals => ConditionAnswer::Woken,
            (Some(2), _) => {
                let holder = item_at(reply, 2).unwrap_or(&Value::Nil);
                return Ok(Outcome::Gone(cause_of(holder)));
            }
            (Some(3), _) => return Err(Unread::Outdated),
            (Some(4), _) => ConditionAnswer::Left,
            _ => return Err(Unread::Unexpected),
        };
        Ok(Outcome::Done(answer))
    }

    fn unknown(&self, redis: &Redis, fault: CallError, attempts: &Attempts) -> Answered<Self> {
        let ConditionOp {
            lock,
            condition,
            visitor,
            step,
        } = self.0;
        let error = match step {
            // A query only extends the life of the queue entry.
            ConditionStep::Look => redis.error_of(&self.call(), fault, attempts.deadline),
            _ => redis.unknown(&lock.name, None, step.name(), fault.into_reason()),
        };
        if matches!(step, ConditionStep::Signal(_)) {
            return Err(error);
        }
        let place = EntryInDoubt {
            condition: Arc::clone(condition),
            was_told: !matches!(step, ConditionStep::Enlist(_)),
        };
        let in_doubt = InDoubt::of_condition_entry(lock, visitor, place, attempts.not_after);
        Ok(Outcome::unknown(in_doubt, error))
    }
}
