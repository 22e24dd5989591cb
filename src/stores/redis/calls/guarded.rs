//! Guarded work: commands or a script of the user that the server runs only if the hold or the fence allows it. The
//! check and the work are one atomic step.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::claim::{Claim, Kind};
use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::ground::guarded_work::Work;
use crate::ground::reply::Reply;
use crate::ground::time;
use crate::store::{self, Outcome};
use crate::stores::redis::Redis;
use crate::stores::redis::calls::{Answered, Attempts, Call, Operation, Read, Unread};
use crate::stores::redis::keys::{self, Key};
use crate::stores::redis::kinds::GUARDED;
use crate::stores::redis::replies::{cause_of, integer_at, item_at, text_of};
use crate::stores::redis::scripts::{Arg, Script};
use crate::stores::redis::transport::{CallError, brief, plain};

const FENCE: Key = Key::Prefix("redlatch_fence");

static FENCED: LazyLock<Script> = LazyLock::new(|| {
    let args = &[Arg::Fence, Arg::Check, Arg::Work];
    Script::new(&GUARDED.text, &[FENCE], args).expiring()
});

const RENEWAL_CHECK: Duration = Duration::from_millis(20);

const NO_SCRIPT: &str = "\nlocal script = nil\n";

/// Puts the user's script as a function into the guarding script. An extra `end` in the user's script closes this
/// function early, and the rest runs unguarded. So the docs of `Guard::eval` forbid scripts from untrusted input.
fn around(text: &str) -> Script {
    let function = format!("\nlocal script = (function(KEYS, ARGV)\n{text}\nend)\n");
    let whole = GUARDED.text.replacen(NO_SCRIPT, &function, 1);
    Script::new(&whole, GUARDED.keys, GUARDED.args).expiring()
}

#[derive(Clone, Copy)]
enum Check<'a> {
    Hold(&'a Claim, BootInstant),
    /// The resource and the fencing token. The work runs unless the resource has seen a larger token.
    Fence(&'a Arc<str>, u64),
}

struct Guarded<'a> {
    check: Check<'a>,
    work: Work<'a>,
    script: &'a Script,
    /// Whether the server has already refused the work as late. That refusal corrected the cached clock offset.
    was_late: bool,
}

impl Guarded<'_> {
    fn lock(&self) -> &Arc<str> {
        match self.check {
            Check::Hold(claim, _) => &claim.name,
            Check::Fence(resource, _) => resource,
        }
    }

    fn failed(&self, redis: &Redis, index: usize, reason: &str, done: Vec<Reply>) -> Error {
        let lock = self.lock();
        Error::CommandFailed {
            lock: Arc::clone(lock),
            node: redis.topology.name(lock),
            index,
            reason: plain(reason),
            done,
        }
    }

    /// The first refusal may be due to a stale clock offset, so the work is sent again. If the work is refused again,
    /// and the hold's validity ends before the deadline, returns the caller's pause before it checks for a renewal.
    fn too_late(&mut self, attempts: &Attempts) -> Result<Duration, Unread> {
        if let Check::Hold(_, end) = self.check
            && std::mem::replace(&mut self.was_late, true)
        {
            let left = BootInstant::now().until(end);
            if left < attempts.deadline.saturating_duration_since(time::now()) {
                return Ok(left.min(RENEWAL_CHECK));
            }
        }
        Err(Unread::Outdated)
    }

    /// If the reply cannot be read, the work may have run, so its outcome is unknown.
    fn unreadable(&self, redis: &Redis, reply: &Value, attempts: &Attempts) -> Answered<Self> {
        self.unknown(redis, CallError::Server(brief(reply)), attempts)
    }

    fn replies(&self, redis: &Redis, items: &[Value]) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match reply_of(item) {
                Ok(reply) => replies.push(reply),
                Err(reason) => return Err(self.failed(redis, index, &reason, replies)),
            }
        }
        Ok(replies)
    }
}

/// The `Err` is the text of an error that the reply contains.
fn reply_of(value: &Value) -> Result<Reply, String> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(*number),
        Value::BulkString(bytes) => Reply::Bytes(bytes.clone()),
        Value::Okay => Reply::Bytes(b"OK".to_vec()),
        Value::SimpleString(text) => Reply::Bytes(text.clone().into_bytes()),
        Value::Array(items) => Reply::List(items.iter().map(reply_of).collect::<Result<_, _>>()?),
        other => return Err(brief(other)),
    })
}

