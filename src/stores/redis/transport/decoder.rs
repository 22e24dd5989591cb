//! Reads replies from a stream by a deadline.
//!
//! The decoder finds the end of each reply. It parses integers itself, and leaves other replies to the parser of the
//! `redis` crate. That parser does not read the stream itself, for three reasons. It would zero a buffer of 8 KiB
//! before each read. It would hide whether bytes follow a reply. It is four times slower for an integer.

use std::io;
use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::error::Reason;
use crate::ground::time;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::reply_text::{cut, without_script};
use crate::stores::redis::transport::socket::{is_timeout, passes};
use crate::stores::redis::transport::stream::Stream;

/// In bytes.
const LARGEST_REPLY: usize = 1 << 20;
const TOO_LARGE: &str = "the reply is larger than 1 MiB";
const NO_REPLY: &str = "it is not a reply of a Redis server; check the host and the port, and whether the server \
    requires TLS (rediss://)";

/// The largest buffer that an idle connection keeps, in bytes.
const MOST_KEPT: usize = 1 << 16;

const READ_AT_ONCE: usize = 4096;

/// A socket's time-out may exceed the time until a request's deadline by this much. So most requests can keep the
/// time-out of an earlier request, without a system call.
const TIMEOUT_SLACK: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct Decoder {
    /// `block[begin..end]` was read from the socket, and is not decoded yet.
    block: Vec<u8>,
    begin: usize,
    end: usize,
    frame: Frame,
    /// Whether the last call of `receive` failed after it had read only a part of the reply.
    is_within: bool,
    read_timeout: Option<Duration>,
}

/// The scanned part of the current reply. A reply is complete if `values` counts all `elements` and the reply itself.
#[derive(Default)]
struct Frame {
    length: usize,
    /// The number of complete values and begun arrays.
    values: usize,
    /// The sum of the lengths of the arrays of the reply.
    elements: usize,
}

impl Decoder {
    /// After a time-out, the next call continues to read the same reply.
    pub(super) fn receive(
        &mut self,
        stream: &mut Stream,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        let read = self.read_whole(stream, deadline);
        self.is_within = read.is_err() && !self.rest().is_empty();
        read.map_err(no_reply)?;
        match self.take() {
            Some(Value::ServerError(error)) => Err(CallError::Server(match error.details() {
                Some(details) => cut(&without_script(&format!("{} {details}", error.code()))),
                None => cut(error.code()),
            })),
            Some(value) => Ok(value),
            None => Err(no_reply(garbled(NO_REPLY))),
        }
    }

    fn read_whole(&mut self, stream: &mut Stream, deadline: Instant) -> io::Result<()> {
        loop {
            let rest = self.block.get(self.begin..self.end).unwrap_or_default();
            if self.frame.is_whole(rest)? {
                return Ok(());
            }
            if self.fill(stream, deadline)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn fill(&mut self, stream: &mut Stream, deadline: Instant) -> io::Result<usize> {
        self.block.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.end >= LARGEST_REPLY {
            return Err(garbled(TOO_LARGE));
        }
        if self.end == self.block.len() {
            let larger = (self.end * 2).max(READ_AT_ONCE);
            self.block.resize(larger, 0);
        }
        loop {
            let left = deadline.saturating_duration_since(time::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if must_set(self.read_timeout, left) {
                stream.socket.set_read_timeout(left)?;
                self.read_timeout = Some(left);
            }
            let room = self.block.get_mut(self.end..).unwrap_or_default();
            match stream.read(room) {
                Err(error) if passes(&error) => {}
                read => {
                    self.end += *read.as_ref().unwrap_or(&0);
                    return read;
                }
            }
        }
    }

    /// Returns `None` if the reply is malformed.
    fn take(&mut self) -> Option<Value> {
        let Frame { length, .. } = std::mem::take(&mut self.frame);
        let reply = self.block.get(self.begin..self.begin + length)?;
        let value = match reply {
            [b':', number @ .., b'\r', b'\n'] => number_in(number).map(Value::Int),
            reply => redis::parse_redis_value(reply).ok(),
        };
        self.begin += length;
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
            self.block.truncate(MOST_KEPT);
            self.block.shrink_to(MOST_KEPT);
        }
        value
    }

    fn rest(&self) -> &[u8] {
        self.block.get(self.begin..self.end).unwrap_or_default()
    }

    pub(super) fn has_unread(&self) -> bool {
        self.begin < self.end && !self.is_within
    }
}

impl Frame {
    /// Continues the scan of `bytes`, which begins with the first byte of the reply.
    fn is_whole(&mut self, bytes: &[u8]) -> io::Result<bool> {
        while self.values <= self.elements {
            let mut rest = bytes.get(self.length..).unwrap_or_default();
            // Fail at the first byte: a server of another protocol may never send the end of a line.
            if rest.first().is_some_and(|kind| !b"+-:$*".contains(kind)) {
                return Err(io::Error::new(io::ErrorKind::Unsupported, NO_REPLY));
            }
            let Some((kind, text)) = line_in(&mut rest) else {
                return Ok(false);
            };
            match kind {
                b'+' | b'-' | b':' => {}
                b'*' => self.elements += length_in(text)?.unwrap_or(0),
                _ => {
                    let body = length_in(text)?.map_or(0, |length| length + 2);
                    match rest.get(body..) {
                        Some(behind) => rest = behind,
                        None => return Ok(false),
                    }
                }
            }
            self.values += 1;
            self.length = bytes.len() - rest.len();
        }
        Ok(true)
    }
}

/// Removes the next line from `rest`. Returns the first byte of the line, and its other bytes without `\r\n`.
fn line_in<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let length = rest.iter().position(|byte| *byte == b'\n')?;
    let (line, behind) = rest.split_at_checked(length + 1)?;
    *rest = behind;
    let (kind, text) = line.split_first()?;
    Some((*kind, text.strip_suffix(b"\r\n").unwrap_or_default()))
}

fn number_in(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let subtract = |sum: i64, digit: &u8| {
        let digit = digit.wrapping_sub(b'0');
        let sum = sum.checked_mul(10)?.checked_sub(digit.into())?;
        (digit < 10).then_some(sum)
    };
    let negative = digits.iter().try_fold(0, subtract)?;
    if is_negative {
        return Some(negative);
    }
    negative.checked_neg()
}

/// `None` means nil.
fn length_in(text: &[u8]) -> io::Result<Option<usize>> {
    let length = number_in(text).ok_or_else(|| garbled("a length is not a number"))?;
    match usize::try_from(length) {
        Ok(length) if length > LARGEST_REPLY => Err(garbled(TOO_LARGE)),
        length => Ok(length.ok()),
    }
}

fn garbled(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn no_reply(error: io::Error) -> CallError {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let timed_out = is_timeout(&error);
    let words = match error.kind() {
        _ if timed_out => "no reply in time".to_owned(),
        BrokenPipe | ConnectionReset | UnexpectedEof => {
            "the connection was closed before the reply".to_owned()
        }
        _ => format!("the reply could not be read: {error}"),
    };
    CallError::NoReply {
        timed_out,
        reason: Reason::of_io(words, error),
    }
}

/// Whether the socket needs a new time-out. A time-out much shorter than `left` would wake the thread often.
pub(super) fn must_set(current: Option<Duration>, left: Duration) -> bool {
    current.is_none_or(|current| current > left + TIMEOUT_SLACK || current < left / 8)
}

#[cfg(test)]
mod tests;
