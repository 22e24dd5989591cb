//! The state of a hold: its levels, until when it is valid, and why it ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::engine::hold::validity::{By, Flying, InFlight};
use crate::engine::hold::{Lease, LevelId};
use crate::engine::loss_notice::LossNotice;
use crate::ground::claim::Rules;
use crate::ground::clock::{BootInstant, ClockPair, Timeline, drift};
use crate::ground::events::HoldSpan;
use crate::ground::loss::LossCause;

#[derive(Debug)]
pub(super) struct Level {
    pub(super) id: LevelId,
    lease: Duration,
    /// The end of a fixed lease.
    pub(super) ends: Option<BootInstant>,
    /// Whether a guard gives it back.
    pub(super) is_guards: bool,
}

/// Where a hold stands.
///
/// | phase | entered by | valid | renewed | leads to |
/// |---|---|---|---|---|
/// | Held | the grant | until `valid_until` | yes | Released, Lost |
/// | Released | the last release, before it is sent | no | no | Lost, if the release finds it gone |
/// | Lost | the store says so, or `valid_until` has passed | no, for good | no | – |
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Held,
    Released,
    Lost(Box<LossCause>),
}

/// A watchdog that looks this much later than it planned did not get to run.
const LATE: Duration = Duration::from_millis(100);

/// A hold may be counted on by this much less than its levels count on before it is mended, for rounding.
pub(super) const ROUNDING: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) levels: SmallVec<[Level; 1]>,
    pub(super) next_level: LevelId,
    pub(super) valid_until: BootInstant,
    /// When the request was sent from which that is counted.
    pub(super) counted_from: BootInstant,
    pub(super) in_flight: SmallVec<[InFlight; 1]>,
    pub(super) next_in_flight_id: u32,
    /// The longest lease that any request may have set.
    pub(super) longest: Duration,
    /// A renewal that fell due waits for the one before it.
    pub(super) waits: bool,
    /// When the watchdog looks at this hold next; an entry of its heap made for another instant is void.
    pub(super) due: Option<Instant>,
    /// Made for the first one who wants to hear of a loss.
    pub(super) news: Option<Arc<LossNotice>>,
    /// A re-entry without an answer may have set a longer lease in the store than is counted on here, or a late copy of the
    /// first acquisition may yet set one.
    pub(super) may_outlast: bool,
    /// Nobody renews it any more, because the client was shut down.
    pub(super) is_abandoned: bool,
    /// When a thread came to it, from when on it is counted.
    pub(super) began: Option<BootInstant>,
    /// Open while the hold is neither released nor lost.
    pub(super) span: Option<HoldSpan>,
    /// In a box, as it would be a third of the memory of each hold.
    pub(super) rare: Option<Box<Rare>>,
}

/// The state that few holds have.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// The trouble of the last renewal, for the cause of a later loss.
    pub(super) last_trouble: Option<String>,
    /// Since when a transaction has its row locked: nobody can take it, nor can it be renewed, until that ends.
    pub(super) pinned_since: Option<BootInstant>,
    /// Levels whose guards went meanwhile.
    pub(super) put_off: SmallVec<[LevelId; 1]>,
    /// When what it was taken from ends, if that is known: no lease counts for longer.
    pub(super) life_ends: Option<BootInstant>,
    /// The longest lease whose third it is left alone for, where others may shorten what keeps it.
    pub(super) longest_pace: Option<Duration>,
    /// It is told that it has lasted for long when it has lasted as long as this; set when that was told before.
    pub(super) long_from: Option<Duration>,
}

impl Level {
    pub(super) fn new(id: LevelId, lease: Lease, sent: BootInstant) -> Level {
        Level {
            id,
            lease: lease.duration(),
            ends: match lease {
                Lease::Watchdog(_) => None,
                Lease::Fixed(lease) => Some(sent + lease),
            },
            is_guards: false,
        }
    }

    pub(super) fn lease(&self) -> Lease {
        match self.ends {
            None => Lease::Watchdog(self.lease),
            Some(_) => Lease::Fixed(self.lease),
        }
    }
}

impl State {
    /// The rare part, to be changed.
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    pub(super) fn pinned_since(&self) -> Option<BootInstant> {
        self.rare.as_ref()?.pinned_since
    }

    pub(super) fn life_ends(&self) -> Option<BootInstant> {
        self.rare.as_ref()?.life_ends
    }

    pub(super) fn longest_pace(&self) -> Option<Duration> {
        self.rare.as_ref()?.longest_pace
    }

