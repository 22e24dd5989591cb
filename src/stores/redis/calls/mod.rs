//! Operations on one lock, each written once: what it sends, and how its answer reads.
//!
//! Two drivers carry them out: [`Operation::run`] at the server that has the lock, with routing and repetition, and
//! `RedisNode::carry_out` for a quorum, sent now and answered later.

mod acquire;
mod counts;
mod force_release;
mod hand_off;
mod inspect;
mod release;
mod release_level;
mod requests;
mod resolve;

use std::sync::Arc;
use std::time::Instant;

use redis::Value;
use smallvec::SmallVec;

use crate::ground::claim::{Claim, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::time;
use crate::store::Outcome;
use crate::stores::quorum::quarantine::{Identity, NodeHandle};
use crate::stores::redis::Redis;
use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::{CallError, brief};

pub(super) use acquire::Acquire;
pub(super) use force_release::ForceRelease;
pub(super) use hand_off::HandOff;
pub(super) use inspect::Inspect;
pub(super) use release::Release;
pub(super) use release_level::ReleaseLevel;
pub(super) use requests::SentCopies;
pub(super) use resolve::Resolve;

/// How often a request is sent anew because its clock or its count turned out to be wrong.
const CORRECTIONS: u32 = 3;

/// How often a request is sent anew because its connection was cut. A server that goes away cuts all of them, and not in
/// one instant.
const REPEATS: u32 = 2;

const RUNAWAY_CLOCK: &str =
    "TRYAGAIN the server's clock runs away from ours, or others write to this key";

/// The request of an operation.
pub(super) struct Call<'c> {
    pub(super) script: &'c Script,
    pub(super) lock: &'c Arc<str>,
    /// The visitor whose unanswered requests it may go behind.
    pub(super) visitor: Option<&'c VisitorId>,
    pub(super) args: SmallVec<[&'c [u8]; 4]>,
    /// Whether the server time after which it is refused is its last argument, and its answer tells the time.
    pub(super) expires: bool,
    /// Whether as many replicas have to have what it did as the client wants.
    pub(super) replicates: bool,
    /// The node that has to have a vote at the server that gets it.
    pub(super) handle: Option<&'c NodeHandle>,
    pub(super) repeat: Repeat,
}

/// When a call is sent again that got no answer.
#[derive(Clone, Copy)]
pub(super) enum Repeat {
    Never,
    /// When its connection was cut, up to [`REPEATS`] times.
    IfCut,
    /// Once: the first try has half the time, so that a lost reply leaves time for the second. With `unsent` it is also
    /// tried again if that half is not over when it could not be sent.
    Halfway {
        unsent: bool,
    },
}

impl<'c> Call<'c> {
    /// A call that does not expire, and is sent once.
    pub(super) fn new<const N: usize>(
        script: &'c Script,
        lock: &'c Arc<str>,
        visitor: Option<&'c VisitorId>,
        args: [&'c str; N],
    ) -> Call<'c> {
        Call {
            script,
            lock,
            visitor,
            args: args.iter().map(|arg| arg.as_bytes()).collect(),
            expires: false,
            replicates: false,
            handle: None,
            repeat: Repeat::Never,
        }
    }

    /// The arguments of a copy that is refused after `expiry`: where a quorum asks, the replication id of the server that
    /// may vote comes behind that, so that nobody votes for a server that has become another one.
    pub(super) fn args_until<'a>(
        &'a self,
        expiry: &'a str,
        voting: Option<&'a Identity>,
    ) -> SmallVec<[&'a [u8]; 6]> {
        let mut args: SmallVec<[&[u8]; 6]> = self.args.iter().copied().collect();
        if self.expires {
            args.push(expiry.as_bytes());
            let history = voting.map(|identity| identity.history.as_bytes());
            args.extend(history.filter(|history| !history.is_empty()));
        }
        args
    }
}

/// Why a reply is no answer.
pub(super) enum Unread {
    /// Nothing was done because our idea of the server's clock, of which server it is or of the count was off, and the
    /// reply has put it right.
    Outdated,
    Unexpected,
    Error(Error),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Unread {
        Unread::Error(error)
    }
}

/// One operation on one lock.
pub(super) trait Operation {
    type Answer;

