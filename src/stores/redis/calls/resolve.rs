//! The withdrawal of requests without an answer, one or many at once.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::ground::error::Result;
use crate::ground::time;
use crate::store::InDoubt;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::condition::{ConditionCall, place_call};
use crate::stores::redis::calls::{Call, Limit, Operation, Read, SentCopies, Unread};
use crate::stores::redis::kinds::CONDITION;
use crate::stores::redis::replies::integer_at;
use crate::stores::redis::transport::CallError;

/// How many calls that withdraw something are written before the first reply is read.
const RESOLVED_AT_ONCE: usize = 100;

/// Frees what a request without an answer may have left. Its answer tells whether nothing comes any more.
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

    fn read(&mut self, _: &Redis, reply: &Value, _: &mut SentCopies) -> Read<Self> {
        let now = time_of(reply).ok_or(Unread::Unexpected)?;
        let in_doubt = self.0.borrow();
        Ok(Some(now) > in_doubt.not_after(0))
    }
}

/// The time at which a withdrawal was carried out.
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
        let Some((first, rest)) = in_doubts.split_first_mut() else {
            return outcomes;
        };
        // It makes the script known, and finds out whether anybody answers.
        let outcome = Resolve(&**first).run(self, deadline);
        let is_silent = matches!(&outcome, Err(error) if error.may_pass());
        outcomes.push(outcome);
        if is_silent {
            return outcomes;
        }
        for batch in rest.chunks_mut(RESOLVED_AT_ONCE) {
            let mut replies = Vec::with_capacity(batch.len());
            let talked = self.withdraw_at_once(batch, deadline, &mut replies);
            let unanswered = batch.get(replies.len()).map(|it| Arc::clone(&it.name));
            for (in_doubt, reply) in batch.iter_mut().zip(replies) {
                outcomes.push(match reply {
                    Some(now) => Ok(Some(now) > in_doubt.not_after(0)),
                    // It is elsewhere, or the server does not know its script, or it says what is wrong.
                    None => Resolve(&**in_doubt).run(self, deadline),
                });
            }
            if let Err(fault) = talked {
                let lock = unanswered.unwrap_or_default();
                outcomes.push(Err(self.error(&lock, fault, deadline)));
                break;
            }
            if time::now() >= deadline {
                break;
            }
        }
        outcomes
    }

    /// Sends all of them to the node that has the first, then reads all replies: the server time where it was done.
    /// Answers that came before a fault are in `replies`, too.
    fn withdraw_at_once(
        &self,
        in_doubts: &[&mut InDoubt],
        deadline: Instant,
        replies: &mut Vec<Option<i64>>,
    ) -> Result<(), CallError> {
        let Some(first) = in_doubts.first() else {
            return Ok(());
        };
        self.topology
            .with(&first.name, deadline, |node, connection| {
                let by_text = node.pool.uses_text();
                let mut packed = Vec::new();
                let mut numbers = Vec::with_capacity(in_doubts.len());
                for in_doubt in in_doubts {
                    let resolve = Resolve(&**in_doubt);
                    let call = self.completed(resolve.call());
                    let call = call.for_shards(node.pool.is_sharded());
                    let number = node.pool.number(connection, &call);
                    numbers.push(number);
                    call.pack(by_text, Limit::default(), number, &mut packed);
                }
                replies.clear();
                connection.send(&packed, deadline)?;
                for number in numbers {
                    replies.push(match connection.answer(number, deadline) {
                        Ok(reply) => time_of(&reply),
                        Err(CallError::Server(_)) => None,
                        Err(fault) => return Err(fault),
                    });
                }
                Ok(())
            })
    }
}
