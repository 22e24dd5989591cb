//! A semaphore whose permits have ids.

use super::*;

/// The ids of taken permits are in a set that Redisson also uses. A semaphore without ids has a set of owners instead.
pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout {
    channel: Key::Prefix("redisson_sc"),
    wakes: Some(wakes_as_many),
    rights: "permit_ids",
    release: owned(include_str!("release.lua"), WITH_IDS),
    resolve: owned(include_str!("withdraw.lua"), WITH_IDS),
    renew: expiring(include_str!("renew.lua"), WITH_IDS, LEASED),
    acquire: expiring(include_str!("acquire.lua"), WITH_IDS, TAKE),
    count: Some(expiring(
        include_str!("count.lua"),
        &[Key::Name, ONCE, IDS],
        &[Step, Amount, Channel, Lease, Life, Successor],
    )),
    ..Layout::plain()
});

const IDS: Key = Key::Suffix("timeout");
const WITH_IDS: &[Key] = &[Key::Name, IDS];
