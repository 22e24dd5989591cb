//! One hold as this process knows it: its levels, the end of its validity, and its loss. Each acquisition adds a level.
//!
//! The store decides who has the lock. A [`Hold`] has the state that the store last confirmed, and the instant until
//! which this state is reliable.

mod lifecycle;
#[cfg(feature = "mysql")]
mod pin;
mod renewal_schedule;
mod state;
#[cfg(test)]
mod tests;
mod validity;

use std::num::NonZeroU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use crate::engine::counters::Counters;
use crate::engine::counters::class::ClassId;
pub(crate) use crate::engine::hold::renewal_schedule::{DueAction, NextCheck};
use crate::engine::hold::state::{Level, Phase, State, count};
pub(crate) use crate::engine::hold::validity::InFlightId;
use crate::engine::hold::validity::{By, Flying, end_of_validity};
use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::loss::LossCause;
use crate::ground::sync::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The watchdog renews the hold with this lease until the unlock.
    Watchdog(Duration),
    /// The lease ends this long after the acquisition, and is never extended.
    Fixed(Duration),
}

impl Lease {
    pub(crate) fn duration(self) -> Duration {
        match self {
            Lease::Watchdog(lease) | Lease::Fixed(lease) => lease,
        }
    }
}

pub(crate) type LevelId = u32;

#[derive(Debug)]
pub(crate) struct HandOffOffer {
    pub(crate) thread: u64,
    /// `upgrade` succeeds until the `Owner` of the waiter is dropped.
    pub(crate) liveness: Weak<()>,
    pub(crate) lease: Lease,
}

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    fence: Option<NonZeroU64>,
    /// The number of the owner of the hold: a thread, or an `OwnedGuard`. Permits have the number of the acquiring thread.
    pub(crate) thread: u64,
    owner: Weak<()>,
    client: Arc<Counters>,
    /// `None` if the client's counters do not include the hold.
    class: Option<ClassId>,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) enum ReleasePlan {
    /// Send nothing, because the hold was lost. `had_level` is false if this level had been released earlier.
    Lost { cause: LossCause, had_level: bool },
    /// Send nothing, because this level had been released earlier.
    AlreadyGivenBack,
    /// Release the whole hold, because the level was the last one.
    Whole(Claim),
    /// Release one level, and set the lease of the remaining levels.
    Part(Claim, InFlightId),
    /// Release the whole hold. The leases of the remaining levels have ended, so these levels are lost.
    Expired(Claim),
}

/// The leases of the levels of a hold; `None` for a level that the watchdog renews.
pub(crate) type Leases = SmallVec<[Option<Duration>; 1]>;

impl std::panic::RefUnwindSafe for Hold {}

impl Hold {
    pub(crate) fn new(
        claim: &Claim,
        thread: u64,
        owner: Weak<()>,
        client: Arc<Counters>,
        lease: Lease,
        sent: BootInstant,
    ) -> Hold {
        Hold {
            kind: claim.kind,
            name: Arc::clone(&claim.name),
            visitor: claim.visitor.clone(),
            fence: None,
            thread,
            owner,
            client,
            class: None,
            state: Mutex::new(State {
                phase: Phase::Held,
                levels: smallvec![Level::new(0, lease, sent)],
                last_id: 0,
                valid_until: end_of_validity(sent, claim.lease),
                counted_from: sent,
                in_flight: SmallVec::new(),
                longest: claim.lease.into(),
                waits: false,
                due: None,
                may_outlast: false,
                is_abandoned: false,
                began: None,
                span: None,
                rare: None,
            }),
        }
    }

    /// Notes that the request that acquired the hold was sent more than once. Until `EXPIRY_SLACK` after `deadline`,
    /// the server can run another copy, which sets the lease again.
    pub(crate) fn set_copy_in_flight(&self, lease: Duration, deadline: Instant) {
        let now = self.client.timeline.read();
        let expires = now.moment_of(deadline);
        let mut state = self.state.lock();
        let first = state.note_in_flight(By::Holder, now.moment, lease, expires);
        state.mark(first, Flying::Answered);
        state.may_outlast = true;
    }

