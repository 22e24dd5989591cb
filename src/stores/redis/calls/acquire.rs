use std::time::Duration;

use redis::Value;

use crate::ground::claim::Claim;
use crate::ground::error::Result;
use crate::ground::loss::printable;
use crate::store::{Granted, Outcome, Refusal, Released};
use crate::stores::quorum::quarantine::NodeHandle;
use crate::stores::redis::Redis;
use crate::stores::redis::calls::reentry::SetCount;
use crate::stores::redis::calls::{
    Answered, Attempts, Call, Operation, Read, Release, ReleaseLevel, Repeat,
};
use crate::stores::redis::replies::{integer_at, item_at, text_of};
use crate::stores::redis::transport::CallError;
use crate::stores::redis::wait_replicas::ReplicaAck;

pub(crate) struct Acquire<'a> {
    count: SetCount<'a>,
    /// The hold count that the first attempt expects. `count.known` is the hold count that the next attempt expects.
    known: u32,
    floor: u64,
    handle: Option<&'a NodeHandle>,
}

impl<'a> Acquire<'a> {
    pub(crate) fn new(claim: &'a Claim, floor: u64) -> Acquire<'a> {
        let known = claim.count;
        let wanted = known.saturating_add(1);
        Acquire {
            count: SetCount {
                claim,
                known,
                wanted,
            },
            known,
            floor,
            handle: None,
        }
    }

    /// For a node of a quorum. If `restored`, the server lost the hold, so the new hold gets the count of `claim`.
    pub(crate) fn voted(claim: &'a Claim, restored: bool, handle: &'a NodeHandle) -> Acquire<'a> {
        let mut acquire = Acquire {
            handle: Some(handle),
            ..Acquire::new(claim, 0)
        };
        if restored {
            acquire.known = 0;
            (acquire.count.known, acquire.count.wanted) = (0, claim.count);
        }
        acquire
    }

    fn put_back(
        &self,
        redis: &Redis,
        replica_ack: ReplicaAck,
        attempts: &Attempts,
    ) -> Result<Outcome<Granted, Refusal>> {
        let claim = self.count.claim;
        let error = redis.unreplicated(&claim.name, replica_ack);
        let is_quiet = false;
        let mut release = Release { claim, is_quiet };
        if self.known > 0 {
            let levels = Claim {
                count: self.count.wanted,
                ..claim.clone()
            };
            // The re-entry may have extended the lease. So the outcome is unknown, whatever this release returns.
            let _ = ReleaseLevel::new(&levels, self.known, false).run(redis, attempts.deadline);
        } else if let Ok(Outcome::Done(Released { leftover: None, .. }) | Outcome::Gone(_)) =
            release.run(redis, attempts.deadline)
        {
            return Err(error);
        }
        Ok(Outcome::unknown(claim.in_doubt(attempts.not_after), error))
    }
}

impl Operation for Acquire<'_> {
    type Answer = Outcome<Granted, Refusal>;

    fn call(&self) -> Call<'_> {
        let call = self.count.call(|layout| &layout.acquire);
        Call {
            floor: self.floor,
            replicates: true,
            handle: self.handle,
            // If the first attempt has begun a new hold, some scripts would refuse a repetition of the attempt.
            repeat: match self.known > 0 {
                true => call.repeat,
                false => Repeat::Never,
            },
            ..call
        }
    }

    fn read(&mut self, redis: &Redis, reply: &Value, attempts: &mut Attempts) -> Read<Self> {
        let claim = self.count.claim;
        let token = integer_at(reply, 2).filter(|_| integer_at(reply, 0) == Some(1));
        let life = integer_at(reply, 2).filter(|_| integer_at(reply, 0) == Some(5));
        let is_granted = token.or(life).is_some() || matches!(reply, Value::Int(_));
        if let (true, Some(sent)) = (is_granted, attempts.sent_since) {
            let fence = match token.map(|token| redis.drawn(claim, token, self.floor)) {
                Some(Err(error)) => {
                    return Ok(Outcome::unknown(claim.in_doubt(attempts.not_after), error));
                }
                fence => fence.and_then(Result::ok),
            };
            // An earlier attempt without a reply may arrive after a release of this level, and then acquire the level
            // again. So the caller gets this attempt as an in-doubt request.
            let leftover = attempts.leftover(claim);
            if let Some(replica_ack) = attempts.replicas_missing() {
                return Ok(self.put_back(redis, replica_ack, attempts)?);
            }
            return Ok(Outcome::Done(Granted {
                fence,
                life: life.map(|life| Duration::from_millis(life.unsigned_abs())),
                leftover,
                ..Granted::at(sent)
            }));
        }
        let (Some(0), Some(Value::Int(ttl))) = (integer_at(reply, 0), item_at(reply, 2)) else {
            return self.count.read_failure(redis, reply);
        };
        attempts.last_did_not_run();
        let holder = item_at(reply, 3).map(text_of).unwrap_or_default();
        Ok(Outcome::Refused(Refusal {
            retry_after: u64::try_from(*ttl).ok().map(Duration::from_millis),
            holder: Some(printable(&holder).into()),
            leftover: attempts
                .are_in_doubt()
                .then(|| claim.in_doubt(attempts.not_after)),
            recheck_after: integer_at(reply, 4)
                .and_then(|pause| u64::try_from(pause).ok())
                .map(Duration::from_millis),
            ..Refusal::default()
        }))
    }

    fn unknown(&self, redis: &Redis, fault: CallError, attempts: &Attempts) -> Answered<Self> {
        Ok(redis.not_known(self.count.claim, "acquire", fault.into_reason(), attempts))
    }
}
