//! The layout of Redisson's plain lock. It contains the defaults of all other layouts.

use super::*;

pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(Layout::plain);

impl Layout {
    pub(super) fn plain() -> Layout {
        Layout {
            channel: CHANNEL,
            place_channel: None,
            wakes: Some(wakes_one),
            rights: "",
            acquire: expiring(include_str!("acquire.lua"), NAME, &[Visitor, Lease, Counts]),
            release: owned(include_str!("release.lua"), NAME),
            release_level: expiring(include_str!("release_level.lua"), NAME, SET_COUNT),
            renew: expiring(include_str!("renew.lua"), NAME, LEASED),
            transfer: expiring(include_str!("transfer.lua"), NAME, TRANSFER),
            resolve: owned(include_str!("withdraw.lua"), NAME),
            force_release: expiring(include_str!("force_release.lua"), NAME, &[Channel]),
            inspect: Script::new(include_str!("inspect.lua"), NAME, &[Visitor]),
            count: None,
            waiters: None,
            beside: &[],
        }
    }
}
