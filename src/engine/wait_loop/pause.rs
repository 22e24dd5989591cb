//! How long a waiter sleeps between two looks.

use std::time::Duration;

use crate::ground::backoff::jitter;
use crate::store::Refusal;

/// A waiter looks again after this time at the latest, so a lost unlock message costs no more, unless the store says that it
/// may cost this one more.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Until the holder's lease ends, but never longer than a lost message may cost.
pub(super) fn sleep_for(refusal: &Refusal) -> Duration {
    let longest = spread(refusal.recheck_after.unwrap_or(LONGEST_SLEEP));
    let left = refusal.retry_after;
    left.map_or(longest, |left| longest.min(left + Duration::from_millis(1)))
}

pub(super) fn longest_sleep() -> Duration {
    spread(LONGEST_SLEEP)
}

/// Keeps waiters whose messages were lost together from coming back together.
fn spread(most: Duration) -> Duration {
    most + jitter(most / 10)
}
