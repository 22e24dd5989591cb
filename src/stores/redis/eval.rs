//! A call of a script: by its hash, or with its text.

use std::time::Instant;

use redis::Value;

use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::{CallError, Connection, Pool, lacks_evalsha};
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};

impl Pool {
    /// Runs a script: by its hash, and with its text if the server does not know it yet.
    pub(crate) fn eval(
        &self,
        connection: &mut Connection,
        script: &Script,
        keys: &[&str],
        args: &[&[u8]],
        deadline: Instant,
    ) -> Result<Value, CallError> {
        let number = connection.number();
        self.eval_with(script, keys, args, number, |packed| {
            connection.ask(&packed, deadline)?;
            connection.answer(number, deadline)
        })
    }

    /// Runs a script, and asks in the same breath how many replicas have its effect. That answer is of no interest if
    /// the script did nothing.
    pub(crate) fn eval_replicated(
        &self,
        connection: &mut Connection,
        script: &Script,
        keys: &[&str],
        args: &[&[u8]],
        replication: Replication,
        deadline: Instant,
    ) -> Result<(Value, ReplicaAck), CallError> {
        let number = connection.number();
        self.eval_with(script, keys, args, number, |mut packed| {
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
        script: &Script,
        keys: &[&str],
        args: &[&[u8]],
        number: i64,
        mut call: impl FnMut(Vec<u8>) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let script = if self.is_sharded() {
            script.sharded()
        } else {
            script
        };
        if !self.uses_text() {
            match call(script.pack(false, keys, args, number)) {
                Err(CallError::Server(text)) if text.starts_with("NOSCRIPT") => {}
                Err(CallError::Server(text)) if lacks_evalsha(&text) => self.note_evalsha_is_off(),
                outcome => return outcome,
            }
        }
        call(script.pack(true, keys, args, number))
    }
}
