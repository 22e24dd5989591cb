//! The row of each kind of lock: all that this store has to know of it.

use std::sync::LazyLock;

use crate::ground::claim::Kind;
use crate::ground::error::Error;
use crate::stores::redis::keys::{self, CHANNEL, COUNTER, Key};
use crate::stores::redis::scripts::Arg::{
    Amount, Channel, Check, Counter, Floor, HearsAll, Inside, Known, Lease, Life, Lock, Patience,
    Places, Rights, Step, Successor, Visitor, Wanted, Wish, Work,
};
use crate::stores::redis::scripts::{Arg, Script};

mod condition;
mod fair;
mod fenced;
mod latch;
mod permit_ids;
mod permits;
mod read_write;
mod reentrant;
mod token;
mod wakes;

pub(super) use condition::{CONDITION, PLACES};
pub(super) use token::{Answers, Dialect, Instead, numbered, pack_commands};

use wakes::{wakes_all, wakes_as_many, wakes_one};

/// The properties of locks of one kind in Redis, and the scripts that they have.
///
/// The same field of each kind answers in one format. Each has keys and arguments of its own, so that kinds share those that do not
/// differ.
pub(super) struct Layout {
    /// The channel of the unlock messages of a lock.
    pub(super) channel: Key,
    /// The channel of each waiter that has a place, where it has one of its own.
    pub(super) place_channel: Option<Key>,
    /// How many waiters of this client a message with these words is for. `None` where a release publishes none: programs
    /// that share a layout without messages leave waiters to poll.
    pub(super) wakes: Option<fn(&str) -> usize>,
    /// The word by which the script of rights tries the commands of this kind.
    pub(super) rights: &'static str,
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) release_level: Script,
    /// Renews many holds in one call, each with keys and arguments of its own.
    pub(super) renew: Script,
    pub(super) transfer: Script,
    pub(super) resolve: Script,
    pub(super) force_release: Script,
    pub(super) inspect: Script,
    /// The operations on the count of this kind, if it is one.
    pub(super) count: Option<Script>,
    /// The question how many wait, if they stand in a queue on the server.
    pub(super) waiters: Option<Script>,
    /// Keys that scripts take which are not of this row.
    beside: &'static [Key],
}

/// All kinds, in the order in which a script is looked for by its hash.
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

/// The arguments of scripts that holds of most kinds have.
const SET_COUNT: &[Arg] = &[Visitor, Lease, Known, Wanted];
const RENEW: &[Arg] = &[Visitor, Lease];
const TRANSFER: &[Arg] = &[Visitor, Successor, Lease, Channel];

fn owned(text: &str, keys: &'static [Key]) -> Script {
    Script::new(text, keys, &[Visitor, Channel])
}

/// The keys of a script that takes that of the lock alone.
const NAME: &[Key] = &[Key::Name];

/// The answer to a request that is carried out once.
const ONCE: Key = Key::OfVisitor("redlatch_once");

/// Finds out which rights the user lacks for a lock.
pub(super) static RIGHTS: LazyLock<Script> = LazyLock::new(|| {
    let text = include_str!("rights.lua");
    Script::new(text, &[Key::Name], &[Channel, Rights, Counter])
});

/// The same for a name that may be of no lock of this user: a key that it may not use would keep it from the call.
pub(super) static RIGHTS_WITHOUT_KEY: LazyLock<Script> = LazyLock::new(|| {
    let text = include_str!("rights.lua");
    Script::new(text, &[], &[Channel, Rights, Counter, Lock])
});

/// Does guarded work under a hold, whatever the kind of its lock.
pub(super) static GUARDED: LazyLock<Script> = LazyLock::new(|| {
    let text = include_str!("guarded.lua");
    expiring(text, &[Key::Name], &[Visitor, Check, Work])
});

/// A script that takes the server time after which it is refused.
fn expiring(text: &str, keys: &'static [Key], args: &'static [Arg]) -> Script {
    Script::new(text, keys, args).expiring()
}

impl Layout {
    pub(super) fn of(kind: Kind) -> &'static Layout {
        match kind {
            Kind::Reentrant => &reentrant::LAYOUT,
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

    /// Patterns of the keys that stand beside that of the lock itself.
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

/// Returns the flaw of the name `given` for a lock of this kind, which becomes `full` with the prefix of the client.
pub(crate) fn flaw(kind: Kind, given: &str, full: &str) -> Option<Error> {
    keys::flaw(given, full, Layout::of(kind).channel)
}

#[cfg(test)]
mod tests;
