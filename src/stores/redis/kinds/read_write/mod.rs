use super::*;

pub(super) static READ: LazyLock<Layout> = LazyLock::new(|| of_side("read"));
pub(super) static WRITE: LazyLock<Layout> = LazyLock::new(|| of_side("write"));

/// `side` is this side's value of the field `mode`: `read` or `write`.
fn of_side(side: &'static str) -> Layout {
    let asked = &[Visitor, Lease, Known, Wanted, Inside, Wish];
    let with_own = |text, args| Script::new(text, &WITH_WRITER[..2], args);
    let with_notes = |text| owned(text, &WITH_WRITER[..3]);
    let force_release = include_str!("force_release.lua");
    Layout {
        channel: Key::Prefix("redisson_rwlock"),
        // The client's waiting readers and its first waiting writer subscribe. A message wakes all subscribers.
        wakes: Some(|_| usize::MAX),
        rights: side,
        acquire: expiring(include_str!("acquire.lua"), WITH_WRITER, asked),
        release: with_notes(include_str!("release.lua")),
        release_level: with_own(include_str!("release_level.lua"), SET_COUNT).expiring(),
        renew: with_own(include_str!("renew.lua"), LEASED).expiring(),
        resolve: with_notes(include_str!("withdraw.lua")),
        force_release: expiring(force_release, &[Key::Name, NOTES], &[Channel, Rights]),
        inspect: with_own(include_str!("inspect.lua"), &[Visitor, Rights]),
        ..Layout::plain()
    }
}

const NOTES: Key = Key::Prefix("redlatch_rw");

/// The keys: the lock, the TTL key of the visitor, the queue entries, and the TTL key of the thread's write hold.
const WITH_WRITER: &[Key] = &[
    Key::Name,
    Key::BehindVisitor(":rwlock_timeout:1"),
    NOTES,
    Key::BehindWriter(":rwlock_timeout:1"),
];
