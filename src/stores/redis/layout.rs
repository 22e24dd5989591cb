//! The row of each kind of lock: all that this store has to know of it.

use std::sync::LazyLock;

use crate::ground::claim::Kind;
use crate::ground::error::Error;
use crate::stores::redis::keys::{self, CHANNEL, COUNTER, Key};
use crate::stores::redis::scripts::Arg::{
    Amount, Announced, Channel, Check, Counter, Floor, HearsAll, Inside, Known, Lease, Life, Lock,
    Memo, Need, Patience, Places, Rights, Step, Successor, Visitor, Wanted, Wish, Work,
};
use crate::stores::redis::scripts::{Arg, Script};

mod wakes;

use wakes::{wakes_all, wakes_as_many, wakes_every_one, wakes_one};

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
    /// Whether a first acquisition that was cut off is sent again: its field cannot be that of another hold of this
    /// client. A copy that got no answer may come after the release then, and has to be cleared up after.
    pub(super) repeats_acquisition: bool,
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

static REENTRANT: LazyLock<Layout> = LazyLock::new(Layout::plain);

static TOKEN: LazyLock<Layout> = LazyLock::new(|| Layout {
    wakes: None,
    repeats_acquisition: true,
    rights: "token",
    acquire: set_count(include_str!("scripts/token/acquire.lua")),
    release: owned(include_str!("scripts/token/release.lua"), NAME),
    renew: renew(include_str!("scripts/token/renew.lua"), NAME),
    transfer: transfer(include_str!("scripts/token/transfer.lua")),
    resolve: owned(include_str!("scripts/token/withdraw.lua"), NAME),
    force_release: force_release(include_str!("scripts/token/force_release.lua")),
    inspect: inspect(include_str!("scripts/token/inspect.lua")),
    ..Layout::plain()
});

static FENCED: LazyLock<Layout> = LazyLock::new(|| {
    let acquire = include_str!("scripts/fenced/acquire.lua");
    let transfer = include_str!("scripts/fenced/transfer.lua");
    let keys = &[Key::Name, COUNTER];
    let entered = &[Visitor, Lease, Known, Wanted, Floor];
    let handed_off = &[Visitor, Successor, Lease, Channel, Floor];
    Layout {
        rights: "fenced",
        acquire: Script::new(acquire, keys, entered).expiring(),
        transfer: Script::new(transfer, keys, handed_off).expiring(),
        ..Layout::plain()
    }
});

/// A latch has no holds: the scripts of holds are those of the plain lock, which find no lock there.
static LATCH: LazyLock<Layout> = LazyLock::new(|| Layout {
    channel: Key::Braced("redisson_countdownlatch__channel__"),
    wakes: Some(wakes_all),
    rights: "latch",
    count: Some(counted(
        include_str!("scripts/latch/count.lua"),
        &[Key::Name, ONCE],
        &[Step, Amount, Channel, Lease],
    )),
    ..Layout::plain()
});

/// Nobody asks whom permits belong to, nor enters them twice or hands them over: those scripts are the plain lock's.
static PERMITS: LazyLock<Layout> = LazyLock::new(|| Layout {
    channel: Key::Prefix("redisson_sc"),
    wakes: Some(wakes_as_many),
    rights: "permits",
    release: owned(include_str!("scripts/permits/release.lua"), OWNED),
    resolve: owned(include_str!("scripts/permits/withdraw.lua"), OWNED),
    renew: renew(include_str!("scripts/permits/renew.lua"), OWNED),
    acquire: taken(include_str!("scripts/permits/acquire.lua"), OWNED),
    count: Some(counted(
        include_str!("scripts/permits/count.lua"),
        &[Key::Name, ONCE, OWNERS],
        &[Step, Amount, Channel, Lease, Life, Visitor],
    )),
    ..Layout::plain()
});

static READ: LazyLock<Layout> = LazyLock::new(|| {
    let args = &[Visitor, Lease, Known, Wanted, Inside, Memo, Need];
    let acquire = include_str!("scripts/rw/read.lua");
    Layout::of_side("read", Script::new(acquire, WITH_NOTES, args).expiring())
});

static WRITE: LazyLock<Layout> = LazyLock::new(|| {
    let args = &[Visitor, Lease, Known, Wanted, Announced];
    let acquire = include_str!("scripts/rw/write.lua");
    Layout::of_side("write", Script::new(acquire, WITH_NOTES, args).expiring())
});

/// A read-write lock, and the key whose end is that of one hold.
const OF_SIDE: &[Key] = &[Key::Name, Key::BehindVisitor(":rwlock_timeout:1")];

