//! Operations on one lock, each written once: what it sends, and how its answer reads.
//!
//! Two drivers carry them out: [`Operation::run`] at the server that has the lock, with routing and repetition, and
//! `RedisNode::carry_out` for a quorum, sent now and answered later.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use smallvec::{SmallVec, smallvec};

use crate::ground::claim::{Claim, LockId, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::{events, time};
use crate::store::{Holding, InDoubt, Outcome, Released, SETTLED};
use crate::stores::redis::replies::{cause_of, integer_at, item_at, text_of};
use crate::stores::redis::requests::SentCopies;
use crate::stores::redis::scripts::{Script, Scripts};
use crate::stores::redis::transport::{CallError, brief};
use crate::stores::redis::{CORRECTIONS, RUNAWAY_CLOCK, Redis, keys};

/// The request of an operation.
pub(super) struct Call<'c> {
    pub(super) script: &'c Script,
    pub(super) lock: &'c Arc<str>,
    pub(super) args: SmallVec<[&'c [u8]; 4]>,
    /// Whether the server time after which it is refused is its last argument, and its answer tells the time.
    pub(super) expires: bool,
}

/// The place of a request among others of its visitor.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// Whether it goes behind an unanswered request on the same connection, and so comes after it.
    pub(super) is_behind: bool,
    /// An earlier request, on a connection that is closed, may arrive up to this time of the server's clock, in ms;
    /// [`SETTLED`] if there is none.
    pub(super) not_after: i64,
}

impl Way {
    /// The way of a request that no other one is known to be before.
    const ALONE: Way = Way {
        is_behind: false,
        not_after: SETTLED,
    };
}

/// One operation on one lock.
pub(super) trait Operation {
    type Answer;

    fn lock(&self) -> &Arc<str>;

    /// The visitor whose unanswered requests it may go behind.
    fn visitor(&self) -> Option<&VisitorId>;

    fn call<'c>(&'c self, scripts: &'c Scripts) -> Call<'c>;

    /// Reads the answer; `None` if the request is to be sent again, because our idea of the server's clock was off.
    fn read(
        &self,
        redis: &Redis,
        reply: Result<Value, CallError>,
        way: Way,
    ) -> Option<Result<Self::Answer>>;

    /// Asks the server that has the lock.
    fn run(&self, redis: &Redis, deadline: Instant) -> Result<Self::Answer> {
        for _ in 0..=CORRECTIONS {
            let reply = redis.ask(&self.call(&redis.scripts), deadline);
            if let Some(answer) = self.read(redis, reply, Way::ALONE) {
                return answer;
            }
        }
        let runaway = CallError::Server(RUNAWAY_CLOCK.to_owned());
        Err(redis.error(self.lock(), runaway))
    }
}

impl Redis {
    /// Sends a call to the server that has the lock and reads the answer.
    fn ask(&self, call: &Call<'_>, deadline: Instant) -> Result<Value, CallError> {
        if call.expires {
            let mut copies = SentCopies::default();
            self.call_timed(call.script, call.lock, &call.args, deadline, &mut copies)
        } else {
            self.call(call.script, call.lock, &call.args, deadline)
        }
    }
}

/// Tells who holds the lock, and how often `visitor` does.
pub(super) struct Inspect<'a> {
    pub(super) lock: &'a LockId,
    pub(super) visitor: Option<&'a VisitorId>,
}

impl Operation for Inspect<'_> {
    type Answer = Holding;

    fn lock(&self) -> &Arc<str> {
        &self.lock.name
    }

    fn visitor(&self) -> Option<&VisitorId> {
        self.visitor
    }

    fn call<'c>(&'c self, scripts: &'c Scripts) -> Call<'c> {
        let visitor = self.visitor.map_or("", VisitorId::as_str);
        Call {
            script: &scripts.of(self.lock.kind).inspect,
            lock: &self.lock.name,
            args: smallvec![visitor.as_bytes()],
            expires: false,
        }
    }

    fn read(
        &self,
        redis: &Redis,
        reply: Result<Value, CallError>,
        _: Way,
    ) -> Option<Result<Holding>> {
        Some(match reply {
            Ok(reply) => self.holding_of(redis, &reply),
            Err(fault) => Err(redis.error(&self.lock.name, fault)),
        })
    }
}

