//! Connections to one server, and who may use them.

mod address;
mod call_error;
pub(crate) mod connection;
pub(crate) mod connector;
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

use std::time::Instant;

/// The end of the time for one of `rest` things that are still to be tried by `deadline`.
pub(crate) fn share(deadline: Instant, rest: usize) -> Instant {
    let now = Instant::now();
    let left = deadline.saturating_duration_since(now);
    now + left / u32::try_from(rest.max(1)).unwrap_or(u32::MAX)
}