    fn call(&self) -> Call<'_>;

    /// Reads the reply to the last one of `copies`.
    fn read(
        &mut self,
        redis: &Redis,
        reply: &Value,
        copies: &mut SentCopies,
    ) -> Result<Self::Answer, Unread>;

    /// The answer if a copy may have run, or may yet run, and `fault` hides whether it did.
    fn unknown(
        &self,
        redis: &Redis,
        fault: CallError,
        _copies: &SentCopies,
    ) -> Result<Self::Answer> {
        Err(redis.error(self.call().lock, fault))
    }

    /// Understands what came back; `None` if the request is to be sent again.
    fn answer(
        &mut self,
        redis: &Redis,
        reply: Result<Value, CallError>,
        copies: &mut SentCopies,
    ) -> Option<Result<Self::Answer>> {
        let fault = match reply {
            Ok(reply) => match self.read(redis, &reply, copies) {
                Ok(answer) => return Some(Ok(answer)),
                Err(Unread::Error(error)) => return Some(Err(error)),
                Err(Unread::Outdated) => {
                    copies.last_did_not_run();
                    return None;
                }
                Err(Unread::Unexpected) => CallError::Server(brief(&reply)),
            },
            Err(fault) => fault,
        };
        Some(self.fail(redis, fault, copies))
    }

    /// The answer after `fault`, which is unknown if a copy may have run.
    fn fail(
        &self,
        redis: &Redis,
        fault: CallError,
        copies: &mut SentCopies,
    ) -> Result<Self::Answer> {
        let is_unanswered = matches!(fault, CallError::NoReply { .. });
        if !is_unanswered {
            // That says nothing of the copies before.
            copies.last_did_not_run();
        }
        if is_unanswered || copies.are_in_doubt() {
            return self.unknown(redis, fault, copies);
        }
        Err(redis.error(self.call().lock, fault))
    }

    /// Asks the server that has the lock.
    fn run(&mut self, redis: &Redis, deadline: Instant) -> Result<Self::Answer> {
        self.run_as(redis, SentCopies::new(deadline))
    }

    /// Asks the server that has the lock, from the place among other requests that `copies` has.
    fn run_as(&mut self, redis: &Redis, mut copies: SentCopies) -> Result<Self::Answer> {
        let deadline = copies.deadline;
        let (mut repeats, mut corrections) = (0, 0);
        loop {
            let call = self.call();
            let by = match call.repeat {
                Repeat::Halfway { .. } if repeats + corrections == 0 => {
                    let now = time::now();
                    now + deadline.saturating_duration_since(now) / 2
                }
                _ => deadline,
            };
            let reply = redis.ask(&call, by, &mut copies);
            let repeat = call.repeat;
            drop(call);
            let is_repeated = match (&reply, repeat) {
                (Err(CallError::NoReply { timed_out, .. }), Repeat::IfCut) => {
                    !timed_out && repeats < REPEATS
                }
                (Err(CallError::NoReply { .. }), Repeat::Halfway { .. }) => repeats == 0,
                (Err(CallError::NotSent(_)), Repeat::Halfway { unsent }) => {
                    unsent && repeats == 0 && time::now() < by
                }
                _ => false,
            };
            if is_repeated {
                repeats += 1;
                if matches!(reply, Err(CallError::NoReply { .. })) {
                    copies.last_is_unanswered();
                }
                continue;
            }
            if let Some(answer) = self.answer(redis, reply, &mut copies) {
                return answer;
            }
            corrections += 1;
            if corrections > CORRECTIONS || time::now() >= deadline {
                let runaway = CallError::Server(RUNAWAY_CLOCK.to_owned());
                return self.fail(redis, runaway, &mut copies);
            }
        }
    }
}

impl Redis {
    /// The outcome of an operation on the hold of `claim` of which a copy may have run.
    fn not_known<D, R>(
        &self,
        claim: &Claim,
        operation: &'static str,
        fault: CallError,
        copies: &SentCopies,
    ) -> Outcome<D, R> {
        let visitor = Some(&claim.visitor);
        Outcome::unknown(
            claim.in_doubt(copies.not_after),
            self.unknown(&claim.name, visitor, operation, fault.into_reason()),
        )
    }
}

#[cfg(test)]
mod tests;
