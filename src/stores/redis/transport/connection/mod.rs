//! A connection to one server. Every call ends by its deadline.
//!
//! The connection of the `redis` crate (1.8) is not used, for two reasons. Its time-outs apply to each read, so a reply
//! in small pieces may exceed any deadline. It has no separate reading and writing ends, which the subscriber needs.

mod answers;
mod handshake;
mod identity;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use smallvec::SmallVec;

use crate::ground::clock::{BootInstant, Offset, Timeline};
use crate::ground::error::Reason;
use crate::ground::poll::Source;
use crate::ground::time;
use crate::store::{EXPIRY_DRIFT, EXPIRY_SLACK, Opened};
use crate::stores::redis::kinds::Answers;
use crate::stores::redis::replies::integer_at;
use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::decoder::{Decoder, must_set};
use crate::stores::redis::transport::socket::passes;
use crate::stores::redis::transport::stream::Stream;
use crate::stores::redis::transport::tls::Session;
use crate::stores::redis::transport::{CallError, lacks_script};
pub(crate) use handshake::{CLUSTER_NODE, REFUSED_CREDENTIALS, time_of};
pub(crate) use identity::Identity;
pub(crate) use writer::Writer;

/// Scripts return a small number and the request number in one integer. An array would cost 5 % more server time per
/// request. Together both numbers have at most 53 bits, so Lua represents them exactly.
const SMALL_BITS: u32 = 22;
const LARGEST_SMALL: i64 = (1 << SMALL_BITS) - 1;

/// The largest request number. The smallest is 1, because high bits of 0 mean a reply without a request number.
const NUMBERS: i64 = (1 << 30) - 1;

const UNSOLICITED: &str = "the connection was closed, or has an unsolicited reply";

/// A connection that was idle for longer than this is checked before use, because the server may have closed it.
const STALE_AFTER: Duration = Duration::from_millis(10);

/// The client only estimates the server's clock, so the server may accept a request up to this long after its deadline.
/// The subtracted 1 s is the longest time from a request's arrival to its effect.
const LATEST: Duration = EXPIRY_SLACK
    .saturating_sub(Duration::from_secs(1))
    .saturating_sub(EXPIRY_DRIFT);

pub(crate) struct Connection {
    /// The value of `KnownMaster::generation` when the connection was opened.
    pub(crate) generation: u64,
    pub(crate) identity: Option<Arc<Identity>>,
    loaded_scripts: SmallVec<[usize; 4]>,
    stream: Stream,
    decoder: Decoder,
    /// The number of the last request. Each connection begins with a random number.
    next_number: i64,
    write_timeout: Option<Duration>,
    pub(crate) last_used: Instant,
    /// How far the server's clock is ahead of `timeline`, according to the last reply that contained a time.
    ahead: Offset,
    timeline: Timeline,
    /// Whether to send `ASKING` before each request, because a slot is migrating to this server.
    pub(crate) is_asking: bool,
    /// Whether the connection must be closed, because a reply is missing, or belongs to no request.
    pub(crate) is_unusable: bool,
    /// Whether the last reply was an error. A duplicate of this error may follow, so the next user checks the socket.
    was_refused: bool,
    /// Unread replies to earlier requests. They arrive before the reply to the next request.
    deferred: VecDeque<DeferredReply>,
    /// The replies so far to a request that consists of several commands, on a server without scripts.
    parts: Answers,
    #[expect(dead_code, reason = "its drop is what counts")]
    opened: Opened,
}

struct DeferredReply {
    /// `None` if the reply contains no request number.
    number: Option<i64>,
    until: Instant,
}

impl Connection {
    pub(crate) fn call(&mut self, packed: &[u8], deadline: Instant) -> Result<Value, CallError> {
        self.ask(packed, deadline)?;
        self.receive(deadline)
    }

    pub(crate) fn ask(&mut self, request: &[u8], deadline: Instant) -> Result<(), CallError> {
        if self.is_stale(Duration::ZERO) {
            return Err(CallError::NotSent(UNSOLICITED.into()));
        }
        if self.is_asking {
            let both = [&encode(&["ASKING"]), request].concat();
            self.send(&both, deadline)?;
            self.skip(deadline)
        } else {
            self.send(request, deadline)
        }
    }

    /// Fails if bytes follow an error reply. The error may be a duplicate of an earlier error, and the bytes may be the
    /// reply to the request. So the request may have been executed.
    pub(crate) fn has_only_refused(&self) -> Result<(), CallError> {
        if self.is_reset() {
            return Err(CallError::cut(UNSOLICITED));
        }
        Ok(())
    }

    pub(crate) fn number(&mut self) -> i64 {
        self.next_number = self.next_number % NUMBERS + 1;
        self.next_number
    }

    pub(crate) fn answers(&mut self, deadline: Instant) -> bool {
        self.ask(&encode(&["PING"]), deadline).is_ok() && self.skip(deadline).is_ok()
    }

