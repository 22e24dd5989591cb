//! The clock that measures the validity of holds. On Linux, this clock continues while the machine is suspended.
//!
//! `std::time::Instant` stops while the machine is suspended (rust-lang/rust#79462). A hold measured with `Instant`
//! would be valid after a suspend of an hour, although its key has expired. `Instant` measures calls and sleeps only.

use std::num::NonZeroU64;
use std::ops::Add;
use std::sync::Arc;
#[cfg(feature = "in-memory")]
use std::sync::Weak;
#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[cfg(feature = "in-memory")]
use crate::ground::sync::Mutex;
use crate::ground::time;

pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(10);

/// The validity of a hold ends this much earlier than its lease: 1 % because clock rates differ, 2 ms for clock resolution.
pub(crate) fn drift(lease: Duration) -> Duration {
    Duration::from_nanos(nanos(lease) / 100 + 2_000_000)
}

/// A moment in ns since boot, suspended time included. `NonZeroU64` keeps `Option<BootInstant>` small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootInstant(NonZeroU64);

impl BootInstant {
    /// Reads the clock of the process. Clients of an in-memory server use another clock.
    pub(crate) fn now() -> BootInstant {
        BootInstant::of_system() + ahead_of_process()
    }

    fn of_system() -> BootInstant {
        BootInstant::of(time::since_boot())
    }

    fn of(span: Duration) -> BootInstant {
        BootInstant(NonZeroU64::new(nanos(span)).unwrap_or(NonZeroU64::MIN))
    }

    /// Zero if `later` is not later.
    pub(crate) fn until(self, later: BootInstant) -> Duration {
        Duration::from_nanos(later.0.get().saturating_sub(self.0.get()))
    }

    pub(crate) fn earlier(self, span: Duration) -> BootInstant {
        BootInstant::of(Duration::from_nanos(self.0.get()).saturating_sub(span))
    }

    pub(crate) fn floor(self, grid: Duration) -> BootInstant {
        let grid = nanos(Duration::from_millis(1).max(grid));
        BootInstant::of(Duration::from_nanos(self.0.get() / grid * grid))
    }

    pub(crate) fn as_micros(self) -> i64 {
        i64::try_from(self.0.get() / 1000).unwrap_or(i64::MAX)
    }
}

/// A duration of at most 584 years, in half the memory of a `Duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nanos(u64);

impl Nanos {
    pub(crate) fn get(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub(crate) fn divided_by(self, parts: u64) -> Duration {
        Duration::from_nanos(self.0 / parts)
    }
}

impl From<Duration> for Nanos {
    fn from(span: Duration) -> Nanos {
        Nanos(nanos(span))
    }
}

fn nanos(span: Duration) -> u64 {
    let seconds = span.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(span.subsec_nanos().into())
}

pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// Bounds for how far a server's clock is ahead of this client's clock. The bounds widen with time, because the clock rates
/// differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offset {
    /// The lower bound, in microseconds.
    least: i64,
    most: i64,
    /// The moment from which the bounds widen.
    noted: BootInstant,
}

impl Offset {
    /// `now` is the server's time in microseconds, from the reply to a request.
    pub(crate) fn told(now: i64, sent: BootInstant, received: BootInstant) -> Offset {
        Offset {
            least: now.saturating_sub(received.as_micros()),
            most: now.saturating_sub(sent.as_micros()),
            noted: sent,
        }
    }

    /// Returns the expiry of a request that should arrive by `at`. After this time on the server's clock, in
    /// microseconds, the server refuses the request.
    ///
    /// The server refuses a request that arrives after `at + slack` plus the clock drift during `slack`. The server
    /// accepts a request that arrives by `at`, unless the bounds of the offset are more than `slack` apart.
    pub(crate) fn expiry(self, at: BootInstant, slack: Duration) -> i64 {
        let most = self.most.saturating_add(self.aged(at));
        let most = at.as_micros().saturating_add(most);
        most.min(self.least_at(at).saturating_add(micros(slack)))
    }

    /// The earliest time, in microseconds, that the server's clock may show at the moment `at`.
    pub(crate) fn least_at(self, at: BootInstant) -> i64 {
        at.as_micros()
            .saturating_add(self.least.saturating_sub(self.aged(at)))
    }

    /// How far each bound has widened at the moment `at`, in microseconds.
    fn aged(self, at: BootInstant) -> i64 {
        micros(drift(self.noted.until(at)))
    }
}

impl Add<Duration> for BootInstant {
    type Output = BootInstant;

    fn add(self, span: Duration) -> BootInstant {
        BootInstant(self.0.saturating_add(nanos(span)))
    }
}

/// One reading of the clocks behind [`BootInstant`] and [`Instant`], to convert between the two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockPair {
    pub(crate) moment: BootInstant,
    pub(crate) instant: Instant,
    /// How far ahead a test had set the clock at the time of this reading.
    pub(crate) ahead: Duration,
}

impl ClockPair {
    pub(crate) fn instant_of(self, moment: BootInstant) -> Instant {
        let left = self.moment.until(moment);
        self.instant.checked_add(left).unwrap_or(self.instant)
    }

    pub(crate) fn moment_of(self, instant: Instant) -> BootInstant {
        self.moment + instant.saturating_duration_since(self.instant)
    }
}

