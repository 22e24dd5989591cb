//! Connections to one server, and who may use them.

mod address;
mod call_error;
pub(crate) mod connection;
mod decoder;
pub(crate) mod pool;
mod reply_text;
mod socket;
mod stream;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
pub(crate) mod tls;
