//! The readings of the clocks: nothing else reads one, so that a test can run the library in a time of its own.

use std::time::{Duration, Instant};

/// The moment on the clock that deadlines are counted on, and threads sleep on.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How long ago `moment` was.
pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// The time since the machine was started, which goes on while it is suspended.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Elsewhere `Instant` has to do; on macOS it stops in suspend, which docs/failures.md says.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn since_boot() -> Duration {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    since(*START.get_or_init(now))
}
