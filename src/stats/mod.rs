//! The numbers of a client: how often and how long its threads wait and hold, and how its requests end.

mod activity;
mod openmetrics;
mod read;

use std::fmt;
use std::time::Duration;

pub use crate::ground::histogram::Durations;
pub use crate::stats::activity::{ActiveHold, ActiveWait, Activity};
pub use crate::store::ConnectionStats;

/// The numbers of a client since it was made.
///
/// [`Client::stats`](crate::Client::stats) and [`Redlock::stats`](crate::Redlock::stats) return them, without I/O. Locks are
/// counted by [class](crate::Builder::lock_class), so that a thousand names make one row. The numbers are read one after the
/// other while threads go on, so two of them may be apart by what happened meanwhile.
///
/// `Display` is a table for people, and [`Stats::to_openmetrics`] the text that Prometheus and others collect.
///
/// # Examples
///
/// ```
/// use redlatch::Client;
///
/// let client = Client::in_memory();
/// client.lock("orders:42").run(|_| ())?;
/// let stats = client.stats();
/// let orders = stats.class("orders").expect("a class of the lock");
/// assert_eq!(orders.acquisitions.free, 1);
/// assert_eq!(orders.unlocked.count(), 1);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The classes of locks that were used, in the order of their first use, and at the end `other` if it was used.
    pub classes: Vec<ClassStats>,
    /// The kinds of requests that were sent.
    pub requests: Vec<RequestStats>,
    /// The renewals of holds by the watchdog.
    pub renewals: RenewalStats,
    /// For how long the thread has waited that waits longest; `None` if none waits.
    pub oldest_wait: Option<Duration>,
    /// For how long the oldest hold has lasted; `None` if there is none.
    pub oldest_hold: Option<Duration>,
    /// How many requests without an answer may have left something that is yet to be released in the background.
    pub doubts: u64,
    /// The connections, and what has come over them.
    pub connections: ConnectionStats,
}

/// The numbers of the locks of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassStats {
    /// The class.
    pub class: String,
    /// How often a thread got a lock, by the way it came to it.
    pub acquisitions: Acquisitions,
    /// How many calls found somebody else there first.
    pub contended: u64,
    /// How long the calls took that got the lock.
    pub acquired: Durations,
    /// How long the calls took that gave up at the end of their wait time.
    pub refused: Durations,
    /// How long the calls took that were interrupted.
    pub interrupted: Durations,
    /// How long the calls took that ended with another error.
    pub failed: Durations,
    /// How long holds lasted that were unlocked.
    pub unlocked: Durations,
    /// How long holds lasted that were lost before they were unlocked.
    pub lost: Durations,
    /// How many losses were told, by their cause: also of a hold whose unlock found it gone, which counts as unlocked.
    ///
    /// The causes are those of [`LossCause::kind`](crate::LossCause::kind); those that never were are left out.
    pub losses: Vec<(&'static str, u64)>,
    /// How often a wait was told that lasts for long; see [`Builder::warn_after`](crate::Builder::warn_after).
    pub long_waits: u64,
    /// How often a hold was told that lasts for long.
    pub long_holds: u64,
    /// How many holds there are.
    pub holds: u64,
    /// How many threads wait behind others.
    pub waiters: u64,
}

/// How often a thread got a lock, by the way it came to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acquisitions {
    /// The first question was granted.
    pub free: u64,
    /// An unlock message woke it, and it asked.
    pub woken: u64,
    /// It asked again without a message.
    pub polled: u64,
    /// A thread of the same client handed it over.
    pub handed: u64,
    /// The thread had the lock already.
    pub reentered: u64,
}

/// The requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestStats {
    /// The operation: `acquire`, `release`, `hand_off`, `renew`, `clear` (after a request without an answer), …
    pub operation: &'static str,
    /// How many ended in which way: `ok`, `refused`, `gone`, `unknown`, `unreachable`, `unavailable`, `denied` or `failed`;
    /// those that never were are left out. `renew` and `clear` count once for each hold of a request.
    pub results: Vec<(&'static str, u64)>,
    /// How long they took, connecting and repetitions included; once for each request, of however many holds.
    pub took: Durations,
}

/// The outcomes of renewals, one for each hold and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenewalStats {
    /// The hold was renewed.
    pub renewed: u64,
    /// The hold was found gone.
    pub lost: u64,
    /// No answer came in time, and it was tried again.
    pub unknown: u64,
}

impl Acquisitions {
    /// Returns how many there were in all.
    pub fn total(&self) -> u64 {
        self.free + self.woken + self.polled + self.handed + self.reentered
    }
}

impl Stats {
    /// Returns the numbers of one class; `None` if no lock of it was used.
    pub fn class(&self, class: &str) -> Option<&ClassStats> {
        self.classes.iter().find(|it| it.class == class)
    }

    /// Returns the numbers as OpenMetrics text, for a handler of `/metrics`.
    ///
    /// Its content type is `application/openmetrics-text; version=1.0.0; charset=utf-8`. `docs/observability.md` has the
    /// names, and alerts.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// let client = Client::in_memory();
    /// client.lock("orders:42").run(|_| ())?;
    /// let text = client.stats().to_openmetrics();
    /// assert!(text.contains("redlatch_acquisitions_total{class=\"orders\",via=\"free\"} 1\n"));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn to_openmetrics(&self) -> String {
        openmetrics::text(self)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>6} {:>7}",
            "CLASS",
            "ACQUIRED",
            "CONTENDED",
            "REFUSED",
            "WAIT p99",
            "HOLD p99",
            "LOST",
            "HOLDS",
            "WAITERS"
        )?;
        for class in &self.classes {
            let losses: u64 = class.losses.iter().map(|(_, count)| count).sum();
            writeln!(
                f,
                "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>6} {:>7}",
                class.class,
                class.acquisitions.total(),
                class.contended,
                class.refused.count(),
                at_most(&class.acquired),
                at_most(&class.unlocked),
                losses,
                class.holds,
                class.waiters,
            )?;
        }
        let RenewalStats {
            renewed,
            lost,
            unknown,
        } = self.renewals;
        write!(
            f,
            "renewals: {renewed} done, {lost} found it lost, {unknown} without an answer; doubts: {}",
            self.doubts
        )
    }
}

/// The time that 99 of 100 took at most.
fn at_most(durations: &Durations) -> String {
    match durations.at_most(0.99) {
        Some(bound) => format!("<= {bound:?}"),
        None if durations.count() > 0 => "> 30 min".to_owned(),
        None => "-".to_owned(),
    }
}
