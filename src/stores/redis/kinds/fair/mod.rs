//! The fair lock. Its waiters form a queue on the server, and each waiter has its own channel.

use super::*;

pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| {
    let acquire = include_str!("acquire.lua");
    let asked = &[
        Visitor, Lease, Known, Wanted, Channel, Wish, Patience, HearsAll,
    ];
    let waiters = include_str!("waiters.lua");
    let force_release = include_str!("force_release.lua");
    Layout {
        place_channel: Some(Key::OfVisitor("redisson_lock__channel")),
        rights: "fair",
        acquire: expiring(acquire, WITH_QUEUE, asked),
        release: owned(include_str!("release.lua"), WITH_QUEUE),
        resolve: owned(include_str!("withdraw.lua"), WITH_QUEUE),
        force_release: expiring(force_release, WITH_QUEUE, &[Channel]),
        waiters: Some(Script::new(waiters, &[Key::Name, QUEUE], &[])),
        ..Layout::plain()
    }
});

const QUEUE: Key = Key::Prefix("redisson_lock_queue");

const WITH_QUEUE: &[Key] = &[Key::Name, QUEUE, Key::Prefix("redisson_lock_timeout")];
