//! The plain lock of the Redis documentation: a text that only its holder knows.

use super::*;

mod commands;

pub(in crate::stores::redis) use commands::{
    Answers, Dialect, Instead, numbered, pack as pack_commands,
};

pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout {
    wakes: None,
    rights: "token",
    acquire: set_count(include_str!("acquire.lua")).or(Instead::Acquire),
    release: owned(include_str!("release.lua"), NAME).or(Instead::Release),
    renew: renew(include_str!("renew.lua"), NAME).or(Instead::Renew),
    transfer: transfer(include_str!("transfer.lua")).or(Instead::Transfer),
    resolve: owned(include_str!("withdraw.lua"), NAME).or(Instead::Withdraw),
    force_release: force_release(include_str!("force_release.lua")).or(Instead::ForceRelease),
    inspect: inspect(include_str!("inspect.lua")).or(Instead::Inspect),
    ..Layout::plain()
});