impl Inspect<'_> {
    fn holding_of(&self, redis: &Redis, reply: &Value) -> Result<Holding> {
        let name = &self.lock.name;
        let (Some(exists), Some(count), Some(ttl)) = (
            integer_at(reply, 0),
            item_at(reply, 1),
            integer_at(reply, 2),
        ) else {
            return Err(redis.unexpected(name, reply));
        };
        let count = match (text_of(count), self.visitor) {
            (text, _) if text.is_empty() => 0,
            (text, Some(visitor)) => text.parse().map_err(|_| Error::CorruptCount {
                lock: Arc::clone(name),
                node: redis.topology.name(name),
                visitor: visitor.clone(),
            })?,
            (_, None) => 0,
        };
        Ok(Holding {
            is_locked: exists == 1,
            count,
            remaining: u64::try_from(ttl).ok().map(Duration::from_millis),
        })
    }
}

/// Frees a lock whoever holds it.
pub(super) struct ForceRelease<'a> {
    lock: &'a LockId,
    channel: Arc<str>,
}

impl<'a> ForceRelease<'a> {
    pub(super) fn new(lock: &'a LockId) -> ForceRelease<'a> {
        let channel = keys::channel(&lock.name);
        ForceRelease { lock, channel }
    }
}

impl Operation for ForceRelease<'_> {
    type Answer = bool;

    fn lock(&self) -> &Arc<str> {
        &self.lock.name
    }

    fn visitor(&self) -> Option<&VisitorId> {
        None
    }

    fn call<'c>(&'c self, scripts: &'c Scripts) -> Call<'c> {
        Call {
            script: &scripts.of(self.lock.kind).force_release,
            lock: &self.lock.name,
            args: smallvec![self.channel.as_bytes()],
            expires: true,
        }
    }

    fn read(&self, redis: &Redis, reply: Result<Value, CallError>, _: Way) -> Option<Result<bool>> {
        let name = &self.lock.name;
        Some(match reply {
            Ok(reply) => match integer_at(&reply, 0) {
                Some(3) => return None,
                Some(freed) => Ok(freed == 1),
                None => Err(redis.unexpected(name, &reply)),
            },
            Err(CallError::NoReply { reason, .. }) => {
                Err(redis.unknown(name, None, "forced release", reason))
            }
            Err(fault) => Err(redis.error(name, fault)),
        })
    }
}

/// Frees what a request without an answer may have left. Its answer tells whether nothing comes any more.
pub(super) struct Resolve<I> {
    in_doubt: I,
    channel: Arc<str>,
}

impl<I: Borrow<InDoubt>> Resolve<I> {
    pub(super) fn new(in_doubt: I) -> Resolve<I> {
        let channel = keys::channel(&in_doubt.borrow().name);
        Resolve { in_doubt, channel }
    }
}

impl<I: Borrow<InDoubt>> Operation for Resolve<I> {
    type Answer = bool;

    fn lock(&self) -> &Arc<str> {
        &self.in_doubt.borrow().name
    }

    fn visitor(&self) -> Option<&VisitorId> {
        Some(&self.in_doubt.borrow().visitor)
    }

    fn call<'c>(&'c self, scripts: &'c Scripts) -> Call<'c> {
        let in_doubt = self.in_doubt.borrow();
        Call {
            script: &scripts.of(in_doubt.kind).resolve,
            lock: &in_doubt.name,
            args: smallvec![
                in_doubt.visitor.as_str().as_bytes(),
                self.channel.as_bytes()
            ],
            expires: false,
        }
    }

    fn read(
        &self,
        redis: &Redis,
        reply: Result<Value, CallError>,
        way: Way,
    ) -> Option<Result<bool>> {
        let in_doubt = self.in_doubt.borrow();
        Some(match reply {
            // Behind the request in doubt on the same connection it comes after it.
            Ok(Value::Int(now)) => {
                Ok(way.is_behind || now > in_doubt.not_after(0).max(way.not_after))
            }
            Ok(reply) => Err(redis.unexpected(&in_doubt.name, &reply)),
            Err(fault) => Err(redis.error(&in_doubt.name, fault)),
        })
    }
}

/// Gives a whole hold back.
pub(super) struct Release<'a> {
    claim: &'a Claim,
    channel: Arc<str>,
}

