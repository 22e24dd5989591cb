//! Where locks can be kept. Stores know nothing of waiting.

mod connection_limit;
pub(crate) mod idle;
pub(crate) mod multi;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
pub(crate) mod quorum;
pub(crate) mod redis;
