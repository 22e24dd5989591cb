//! No other module reads a clock, so that the simulation in `tests/sim` can replace this module.

use std::time::{Duration, Instant};

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// The time since boot, suspended time included.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// On other systems, the time since the first call, measured by `Instant`. On macOS, `Instant` stops during a suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn since_boot() -> Duration {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    since(*START.get_or_init(now))
}