impl<'a> Release<'a> {
    pub(super) fn new(claim: &'a Claim) -> Release<'a> {
        let channel = keys::channel(&claim.name);
        Release { claim, channel }
    }

    pub(super) fn once(
        &self,
        redis: &Redis,
        deadline: Instant,
    ) -> Result<Outcome<Released>, CallError> {
        let reply = redis.ask(&self.call(&redis.scripts), deadline)?;
        self.outcome_of(redis, &reply)
    }

    fn outcome_of(&self, redis: &Redis, reply: &Value) -> Result<Outcome<Released>, CallError> {
        match (reply, integer_at(reply, 0), item_at(reply, 1)) {
            (Value::Int(heard), ..) => Ok(Outcome::Done(Released {
                // Mostly nobody at all has heard of it.
                others_wait: *heard > 0
                    && *heard > i64::from(redis.topology.is_live(&self.channel)),
                leftover: redis.late_copy_of(self.claim),
            })),
            (_, Some(1), Some(error)) => {
                events::waiters_not_told(&self.claim.name, &text_of(error));
                Ok(Outcome::Done(Released::default()))
            }
            (_, Some(0), Some(holder)) => Ok(Outcome::Gone(cause_of(holder))),
            _ => Err(CallError::Server(format!(
                "unexpected reply {}",
                brief(reply)
            ))),
        }
    }

    fn unknown_or_error(&self, redis: &Redis, fault: CallError) -> Result<Outcome<Released>> {
        let claim = self.claim;
        match fault {
            CallError::NoReply { reason, .. } => Ok(Outcome::unknown(
                // Any later answer settles it: the request itself can only free.
                claim.in_doubt(0),
                redis.unknown(&claim.name, Some(&claim.visitor), "release", reason),
            )),
            fault => Err(redis.error(&claim.name, fault)),
        }
    }
}

impl Operation for Release<'_> {
    type Answer = Outcome<Released>;

    fn lock(&self) -> &Arc<str> {
        &self.claim.name
    }

    fn visitor(&self) -> Option<&VisitorId> {
        Some(&self.claim.visitor)
    }

    fn call<'c>(&'c self, scripts: &'c Scripts) -> Call<'c> {
        Call {
            script: &scripts.of(self.claim.kind).release,
            lock: &self.claim.name,
            args: smallvec![
                self.claim.visitor.as_str().as_bytes(),
                self.channel.as_bytes()
            ],
            expires: false,
        }
    }

    fn read(
        &self,
        redis: &Redis,
        reply: Result<Value, CallError>,
        way: Way,
    ) -> Option<Result<Outcome<Released>>> {
        let outcome = reply.and_then(|reply| self.outcome_of(redis, &reply));
        Some(match outcome {
            // It is not there yet.
            Ok(Outcome::Gone(_)) if way.not_after != SETTLED => Ok(Outcome::unknown(
                self.claim.in_doubt(way.not_after),
                Error::Unavailable {
                    lock: Arc::clone(&self.claim.name),
                    node: redis.topology.name(&self.claim.name),
                    reason: "an earlier request of this hold may still be on its way".to_owned(),
                },
            )),
            Ok(outcome) => Ok(outcome),
            Err(fault) => self.unknown_or_error(redis, fault),
        })
    }

    /// A lost answer is asked for once more: the first request may have done it, and the second one finds that out.
    fn run(&self, redis: &Redis, deadline: Instant) -> Result<Outcome<Released>> {
        // Half the time for the first try, so that a lost reply leaves time for the second.
        let now = time::now();
        let half = now + deadline.saturating_duration_since(now) / 2;
        let fault = match self.once(redis, half) {
            Ok(outcome) => return Ok(outcome),
            Err(CallError::NoReply { .. }) => match self.once(redis, deadline) {
                Ok(outcome @ Outcome::Done(_)) => return Ok(outcome),
                // The first one did it: nobody else can have freed this visitor's hold and nothing proves a loss.
                Ok(_) => {
                    return Ok(Outcome::Done(Released {
                        others_wait: false,
                        leftover: redis.late_copy_of(self.claim),
                    }));
                }
                // Whether the first one did it is not known, whatever became of the second.
                Err(fault) => CallError::NoReply {
                    reason: fault.into_reason(),
                    timed_out: true,
                },
            },
            Err(CallError::NotSent(reason)) if time::now() < half => {
                match self.once(redis, deadline) {
                    Ok(outcome) => return Ok(outcome),
                    Err(fault @ CallError::NoReply { .. }) => fault,
                    Err(_) => CallError::NotSent(reason),
                }
            }
            Err(fault) => fault,
        };
        self.unknown_or_error(redis, fault)
    }
}

#[cfg(test)]
mod tests;