impl Operation for Guarded<'_> {
    type Answer = Outcome<Vec<Reply>, Duration>;

    fn call(&self) -> Call<'_> {
        // The server could not recognize a repeated attempt, so an unanswered request is not sent again.
        let call = match self.check {
            Check::Hold(claim, end) => Call {
                valid_until: Some(end),
                ..Call::of(claim, |_| self.script)
            },
            Check::Fence(resource, fence) => Call {
                fence: Some(fence),
                ..Call::new(Kind::default(), |_| self.script, resource, None)
            },
        };
        Call {
            work: Some(self.work),
            replicates: true,
            ..call
        }
    }

    fn read(&mut self, redis: &Redis, reply: &Value, attempts: &mut Attempts) -> Read<Self> {
        match (integer_at(reply, 0), item_at(reply, 2), item_at(reply, 4)) {
            (Some(1), Some(Value::Array(items)), _) => {
                let replies = self.replies(redis, items)?;
                if let Some(replica_ack) = attempts.replicas_missing() {
                    let fault = CallError::NotSent(redis.half_done(&replica_ack));
                    return Ok(self.unknown(redis, fault, attempts)?);
                }
                Ok(Outcome::Done(replies))
            }
            (Some(2), Some(holder), _) => Ok(Outcome::Gone(cause_of(holder))),
            (Some(3), ..) => self.too_late(attempts).map(Outcome::Refused),
            (Some(7), Some(Value::Int(index)), Some(Value::Array(items))) => {
                let done = self.replies(redis, items)?;
                let index = usize::try_from(*index).unwrap_or_default();
                let reason = item_at(reply, 3).map(text_of).unwrap_or_default();
                Err(self.failed(redis, index, &reason, done).into())
            }
            (Some(8), Some(seen), _) => match (self.check, text_of(seen).parse()) {
                (Check::Fence(resource, fence), Ok(newer)) => Err(Error::Stale {
                    resource: Arc::clone(resource),
                    fence,
                    newer,
                }
                .into()),
                _ => Ok(self.unreadable(redis, reply, attempts)?),
            },
            _ => Ok(self.unreadable(redis, reply, attempts)?),
        }
    }

    fn unknown(&self, redis: &Redis, fault: CallError, _: &Attempts) -> Answered<Self> {
        let (visitor, operation) = match self.check {
            Check::Hold(claim, _) => (Some(&claim.visitor), "guarded write"),
            Check::Fence(..) => (None, "fenced write"),
        };
        Err(redis.unknown(self.lock(), visitor, operation, fault.into_reason()))
    }

    fn refused(&self, redis: &Redis, fault: CallError, _: Instant) -> Error {
        let lock = self.lock();
        let CallError::Server(text) = &fault else {
            return redis.error_about(redis.topology.name(lock), lock, &[], fault);
        };
        if text.contains("Error compiling script") {
            return self.failed(redis, 0, text, Vec::new());
        }
        let is_elsewhere = |key: &&str| keys::slot(key) != keys::slot(lock);
        if text.starts_with("CROSSSLOT")
            && let Some(key) = self.work.keys().find(is_elsewhere)
        {
            return Error::CrossSlot {
                lock: Arc::clone(lock),
                key: key.to_owned(),
            };
        }
        // The user can access the lock's key, because the lock was acquired. So the error names only the other keys.
        let mut keys: Vec<&str> = self.work.keys().collect();
        let fence = FENCE.of(lock);
        if let Check::Fence(..) = self.check {
            keys.push(&fence);
        }
        redis.error_about(redis.topology.name(lock), lock, &keys, fault)
    }
}

impl Redis {
    pub(crate) fn run_guarded(
        &self,
        guarded: &store::Guarded<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Vec<Reply>, Duration>> {
        let store::Guarded {
            claim,
            work,
            valid_until,
        } = *guarded;
        let text = match work {
            Work::Commands(_) => None,
            Work::Script { text, .. } => Some(around(text)),
        };
        let script = text.as_ref().unwrap_or(&*GUARDED);
        let check = Check::Hold(claim, valid_until);
        let mut operation = Guarded {
            check,
            work,
            script,
            was_late: false,
        };
        operation.run(self, deadline)
    }

    pub(crate) fn write_fenced(
        &self,
        resource: &Arc<str>,
        fence: u64,
        work: Work<'_>,
        deadline: Instant,
    ) -> Result<Vec<Reply>> {
        let mut operation = Guarded {
            check: Check::Fence(resource, fence),
            work,
            script: &FENCED,
            was_late: false,
        };
        match operation.run(self, deadline)? {
            Outcome::Done(replies) => Ok(replies),
            Outcome::Unknown { error, .. } => Err(error),
            Outcome::Gone(_) | Outcome::Refused(_) => {
                let reason = "the server replied about a hold".into();
                Err(self.unknown(resource, None, "fenced write", reason))
            }
        }
    }
}
