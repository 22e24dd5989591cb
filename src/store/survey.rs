//! The state of locks as an operator sees it: who holds them, and for how long. And how far a look at all of them has come.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{Kind, LockId};

/// The kind of a lock, as far as its store tells.
///
/// In Redis a [`lock`](crate::Client::lock) and a [`spin_lock`](crate::Client::spin_lock) are the same lock. A
/// [`fair_lock`](crate::Client::fair_lock) looks like one as long as nobody waits for it, and so does a lock for which no
/// fencing token was ever drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// A [`Client::lock`](crate::Client::lock) or Redisson's `RLock`.
    Reentrant,
    /// A [`Client::fenced_lock`](crate::Client::fenced_lock), or any lock in a database.
    Fenced,
    /// A [`Client::fair_lock`](crate::Client::fair_lock) that somebody waits for.
    Fair,
    /// A [`Client::read_write_lock`](crate::Client::read_write_lock) in the hands of readers.
    Read,
    /// The same in the hands of a writer, who may also read.
    Write,
    /// A [`Client::token_lock`](crate::Client::token_lock), or a string that looks like one.
    Token,
    /// A [`Client::semaphore`](crate::Client::semaphore) with owners.
    Semaphore,
    /// A [`Client::permit_semaphore`](crate::Client::permit_semaphore).
    PermitSemaphore,
    /// A [`Client::latch`](crate::Client::latch), or a semaphore without owners: a number alone does not tell.
    Counter,
}

impl LockKind {
    /// Returns the name of the kind in snake case, which stays the same in later versions.
    pub fn as_str(self) -> &'static str {
        match self {
            LockKind::Reentrant => "reentrant",
            LockKind::Fenced => "fenced",
            LockKind::Fair => "fair",
            LockKind::Read => "read",
            LockKind::Write => "write",
            LockKind::Token => "token",
            LockKind::Semaphore => "semaphore",
            LockKind::PermitSemaphore => "permit_semaphore",
            LockKind::Counter => "counter",
        }
    }

    /// The kind of a lock of which nothing stands in the store.
    pub(crate) fn of(kind: Kind) -> LockKind {
        match kind {
            Kind::Reentrant => LockKind::Reentrant,
            Kind::Token => LockKind::Token,
            Kind::Fenced => LockKind::Fenced,
            Kind::Latch => LockKind::Counter,
            Kind::Permits => LockKind::Semaphore,
            Kind::Read => LockKind::Read,
            Kind::Write => LockKind::Write,
            Kind::PermitIds => LockKind::PermitSemaphore,
            Kind::Fair => LockKind::Fair,
        }
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One hold of a lock, and the process behind it as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The id of the hold, which [`Lock::force_unlock_of`](crate::Lock::force_unlock_of) takes. That of a token lock is shown
    /// as four signs, `…` and a short hash of the whole token, as the token itself frees it.
    pub visitor: String,
    /// The uuid of the client; `None` for a token lock.
    pub client: Option<String>,
    /// The number of the thread, or of the owner that is no thread.
    pub thread: Option<u64>,
    /// The number of the hold; only holds of this library have one.
    pub hold: Option<u64>,
    /// How many times it was entered.
    pub count: u32,
    /// The library that holds it: `redlatch`, `Redisson`, or `unknown` for a token.
    pub by: &'static str,
    /// The address of a connection of the client, as the server sees it.
    pub address: Option<String>,
    /// The name of the machine, from the name of that connection; see
    /// [`Builder::connection_name`](crate::Builder::connection_name).
    pub host: Option<String>,
    /// The process, from the same name.
    pub pid: Option<u32>,
}

