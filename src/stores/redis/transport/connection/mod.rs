//! One connection to one server, on which every call ends by its deadline.
//!
//! The connection of the `redis` crate (1.8) is not used for two reasons: its time-outs are per read, so a reply that
//! drips in byte by byte takes as long as it likes, and it cannot be split, so that one thread writes while another one
//! reads, as the subscriber needs. The encoding of commands and the parser of replies are that crate's.

mod answers;
mod handshake;
mod identity;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::decoder::{Decoder, must_set};
use crate::stores::redis::transport::pool::lacks_script;
use crate::stores::redis::transport::socket::passes;
use crate::stores::redis::transport::stream::Stream;
use crate::stores::redis::transport::tls::Session;
pub(crate) use handshake::{CLUSTER_NODE, REFUSED_GIVEN, time_of};
pub(crate) use identity::Identity;
pub(crate) use writer::Writer;

/// An answer that is one small number comes in one integer with the number of its request, because an array costs a
/// server a twentieth of a request. Together they are at most what is exact in Lua.
const SMALL_BITS: u32 = 22;
const LARGEST_SMALL: i64 = (1 << SMALL_BITS) - 1;

/// The largest number of a request; the smallest is 1, which no small number alone can be taken for.
const NUMBERS: i64 = (1 << 30) - 1;

/// Why a connection is not used again.
const UNASKED: &str = "the connection was closed, or has an unsolicited reply";

/// A connection unused for this long is looked at before it is used: the server may have closed it meanwhile.
const STALE_AFTER: Duration = Duration::from_millis(10);

/// A request may run this much later by our clock than it has to arrive: a script takes effect at the time that it reads.
const LATEST: Duration = EXPIRY_SLACK
    .saturating_sub(Duration::from_secs(1))
    .saturating_sub(EXPIRY_DRIFT);

/// One connection.
pub(crate) struct Connection {
    /// Which of the servers of its route it leads to.
    pub(crate) generation: u64,
    /// Which server it leads to, once somebody wanted to know.
    pub(crate) identity: Option<Arc<Identity>>,
    /// The texts of the scripts that the server has got through it.
    loaded_scripts: SmallVec<[usize; 4]>,
    stream: Stream,
    decoder: Decoder,
    /// The number of the next request, which its answer repeats. Connections begin with random ones.
    next_number: i64,
    write_timeout: Option<Duration>,
    pub(crate) last_used: Instant,
    /// How far the server's clock is ahead, from the last reply that told the time.
    ahead: Offset,
    /// The clock that it is compared with.
    timeline: Timeline,
    /// Whether the server is to be asked for a slot that it is about to get from another one.
    pub(crate) is_asking: bool,
    /// Whether it cannot be used again: a reply is still to come that nobody will read, or one came that nobody asked for.
    pub(crate) is_spent: bool,
    /// Whether the last reply was an error. Nothing in a second copy of it would tell that it answers nothing.
    was_refused: bool,
    /// The answers that nobody has waited for, which come before all that is asked from now on.
    replies_due: VecDeque<ReplyDue>,
    /// What has come of the answer to commands in place of a script.
    parts: Answers,
    /// It is counted as long as it lives.
    #[expect(dead_code, reason = "its drop is what counts")]
    opened: Opened,
}

/// An answer that nobody has waited for.
struct ReplyDue {
    /// The number that it repeats. That to a request without a script has none.
    number: Option<i64>,
    /// If it has not come by then, it will not.
    until: Instant,
    /// It is noted here when it has come.
    answered: Option<Arc<AtomicBool>>,
}

impl Connection {
    /// Sends what is packed, and reads one reply.
    pub(crate) fn call(&mut self, packed: &[u8], deadline: Instant) -> Result<Value, CallError> {
        self.ask(packed, deadline)?;
        self.receive(deadline)
    }

    /// Sends what is packed, to be answered before anything else is sent.
    pub(crate) fn ask(&mut self, packed: &[u8], deadline: Instant) -> Result<(), CallError> {
        if self.is_stale(Duration::ZERO) {
            return Err(CallError::NotSent(UNASKED.into()));
        }
        if self.is_asking {
            let packed = [&asking(), packed].concat();
            self.send(&packed, deadline)?;
            self.skip(deadline)
        } else {
            self.send(packed, deadline)
        }
    }

