//! The plain lock of the Redis documentation: a text that only its holder knows.

use super::*;

pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout {
    wakes: None,
    repeats_acquisition: true,
    rights: "token",
    acquire: set_count(include_str!("acquire.lua")),
    release: owned(include_str!("release.lua"), NAME),
    renew: renew(include_str!("renew.lua"), NAME),
    transfer: transfer(include_str!("transfer.lua")),
    resolve: owned(include_str!("withdraw.lua"), NAME),
    force_release: force_release(include_str!("force_release.lua")),
    inspect: inspect(include_str!("inspect.lua")),
    ..Layout::plain()
});
