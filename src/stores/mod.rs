//! Where locks can be kept. Stores know nothing of waiting.

pub(crate) mod all;
pub(crate) mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
pub(crate) mod quorum;
pub(crate) mod redis;
mod slots;
