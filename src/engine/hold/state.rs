use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::engine::hold::validity::{By, Flying, InFlight};
use crate::engine::hold::{Lease, LevelId};
use crate::engine::loss_notice::LossNotice;
use crate::ground::claim::Rules;
use crate::ground::clock::{BootInstant, ClockPair, Nanos, Timeline, drift};
use crate::ground::events::HoldSpan;
use crate::ground::loss::LossCause;

#[derive(Debug)]
pub(super) struct Level {
    pub(super) id: LevelId,
    lease: Nanos,
    /// `None` if the watchdog renews this level.
    pub(super) ends: Option<BootInstant>,
    pub(super) is_guards: bool,
}

/// | phase | entered by | valid | renewed | leads to |
/// |---|---|---|---|---|
/// | Held | the grant | until `valid_until` | see `is_looked_after` | Released, Lost |
/// | Released | the release of the last level, before the request is sent | no | no | Lost, if the release finds the hold gone |
/// | Lost | the store reports the loss, `valid_until` has passed, or the watchdog died | no | no | – |
#[derive(Debug, Clone)]
pub(super) enum Phase {
    Held,
    Released,
    Lost(Box<LossCause>),
}

/// If a check is this much later than planned, the process may have been paused.
const LATE: Duration = Duration::from_millis(100);

/// Tolerance for rounding, when the validity is compared with the leases of the levels.
pub(super) const ROUNDING: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) levels: SmallVec<[Level; 1]>,
    pub(super) valid_until: BootInstant,
    /// When the request that last extended `valid_until` was sent.
    pub(super) counted_from: BootInstant,
    pub(super) in_flight: SmallVec<[InFlight; 1]>,
    /// The last id given to a level or to a request in flight.
    pub(super) last_id: u32,
    /// The longest lease that a request of this hold may have set.
    pub(super) longest: Nanos,
    /// True if a renewal of this hold is due, and queued behind the previous batch of renewals.
    pub(super) waits: bool,
    /// When the watchdog checks this hold next. Timer entries for another instant are void.
    pub(super) due: Option<Instant>,
    /// True if the store may keep the hold after its validity has ended. Reasons are an in-doubt re-entry, a late copy
    /// of the request that acquired the hold, or another hold of the thread in the same read-write lock.
    pub(super) may_outlast: bool,
    /// True if the client was shut down, so that renewals have ended.
    pub(super) is_abandoned: bool,
    /// When a thread got the hold. Until then, the client's counters do not include the hold.
    pub(super) began: Option<BootInstant>,
    pub(super) span: Option<HoldSpan>,
    /// Rarely used values. The box saves about 100 bytes of each hold.
    pub(super) rare: Option<Box<Rare>>,
}

#[derive(Debug, Default)]
pub(super) struct Rare {
    pub(super) news: Option<Arc<LossNotice>>,
    /// Why the last renewal failed. A later loss reports this reason as its cause.
    pub(super) last_trouble: Option<String>,
    /// When a transaction locked the row of the hold. Until the transaction ends, no client can acquire or renew the lock.
    pub(super) pinned_since: Option<BootInstant>,
    /// Levels whose guards were unlocked or dropped during the transaction. These levels are released when it ends.
    pub(super) put_off: SmallVec<[LevelId; 1]>,
    /// When the key of the semaphore expires, if known. The validity never ends later.
    pub(super) life_ends: Option<BootInstant>,
    /// An upper bound of `State::pace`, for kinds of locks where other clients may shorten the lease of the key.
    pub(super) longest_pace: Option<Duration>,
    /// The age of the hold at which the next `Event::LongHold` is due. `None` before the first such event.
    pub(super) long_from: Option<Duration>,
}

impl Level {
    pub(super) fn new(id: LevelId, lease: Lease, sent: BootInstant) -> Level {
        Level {
            id,
            lease: lease.duration().into(),
            ends: match lease {
                Lease::Watchdog(_) => None,
                Lease::Fixed(lease) => Some(sent + lease),
            },
            is_guards: false,
        }
    }

    pub(super) fn fixed_lease(&self) -> Option<Duration> {
        self.ends.map(|_| self.lease.get())
    }
}

impl State {
    /// Returns an id that no other level or request of this hold has. The first level has the id 0.
    pub(super) fn next_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.wrapping_add(1).max(1);
            let id = self.last_id;
            let is_used = self.levels.iter().any(|it| it.id == id)
                || self.in_flight.iter().any(|it| it.id.0 == id);
            if !is_used {
                return id;
            }
        }
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    pub(super) fn news(&self) -> Option<&Arc<LossNotice>> {
        self.rare.as_ref()?.news.as_ref()
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
            // The validity ended because the semaphore's key expired, so the store has lost the permits.
            LossCause::Gone
        } else if self.renewed_lease().is_none() && !self.is_short() {
            LossCause::LeaseEnded
        } else if self.is_abandoned {
            LossCause::Closed
        } else {
            let reason = self.trouble(now);
            LossCause::Unreachable { reason }
        })
    }

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
        // The check was planned for `due`. A large difference suggests a paused process or a suspended machine.
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

    /// Returns whether the validity ends before the fixed lease of at least one level. If so, a request may have
    /// shortened the lease in the store, or the key of a semaphore expires earlier.
    pub(super) fn is_short(&self) -> bool {
        let counted_on = self.levels.iter().filter_map(|level| {
            let end = level.ends?;
            Some(end.earlier(drift(level.lease.get()) + ROUNDING))
        });
        counted_on.max().is_some_and(|end| self.valid_until < end)
    }

    pub(super) fn is_looked_after(&self, rules: &Rules) -> bool {
        self.renewed_lease().is_some() || self.is_short() || rules.restores_lifetime
    }

    pub(super) fn is_being_renewed(&self) -> bool {
        let asked = |it: &InFlight| it.by == By::Watchdog && it.state == Flying::Awaited;
        self.waits || self.in_flight.iter().any(asked)
    }

    /// The lease in the store. If it is shorter than the lease of the levels, it is computed from the validity.
    pub(super) fn pace(&self) -> Duration {
        let counted = self.counted_from.until(self.valid_until);
        self.renewed_lease()
            .map_or(counted, |lease| match counted + drift(lease) {
                whole if whole >= lease => lease,
                _ => counted + drift(counted),
            })
    }

    pub(super) fn longest_in_store(&self, timeline: &Timeline) -> Duration {
        if self.in_flight.is_empty() {
            return self.longest.get();
        }
        let now = timeline.now();
        let expiries = self.in_flight.iter().map(|it| now.until(it.expires));
        self.longest.get() + expiries.max().unwrap_or_default()
    }

    pub(super) fn renewed_lease(&self) -> Option<Duration> {
        let renewed = self.levels.iter().filter(|level| level.ends.is_none());
        renewed.map(|level| level.lease.get()).max()
    }

    /// Returns the lease that the levels need from `now` on; `None` if every level has ended.
    pub(super) fn rest(&self, now: BootInstant) -> Option<Duration> {
        let ends = self.levels.iter().filter_map(|level| level.ends).max();
        let fixed = ends.map(|ends| now.until(ends));
        let fixed = fixed.filter(|rest| *rest >= Duration::from_millis(1));
        fixed.max(self.renewed_lease())
    }
}

pub(super) fn count(levels: &[Level]) -> u32 {
    u32::try_from(levels.len()).unwrap_or(u32::MAX)
}
