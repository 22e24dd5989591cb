//! Requests as they arrive: in pieces, or some and the beginning of another one.

use std::collections::BTreeMap;

/// By connection, the bytes that have come and have not run.
#[derive(Debug)]
pub(crate) struct Pieces(BTreeMap<u64, Vec<u8>>);

impl Pieces {
    pub(crate) const fn new() -> Pieces {
        Pieces(BTreeMap::new())
    }

    /// Adds what has come on a connection. Returns the requests that have run, if there was an answer: what comes behind
    /// them is the beginning of the next one, of which the rest names neither the script nor the visitor, maybe.
    pub(crate) fn add(&mut self, connection: u64, piece: &[u8], is_answered: bool) -> Vec<u8> {
        let mut requests = self.0.remove(&connection).unwrap_or_default();
        requests.extend(piece);
        let has_run = if is_answered { whole(&requests) } else { 0 };
        let rest = requests.split_off(has_run);
        if !rest.is_empty() {
            self.0.insert(connection, rest);
        }
        requests
    }

    /// What has come and has not run.
    pub(crate) fn begun(&self, connection: u64) -> &[u8] {
        self.0.get(&connection).map_or(&[], Vec::as_slice)
    }

    /// The connection has ended, and nothing follows.
    pub(crate) fn end(&mut self, connection: u64) {
        self.0.remove(&connection);
    }
}

/// How many bytes the requests have that are there as a whole.
fn whole(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some(behind) = behind_one(rest) {
        rest = behind;
    }
    bytes.len() - rest.len()
}

/// What comes behind the first request, if all of that is there.
fn behind_one(bytes: &[u8]) -> Option<&[u8]> {
    let (count, mut rest) = number(bytes, b'*')?;
    for _ in 0..count {
        let (length, behind) = number(rest, b'$')?;
        rest = behind.get(length + 2..)?;
    }
    Some(rest)
}

/// The number in a line of this kind, and what comes behind the line.
fn number(bytes: &[u8], kind: u8) -> Option<(usize, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = bytes.get(..end)?.strip_suffix(b"\r")?;
    let digits = line.strip_prefix(&[kind])?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, bytes.get(end + 1..)?))
}
