//! Sends scripts and receives their replies.

use std::slice;
use std::time::Instant;

use redis::Value;

use crate::stores::redis::calls::{Call, Limit, pack};
use crate::stores::redis::kinds::{Answers, Dialect, numbered};
use crate::stores::redis::transport::{
    CallError, Connection, LATENESS, Pool, lacks, lacks_eval, lacks_evalsha, lacks_script,
};
use crate::stores::redis::wait_replicas::{ReplicaAck, Replication};

pub(crate) struct Ticket {
    /// The number of the request, which the reply repeats.
    number: i64,
    pub(crate) by_text: bool,
    replication: Option<Replication>,
}

/// The reply to a script, and the acknowledgment of the replicas if the request had a `WAIT`.
pub(crate) type Reply = (Value, Option<ReplicaAck>);

impl Pool {
    pub(crate) fn send(
        &self,
        connection: &mut Connection,
        call: &Call<'_>,
        limit: Limit<'_>,
        (number, by_text): (i64, bool),
        deadline: Instant,
    ) -> Result<Ticket, CallError> {
        let by_text = by_text || self.uses_text();
        let mut packed = Vec::new();
        let sharded = self.is_sharded.then(|| call.for_shards());
        let call = sharded.as_ref().unwrap_or(call);
        let calls = slice::from_ref(call);
        pack(call.script, calls, by_text, limit, number, &mut packed);
        if let Some(wanted) = call.replication {
            packed.extend(wanted.question(deadline));
        }
        connection.ask(&packed, deadline)?;
        Ok(Ticket {
            number,
            by_text,
            replication: call.replication,
        })
    }

    pub(crate) fn receive(
        &self,
        connection: &mut Connection,
        ticket: &Ticket,
        deadline: Instant,
    ) -> Result<Reply, CallError> {
        connection.read_deferred(deadline)?;
        let reply = connection.answer(ticket.number, deadline);
        if matches!(reply, Err(CallError::NoReply { .. })) {
            return reply.map(|reply| (reply, None));
        }
        let replica_ack = ticket.replication.map(|wanted| {
            let replica_ack = ReplicaAck::of(connection.receive(deadline), wanted);
            // The reply to `WAIT` may still arrive, so the connection cannot carry another request.
            connection.is_unusable |= replica_ack == ReplicaAck::NoAnswer;
            replica_ack
        });
        if let Err(CallError::Server(text)) = &reply {
            if lacks_evalsha(text) {
                self.note_evalsha(false);
            }
            if lacks_script(text) {
                connection.has_forgotten_scripts();
            }
            // The address may now lead to a server without DELIFEQ or DELEX, so the client tests the commands again.
            if Answers::are_of(ticket.number) && (lacks(text, "delifeq") || lacks(text, "delex")) {
                self.note_dialect(None);
            }
        }
        match reply {
            Err(fault) if ticket.by_text => Err(fault.of_eval()),
            reply => Ok((reply?, replica_ack)),
        }
    }

    /// After NOSCRIPT, sends the script's text with the same request number. If NOSCRIPT was a duplicate of an earlier
    /// error, the first request may have run. The shared number makes the client accept the reply to the first request.
    pub(crate) fn eval(
        &self,
        connection: &mut Connection,
        call: &Call<'_>,
        limit: Limit<'_>,
        deadline: Instant,
    ) -> Result<Reply, CallError> {
        let number = self.number(connection, call);
        let ticket = self.send(connection, call, limit, (number, false), deadline)?;
        let outcome = match self.receive(connection, &ticket, deadline) {
            Err(CallError::Server(text)) if lacks_script(&text) && !ticket.by_text => {
                connection.has_only_refused()?;
                let ticket = self.send(connection, call, limit, (number, true), deadline)?;
                self.receive(connection, &ticket, deadline)
            }
            outcome => outcome,
        };
        match outcome {
            Err(CallError::Server(text))
                if lacks_eval(&text)
                    && self.uses_text()
                    && call.script.instead.is_some()
                    && call.handle.is_none() =>
            {
                if !self.find_dialect(connection, call.lock, deadline)? {
                    return Err(CallError::Server(text));
                }
                let number = self.number(connection, call);
                let ticket = self.send(connection, call, limit, (number, false), deadline)?;
                self.receive(connection, &ticket, deadline)
            }
            outcome => outcome,
        }
    }

    /// If the server runs no scripts, the number also encodes which commands replace the script.
    pub(crate) fn number(&self, connection: &mut Connection, call: &Call<'_>) -> i64 {
        let number = connection.number();
        match (self.dialect(), call.script.instead) {
            (Some(dialect), Some(instead)) if call.handle.is_none() => {
                numbered(number, dialect, instead)
            }
            _ => number,
        }
    }

    /// Tests the commands that replace the scripts of token locks, with a random token that no lock has.
    pub(crate) fn find_dialect(
        &self,
        connection: &mut Connection,
        key: &str,
        deadline: Instant,
    ) -> Result<bool, CallError> {
        let token = format!("{:032x}", fastrand::u128(..));
        let mut knows = |words: &[&str]| {
            let packed = redis::Cmd::new().arg(words).get_packed_command();
            let command = words.first().map(|it| it.to_ascii_lowercase());
            match connection.call(&packed, deadline) {
                Err(CallError::Server(text)) => Ok(!lacks(&text, &command.unwrap_or_default())),
                Err(fault) => Err(fault.of_query()),
                Ok(_) => Ok(true),
            }
        };
        let mut found = None;
        if knows(&["ECHO", &token])? {
            for dialect in Dialect::ALL {
                if found.is_none() && knows(&dialect.freeing(key, &token))? {
                    found = Some(dialect);
                }
            }
        }
        self.note_dialect(found);
        Ok(found.is_some())
    }
}

impl Ticket {
    /// Abandons the reply, which is expected by `deadline`. The next user of the connection reads the reply.
    pub(crate) fn leave(&self, connection: &mut Connection, deadline: Instant) {
        let until = deadline + LATENESS;
        connection.defer_reply(Some(self.number), until);
        if self.replication.is_some() {
            connection.defer_reply(None, until);
        }
    }
}

#[cfg(test)]
mod tests;
