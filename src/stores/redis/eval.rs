//! A call of a script: by its hash, or with its text.

use std::time::Instant;

use redis::Value;

use crate::stores::redis::calls::{Call, Limit};
use crate::stores::redis::transport::{CallError, Connection, Pool, lacks_evalsha};
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};

impl Pool {
    /// Runs a script: by its hash, and with its text if the server does not know it yet.
    pub(crate) fn eval(
        &self,
        connection: &mut Connection,
        call: &Call<'_>,
        limit: Limit<'_>,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        let number = connection.number();
        self.eval_with(call, limit, number, |packed, is_second| {
            if is_second {
                connection.has_only_refused()?;
            }
            connection.ask(&packed, deadline)?;
            connection.answer(number, deadline)
        })
    }

    /// Runs a script, and asks in the same breath how many replicas have its effect. That answer is of no interest if
    /// the script did nothing.
    pub(crate) fn eval_replicated(
        &self,
        connection: &mut Connection,
        call: &Call<'_>,
        limit: Limit<'_>,
        replication: Replication,
        deadline: Instant,
    ) -> Result<(Value, ReplicaAck), CallError> {
        let number = connection.number();
        self.eval_with(call, limit, number, |mut packed, is_second| {
            if is_second {
                connection.has_only_refused()?;
            }
            packed.extend(replication.question(deadline));
            connection.ask(&packed, deadline)?;
            let reply = connection.answer(number, deadline);
            if matches!(reply, Err(CallError::NoReply { .. })) {
                return reply.map(|reply| (reply, ReplicaAck::NoAnswer));
            }
            let replica_ack = ReplicaAck::of(connection.receive(deadline), replication);
            // The answer of the script stands, but the one behind it may still come.
            connection.is_spent |= replica_ack == ReplicaAck::NoAnswer;
            Ok((reply?, replica_ack))
        })
    }

    /// Both calls have the same number: whichever of two copies is answered, the answer is that of the request.
    fn eval_with<T>(
        &self,
        call: &Call<'_>,
        limit: Limit<'_>,
        number: i64,
        mut send: impl FnMut(Vec<u8>, bool) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let call = call.for_shards(self.is_sharded());
        let packed = |by_text| {
            let mut packed = Vec::new();
            call.pack(by_text, limit, number, &mut packed);
            packed
        };
        let by_hash = !self.uses_text();
        if by_hash {
            match send(packed(false), false) {
                Err(CallError::Server(text)) if text.starts_with("NOSCRIPT") => {}
                Err(CallError::Server(text)) if lacks_evalsha(&text) => self.note_evalsha(false),
                outcome => return outcome,
            }
        }
        send(packed(true), by_hash).map_err(CallError::of_a_text)
    }
}

#[cfg(test)]
mod tests;
