//! A semaphore. The permits of a dead holder become free when their lease ends.

use super::*;

/// Permits cannot be inspected, re-entered or handed off. The scripts for these operations are placeholders.
pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout {
    channel: Key::Prefix("redisson_sc"),
    wakes: Some(wakes_as_many),
    rights: "permits",
    release: owned(include_str!("release.lua"), OWNED),
    resolve: owned(include_str!("withdraw.lua"), OWNED),
    renew: expiring(include_str!("renew.lua"), OWNED, LEASED),
    acquire: expiring(include_str!("acquire.lua"), OWNED, TAKE),
    count: Some(expiring(
        include_str!("count.lua"),
        &[Key::Name, ONCE, OWNERS],
        &[Step, Amount, Channel, Lease, Life, Visitor],
    )),
    ..Layout::plain()
});

const OWNERS: Key = Key::Prefix("redlatch_sc");
const OWNED: &[Key] = &[Key::Name, OWNERS];
