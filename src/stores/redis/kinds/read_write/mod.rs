//! The two sides of a read-write lock.

use super::*;

pub(super) static READ: LazyLock<Layout> = LazyLock::new(|| {
    let args = &[Visitor, Lease, Known, Wanted, Inside, Memo, Need];
    let acquire = include_str!("read.lua");
    of_side("read", Script::new(acquire, WITH_NOTES, args).expiring())
});

pub(super) static WRITE: LazyLock<Layout> = LazyLock::new(|| {
    let args = &[Visitor, Lease, Known, Wanted, Announced];
    let acquire = include_str!("write.lua");
    of_side("write", Script::new(acquire, WITH_NOTES, args).expiring())
});

/// The row of a side of Redisson's read-write lock, which says so by this word.
fn of_side(side: &'static str, acquire: Script) -> Layout {
    let with_own = |text, args| Script::new(text, OF_SIDE, args);
    let with_notes = |text| Script::new(text, WITH_NOTES, &[Visitor, Channel]);
    let force_release = include_str!("force_release.lua");
    Layout {
        channel: Key::Prefix("redisson_rwlock"),
        wakes: Some(wakes_every_one),
        rights: side,
        acquire,
        release: with_notes(include_str!("release.lua")),
        release_level: with_own(
            include_str!("release_level.lua"),
            &[Visitor, Lease, Known, Wanted],
        )
        .expiring(),
        renew: with_own(include_str!("renew.lua"), &[Visitor, Lease]).expiring(),
        resolve: with_notes(include_str!("withdraw.lua")),
        force_release: Script::new(force_release, BESIDE_NOTES, &[Channel, Rights]).expiring(),
        inspect: with_own(include_str!("inspect.lua"), &[Visitor, Rights]),
        ..Layout::plain()
    }
}

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
