//! Connections to one server, and who may use them.

pub(crate) mod connection;
pub(crate) mod pool;
#[cfg_attr(feature = "tls", path = "tls.rs")]
#[cfg_attr(not(feature = "tls"), path = "tls_off.rs")]
pub(crate) mod tls;
