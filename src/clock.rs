//! The clock that validity is counted on: it goes on while the machine is suspended.
//!
//! `std::time::Instant` stops in suspend on Linux (rust-lang/rust#79462), which would keep a lease alive that Redis
//! let go of an hour ago. Waits for other reasons (deadlines of calls) use `Instant`.

use std::ops::Add;
use std::time::{Duration, Instant};

/// A point in time on the suspend-counting clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn now() -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let since_boot = Duration::new(
            u64::try_from(time.tv_sec).unwrap_or_default(),
            u32::try_from(time.tv_nsec).unwrap_or_default(),
        );
        Moment(since_boot + shift::current())
    }

    /// Elsewhere `Instant` has to do; on macOS it stops in suspend, which the README says.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn now() -> Moment {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        Moment(START.get_or_init(Instant::now).elapsed() + shift::current())
    }

    /// How long it is from now until this moment; zero once it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.0.saturating_sub(Moment::now().0)
    }

    pub(crate) fn has_passed(self) -> bool {
        Moment::now() >= self
    }

    /// How long before `later` this moment lies; zero if it does not.
    pub(crate) fn until(self, later: Moment) -> Duration {
        later.0.saturating_sub(self.0)
    }

    /// This long before this moment.
    pub(crate) fn earlier(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(span))
    }

    /// The last moment before this one, or this one, that is a multiple of `grid` (a whole number of ms) since boot.
    pub(crate) fn floor(self, grid: Duration) -> Moment {
        let grid = grid.as_millis().max(1);
        let floored = self.0.as_millis() / grid * grid;
        Moment(Duration::from_millis(
            u64::try_from(floored).unwrap_or(u64::MAX),
        ))
    }

    pub(crate) fn as_millis(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(span))
    }
}

/// One reading of both clocks, to tell a moment on the one from an instant on the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) moment: Moment,
    pub(crate) instant: Instant,
}

impl Now {
    pub(crate) fn read() -> Now {
        Now {
            moment: Moment::now(),
            instant: Instant::now(),
        }
    }

    /// When the clock that threads sleep on will show `moment`; now if that has passed.
    pub(crate) fn instant_of(self, moment: Moment) -> Instant {
        let left = self.moment.until(moment);
        self.instant.checked_add(left).unwrap_or(self.instant)
    }

    /// When the clock of validity will show `instant`; now if that has passed.
    pub(crate) fn moment_of(self, instant: Instant) -> Moment {
        self.moment + instant.saturating_duration_since(self.instant)
    }
}

/// A shift of the clock that tests set to emulate a suspend; compiled away without `test-util`.
#[cfg(feature = "test-util")]
pub(crate) mod shift {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    static SHIFT_MS: AtomicU64 = AtomicU64::new(0);

    pub(super) fn current() -> Duration {
        Duration::from_millis(SHIFT_MS.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        SHIFT_MS.fetch_add(by, Ordering::SeqCst);
    }
}

#[cfg(not(feature = "test-util"))]
mod shift {
    use std::time::Duration;

    pub(super) fn current() -> Duration {
        Duration::ZERO
    }
}
