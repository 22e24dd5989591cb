//! The code of `docs/worlds.md`, which runs as doctests: a package of its own, as it needs tokio.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/worlds.md")]
mod worlds {}
