use std::borrow::Borrow;

use redis::Value;

use crate::store::InDoubt;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::condition::{ConditionCall, place_call};
use crate::stores::redis::calls::{Attempts, Call, Operation, Read, Unread};
use crate::stores::redis::kinds::CONDITION;
use crate::stores::redis::replies::integer_at;

/// Releases what an in-doubt request may have acquired. Returns whether the server refuses that request if it still arrives.
pub(crate) struct Resolve<I>(pub(crate) I);

impl<I: Borrow<InDoubt>> Operation for Resolve<I> {
    type Answer = bool;

    fn call(&self) -> Call<'_> {
        let in_doubt: &InDoubt = self.0.borrow();
        let (name, visitor) = (&in_doubt.name, &in_doubt.visitor);
        if let Some(place) = &in_doubt.place {
            return Call {
                condition: Some(ConditionCall {
                    name: &place.condition,
                    step: if place.was_told { "pass" } else { "drop" },
                    amount: 0,
                }),
                ..place_call(&CONDITION.look, name, visitor)
            };
        }
        Call::new(in_doubt.kind, |layout| &layout.resolve, name, Some(visitor))
    }

    fn read(&mut self, _: &Redis, reply: &Value, _: &mut Attempts) -> Read<Self> {
        let now = time_of(reply).ok_or(Unread::Unexpected)?;
        let in_doubt = self.0.borrow();
        Ok(Some(now) > in_doubt.not_after(0))
    }
}

fn time_of(reply: &Value) -> Option<i64> {
    match reply {
        Value::Int(now) => Some(*now),
        reply if integer_at(reply, 0) == Some(5) => integer_at(reply, 1),
        _ => None,
    }
}
