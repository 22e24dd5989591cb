//! The lock that goes to those who wait in the order in which they came.

use super::*;

/// Those who wait in order, each with a channel behind that of the lock.
pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| {
    let acquire = include_str!("acquire.lua");
    let asked = &[
        Visitor, Lease, Known, Wanted, Channel, Wish, Patience, HearsAll,
    ];
    let withdraw = include_str!("withdraw.lua");
    let force_release = include_str!("force_release.lua");
    Layout {
        place_channel: Some(Key::OfVisitor("redisson_lock__channel")),
        rights: "fair",
        acquire: expiring(acquire, WITH_QUEUE, asked),
        release: owned(include_str!("release.lua"), WITH_QUEUE),
        resolve: owned(withdraw, WITH_QUEUE),
        force_release: expiring(force_release, WITH_QUEUE, &[Channel]),
        waiters: Some(Script::new(
            include_str!("waiters.lua"),
            &[Key::Name, QUEUE],
            &[],
        )),
        ..Layout::plain()
    }
});

/// Those who wait for a fair lock.
const QUEUE: Key = Key::Prefix("redisson_lock_queue");

/// A fair lock, those who wait for it, and until when they count as alive.
const WITH_QUEUE: &[Key] = &[Key::Name, QUEUE, Key::Prefix("redisson_lock_timeout")];
