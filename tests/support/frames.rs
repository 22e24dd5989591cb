//! Message boundaries of requests and replies: as much of the protocol as the proxy needs.

use std::io::Read;
use std::net::TcpStream;

/// Complete messages, read from a stream.
pub struct Frames<'a> {
    stream: &'a TcpStream,
    buffer: Vec<u8>,
}

impl<'a> Frames<'a> {
    /// Messages from the bytes that are read from now on.
    pub fn of(stream: &'a TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next message, the rest at the end of the stream, or `None` after that; `count` gets the number of bytes as
    /// they arrive.
    pub fn next(&mut self, count: impl Fn(u64)) -> Option<Vec<u8>> {
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some(length) = frame_length(&self.buffer) {
                return Some(self.buffer.drain(..length).collect());
            }
            match self.stream.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    count(read as u64);
                    self.buffer.extend_from_slice(&chunk[..read]);
                }
            }
        }
        Some(std::mem::take(&mut self.buffer)).filter(|rest| !rest.is_empty())
    }
}

/// The hash of the script whose text this request calls, if it does.
pub fn hash_of_text(frame: &[u8]) -> Option<String> {
    if !frame.get(..24)?.windows(6).any(|part| part == b"EVAL\r\n") {
        return None;
    }
    match redis::parse_redis_value(frame).ok()? {
        redis::Value::Array(parts) => match parts.get(1)? {
            redis::Value::BulkString(text) => {
                let text = std::str::from_utf8(text).ok()?;
                Some(redis::Script::new(text).get_hash().to_owned())
            }
            _ => None,
        },
        _ => None,
    }
}

/// The length of the first message in `bytes`, once it is complete.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let kind = *bytes.first()?;
    // A MySQL packet may begin with the same byte, but continues with the zeros of its length.
    let is_binary = bytes.iter().take(3).any(|byte| *byte == 0);
    if is_binary || !b"+-:_,#($=!*>~%|".contains(&kind) {
        return Some(bytes.len());
    }
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || {
        std::str::from_utf8(&bytes[1..line - 2])
            .ok()?
            .parse::<usize>()
            .ok()
    };
    let parts = match kind {
        b'$' | b'=' | b'!' => {
            // A length of -1 is nil and has no body.
            let end = number().map_or(line, |length| line + length + 2);
            return (bytes.len() >= end).then_some(end);
        }
        b'*' | b'>' | b'~' => number().unwrap_or(0),
        b'%' => 2 * number().unwrap_or(0),
        b'|' => 2 * number().unwrap_or(0) + 1,
        _ => 0,
    };
    let mut end = line;
    for _ in 0..parts {
        end += frame_length(&bytes[end..])?;
    }
    Some(end)
}

/// How many replies the server sends for a request: one for each channel of a subscription.
pub fn replies_to(request: &[u8]) -> usize {
    let name = request
        .split(|byte| *byte == b'\n')
        .nth(2)
        .unwrap_or_default();
    let words = request
        .split(|byte| *byte == b'\r')
        .next()
        .and_then(|line| std::str::from_utf8(line.get(1..)?).ok());
    match words.and_then(|words| words.parse::<usize>().ok()) {
        Some(words) if words > 2 && name.to_ascii_lowercase().ends_with(b"subscribe\r") => {
            words - 1
        }
        _ => 1,
    }
}

/// Whether this message from the server is not a reply.
pub fn is_push(reply: &[u8]) -> bool {
    let head = &reply[..reply.len().min(24)];
    // The reply to a subscription differs from a message only in its first word.
    matches!(head.first(), Some(b'*' | b'>'))
        && [
            &b"\r\nmessage\r\n"[..],
            b"\r\npmessage\r\n",
            b"\r\nsmessage\r\n",
        ]
        .iter()
        .any(|word| head.windows(word.len()).any(|part| part == *word))
}
