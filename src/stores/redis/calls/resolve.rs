//! Resolves in-doubt requests.

use std::borrow::Borrow;
use std::time::Instant;

use redis::Value;

use crate::ground::error::Result;
use crate::ground::time;
use crate::store::InDoubt;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::condition::{ConditionCall, place_call};
use crate::stores::redis::calls::{Attempts, Call, Operation, Read, Unread};
use crate::stores::redis::kinds::CONDITION;
use crate::stores::redis::replies::integer_at;

/// Releases what an in-doubt request may have acquired. Returns whether the request can no longer arrive.
pub(crate) struct Resolve<I>(pub(crate) I);

impl<I: Borrow<InDoubt>> Operation for Resolve<I> {
    type Answer = bool;

    fn call(&self) -> Call<'_> {
        let InDoubt {
            kind,
            name,
            visitor,
            place,
            ..
        } = self.0.borrow();
        if let Some(place) = place {
            return Call {
                condition: Some(ConditionCall {
                    name: &place.condition,
                    step: if place.was_told { "pass" } else { "drop" },
                    amount: 0,
                }),
                ..place_call(&CONDITION.look, name, visitor)
            };
        }
        Call::new(*kind, |layout| &layout.resolve, name, Some(visitor))
    }

    fn read(&mut self, _: &Redis, reply: &Value, _: &mut Attempts) -> Read<Self> {
        let now = time_of(reply).ok_or(Unread::Unexpected)?;
        let in_doubt = self.0.borrow();
        Ok(Some(now) > in_doubt.not_after(0))
    }
}

/// The server time at which the request was resolved.
fn time_of(reply: &Value) -> Option<i64> {
    match reply {
        Value::Int(now) => Some(*now),
        reply if integer_at(reply, 0) == Some(5) => integer_at(reply, 1),
        _ => None,
    }
}

impl Redis {
    pub(crate) fn resolve_all(
        &self,
        in_doubts: &mut [&mut InDoubt],
        deadline: Instant,
    ) -> Vec<Result<bool>> {
        let mut outcomes = Vec::with_capacity(in_doubts.len());
        for in_doubt in in_doubts {
            let outcome = Resolve(&**in_doubt).run(self, deadline);
            let is_silent = matches!(&outcome, Err(error) if error.may_pass());
            outcomes.push(outcome);
            if is_silent || time::now() >= deadline {
                break;
            }
        }
        outcomes
    }
}
