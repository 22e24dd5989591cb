//! A call of a script: by its hash, or with its text.

use std::sync::atomic::Ordering;
use std::time::Instant;

use redis::Value;

use super::Pool;
use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::connection::Connection;
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
        let script = if self.is_sharded {
            script.sharded()
        } else {
            script
        };
        if !self.evalsha_is_off.load(Ordering::Relaxed) {
            match call(script.pack(false, keys, args, number)) {
                Err(CallError::Server(text)) if text.starts_with("NOSCRIPT") => {}
                Err(CallError::Server(text)) if lacks_evalsha(&text) => {
                    self.evalsha_is_off.store(true, Ordering::Relaxed)
                }
                outcome => return outcome,
            }
        }
        call(script.pack(true, keys, args, number))
    }

    pub(crate) fn note_evalsha_is_off(&self) {
        self.evalsha_is_off.store(true, Ordering::Relaxed);
    }

    pub(crate) fn uses_text(&self) -> bool {
        self.evalsha_is_off.load(Ordering::Relaxed)
    }
}

/// Whether the script has to be sent as text.
pub(crate) fn lacks_script(text: &str) -> bool {
    text.starts_with("NOSCRIPT") || lacks_evalsha(text)
}

/// Whether the server has no EVALSHA, or does not let this user have it; EVAL may be there all the same.
pub(crate) fn lacks_evalsha(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("'evalsha'") && (text.contains("unknown command") || text.starts_with("noperm"))
}

/// Whether the server does not let this user send scripts; calling them by their hash may be allowed all the same.
pub(crate) fn lacks_eval(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("'eval'") && (text.contains("unknown command") || text.starts_with("noperm"))
}