    /// If other clients may shorten the lease of the key, renewals are scheduled as for a lease of at most `least`.
    pub(crate) fn set_store(&mut self, class: ClassId, fence: Option<u64>, least: Duration) {
        self.class = Some(class);
        self.fence = fence.and_then(NonZeroU64::new);
        if self.kind.rules().restores_lifetime {
            self.state.lock().rare().longest_pace = Some(least);
        }
    }

    pub(crate) fn fence(&self) -> Option<u64> {
        self.fence.map(NonZeroU64::get)
    }

    pub(crate) fn lock(&self) -> LockId {
        let (kind, name) = (self.kind, Arc::clone(&self.name));
        LockId { kind, name }
    }

    /// Returns whether the holder may act on the lock, as far as this process knows.
    pub(crate) fn is_valid(&self) -> bool {
        let state = self.state.lock();
        self.counts(&state, self.client.timeline.now())
    }

    fn counts(&self, state: &State, now: BootInstant) -> bool {
        matches!(state.phase, Phase::Held) && now < state.valid_until && self.client.has_watchdog()
    }

    pub(crate) fn remaining_validity(&self) -> Duration {
        let state = self.state.lock();
        let now = self.client.timeline.now();
        match self.counts(&state, now) {
            true => now.until(state.valid_until),
            false => Duration::ZERO,
        }
    }

    /// Returns whether the thread must not acquire an overlapping lock, such as the other side of a read-write lock.
    pub(crate) fn excludes_overlap(&self) -> bool {
        let state = self.state.lock();
        let is_pinned = state.pinned_since().is_some() && self.client.has_watchdog();
        matches!(state.phase, Phase::Held) && is_pinned
            || self.counts(&state, self.client.timeline.now())
    }

