use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{Kind, LockId};

/// The kind of a lock, as far as the store records it.
///
/// In Redis, a [`lock`](crate::Client::lock) and a [`spin_lock`](crate::Client::spin_lock) are the same lock. Two other
/// locks are reported as [`LockKind::Reentrant`]: a [`fair_lock`](crate::Client::fair_lock) without waiters, and a
/// fenced lock whose counter of fencing tokens does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// A [`Client::lock`](crate::Client::lock) or Redisson's `RLock`.
    Reentrant,
    /// A [`Client::fenced_lock`](crate::Client::fenced_lock), or any lock in a database.
    Fenced,
    /// A [`Client::fair_lock`](crate::Client::fair_lock) with waiters.
    Fair,
    /// A [`Client::read_write_lock`](crate::Client::read_write_lock) held by readers.
    Read,
    /// A [`Client::read_write_lock`](crate::Client::read_write_lock) held by a writer, who may also read.
    Write,
    /// A [`Client::token_lock`](crate::Client::token_lock), or another string of at most 256 bytes.
    Token,
    /// A [`Client::semaphore`](crate::Client::semaphore) whose permits a client of this library holds.
    Semaphore,
    /// A [`Client::permit_semaphore`](crate::Client::permit_semaphore) with acquired permits.
    PermitSemaphore,
    /// A [`Client::latch`](crate::Client::latch), or a semaphore without holders. Both are stored as a plain number.
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

    /// The kind to report for a lock that has no key in the store.
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

/// One hold of a lock, and the holding process if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The id of the hold, for [`Lock::force_unlock_of`](crate::Lock::force_unlock_of). A token is shown as its first four
    /// characters, `…` and a short hash of the whole token. The rest is hidden, because everyone who knows the token can
    /// free the lock.
    pub visitor: String,
    /// The uuid of the client; `None` for a token lock, or if the id of the hold has no uuid.
    pub client: Option<String>,
    /// The number of the holding thread, or of the [`OwnedGuard`](crate::OwnedGuard).
    pub thread: Option<u64>,
    /// The number of the hold. Only holds of this library have a number.
    pub hold: Option<u64>,
    /// The hold count.
    pub count: u32,
    /// The library of the holder: `redlatch`, `Redisson`, or `unknown` if the id of the hold has no uuid.
    pub by: &'static str,
    /// The address of a connection of the client, as the server sees it.
    pub address: Option<String>,
    /// The host name of the holding process, taken from the name of its connection; see
    /// [`Builder::connection_name`](crate::Builder::connection_name).
    pub host: Option<String>,
    /// The process id of the holding process, taken from the name of its connection.
    pub pid: Option<u32>,
}

/// The state of one lock at the moment of the query.
///
/// [`Lock::describe`](crate::Lock::describe) and [`Client::locks`](crate::Client::locks) return lock states. A returned
/// state may be outdated at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The name of the lock, key prefix included.
    pub name: Arc<str>,
    /// The kind of lock.
    pub kind: LockKind,
    /// The name of the server; for a quorum, the names of the nodes that have the hold, or of all nodes if the lock is free.
    pub node: Arc<str>,
    /// The holds, at most 64; empty if the lock is free, and for semaphores and latches.
    pub holders: Vec<Holder>,
    /// The remaining life of the lock if nothing renews it; `None` if the lock is free or has no end.
    pub expires: Option<Duration>,
    /// The number of clients that are subscribed to the unlock messages of the lock; `None` if unknown. A client stays
    /// subscribed for a few seconds after its last wait.
    pub listening: Option<u32>,
    /// The last fencing token that was issued, if the lock has fencing tokens.
    pub fence: Option<u64>,
    /// For a quorum: the number of nodes that have the hold, and the number of nodes.
    pub nodes: Option<(u32, u32)>,
    /// The free permits of a semaphore, or the count of a latch.
    pub available: Option<i64>,
}

/// The number of characters of a token that may be shown.
const SHOWN: usize = 4;

pub(crate) const TOKEN_CUT: char = '…';

const OURS: &str = "redlatch";
const REDISSONS: &str = "Redisson";
const UNKNOWN: &str = "unknown";

impl LockInfo {
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

    /// Shortens tokens, because everyone who knows a token can free the lock.
    pub(crate) fn discreet(mut self) -> LockInfo {
        if self.kind == LockKind::Token {
            for holder in &mut self.holders {
                holder.visitor = shown_token(&holder.visitor);
            }
        }
        self
    }
}

