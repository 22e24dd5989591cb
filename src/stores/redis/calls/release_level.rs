use redis::Value;

use crate::ground::claim::Claim;
use crate::store::{Outcome, Released};
use crate::stores::redis::Redis;
use crate::stores::redis::calls::reentry::SetCount;
use crate::stores::redis::calls::{Answered, Attempts, Call, Operation, Read};
use crate::stores::redis::transport::CallError;

pub(crate) struct ReleaseLevel<'a> {
    count: SetCount<'a>,
    replicates: bool,
}

impl<'a> ReleaseLevel<'a> {
    pub(crate) fn new(claim: &'a Claim, wanted: u32, replicates: bool) -> ReleaseLevel<'a> {
        let known = claim.count;
        let count = SetCount {
            claim,
            known,
            wanted,
        };
        ReleaseLevel { count, replicates }
    }
}

impl Operation for ReleaseLevel<'_> {
    type Answer = Outcome<Released>;

    fn call(&self) -> Call<'_> {
        Call {
            replicates: self.replicates,
            ..self.count.call(|layout| &layout.release_level)
        }
    }

    fn read(&mut self, redis: &Redis, reply: &Value, attempts: &mut Attempts) -> Read<Self> {
        if !matches!(reply, Value::Int(_)) {
            return self.count.read_failure(redis, reply);
        }
        let claim = self.count.claim;
        Ok(match attempts.replicas_missing() {
            // The master released the level, but too few replicas acknowledged the release. So the outcome is unknown.
            Some(replica_ack) => {
                redis.not_known(claim, "release", redis.half_done(&replica_ack), attempts)
            }
            None => Outcome::Done(Released {
                leftover: attempts.leftover(claim),
                ..Released::default()
            }),
        })
    }

    fn unknown(&self, redis: &Redis, fault: CallError, attempts: &Attempts) -> Answered<Self> {
        Ok(redis.not_known(self.count.claim, "release", fault.into_reason(), attempts))
    }
}