    /// Fails if there is more than the error that refused a call. If that was the copy of an older one, the rest may be the
    /// answer of the call, which may have run then.
    pub(crate) fn has_only_refused(&self) -> Result<(), CallError> {
        if self.is_reset() {
            return Err(CallError::cut(UNASKED));
        }
        Ok(())
    }

    /// The number for a request that is to be sent next.
    pub(crate) fn number(&mut self) -> i64 {
        self.next_number = self.next_number % NUMBERS + 1;
        self.next_number
    }

    /// Whether the server answers.
    pub(crate) fn answers(&mut self, deadline: Instant) -> bool {
        self.ask(&packed(&["PING"]), deadline).is_ok() && self.skip(deadline).is_ok()
    }

    /// Reads one reply that nobody needs.
    pub(crate) fn skip(&mut self, deadline: Instant) -> Result<(), CallError> {
        match self.receive(deadline) {
            Ok(_) | Err(CallError::Server(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Sends what is packed. After an error the server has at most a part of it, which it does not execute.
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
                    return Err(CallError::NotSent(
                        "the server closed the connection".into(),
                    ));
                }
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if passes(&error) => {}
                Err(error) => {
                    return Err(CallError::NotSent(Reason::of_io(
                        format!("sending failed: {error}"),
                        error,
                    )));
                }
            }
        }
        Ok(())
    }

    /// Reads one reply. After a time-out the rest of it can still be read by a later call.
    pub(crate) fn receive(&mut self, deadline: Instant) -> Result<Value, CallError> {
        let reply = self.decoder.receive(&mut self.stream, deadline);
        self.was_refused = matches!(reply, Err(CallError::Server(_)));
        reply.map_err(CallError::of_a_proxy)
    }

    /// Leaves the answer to what was sent to whoever uses the connection next, who notes in `answered` that it has come. If
    /// it has not by `until`, it will not.
    pub(crate) fn owe(
        &mut self,
        number: Option<i64>,
        until: Instant,
        answered: Option<Arc<AtomicBool>>,
    ) {
        self.replies_due.push_back(ReplyDue {
            number,
            until,
            answered,
        });
    }

    /// Whether it owes answers.
    pub(crate) fn is_in_debt(&self) -> bool {
        !self.replies_due.is_empty()
    }

