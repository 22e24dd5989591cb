//! The layout of each kind of lock in Redis.

use std::sync::LazyLock;

use crate::ground::claim::Kind;
use crate::ground::error::Error;
use crate::stores::redis::keys::{self, CHANNEL, COUNTER, Key};
use crate::stores::redis::scripts::Arg::{
    Amount, Channel, Check, Counter, Counts, Floor, HearsAll, Inside, Known, Lease, Life, Lock,
    Patience, Places, Rights, Step, Successor, Visitor, Wanted, Wish, Work,
};
use crate::stores::redis::scripts::{Arg, Script};

mod condition;
mod fair;
mod fenced;
mod latch;
mod permit_ids;
mod permits;
mod plain;
mod read_write;
mod token;
mod wakes;

pub(super) use condition::{CONDITION, PLACES};
pub(super) use token::{Answers, Dialect, Instead, numbered, pack_commands};

use wakes::{wakes_all, wakes_as_many, wakes_one};

/// The channels, keys and scripts of a kind of lock. The client reads the replies of all kinds in the same way.
pub(super) struct Layout {
    pub(super) channel: Key,
    /// The channel of a single waiter in the queue. `None` if all waiters share `channel`.
    pub(super) place_channel: Option<Key>,
    /// Returns how many waiters of this client a message wakes. `None` if no message is published and waiters poll.
    pub(super) wakes: Option<fn(&str) -> usize>,
    /// The name of this kind in `rights.lua` and `guarded.lua`.
    pub(super) rights: &'static str,
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) release_level: Script,
    pub(super) renew: Script,
    pub(super) transfer: Script,
    pub(super) resolve: Script,
    pub(super) force_release: Script,
    pub(super) inspect: Script,
    pub(super) count: Option<Script>,
    pub(super) waiters: Option<Script>,
    /// Further keys of the lock, which only scripts outside this layout use. `Key::Name` is ignored here.
    beside: &'static [Key],
}

/// All kinds. If the channel of a message matches several kinds, the first kind with `wakes` is used.
pub(super) const KINDS: [Kind; 9] = [
    Kind::Reentrant,
    Kind::Token,
    Kind::Fenced,
    Kind::Latch,
    Kind::Permits,
    Kind::Read,
    Kind::Write,
    Kind::PermitIds,
    Kind::Fair,
];

const SET_COUNT: &[Arg] = &[Visitor, Lease, Known, Wanted];
const LEASED: &[Arg] = &[Visitor, Lease];
const TAKE: &[Arg] = &[Visitor, Lease, Channel];
const TRANSFER: &[Arg] = &[Visitor, Successor, Lease, Channel];

fn owned(text: &str, keys: &'static [Key]) -> Script {
    Script::new(text, keys, &[Visitor, Channel])
}

const NAME: &[Key] = &[Key::Name];

/// The key of the stored reply to a request. A repetition of the request gets this reply, and changes nothing.
const ONCE: Key = Key::OfVisitor("redlatch_once");

/// Tests which rights to a lock the user lacks.
pub(super) static RIGHTS: LazyLock<Script> = LazyLock::new(|| {
    let text = include_str!("rights.lua");
    Script::new(text, &[Key::Name], &[Channel, Rights, Counter])
});

/// Like `RIGHTS`, but declares no key. The server refuses a script that declares a key to which the user has no right.
pub(super) static RIGHTS_WITHOUT_KEY: LazyLock<Script> = LazyLock::new(|| {
    let text = include_str!("rights.lua");
    Script::new(text, &[], &[Channel, Rights, Counter, Lock])
});

pub(super) static GUARDED: LazyLock<Script> = LazyLock::new(|| {
    let text = include_str!("guarded.lua");
    expiring(text, &[Key::Name], &[Visitor, Check, Work])
});

fn expiring(text: &str, keys: &'static [Key], args: &'static [Arg]) -> Script {
    Script::new(text, keys, args).expiring()
}

impl Layout {
    pub(super) fn of(kind: Kind) -> &'static Layout {
        match kind {
            Kind::Reentrant => &plain::LAYOUT,
            Kind::Token => &token::LAYOUT,
            Kind::Fenced => &fenced::LAYOUT,
            Kind::Latch => &latch::LAYOUT,
            Kind::Permits => &permits::LAYOUT,
            Kind::Read => &read_write::READ,
            Kind::Write => &read_write::WRITE,
            Kind::PermitIds => &permit_ids::LAYOUT,
            Kind::Fair => &fair::LAYOUT,
        }
    }

    /// Returns patterns of all keys of the lock except its name. `*` stands for a visitor or the name of a condition.
    pub(super) fn keys_beside(&self, lock: &str) -> Vec<String> {
        let keys = self.scripts().flat_map(|script| script.keys);
        let keys = keys.chain(self.beside);
        let mut beside: Vec<String> = keys
            .filter(|key| **key != Key::Name)
            .map(|key| key.pieces(lock, "*").concat())
            .collect();
        beside.sort();
        beside.dedup();
        beside
    }

    fn scripts(&self) -> impl Iterator<Item = &Script> {
        let of_holds = [
            &self.acquire,
            &self.release,
            &self.release_level,
            &self.renew,
            &self.transfer,
            &self.resolve,
            &self.force_release,
            &self.inspect,
        ];
        of_holds.into_iter().chain(&self.count).chain(&self.waiters)
    }
}

pub(crate) fn flaw(kind: Kind, given: &str, full: &str) -> Option<Error> {
    keys::flaw(given, full, Layout::of(kind).channel)
}

#[cfg(test)]
mod tests;