/// The state of one lock at the moment when its store was asked.
///
/// [`Lock::describe`](crate::Lock::describe) and [`Client::locks`](crate::Client::locks) make it. It is a look from outside: a
/// moment later it may be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The name of the lock, key prefix included.
    pub name: Arc<str>,
    /// The kind of lock.
    pub kind: LockKind,
    /// The server.
    pub node: Arc<str>,
    /// The holds, at most 64 of them; empty if nobody holds the lock.
    pub holders: Vec<Holder>,
    /// How long the lock lasts if nobody renews it; `None` if nobody holds it or it has no end.
    pub expires: Option<Duration>,
    /// How many processes listen to its unlock messages, up to 2 s longer than they wait; `None` if that is not known.
    pub listening: Option<u32>,
    /// The last fencing token, where the lock has some.
    pub fence: Option<u64>,
    /// How many nodes of a quorum have the hold, and how many nodes there are.
    pub nodes: Option<(u32, u32)>,
    /// The number that a semaphore or a latch has: free permits, or the count.
    pub available: Option<i64>,
}

/// The beginning of a token that may be shown.
const SHOWN: usize = 4;

/// The mark behind the signs of a token that are shown.
pub(crate) const CUT: char = '…';

/// The library of a hold.
const OURS: &str = "redlatch";
const REDISSONS: &str = "Redisson";
const UNKNOWN: &str = "unknown";

impl LockInfo {
    /// A lock that nobody holds.
    pub(crate) fn free(name: &Arc<str>, kind: LockKind, node: Arc<str>) -> LockInfo {
        LockInfo {
            name: Arc::clone(name),
            kind,
            node,
            holders: Vec::new(),
            expires: None,
            listening: None,
            fence: None,
            nodes: None,
            available: None,
        }
    }

    /// The same without what would let a reader of it free the lock.
    pub(crate) fn discreet(mut self) -> LockInfo {
        if self.kind == LockKind::Token {
            for holder in &mut self.holders {
                holder.visitor = shown(&holder.visitor);
            }
        }
        self
    }
}

/// A token as it is shown: its first signs, and a hash that tells it from others that begin alike.
///
/// The hash is 32-bit FNV-1a, the same in every version and process. It guards against accident alone: more bits would let a
/// reader find a short token out, and somebody who makes a token to collide could take the lock as well.
pub(crate) fn shown(token: &str) -> String {
    let hash = token.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let first: String = token.chars().take(SHOWN).collect();
    format!("{first}{CUT}{hash:08x}")
}

impl Holder {
    /// Returns whether this is the hold of a visitor whose whole id is this, also where the id is shown in part.
    pub fn is_visitor(&self, id: &str) -> bool {
        self.visitor == id || self.visitor == shown(id)
    }

    /// The holder whose field this is, with its count.
    pub(crate) fn of_field(field: &str, count: u32) -> Holder {
        let parts = Parts::of(field);
        let by = match &parts {
            Some(Parts { hold: Some(_), .. }) => OURS,
            Some(_) => REDISSONS,
            None => UNKNOWN,
        };
        Holder {
            visitor: field.to_owned(),
            client: parts.as_ref().map(|it| it.client.to_owned()),
            thread: parts.as_ref().map(|it| it.thread),
            hold: parts.and_then(|it| it.hold),
            count,
            by,
            address: None,
            host: None,
            pid: None,
        }
    }
}

/// The parts of the id of a hold: `uuid:thread`, with `:hold` behind it if it is ours, and with `:write` behind a writer.
pub(crate) struct Parts<'a> {
    client: &'a str,
    thread: u64,
    hold: Option<u64>,
}

impl<'a> Parts<'a> {
    /// Reads the field of a hash; `None` if it is of no lock.
    pub(crate) fn of(field: &'a str) -> Option<Parts<'a>> {
        let field = field.strip_suffix(":write").unwrap_or(field);
        let mut parts = field.split(':');
        let client = parts.next().filter(|client| is_uuid(client))?;
        let thread = number(parts.next()?)?;
        let hold = match parts.next() {
            Some(hold) => Some(number(hold)?),
            None => None,
        };
        parts.next().is_none().then_some(Parts {
            client,
            thread,
            hold,
        })
    }
}

/// A number as both libraries write it.
fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|digit| digit.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, sign)| match at {
            8 | 13 | 18 | 23 => sign == b'-',
            _ => sign.is_ascii_hexdigit(),
        })
}