    pub(super) fn lapse(&self, now: ClockPair, owner_lives: bool) -> Option<LossCause> {
        let is_held = matches!(self.phase, Phase::Held);
        if now.moment < self.valid_until || self.pinned_since().is_some() || !is_held {
            return None;
        }
        Some(if !owner_lives {
            LossCause::ThreadEnded
        } else if self
            .life_ends()
            .is_some_and(|end| end <= self.valid_until + ROUNDING)
        {
            // A renewal that was answered too late has found the same end, but for rounding.
            LossCause::Gone
        } else if self.renewed_lease().is_none() && !self.is_short() {
            LossCause::LeaseEnded
        } else if self.is_abandoned {
            LossCause::Closed
        } else {
            LossCause::Unreachable {
                reason: self.trouble(now),
            }
        })
    }

    /// Why no renewal was confirmed in time.
    pub(super) fn trouble(&self, now: ClockPair) -> String {
        let in_ms = |since: BootInstant| since.until(now.moment).as_millis();
        let asked = |it: &&InFlight| it.by == By::Watchdog && it.state == Flying::Awaited;
        let last = self.rare.as_ref().and_then(|it| it.last_trouble.clone());
        let what = if let Some(trouble) = last {
            trouble
        } else if let Some(renewal) = self.in_flight.iter().rfind(asked) {
            format!(
                "the renewal sent {} ms earlier got no reply",
                in_ms(renewal.sent)
            )
        } else {
            "no renewal was confirmed in time".to_owned()
        };
        // The look was planned for this instant on the clock that threads sleep on, if not for an earlier one.
        let (late, ahead) = self.due.map_or_else(Default::default, |due| {
            (
                now.instant.saturating_duration_since(due),
                due.saturating_duration_since(now.instant),
            )
        });
        if late >= LATE {
            format!(
                "{what}; this process may have been paused: the renewal thread ran {} ms late",
                late.as_millis()
            )
        } else if ahead >= LATE {
            format!(
                "{what}; this machine was suspended, or its clock jumped, for at least {} ms",
                ahead.as_millis()
            )
        } else {
            what
        }
    }

    /// Whether less is counted on than the levels count on, for requests that may have shortened the lease.
    pub(super) fn is_short(&self) -> bool {
        let counted_on = self.levels.iter().filter_map(|level| {
            let end = level.ends?;
            Some(end.earlier(drift(level.lease) + ROUNDING))
        });
        counted_on.max().is_some_and(|end| self.valid_until < end)
    }

    /// Whether it has to be renewed now and then, rather than left to its lease.
    pub(super) fn is_looked_after(&self, rules: &Rules) -> bool {
        self.renewed_lease().is_some() || self.is_short() || rules.restores_lifetime
    }

    pub(super) fn is_being_renewed(&self) -> bool {
        let asked = |it: &InFlight| it.by == By::Watchdog && it.state == Flying::Awaited;
        self.waits || self.in_flight.iter().any(asked)
    }

    /// The time in which it has to be renewed once.
    pub(super) fn pace(&self) -> Duration {
        let counted = self.counted_from.until(self.valid_until);
        // What the store has it for, which may be less than the lease.
        self.renewed_lease()
            .map_or(counted, |lease| match counted + drift(lease) {
                whole if whole >= lease => lease,
                _ => counted + drift(counted),
            })
    }

    /// How long the store may still have it from now on, whatever it was asked for.
    pub(super) fn may_stand(&self, timeline: &Timeline) -> Duration {
        if self.in_flight.is_empty() {
            return self.longest;
        }
        let now = timeline.now();
        let expiries = self.in_flight.iter().map(|it| now.until(it.expires));
        self.longest + expiries.max().unwrap_or_default()
    }

    /// The lease time of the levels that count on renewal.
    pub(super) fn renewed_lease(&self) -> Option<Duration> {
        self.levels
            .iter()
            .filter(|level| level.ends.is_none())
            .map(|level| level.lease)
            .max()
    }

    /// How long from `now` the levels count on the hold; `None` if no level counts on it any more.
    pub(super) fn rest(&self, now: BootInstant) -> Option<Duration> {
        let fixed = self
            .levels
            .iter()
            .filter_map(|level| level.ends)
            .max()
            .map(|ends| now.until(ends))
            .filter(|rest| *rest >= Duration::from_millis(1));
        fixed.max(self.renewed_lease())
    }
}

pub(super) fn count(levels: &[Level]) -> u32 {
    u32::try_from(levels.len()).unwrap_or(u32::MAX)
}
