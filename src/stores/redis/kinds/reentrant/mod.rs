//! Redisson's plain lock, whose row those of other kinds differ from.

use super::*;

pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(Layout::plain);

impl Layout {
    /// The row of Redisson's plain lock, of which those of other kinds differ.
    pub(super) fn plain() -> Layout {
        Layout {
            channel: CHANNEL,
            place_channel: None,
            wakes: Some(wakes_one),
            rights: "",
            acquire: set_count(include_str!("acquire.lua")),
            release: owned(include_str!("release.lua"), NAME),
            release_level: set_count(include_str!("release_level.lua")),
            renew: renew(include_str!("renew.lua"), NAME),
            transfer: transfer(include_str!("transfer.lua")),
            resolve: owned(include_str!("withdraw.lua"), NAME),
            force_release: force_release(include_str!("force_release.lua")),
            inspect: inspect(include_str!("inspect.lua")),
            count: None,
            waiters: None,
            beside: &[],
        }
    }
}
