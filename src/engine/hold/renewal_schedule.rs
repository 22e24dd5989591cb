//! Plans the renewals of a hold, each after a third of the lease, and the report that the validity has ended.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::engine::hold::Hold;
use crate::engine::hold::state::{Phase, State};
use crate::engine::hold::validity::{By, InFlight, InFlightId};
use crate::ground::claim::Claim;
use crate::ground::clock::{BootInstant, ClockPair, Nanos};
use crate::ground::loss::LossCause;
use crate::ground::time;

/// How often the watchdog checks whether a transaction has unlocked the row of a hold.
const PINNED_LOOK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum DueAction {
    /// Renew the hold, whose validity ends at this instant.
    Renew(BootInstant),
    /// Check only the end of the validity, because a renewal of the hold is already queued.
    Waits,
    Lapsed(LossCause),
    /// Check the hold later, because a transaction has locked its row, its owner was dropped, or its leases have ended.
    /// A hold without an owner is not renewed, so its lock becomes free within one lease.
    Idle,
    Over,
}

#[derive(Debug)]
pub(crate) struct RenewalStart {
    pub(crate) claim: Claim,
    pub(crate) in_flight_id: InFlightId,
    pub(crate) valid_until: BootInstant,
    /// The lease in the store, which may be shorter than the claim's lease. A renewal may take a quarter of this lease.
    pub(crate) pace: Duration,
}

#[derive(Debug)]
pub(crate) struct NextCheck {
    pub(crate) due: Instant,
    pub(crate) is_end: bool,
    pub(crate) replaces_another: bool,
}

impl State {
    fn note_due(&mut self, due: Instant, is_end: bool) -> NextCheck {
        NextCheck {
            due,
            is_end,
            replaces_another: self.due.replace(due).is_some(),
        }
    }
}

impl Hold {
    pub(crate) fn duty(&self, now: ClockPair) -> DueAction {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return DueAction::Over;
        }
        if state.pinned_since().is_some() {
            state.due = None;
            return DueAction::Idle;
        }
        let owner_lives = self.owner.strong_count() > 0;
        if let Some(cause) = state.lapse(now, owner_lives) {
            return DueAction::Lapsed(cause);
        }
        state.due = None;
        if !owner_lives || state.rest(now.moment).is_none() {
            return DueAction::Idle;
        }
        match std::mem::replace(&mut state.waits, true) {
            true => DueAction::Waits,
            false => DueAction::Renew(state.valid_until),
        }
    }

    pub(crate) fn begin_renewal(
        &self,
        begun: ClockPair,
        expires: BootInstant,
    ) -> Result<RenewalStart, DueAction> {
        let now = begun.moment;
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return Err(DueAction::Over);
        }
        state.waits = false;
        if state.pinned_since().is_some() {
            return Err(DueAction::Idle);
        }
        let owner_lives = self.owner.strong_count() > 0;
        if let Some(cause) = state.lapse(begun, owner_lives) {
            return Err(DueAction::Lapsed(cause));
        }
        match state.rest(now) {
            Some(lease) if owner_lives => {
                let in_flight_id = state.note_in_flight(By::Watchdog, now, lease, expires);
                Ok(RenewalStart {
                    claim: self.claim(&state, lease),
                    in_flight_id,
                    valid_until: state.valid_until,
                    pace: state.pace(),
                })
            }
            _ => Err(DueAction::Idle),
        }
    }

    /// Notes the reply to a renewal or to the release of a level. `life` is the TTL of a semaphore's key in the reply.
    pub(crate) fn confirmed(
        &self,
        in_flight_id: InFlightId,
        life: Option<Duration>,
        may_run_again: bool,
        now: BootInstant,
    ) {
        let mut state = self.state.lock();
        if let Some(rare) = &mut state.rare {
            rare.last_trouble = None;
        }
        let request = state.in_flight.iter().find(|it| it.id == in_flight_id);
        if let Some(InFlight { sent, lease, .. }) = request.copied() {
            state.set_life(sent, life);
            let counts = matches!(state.phase, Phase::Held) && now < state.valid_until;
            if counts {
                state.confirm(in_flight_id, sent, lease.get(), may_run_again);
            } else {
                state.unanswered(in_flight_id);
            }
        }
    }

    pub(crate) fn renewal_unknown(&self, in_flight_id: InFlightId, trouble: &str) {
        let mut state = self.state.lock();
        state.unanswered(in_flight_id);
        state.rare().last_trouble = Some(trouble.to_owned());
    }

    pub(crate) fn unwatched_end(&self, now: ClockPair) -> Option<BootInstant> {
        let state = self.state.lock();
        let is_meant = matches!(state.phase, Phase::Held) && state.due.is_none();
        Some(state.valid_until).filter(|end| is_meant && now.moment < *end)
    }

    pub(crate) fn plan(&self, now: ClockPair, again_in: Option<Duration>) -> Option<NextCheck> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return None;
        }
        if state.due.is_some_and(|due| due <= time::now()) {
            // While a renewal ran, another check became due, for example because the master changed. This check stays
            // scheduled, because the reply to the renewal may be from the old master.
            return None;
        }
        let (at, is_end) = self.next_look(&state, now.moment, again_in);
        Some(state.note_due(now.instant_of(at), is_end))
    }

    pub(crate) fn is_due_earlier(&self, now: ClockPair) -> bool {
        let state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return false;
        }
        let (at, _) = self.next_look(&state, now.moment, None);
        state.due.is_none_or(|due| now.instant_of(at) < due)
    }

    /// Returns the time of the next check, and whether this time is the end of the validity.
    fn next_look(
        &self,
        state: &State,
        now: BootInstant,
        again_in: Option<Duration>,
    ) -> (BootInstant, bool) {
        if state.pinned_since().is_some() {
            return (now + PINNED_LOOK, false);
        }
        let is_renewed = state.is_looked_after(self.kind.rules())
            && !state.is_being_renewed()
            && self.owner.strong_count() > 0;
        let pace = state.pace();
        let pace = state.longest_pace().map_or(pace, |most| pace.min(most));
        let pace = Nanos::from(pace);
        let renewal = is_renewed.then(|| match (again_in, pace) {
            (Some(pause), _) => now + pause,
            // The time is rounded down, so that many renewals are due at the same time and share a batch.
            (None, pace) => (state.counted_from + pace.divided_by(3))
                .floor(pace.divided_by(60))
                .max(now + pace.divided_by(20)),
        });
        match renewal {
            Some(at) if at < state.valid_until => (at, false),
            _ => (state.valid_until, true),
        }
    }

    /// `None` cancels the hold's timer entry. Returns whether the hold had a timer entry.
    pub(crate) fn set_due(&self, due: Option<Instant>) -> bool {
        std::mem::replace(&mut self.state.lock().due, due).is_some()
    }

    pub(crate) fn is_due_at(&self, due: Instant) -> bool {
        self.state.lock().due == Some(due)
    }
}