/// The subject of a look.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SurveyOf<'a> {
    /// One lock, which is told of also if nobody holds it.
    One(&'a LockId),
    All(&'a Scope),
}

/// The locks that are looked for.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The beginning of their names, key prefix included.
    pub(crate) prefix: Arc<str>,
    /// Strings that may be the tokens of locks, too.
    pub(crate) has_tokens: bool,
    /// Semaphores and latches, too.
    pub(crate) has_counters: bool,
}

/// How far a look at all locks has come.
#[derive(Debug, Default)]
pub(crate) struct Position {
    pub(crate) is_over: bool,
    /// The servers that are done.
    pub(crate) done: Vec<Arc<str>>,
    /// The server that is being looked at, and its generation.
    pub(crate) at: Option<(Arc<str>, u64)>,
    pub(crate) cursor: u64,
    /// The processes that are connected to it.
    pub(crate) connected: Vec<Connected>,
    /// The name to go on behind.
    #[cfg(feature = "mysql")]
    pub(crate) after: Option<Arc<str>>,
    /// The node of a quorum, how far it has come, and what the nodes have told.
    pub(crate) node: usize,
    pub(crate) within: Option<Box<Position>>,
    pub(crate) told: BTreeMap<Arc<str>, BTreeMap<usize, LockInfo>>,
}

/// The process behind a connection of this library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connected {
    pub(crate) client: String,
    pub(crate) address: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
}

/// Says of each holder which process it is, where that is known.
pub(crate) fn introduce(locks: &mut [LockInfo], connected: &[Connected]) {
    for holder in locks.iter_mut().flat_map(|lock| &mut lock.holders) {
        let is_it = |it: &&Connected| holder.client.as_deref() == Some(&*it.client);
        if let Some(found) = connected.iter().find(is_it) {
            holder.address = Some(found.address.clone());
            holder.host = Some(found.host.clone());
            holder.pid = Some(found.pid);
        }
    }
}

/// The one lock that several nodes of a quorum have told of, of `of` nodes.
pub(crate) fn merged(told: Vec<LockInfo>, needed: usize, of: usize) -> Option<LockInfo> {
    let held_by = |info: &LockInfo, visitor: &str| {
        let mut holders = info.holders.iter();
        holders.any(|holder| holder.visitor == visitor)
    };
    let votes = |it: &&Holder| {
        told.iter()
            .filter(|info| held_by(info, &it.visitor))
            .count()
    };
    // The one that most nodes name; others are what attempts have left that did not get enough.
    let holders = told.iter().flat_map(|it| &it.holders);
    let holder = holders.rev().max_by_key(votes)?.clone();
    let mut told: Vec<LockInfo> = told;
    told.retain(|it| held_by(it, &holder.visitor));
    let mut expires: Vec<Option<Duration>> = told.iter().map(|it| it.expires).collect();
    // The longest first, and without an end before all.
    expires.sort_unstable_by_key(|it| std::cmp::Reverse(it.unwrap_or(Duration::MAX)));
    let last = needed.min(expires.len()).saturating_sub(1);
    let held = told.len();
    let names: Vec<&str> = told.iter().map(|it| &*it.node).collect();
    let node: Arc<str> = names.join(", ").into();
    let listening = told.iter().filter_map(|it| it.listening).max();
    let info = told.into_iter().next()?;
    let number = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
    Some(LockInfo {
        node,
        holders: vec![holder],
        expires: expires.get(last).copied().flatten(),
        listening,
        nodes: Some((number(held), number(of))),
        ..info
    })
}

#[cfg(test)]
mod tests;