    pub(crate) fn skip(&mut self, deadline: Instant) -> Result<(), CallError> {
        match self.receive(deadline) {
            Ok(_) | Err(CallError::Server(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// If sending fails, the server has at most a part of the last command, and does not execute this command.
    pub(crate) fn send(&mut self, packed: &[u8], deadline: Instant) -> Result<(), CallError> {
        let sealed = self.stream.seal(packed).map_err(CallError::not_sent)?;
        let mut rest = &*sealed;
        while !rest.is_empty() {
            self.last_used = time::now();
            let left = deadline.saturating_duration_since(self.last_used);
            if left.is_zero() {
                return Err(CallError::NotSent("sending timed out".into()));
            }
            if must_set(self.write_timeout, left) {
                let set = self.stream.socket.set_write_timeout(left);
                set.map_err(CallError::not_sent)?;
                self.write_timeout = Some(left);
            }
            match (&self.stream.socket).write(rest) {
                Ok(0) => {
                    let reason = "the server closed the connection".into();
                    return Err(CallError::NotSent(reason));
                }
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if passes(&error) => {}
                Err(error) => {
                    let words = format!("sending failed: {error}");
                    return Err(CallError::NotSent(Reason::of_io(words, error)));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn receive(&mut self, deadline: Instant) -> Result<Value, CallError> {
        let reply = self.decoder.receive(&mut self.stream, deadline);
        self.was_refused = matches!(reply, Err(CallError::Server(_)));
        reply.map_err(CallError::of_a_proxy)
    }

    /// The next user of the connection reads the deferred reply first.
    pub(crate) fn defer_reply(&mut self, number: Option<i64>, until: Instant) {
        self.deferred.push_back(DeferredReply { number, until });
    }

    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    pub(crate) fn read_deferred(&mut self, deadline: Instant) -> Result<(), CallError> {
        while let Some(due) = self.deferred.front() {
            let reply = match due.number {
                Some(number) => self.answer(number, deadline),
                None => self.receive(deadline),
            };
            match reply {
                Err(CallError::Server(text)) if lacks_script(&text) => self.has_forgotten_scripts(),
                Ok(_) | Err(CallError::Server(_)) => {}
                Err(fault) => return Err(fault),
            }
            self.deferred.pop_front();
        }
        Ok(())
    }

    fn read_arrived(&mut self) -> Result<(), CallError> {
        while self.has_deferred() && self.has_arrived() {
            // If only a part of a reply has arrived, the rest usually follows at once.
            match self.read_deferred(time::now() + Duration::from_millis(1)) {
                Err(fault) if fault.is_timeout() => break,
                paid => paid?,
            }
        }
        Ok(())
    }

    /// Returns whether the connection is usable, and the next deferred reply is not overdue.
    pub(crate) fn is_ready(&mut self) -> bool {
        let is_well = self.read_arrived().is_ok() && !self.is_unusable;
        let next = self.deferred.front();
        is_well && next.is_none_or(|due| time::now() < due.until)
    }

    /// Returns true if no deferred reply is left, or if the connection failed.
    pub(crate) fn is_next(&mut self) -> bool {
        self.read_arrived().is_err() || !self.has_deferred()
    }

    /// Whether the server has closed the connection or sent an unsolicited reply. A recently used socket is not
    /// checked, because a check costs a system call.
    pub(crate) fn is_stale(&self, idle: Duration) -> bool {
        let is_likely = self.was_refused || idle >= STALE_AFTER;
        !self.has_deferred() && (self.decoder.has_unread() || is_likely && self.is_reset())
    }

    /// Like [`Connection::is_stale`], but always checks the socket.
    pub(crate) fn is_reset(&self) -> bool {
        if self.has_buffered() {
            return true;
        }
        match &self.stream.session {
            Some(session) => session.is_stale(&self.stream.socket),
            None => {
                let received = self.stream.socket.receive_now(&mut [0; 1]);
                !matches!(received, Err(error) if passes(&error))
            }
        }
    }

    pub(crate) fn source(&self) -> Source<'_> {
        self.stream.socket.source()
    }

    pub(crate) fn has_arrived(&self) -> bool {
        self.has_buffered() || self.stream.socket.has_arrived()
    }

    pub(crate) fn has_script(&self, script: &Script) -> bool {
        self.loaded_scripts.contains(&script.id())
    }

    pub(crate) fn mark_loaded(&mut self, script: &Script) {
        if !self.has_script(script) {
            self.loaded_scripts.push(script.id());
        }
    }

    pub(crate) fn has_forgotten_scripts(&mut self) {
        self.loaded_scripts.clear();
    }

    pub(crate) fn note_time_in(&mut self, answer: &Value, not_after: i64, sent: BootInstant) {
        if let Some(now) = time_in(answer, not_after) {
            self.note_time(now, sent);
        }
    }

    /// `now` is the server time, in ms since 1970.
    pub(crate) fn note_time(&mut self, now: i64, sent: BootInstant) {
        self.ahead = Offset::told(now.saturating_mul(1000), sent, self.timeline.now());
    }

    /// Returns the server time, in ms, after which the server refuses a request with the deadline `at`.
    pub(crate) fn expiry(&self, at: Instant, now: BootInstant) -> i64 {
        let at = now + at.saturating_duration_since(time::now());
        self.ahead.expiry(at, LATEST) / 1000
    }

    /// Returns a time in ms that the server's clock has certainly passed at `end`.
    pub(crate) fn surely_before(&self, end: BootInstant) -> i64 {
        self.ahead.least_at(end) / 1000 - 1
    }

    pub(crate) fn has_buffered(&self) -> bool {
        let session = self.stream.session.as_ref();
        self.decoder.has_unread() || session.is_some_and(Session::has_buffered)
    }

    pub(crate) fn writer(&self) -> io::Result<Writer> {
        self.stream.writing_end().map(Writer::new)
    }
}

fn time_in(answer: &Value, not_after: i64) -> Option<i64> {
    let now = match answer {
        // `left` is the time in ms until `not_after`. `LARGEST_SMALL` means that this time does not fit.
        Value::Int(left) if (0..LARGEST_SMALL).contains(left) => not_after.checked_sub(*left),
        other => integer_at(other, 1),
    };
    now.filter(|now| *now > 0)
}

pub(crate) fn encode(words: &[&str]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.get_packed_command()
}
