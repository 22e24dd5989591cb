//! The code of `docs/worlds.md` as doctests, in a package of its own because it needs tokio.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/worlds.md")]
mod worlds {}