    /// Returns whether the hold is neither released nor marked lost. Its validity may have ended, see [`Hold::lapse`].
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Held)
    }

    pub(crate) fn loss_cause(&self) -> Option<LossCause> {
        match &self.state.lock().phase {
            Phase::Lost(cause) => Some(LossCause::clone(cause)),
            _ => None,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        count(&self.state.lock().levels)
    }

    /// Returns the level that `Lock::unlock` releases: the last level without a guard, or the last level if all have guards.
    pub(crate) fn top_level(&self) -> Option<LevelId> {
        let state = self.state.lock();
        let by_hand = state.levels.iter().rfind(|level| !level.is_guards);
        by_hand.or(state.levels.last()).map(|level| level.id)
    }

    pub(crate) fn guard(&self, id: LevelId) {
        let mut state = self.state.lock();
        if let Some(level) = state.levels.iter_mut().rfind(|level| level.id == id) {
            level.is_guards = true;
        }
    }

    pub(crate) fn reentry(&self, lease: Lease, deadline: Instant) -> (Claim, InFlightId) {
        let now = self.client.timeline.read();
        let mut state = self.state.lock();
        let rest = state.rest(now.moment).unwrap_or_default();
        let claim = Claim {
            is_renewed: matches!(lease, Lease::Watchdog(_)),
            ..self.claim(&state, rest.max(lease.duration()))
        };
        let expires = now.moment_of(deadline);
        let in_flight_id = state.note_in_flight(By::Holder, now.moment, claim.lease, expires);
        (claim, in_flight_id)
    }

    fn claim(&self, state: &State, lease: Duration) -> Claim {
        Claim {
            count: count(&state.levels),
            ..Claim::new(self.kind, &self.name, self.visitor.clone(), lease)
        }
    }

    pub(crate) fn entered(
        &self,
        claim: &Claim,
        in_flight_id: InFlightId,
        lease: Lease,
        sent: BootInstant,
        may_run_again: bool,
    ) -> Option<LevelId> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) || self.client.timeline.now() >= state.valid_until {
            return None;
        }
        let id = state.next_id();
        state.levels.push(Level::new(id, lease, sent));
        state.confirm(in_flight_id, sent, claim.lease, may_run_again);
        Some(id)
    }

    /// Notes that a request was not sent, or changed nothing.
    pub(crate) fn not_done(&self, in_flight_id: InFlightId) {
        let mut state = self.state.lock();
        state.in_flight.retain(|it| it.id != in_flight_id);
    }

    pub(crate) fn unanswered(&self, in_flight_id: InFlightId) {
        self.state.lock().unanswered(in_flight_id);
    }

    pub(crate) fn may_outlast(&self) -> bool {
        self.state.lock().may_outlast
    }

    pub(crate) fn set_may_outlast(&self) {
        self.state.lock().may_outlast = true;
    }

    pub(crate) fn release_level(&self, id: LevelId, deadline: Instant) -> ReleasePlan {
        // `_ended` is dropped after the mutex is unlocked, because its `drop` calls the observer.
        let _ended;
        let mut state = self.state.lock();
        let mut claim = self.claim(&state, Duration::ZERO);
        let before = state.levels.len();
        state.levels.retain(|level| level.id != id);
        if let Phase::Lost(cause) = &state.phase {
            return ReleasePlan::Lost {
                cause: LossCause::clone(cause),
                had_level: state.levels.len() < before,
            };
        }
        if state.levels.len() == before {
            return ReleasePlan::AlreadyGivenBack;
        }
        if state.levels.is_empty() {
            // Releasing the last level ends the hold in this process, whatever the reply to the request is.
            state.phase = Phase::Released;
            _ended = self.end_notice(&mut state, false);
            claim.lease = state.longest_in_store(&self.client.timeline);
            return ReleasePlan::Whole(claim);
        }
        let now = self.client.timeline.read();
        match state.rest(now.moment) {
            Some(lease) => {
                let expires = now.moment_of(deadline);
                let in_flight_id = state.note_in_flight(By::Holder, now.moment, lease, expires);
                ReleasePlan::Part(Claim { lease, ..claim }, in_flight_id)
            }
            None => {
                claim.lease = state.longest_in_store(&self.client.timeline);
                ReleasePlan::Expired(claim)
            }
        }
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.state.lock().pinned_since().is_some()
    }

    /// Returns true if a transaction has locked the row. The level is then released after the transaction.
    pub(crate) fn put_off(&self, id: LevelId) -> bool {
        let mut state = self.state.lock();
        let is_pinned = state.pinned_since().is_some();
        if is_pinned {
            state.rare().put_off.push(id);
        }
        is_pinned
    }

    /// Removes one level of a lost hold for `Lock::unlock`, preferably a level without a guard.
    pub(crate) fn remove_lost_level(&self) {
        let mut state = self.state.lock();
        let by_hand = state.levels.iter().rposition(|level| !level.is_guards);
        match by_hand {
            Some(at) => drop(state.levels.remove(at)),
            None => drop(state.levels.pop()),
        }
    }

    /// If `guards`, returns whether the hold has only one level, and this level has a guard. Otherwise returns whether no
    /// level has a guard.
    pub(crate) fn has_levels_of(&self, guards: bool) -> bool {
        let state = self.state.lock();
        let are_alike = state.levels.iter().all(|level| level.is_guards == guards);
        are_alike && (state.levels.len() == 1 || !guards)
    }

    /// The caller has to release the returned claim.
    pub(crate) fn release_all_levels(&self) -> Result<(Claim, Leases), LossCause> {
        let mut state = self.state.lock();
        match &state.phase {
            Phase::Held => {}
            Phase::Lost(cause) => return Err(LossCause::clone(cause)),
            Phase::Released => return Err(LossCause::Gone),
        }
        let mut claim = self.claim(&state, Duration::ZERO);
        let leases = state
            .levels
            .drain(..)
            .map(|level| level.fixed_lease())
            .collect();
        state.phase = Phase::Released;
        let _ended = self.end_notice(&mut state, false);
        claim.lease = state.longest_in_store(&self.client.timeline);
        // Dropping `_ended` calls the observer, so the mutex is unlocked first.
        drop(state);
        Ok((claim, leases))
    }

    /// Returns `None` if the hold is not valid.
    pub(crate) fn begin_write(&self) -> Option<(Claim, BootInstant)> {
        let state = self.state.lock();
        let claim = || (self.claim(&state, Duration::ZERO), state.valid_until);
        self.counts(&state, self.client.timeline.now()).then(claim)
    }
}