/// Returns the first characters of a token, and a hash that distinguishes tokens with the same beginning.
///
/// The hash is 32-bit FNV-1a. It is the same in every version and process, and too short to reveal a random token. A
/// malicious client could cause a collision. But such a client could also hold the lock forever.
pub(crate) fn shown_token(token: &str) -> String {
    let hash = token.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let first: String = token.chars().take(SHOWN).collect();
    format!("{first}{TOKEN_CUT}{hash:08x}")
}

impl Holder {
    /// Returns whether `id` is the id of this hold. If [`Holder::visitor`] shows only a part of a token, `id` may be
    /// the whole token or the shown part.
    pub fn is_visitor(&self, id: &str) -> bool {
        self.visitor == id || self.visitor == shown_token(id)
    }

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

/// The parts of the id of a hold: `uuid:thread` (Redisson) or `uuid:thread:hold` (this library). The id of a writer ends
/// with `:write`.
pub(crate) struct Parts<'a> {
    client: &'a str,
    thread: u64,
    hold: Option<u64>,
}

impl<'a> Parts<'a> {
    /// Returns `None` if the field is not the id of a hold.
    pub(crate) fn of(field: &'a str) -> Option<Parts<'a>> {
        let field = field.strip_suffix(":write").unwrap_or(field);
        let mut parts = field.split(':');
        let client = parts.next().filter(|client| is_uuid(client))?;
        let thread = number(parts.next()?)?;
        let hold = match parts.next() {
            Some(hold) => Some(number(hold)?),
            None => None,
        };
        let is_whole = parts.next().is_none();
        is_whole.then_some(Parts {
            client,
            thread,
            hold,
        })
    }
}

/// `str::parse` alone would accept a leading `+`.
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

#[derive(Clone, Copy, Debug)]
pub(crate) enum SurveyOf<'a> {
    /// One lock, described even if it is free.
    One(&'a LockId),
    All(&'a Scope),
}

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// The beginning of all lock names in the scope, key prefix included.
    pub(crate) prefix: Arc<str>,
    /// Whether to include strings, which may be token locks.
    pub(crate) has_tokens: bool,
    pub(crate) has_counters: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Position {
    pub(crate) is_over: bool,
    pub(crate) done: Vec<Arc<str>>,
    /// The server to which `cursor` belongs, and a number that rises when another server becomes the master.
    pub(crate) at: Option<(Arc<str>, u64)>,
    pub(crate) cursor: u64,
    /// The processes that are connected to the server `at`.
    pub(crate) connected: Vec<Connected>,
    /// The last lock name that the survey has returned.
    #[cfg(feature = "mysql")]
    pub(crate) after: Option<Arc<str>>,
    /// In a quorum, the index of the node that is surveyed now. `within` is the position at that node. For each lock name
    /// and node index, `told` has the description that the node returned.
    pub(crate) node: usize,
    pub(crate) within: Option<Box<Position>>,
    pub(crate) told: BTreeMap<Arc<str>, BTreeMap<usize, LockInfo>>,
}

/// A process that has a connection of this library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connected {
    pub(crate) client: String,
    pub(crate) address: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
}

pub(crate) fn fill_in_processes(locks: &mut [LockInfo], connected: &[Connected]) {
    for holder in locks.iter_mut().flat_map(|lock| &mut lock.holders) {
        let is_it = |it: &&Connected| holder.client.as_deref() == Some(&*it.client);
        if let Some(found) = connected.iter().find(is_it) {
            holder.address = Some(found.address.clone());
            holder.host = Some(found.host.clone());
            holder.pid = Some(found.pid);
        }
    }
}

/// Merges the nodes' descriptions of one lock. `of` is the number of nodes, and `needed` is the size of a majority.
pub(crate) fn merge_nodes(mut told: Vec<LockInfo>, needed: usize, of: usize) -> Option<LockInfo> {
    let held_by = |info: &LockInfo, visitor: &str| {
        let mut holders = info.holders.iter();
        holders.any(|holder| holder.visitor == visitor)
    };
    let votes = |it: &&Holder| {
        let holding = told.iter().filter(|info| held_by(info, &it.visitor));
        holding.count()
    };
    // Some nodes may have holders whose attempts got no majority.
    let holders = told.iter().flat_map(|it| &it.holders);
    let holder = holders.rev().max_by_key(votes)?.clone();
    told.retain(|it| held_by(it, &holder.visitor));
    let mut expires: Vec<Option<Duration>> = told.iter().map(|it| it.expires).collect();
    // A majority has the lock until the `needed`-th longest lease ends. A hold without an end counts as the longest.
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
