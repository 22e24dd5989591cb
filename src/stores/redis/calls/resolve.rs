use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Instant;

use redis::Value;

use crate::ground::error::Result;
use crate::ground::time;
use crate::store::InDoubt;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::condition::{ConditionCall, place_call};
use crate::stores::redis::calls::{Attempts, Call, Limit, Operation, Read, Unread, pack};
use crate::stores::redis::kinds::CONDITION;
use crate::stores::redis::replies::integer_at;
use crate::stores::redis::transport::CallError;

/// How many requests are sent before the first reply is read. With one request per round trip, requests could get in doubt
/// faster than they are resolved.
const RESOLVED_AT_ONCE: usize = 100;

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
        // The first request loads the script, and shows whether the server replies at all.
        let outcome = Resolve(&**first).run(self, deadline);
        let is_silent = matches!(&outcome, Err(error) if error.may_pass());
        outcomes.push(outcome);
        if is_silent {
            return outcomes;
        }
        for batch in rest.chunks_mut(RESOLVED_AT_ONCE) {
            let mut replies = Vec::with_capacity(batch.len());
            let talked = self.resolve_at_once(batch, deadline, &mut replies);
            let unanswered = batch.get(replies.len()).map(|it| Arc::clone(&it.name));
            for (in_doubt, reply) in batch.iter_mut().zip(replies) {
                outcomes.push(match reply {
                    Some(now) => Ok(Some(now) > in_doubt.not_after(0)),
                    // No time was returned: the key is on another node, the script is not loaded, or the request failed.
                    None => Resolve(&**in_doubt).run(self, deadline),
                });
            }
            if let Err(fault) = talked {
                let lock = unanswered.unwrap_or_default();
                let node = self.topology.name(&lock);
                outcomes.push(Err(self.error_about(node, &lock, &[], fault)));
                break;
            }
            if time::now() >= deadline {
                break;
            }
        }
        outcomes
    }

    /// Sends all requests to the node of the first key, then reads the replies. `replies` gets the server time of each
    /// executed request. After a fault, `replies` has the replies that arrived before the fault.
    fn resolve_at_once(
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
                    let mut call = resolve.call();
                    self.complete(&mut call);
                    if node.pool.is_sharded {
                        call = call.for_shards();
                    }
                    let number = node.pool.number(connection, &call);
                    numbers.push(number);
                    pack(
                        call.script,
                        &[call],
                        by_text,
                        Limit::default(),
                        number,
                        &mut packed,
                    );
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