/// The lock and the notes on those who wait to write.
const BESIDE_NOTES: &[Key] = &[Key::Name, Key::Prefix("redlatch_rw")];

/// All keys of a side.
const WITH_NOTES: &[Key] = &[
    Key::Name,
    Key::BehindVisitor(":rwlock_timeout:1"),
    Key::Prefix("redlatch_rw"),
];

/// As those, with ids in the place of owners: Redisson's own set.
static PERMIT_IDS: LazyLock<Layout> = LazyLock::new(|| Layout {
    channel: Key::Prefix("redisson_sc"),
    wakes: Some(wakes_as_many),
    rights: "permit_ids",
    release: owned(include_str!("scripts/permit_ids/release.lua"), WITH_IDS),
    resolve: owned(include_str!("scripts/permit_ids/withdraw.lua"), WITH_IDS),
    renew: renew(include_str!("scripts/permit_ids/renew.lua"), WITH_IDS),
    acquire: taken(include_str!("scripts/permit_ids/acquire.lua"), WITH_IDS),
    count: Some(counted(
        include_str!("scripts/permit_ids/count.lua"),
        &[Key::Name, ONCE, IDS],
        &[Step, Amount, Channel, Lease, Life, Successor],
    )),
    ..Layout::plain()
});

/// The owners of permits, and the ids of others.
const OWNERS: Key = Key::Prefix("redlatch_sc");
const IDS: Key = Key::Suffix("timeout");
const OWNED: &[Key] = &[Key::Name, OWNERS];
const WITH_IDS: &[Key] = &[Key::Name, IDS];

/// Those who wait in order, each with a channel behind that of the lock.
static FAIR: LazyLock<Layout> = LazyLock::new(|| {
    let acquire = include_str!("scripts/fair/acquire.lua");
    let asked = &[
        Visitor, Lease, Known, Wanted, Channel, Wish, Patience, HearsAll,
    ];
    let withdraw = include_str!("scripts/fair/withdraw.lua");
    let withdrawn = &[Visitor, Channel, Patience];
    let force_release = include_str!("scripts/fair/force_release.lua");
    Layout {
        place_channel: Some(Key::OfVisitor("redisson_lock__channel")),
        rights: "fair",
        acquire: Script::new(acquire, WITH_ABSENT, asked).expiring(),
        release: owned(include_str!("scripts/fair/release.lua"), WITH_QUEUE),
        resolve: Script::new(withdraw, WITH_ABSENT, withdrawn),
        force_release: Script::new(force_release, WITH_QUEUE, &[Channel]).expiring(),
        waiters: Some(Script::new(
            include_str!("scripts/fair/waiters.lua"),
            &[QUEUE],
            &[],
        )),
        ..Layout::plain()
    }
});

/// Those who wait for a fair lock.
const QUEUE: Key = Key::Prefix("redisson_lock_queue");

/// A fair lock, those who wait for it, and until when they count as alive.
const WITH_QUEUE: &[Key] = &[Key::Name, QUEUE, Key::Prefix("redisson_lock_timeout")];

/// The same with the notes on those who are silent.
const WITH_ABSENT: &[Key] = &[
    Key::Name,
    QUEUE,
    Key::Prefix("redisson_lock_timeout"),
    Key::Prefix("redlatch_fair"),
];

fn taken(text: &'static str, keys: &'static [Key]) -> Script {
    Script::new(text, keys, &[Visitor, Lease, Channel]).expiring()
}

fn owned(text: &'static str, keys: &'static [Key]) -> Script {
    Script::new(text, keys, &[Visitor, Channel])
}

/// The keys of a script that takes that of the lock alone.
const NAME: &[Key] = &[Key::Name];

/// The answer to a request that is carried out once.
const ONCE: Key = Key::OfVisitor("redlatch_once");

/// Finds out which rights the user lacks for a lock.
pub(super) static RIGHTS: LazyLock<Script> = LazyLock::new(|| {
    let text = include_str!("scripts/rights.lua");
    Script::new(text, &[Key::Name], &[Channel, Rights, Counter])
});

/// The same for a name that may be of no lock of this user: a key that it may not use would keep it from the call.
pub(super) static RIGHTS_WITHOUT_KEY: LazyLock<Script> = LazyLock::new(|| {
    let text = include_str!("scripts/rights.lua");
    Script::new(text, &[], &[Channel, Rights, Counter, Lock])
});

/// The conditions of locks of every kind that has some, and what a user needs for them beside the lock.
pub(super) struct Conditions {
    /// The row by which rights are tried and named.
    pub(super) layout: Layout,
    pub(super) look: Script,
    pub(super) signal: Script,
}

