//! The implementations of `Store`.

pub(crate) mod connection_pool;
pub(crate) mod host_names;
pub(crate) mod multi;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
pub(crate) mod quorum;
pub(crate) mod redis;

use std::time::{Duration, Instant};

use crate::ground::{sync, time};
use crate::stores::connection_pool::{Slot, Slots};

/// A request that waits for a connection reserves at least this time for its reply, but never more than half of its
/// remaining time.
const REPLY_TIME: Duration = Duration::from_millis(100);

/// Returns how long a request waits for a connection. A request sent at the deadline would get no reply in time.
pub(crate) fn patience(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(time::now());
    left - (left / 5).max(REPLY_TIME.min(left / 2))
}

/// The pause between two searches for a free connection if no further connection can be made.
const LIMIT_POLL: Duration = Duration::from_millis(1);

/// Borrows a slot with a connection, after an attempt to connect has failed. If the attempt failed at a limit such as
/// `maxclients` or open files, waits until another thread returns a connection. The caller has borrowed `own` slots.
pub(crate) fn borrow_connected<C: Send + 'static>(
    slots: &Slots<C>,
    own: usize,
    is_at_limit: bool,
    deadline: Instant,
) -> Option<Slot<C>> {
    let until = time::now() + patience(deadline);
    loop {
        match slots.idle_connected(own) {
            Ok(slot) => return Some(slot),
            Err(true) if is_at_limit && time::now() < until => sync::sleep(LIMIT_POLL),
            Err(_) => return None,
        }
    }
}

/// Returns the deadline of the next step, if `rest` steps share the time until `deadline` equally.
pub(crate) fn share(deadline: Instant, rest: usize) -> Instant {
    let now = time::now();
    let left = deadline.saturating_duration_since(now);
    now + left / u32::try_from(rest.max(1)).unwrap_or(u32::MAX)
}
