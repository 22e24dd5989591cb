//! Operations on one lock. Each operation defines its request, and how its reply is read.
//!
//! [`Operation::run`] sends the request to the server of the lock, and repeats it if necessary. `RedisNode::carry_out`
//! sends a request to a node of a quorum. Its caller reads the reply later.

mod acquire;
mod call;
mod condition;
mod count;
mod force_release;
mod guarded;
mod hand_off;
mod inspect;
mod reentry;
mod release;
mod release_level;
mod requests;
mod resolve;
#[cfg(test)]
mod tests;

use std::time::Instant;

use redis::Value;

use crate::ground::claim::Claim;
use crate::ground::error::{Error, Reason, Result};
use crate::ground::time;
use crate::store::Outcome;
use crate::stores::redis::Redis;
use crate::stores::redis::transport::{CallError, brief};

pub(super) use acquire::Acquire;
use call::Repeat;
pub(super) use call::{Call, Limit, pack};
pub(super) use condition::Condition;
pub(super) use count::Count;
pub(super) use force_release::ForceRelease;
pub(super) use hand_off::HandOff;
pub(super) use inspect::Inspect;
pub(super) use release::Release;
pub(super) use release_level::ReleaseLevel;
pub(super) use requests::{Attempts, note_in};
pub(super) use resolve::Resolve;

const CORRECTIONS: u32 = 3;

/// A server that shuts down closes several pooled connections, so one repeat may not be enough.
const REPEATS: u32 = 2;

const RUNAWAY_CLOCK: &str = "TRYAGAIN the server's clock drifts too fast against this machine's, or other programs write to this key";

const NO_TIME_TO_CORRECT: &str = "TRYAGAIN cached server state (clock offset, hold count or identity) was stale; \
    the deadline expired while refreshing it";

pub(super) enum Unread {
    /// The server did nothing, because the cached clock offset, identity or count was stale. The stale value has been
    /// corrected or cleared.
    Outdated,
    Unexpected,
    Error(Error),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Unread {
        Unread::Error(error)
    }
}

type Answered<O> = Result<<O as Operation>::Answer>;
type Read<O> = Result<<O as Operation>::Answer, Unread>;

pub(super) trait Operation: Sized {
    type Answer;

    fn call(&self) -> Call<'_>;

    fn read(&mut self, redis: &Redis, reply: &Value, attempts: &mut Attempts) -> Read<Self>;

    /// Returns the result of a failed request that the server may have executed, or may still execute.
    fn unknown(&self, redis: &Redis, fault: CallError, attempts: &Attempts) -> Answered<Self> {
        Err(redis.error_of(&self.call(), fault, attempts.deadline))
    }

    /// Returns `None` if the request has to be repeated.
    fn answer(
        &mut self,
        redis: &Redis,
        reply: Result<Value, CallError>,
        attempts: &mut Attempts,
    ) -> Option<Answered<Self>> {
        let fault = match reply {
            Ok(reply) => match self.read(redis, &reply, attempts) {
                Ok(answer) => return Some(Ok(answer)),
                Err(Unread::Error(error)) => return Some(Err(error)),
                Err(Unread::Outdated) => {
                    attempts.last_did_not_run();
                    return None;
                }
                Err(Unread::Unexpected) => CallError::Server(brief(&reply)),
            },
            Err(fault) => fault,
        };
        Some(self.fail(redis, fault, attempts))
    }

    fn fail(&self, redis: &Redis, fault: CallError, attempts: &mut Attempts) -> Answered<Self> {
        let is_unanswered = matches!(fault, CallError::NoReply { .. });
        if !is_unanswered {
            attempts.last_did_not_run();
        }
        if is_unanswered || attempts.are_in_doubt() {
            return self.unknown(redis, fault, attempts);
        }
        Err(self.refused(redis, fault, attempts.deadline))
    }

    fn refused(&self, redis: &Redis, fault: CallError, deadline: Instant) -> Error {
        redis.error_of(&self.call(), fault, deadline)
    }

    fn run(&mut self, redis: &Redis, deadline: Instant) -> Answered<Self> {
        let mut attempts = Attempts::new(deadline);
        let (mut repeats, mut corrections) = (0, 0);
        loop {
            let mut call = self.call();
            let by = match call.repeat {
                Repeat::Halfway { .. } if repeats + corrections == 0 => {
                    let now = time::now();
                    now + deadline.saturating_duration_since(now) / 2
                }
                _ => deadline,
            };
            let repeat = call.repeat;
            let reply = redis.ask(&mut call, by, &mut attempts);
            let is_repeated = match (&reply, repeat) {
                #[cfg(feature = "in-memory")]
                (Err(fault), _) if fault.is_lost_by_a_test() => false,
                (Err(CallError::NoReply { timed_out, .. }), Repeat::IfCut) => {
                    !timed_out && repeats < REPEATS
                }
                (Err(CallError::NoReply { .. }), Repeat::Halfway { .. }) => repeats == 0,
                (Err(fault), Repeat::Halfway { unsent }) => {
                    let did_not_run = fault.is_unsent() || fault.is_passing();
                    did_not_run && unsent && repeats == 0 && time::now() < by
                }
                _ => false,
            };
            if is_repeated {
                repeats += 1;
                if matches!(reply, Err(CallError::NoReply { .. })) {
                    attempts.last_is_unanswered();
                }
                continue;
            }
            if let Some(answer) = self.answer(redis, reply, &mut attempts) {
                return answer;
            }
            corrections += 1;
            let why = match corrections > CORRECTIONS {
                true => RUNAWAY_CLOCK,
                false if time::now() >= deadline => NO_TIME_TO_CORRECT,
                false => continue,
            };
            let refused = CallError::Server(why.to_owned());
            return self.fail(redis, refused, &mut attempts);
        }
    }
}

impl Redis {
    fn not_known<D, R>(
        &self,
        claim: &Claim,
        operation: &'static str,
        reason: Reason,
        attempts: &Attempts,
    ) -> Outcome<D, R> {
        let error = self.unknown(&claim.name, Some(&claim.visitor), operation, reason);
        Outcome::unknown(claim.in_doubt(attempts.not_after), error)
    }
}