pub(super) static CONDITION: LazyLock<Conditions> = LazyLock::new(|| {
    let look = include_str!("scripts/condition/look.lua");
    let signal = include_str!("scripts/condition/signal.lua");
    let steps = &[Visitor, Step, Successor, Lease, Places];
    Conditions {
        layout: Layout {
            channel: Key::Prefix("redlatch_condition"),
            rights: "condition",
            beside: WAITING,
            ..Layout::plain()
        },
        look: Script::new(look, WAITING, steps).expiring(),
        signal: Script::new(signal, WAITING, &[Visitor, Amount, Places]).expiring(),
    }
});

/// A lock, those who wait on a condition of it, and when each has to be heard of.
const WAITING: &[Key] = &[
    Key::Name,
    Key::OfCondition(":waiting"),
    Key::OfCondition(":due"),
];

/// The channels of those who wait on a condition, each with `:visitor` behind it.
pub(super) const PLACES: Key = Key::OfCondition("");

/// Does guarded work under a hold, whatever the kind of its lock.
pub(super) static GUARDED: LazyLock<Script> = LazyLock::new(|| {
    let text = include_str!("scripts/guarded.lua");
    Script::new(text, &[Key::Name], &[Visitor, Check, Work]).expiring()
});

fn set_count(text: &'static str) -> Script {
    Script::new(text, &[Key::Name], &[Visitor, Lease, Known, Wanted]).expiring()
}

fn renew(text: &'static str, keys: &'static [Key]) -> Script {
    Script::new(text, keys, &[Visitor, Lease]).expiring()
}

fn transfer(text: &'static str) -> Script {
    let args = &[Visitor, Successor, Lease, Channel];
    Script::new(text, &[Key::Name], args).expiring()
}

fn force_release(text: &'static str) -> Script {
    Script::new(text, &[Key::Name], &[Channel]).expiring()
}

fn counted(text: &'static str, keys: &'static [Key], args: &'static [Arg]) -> Script {
    Script::new(text, keys, args).expiring()
}

fn inspect(text: &'static str) -> Script {
    Script::new(text, &[Key::Name], &[Visitor])
}

impl Layout {
    pub(super) fn of(kind: Kind) -> &'static Layout {
        match kind {
            Kind::Reentrant => &REENTRANT,
            Kind::Token => &TOKEN,
            Kind::Fenced => &FENCED,
            Kind::Latch => &LATCH,
            Kind::Permits => &PERMITS,
            Kind::Read => &READ,
            Kind::Write => &WRITE,
            Kind::PermitIds => &PERMIT_IDS,
            Kind::Fair => &FAIR,
        }
    }

    /// The row of Redisson's plain lock, of which those of other kinds differ.
    fn plain() -> Layout {
        Layout {
            channel: CHANNEL,
            place_channel: None,
            wakes: Some(wakes_one),
            repeats_acquisition: false,
            rights: "",
            acquire: set_count(include_str!("scripts/acquire.lua")),
            release: owned(include_str!("scripts/release.lua"), NAME),
            release_level: set_count(include_str!("scripts/release_level.lua")),
            renew: renew(include_str!("scripts/renew.lua"), NAME),
            transfer: transfer(include_str!("scripts/transfer.lua")),
            resolve: owned(include_str!("scripts/withdraw.lua"), NAME),
            force_release: force_release(include_str!("scripts/force_release.lua")),
            inspect: inspect(include_str!("scripts/inspect.lua")),
            count: None,
            waiters: None,
            beside: &[],
        }
    }

    /// The row of a side of Redisson's read-write lock, which says so by this word.
    fn of_side(side: &'static str, acquire: Script) -> Layout {
        let with_own = |text, args| Script::new(text, OF_SIDE, args);
        let with_notes = |text| Script::new(text, WITH_NOTES, &[Visitor, Channel]);
        let force_release = include_str!("scripts/rw/force_release.lua");
        Layout {
            channel: Key::Prefix("redisson_rwlock"),
            wakes: Some(wakes_every_one),
            rights: side,
            acquire,
            release: with_notes(include_str!("scripts/rw/release.lua")),
            release_level: with_own(
                include_str!("scripts/rw/release_level.lua"),
                &[Visitor, Lease, Known, Wanted],
            )
            .expiring(),
            renew: with_own(include_str!("scripts/rw/renew.lua"), &[Visitor, Lease]).expiring(),
            resolve: with_notes(include_str!("scripts/rw/withdraw.lua")),
            force_release: Script::new(force_release, BESIDE_NOTES, &[Channel, Rights]).expiring(),
            inspect: with_own(include_str!("scripts/rw/inspect.lua"), &[Visitor, Rights]),
            ..Layout::plain()
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
