//! The interface of `src/ground/time.rs` on the clocks of the world.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redlatch_world::scheduler;

/// An instant has no origin, so one is chosen as the start of the world.
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(Instant::now)
}

pub(crate) fn now() -> Instant {
    beginning() + Duration::from_nanos(scheduler::local_now())
}

pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

pub(crate) fn since_boot() -> Duration {
    Duration::from_nanos(scheduler::since_boot())
}

/// The world's time at an instant of the calling process.
pub(crate) fn moment(instant: Instant) -> scheduler::Nanos {
    scheduler::of_local(scheduler::nanos(
        instant.saturating_duration_since(beginning()),
    ))
}