/// The clock for a client's holds: the clock of the process or of an in-memory server. A test can set both ahead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    clock: Option<Arc<MovableClock>>,
}

pub(crate) static PROCESS: Timeline = Timeline { clock: None };

impl Timeline {
    pub(crate) fn now(&self) -> BootInstant {
        match &self.clock {
            Some(clock) => BootInstant::of_system() + clock.ahead(),
            None => BootInstant::now(),
        }
    }

    pub(crate) fn ahead(&self) -> Duration {
        self.clock.as_ref().map_or(Duration::ZERO, |it| it.ahead())
    }

    pub(crate) fn is(&self, other: &Timeline) -> bool {
        match (&self.clock, &other.clock) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    pub(crate) fn was_moved_since(&self, now: ClockPair) -> bool {
        self.ahead() != now.ahead
    }

    /// Moves the deadline `fixed` earlier if a test has advanced the clock since `fixed` was calculated. `ahead` is how
    /// far the clock had been advanced when `fixed` was calculated.
    pub(crate) fn instant_of(&self, fixed: Instant, ahead: Duration) -> Instant {
        let moved = self.ahead().saturating_sub(ahead);
        if moved.is_zero() {
            return fixed;
        }
        fixed.checked_sub(moved).unwrap_or_else(time::now)
    }

    pub(crate) fn read(&self) -> ClockPair {
        ClockPair {
            // `ahead` is read first, so that `was_moved_since` detects an advance during this function.
            ahead: self.ahead(),
            moment: self.now(),
            instant: time::now(),
        }
    }
}

#[cfg(feature = "in-memory")]
impl Timeline {
    pub(crate) fn of_in_memory_server() -> Timeline {
        Timeline {
            clock: Some(Arc::default()),
        }
    }

    pub(crate) fn attach<M: ClockListener + 'static>(&self, listener: &Arc<M>) {
        if let Some(clock) = &self.clock {
            let mut listeners = clock.listeners.lock();
            listeners.retain(|listener| listener.strong_count() > 0);
            listeners.push(Arc::downgrade(listener) as Weak<dyn ClockListener>);
        }
    }

    pub(crate) fn advance(&self, by: Duration) {
        if let Some(clock) = &self.clock {
            clock.advance(by);
        }
    }
}

#[cfg(not(feature = "in-memory"))]
#[derive(Debug)]
enum MovableClock {}

#[cfg(not(feature = "in-memory"))]
impl MovableClock {
    fn ahead(&self) -> Duration {
        match *self {}
    }
}

#[cfg(feature = "in-memory")]
pub(crate) trait ClockListener: Send + Sync {
    fn clock_moved(&self);
}

#[cfg(feature = "in-memory")]
impl ClockListener for crate::ground::notify::Notifier {
    fn clock_moved(&self) {
        self.wake_all();
    }
}

#[cfg(feature = "test-util")]
static AHEAD_MS: AtomicU64 = AtomicU64::new(0);

#[cfg(feature = "test-util")]
pub(crate) fn advance_process(by: Duration) {
    add(&AHEAD_MS, by);
}

#[cfg(feature = "test-util")]
fn add(ahead: &AtomicU64, by: Duration) {
    let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
    let add = |ahead: u64| Some(ahead.saturating_add(by));
    let _ = ahead.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
}

fn ahead_of_process() -> Duration {
    #[cfg(feature = "test-util")]
    return Duration::from_millis(AHEAD_MS.load(Ordering::SeqCst));
    #[cfg(not(feature = "test-util"))]
    Duration::ZERO
}

#[cfg(feature = "in-memory")]
#[derive(Debug, Default)]
struct MovableClock {
    ahead_ms: AtomicU64,
    listeners: Mutex<Vec<Weak<dyn ClockListener>>>,
}

#[cfg(feature = "in-memory")]
impl MovableClock {
    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }

    fn advance(&self, by: Duration) {
        add(&self.ahead_ms, by);
        let listeners = self.listeners.lock().clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.clock_moved();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_neither_late_nor_needlessly_early() {
        let mut draw = fastrand::Rng::with_seed(7);
        for _ in 0..10_000 {
            // The rate of the server's clock differs by at most 1 %.
            let wrong = draw.i64(-100..=100);
            let begin = draw.i64(-1_000_000_000..1_000_000_000_000);
            let there = |moment: BootInstant| {
                let ours = moment.as_micros();
                begin + ours + ours * wrong / 10_000
            };
            let millis = |upto: u64, draw: &mut fastrand::Rng| {
                Duration::from_millis(draw.u64(..upto.max(1)))
            };
            let sent = BootInstant::of(millis(1_000_000, &mut draw));
            let read = sent + millis(8_000, &mut draw);
            let received = read + millis(8_000, &mut draw);
            let offset = Offset::told(there(read), sent, received);
            let asked = received + millis(draw.clone().u64(..1_000_000), &mut draw);
            let at = asked + millis(5_000, &mut draw);
            let slack = Duration::from_millis(draw.u64(500..5_000));
            let expiry = offset.expiry(at, slack);
            assert!(expiry <= there(at + slack) + micros(slack) / 100);
            assert!(offset.least_at(at) <= there(at));
            let uncertain = sent.until(received) + drift(sent.until(at)) * 2;
            assert!(uncertain > slack || expiry >= there(at));
        }
    }
}
