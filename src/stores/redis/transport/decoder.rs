//! Replies, read from a stream by a deadline.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Parser, Value};

use crate::ground::error::Reason;
use crate::ground::time;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::reply_text::cut;
use crate::stores::redis::transport::socket::passes;
use crate::stores::redis::transport::stream::Stream;

/// A reply larger than this is none of ours.
const LARGEST_REPLY: usize = 1 << 20;

/// How much memory for replies a connection keeps, about.
const MOST_KEPT: usize = 1 << 16;

/// How much is read from a socket at once.
const READ_AT_ONCE: usize = 4096;

/// How the words begin about a server that is no Redis.
pub(crate) const STRANGER: &str = "it answered";

/// How much of what is no reply.
const MOST_OF_A_STRANGER: usize = 64;

/// A socket time-out may overshoot the deadline by this much, so that it need not be set anew for every call.
const TIMEOUT_SLACK: Duration = Duration::from_millis(20);

/// The reader of the replies that come on one stream.
#[derive(Default)]
pub(super) struct Decoder {
    parser: Parser,
    input: Input,
}

#[derive(Default)]
struct Input {
    buffer: ReadBuffer,
    /// Whether the parser has the beginning of a reply.
    is_within: bool,
    /// The description of the other end, if it is no Redis.
    stranger: Option<String>,
    read_timeout: Option<Duration>,
}

impl Decoder {
    /// Reads one reply. After a time-out the rest of it can still be read by a later call.
    pub(super) fn receive(
        &mut self,
        stream: &mut Stream,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        let mut reader = Timed {
            stream,
            input: &mut self.input,
            deadline,
            allowance: LARGEST_REPLY,
        };
        let parsed = self.parser.parse_value(&mut reader);
        let rest = reader.allowance;
        if parsed.is_ok() {
            self.input.is_within = false;
            if rest < LARGEST_REPLY - MOST_KEPT {
                // It has nothing left, and keeps as much memory as it ever needed.
                self.parser = Parser::new();
            }
        }
        match parsed {
            Ok(Value::ServerError(error)) => Err(CallError::Server(match error.details() {
                Some(details) => cut(&format!("{} {details}", error.code())),
                None => cut(error.code()),
            })),
            Ok(value) => Ok(value),
            Err(error) => {
                if let Some(stranger) = &self.input.stranger {
                    return Err(CallError::NoReply {
                        timed_out: false,
                        reason: stranger.clone().into(),
                    });
                }
                let words = if error.is_timeout() {
                    "no reply in time".to_owned()
                } else if error.is_connection_dropped() {
                    "the connection was closed before the reply".to_owned()
                } else {
                    format!("the reply could not be read: {error}")
                };
                Err(CallError::NoReply {
                    timed_out: error.is_timeout(),
                    reason: match io_error_in(&error) {
                        Some(error) => Reason::of_shared_io(words, error),
                        None => words.into(),
                    },
                })
            }
        }
    }

    /// Whether more came than was read.
    pub(super) fn has_unread(&self) -> bool {
        !self.input.buffer.rest().is_empty()
    }

    /// Takes the description of the other end, if it is no Redis.
    pub(super) fn take_stranger(&mut self) -> Option<String> {
        self.input.stranger.take()
    }
}

/// A reader that keeps one deadline over all its reads.
struct Timed<'a> {
    stream: &'a mut Stream,
    input: &'a mut Input,
    deadline: Instant,
    allowance: usize,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.input.buffer.rest().is_empty() {
            let read = self.fill()?;
            self.allowance = self.allowance.checked_sub(read).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "the reply is larger than 1 MiB")
            })?;
        }
        if !self.input.is_within && self.input.buffer.is_strange() {
            self.input.stranger = Some(self.input.buffer.stranger());
            return Err(io::ErrorKind::InvalidData.into());
        }
        let taken = self.input.buffer.take_line(buffer);
        self.input.is_within |= taken > 0;
        Ok(taken)
    }
}

impl Timed<'_> {
    /// Reads from the socket. Nothing at its end.
    fn fill(&mut self) -> io::Result<usize> {
        loop {
            let left = self.deadline.saturating_duration_since(time::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if must_set(self.input.read_timeout, left) {
                self.stream.socket.set_read_timeout(left)?;
                self.input.read_timeout = Some(left);
            }
            match self.input.buffer.fill(self.stream) {
                Err(error) if passes(&error) => {}
                read => return read,
            }
        }
    }
}

/// The bytes that were read from a connection and that the parser has not got yet.
///
/// The parser gets it line by line. Every reply ends with a line, so the parser never has more than the one it reads, and
/// what came behind it can be seen here.
#[derive(Default)]
struct ReadBuffer {
    block: Vec<u8>,
    begin: usize,
    end: usize,
}

impl ReadBuffer {
    fn rest(&self) -> &[u8] {
        self.block.get(self.begin..self.end).unwrap_or_default()
    }

    /// Reads once from the stream, when all was taken.
    fn fill(&mut self, stream: &mut Stream) -> io::Result<usize> {
        self.block.resize(READ_AT_ONCE, 0);
        (self.begin, self.end) = (0, 0);
        self.end = stream.read(&mut self.block)?;
        Ok(self.end)
    }

    /// Whether no reply begins so.
    fn is_strange(&self) -> bool {
        const KINDS: &[u8] = b"+-:$*_,#!=(%~>|";
        self.rest()
            .first()
            .is_some_and(|kind| !KINDS.contains(kind))
    }

    /// Describes a server that begins a reply so.
    fn stranger(&self) -> String {
        const TLS: [[u8; 2]; 2] = [[0x15, 3], [0x16, 3]];
        let rest = self.rest();
        if TLS.iter().any(|record| rest.starts_with(record)) {
            return format!("{STRANGER} with TLS; use rediss:// to talk to it");
        }
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.get(..MOST_OF_A_STRANGER).unwrap_or(line);
        let line = cut(String::from_utf8_lossy(line).trim());
        format!("{STRANGER} {line}, so it is no Redis server; look at the host and the port")
    }

    /// Takes out what there is of the next line.
    fn take_line(&mut self, buffer: &mut [u8]) -> usize {
        let rest = self.rest();
        let line = rest.iter().position(|byte| *byte == b'\n');
        let length = line.map_or(rest.len(), |end| end + 1).min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest.iter().take(length)) {
            *to = *from;
        }
        self.begin += length;
        length
    }
}

/// Whether a socket's time-out has to be set anew: it would overshoot the deadline, or wake its thread too often.
pub(super) fn must_set(current: Option<Duration>, left: Duration) -> bool {
    current.is_none_or(|current| current > left + TIMEOUT_SLACK || current < left / 8)
}

/// The error of the operating system behind an error of the client library.
fn io_error_in(error: &redis::RedisError) -> Option<&io::Error> {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<Shared>()?.downcast_ref()
}
