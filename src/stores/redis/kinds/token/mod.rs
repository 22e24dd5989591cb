//! The lock that the Redis documentation describes: a key whose value is the random token of the holder.

use super::*;

mod commands;

pub(in crate::stores::redis) use commands::{
    Answers, Dialect, Instead, numbered, pack as pack_commands,
};

pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout {
    wakes: None,
    rights: "token",
    acquire: expiring(include_str!("acquire.lua"), NAME, LEASED).or(Instead::Acquire),
    release: owned(include_str!("release.lua"), NAME).or(Instead::Release),
    renew: expiring(include_str!("renew.lua"), NAME, LEASED).or(Instead::Renew),
    transfer: expiring(include_str!("transfer.lua"), NAME, TRANSFER).or(Instead::Transfer),
    resolve: owned(include_str!("withdraw.lua"), NAME).or(Instead::Withdraw),
    force_release: expiring(include_str!("force_release.lua"), NAME, &[Channel])
        .or(Instead::ForceRelease),
    inspect: Script::new(include_str!("inspect.lua"), NAME, &[Visitor]).or(Instead::Inspect),
    ..Layout::plain()
});