    /// Reads the answers that it owes.
    pub(crate) fn pay(&mut self, deadline: Instant) -> Result<(), CallError> {
        while let Some(due) = self.replies_due.front() {
            let reply = match due.number {
                Some(number) => self.answer(number, deadline),
                None => self.receive(deadline),
            };
            match reply {
                Err(CallError::Server(text)) if lacks_script(&text) => self.has_forgotten_scripts(),
                Ok(_) | Err(CallError::Server(_)) => {}
                Err(fault) => return Err(fault),
            }
            let paid = self.replies_due.pop_front();
            if let Some(answered) = paid.and_then(|due| due.answered) {
                answered.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Reads the answers that have come of those that it owes.
    fn pay_what_has_come(&mut self) -> Result<(), CallError> {
        while self.is_in_debt() && self.has_arrived() {
            // What has come in part mostly comes at once.
            match self.pay(time::now() + Duration::from_millis(1)) {
                Err(fault) if fault.is_timeout() => break,
                paid => paid?,
            }
        }
        Ok(())
    }

    /// Reads the answers that have come of those that it owes. Returns whether the others may still come.
    pub(crate) fn pays_in_time(&mut self) -> bool {
        let is_well = self.pay_what_has_come().is_ok() && !self.is_spent;
        let next = self.replies_due.front();
        is_well && next.is_none_or(|due| time::now() < due.until)
    }

    /// Reads the answers that have come of those that it owes. Returns whether none is left, or none will come.
    pub(crate) fn is_next(&mut self) -> bool {
        self.pay_what_has_come().is_err() || !self.is_in_debt()
    }

    /// Whether the server has closed the connection, or sent something nobody asked for, since it was used last. To look
    /// costs a system call, so that is done where it is likely.
    pub(crate) fn is_stale(&self, idle: Duration) -> bool {
        let is_likely = self.was_refused || idle >= STALE_AFTER;
        !self.is_in_debt() && (self.has_unread() || is_likely && self.is_reset())
    }

    /// As [`Connection::is_stale`], however short ago it was used.
    pub(crate) fn is_reset(&self) -> bool {
        if self.has_buffered() {
            return true;
        }
        match &self.stream.session {
            Some(session) => session.is_stale(&self.stream.socket),
            None => match self.stream.socket.receive_now(&mut [0; 1]) {
                Err(error) => !passes(&error),
                Ok(_) => true,
            },
        }
    }

    /// The connection, to wait at.
    pub(crate) fn source(&self) -> Source<'_> {
        self.stream.socket.source()
    }

    /// Whether something has arrived, the end of the connection included.
    pub(crate) fn has_arrived(&self) -> bool {
        self.has_buffered() || self.stream.socket.has_arrived()
    }

    /// Whether the server surely has had this script.
    pub(crate) fn has_script(&self, script: &Script) -> bool {
        self.loaded_scripts.contains(&script.id())
    }

    /// Notes that the server gets this script with what is sent.
    pub(crate) fn mark_loaded(&mut self, script: &Script) {
        if !self.has_script(script) {
            self.loaded_scripts.push(script.id());
        }
    }

    /// Notes that the server does not have the scripts any more.
    pub(crate) fn has_forgotten_scripts(&mut self) {
        self.loaded_scripts.clear();
    }

    /// Notes the time that the answer to a request tells, if it does. The request was sent at `sent` and was to be
    /// refused after `not_after`.
    pub(crate) fn note_time_in(&mut self, answer: &Value, not_after: i64, sent: BootInstant) {
        if let Some(now) = time_in(answer, not_after) {
            self.note_time(now, sent);
        }
    }

    /// Notes the server's time `now` in ms, told in the reply to a request sent at `sent`.
    pub(crate) fn note_time(&mut self, now: i64, sent: BootInstant) {
        self.ahead = Offset::told(now.saturating_mul(1000), sent, self.timeline.now());
    }

    /// When the server is to refuse a request that has to arrive by `at`, by its clock in ms. `now` is just past.
    pub(crate) fn expiry(&self, at: Instant, now: BootInstant) -> i64 {
        let at = now + at.saturating_duration_since(time::now());
        self.ahead.expiry(at, LATEST) / 1000
    }

    /// The last time of the server's clock, in whole ms, that is surely over by `end`.
    pub(crate) fn surely_before(&self, end: BootInstant) -> i64 {
        self.ahead.least_at(end) / 1000 - 1
    }

    /// Whether there is something to read for which the socket need not be waited for: it came together with what was
    /// read before.
    pub(crate) fn has_buffered(&self) -> bool {
        let session = self.stream.session.as_ref();
        self.has_unread() || session.is_some_and(Session::has_buffered)
    }

    /// Whether more came than was read. Where no answer is awaited, nobody asked for it.
    pub(crate) fn has_unread(&self) -> bool {
        self.decoder.has_unread()
    }

    /// A second handle of the same connection, to write to while this one reads.
    pub(crate) fn writer(&self) -> io::Result<Writer> {
        self.stream.writing_end().map(Writer::new)
    }
}

/// The server's time in ms that the answer to a request tells, which was to be refused after `not_after`.
fn time_in(answer: &Value, not_after: i64) -> Option<i64> {
    let now = match answer {
        // The rest of its time, or more than can be said.
        Value::Int(left) if (0..LARGEST_SMALL).contains(left) => not_after.checked_sub(*left),
        other => integer_at(other, 1),
    };
    now.filter(|now| *now > 0)
}

/// The packed request that goes before each one for a slot on the move.
pub(crate) fn asking() -> Vec<u8> {
    packed(&["ASKING"])
}

/// Returns a command in the form in which it is sent.
pub(crate) fn packed(words: &[&str]) -> Vec<u8> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.get_packed_command()
}
