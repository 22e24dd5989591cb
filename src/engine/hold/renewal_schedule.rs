//! When the watchdog looks at a hold: to renew it at a third of its lease, and to notice the end of its validity.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::engine::hold::Hold;
use crate::engine::hold::state::{Phase, State};
use crate::engine::hold::validity::{By, InFlight, InFlightId};
use crate::ground::claim::Claim;
use crate::ground::clock::{BootInstant, ClockPair};
use crate::ground::loss::LossCause;
use crate::ground::time;

/// The watchdog looks this often whether a transaction has let go of a hold; the end of a transaction is told to it, too.
const PINNED_LOOK: Duration = Duration::from_secs(1);

/// The duty of the watchdog towards a hold that is due.
#[derive(Debug)]
pub(crate) enum Duty {
    /// Renew it, and look whether that was in time when its validity ends.
    Renew,
    /// It waits for its renewal already.
    Waits,
    /// The validity has ended.
    Lapsed(LossCause),
    /// Check it again later: a transaction has its row, or its thread has ended. In that case it is not renewed, which frees
    /// the lock within one lease.
    Idle,
    /// It was released or lost meanwhile.
    Over,
}

/// A renewal that is due.
#[derive(Debug)]
pub(crate) struct RenewalStart {
    pub(crate) claim: Claim,
    pub(crate) in_flight_id: InFlightId,
    pub(crate) valid_until: BootInstant,
    /// The lease that the watchdog renews by, which may be shorter than the lease of the claim.
    pub(crate) pace: Duration,
}

/// When the watchdog is to look at a hold.
#[derive(Debug)]
pub(crate) struct NextCheck {
    pub(crate) due: Instant,
    /// Whether that is the end of its validity.
    pub(crate) is_end: bool,
    /// Whether another entry of the heap was made void by it.
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
    /// Looks what is to be done about a hold that has come out of the timer.
    pub(crate) fn duty(&self, now: ClockPair) -> Duty {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return Duty::Over;
        }
        if state.pinned_since().is_some() {
            state.due = None;
            return Duty::Idle;
        }
        let owner_lives = self.owner.strong_count() > 0;
        if let Some(cause) = state.lapse(now, owner_lives) {
            return Duty::Lapsed(cause);
        }
        state.due = None;
        if !owner_lives || state.rest(now.moment).is_none() {
            return Duty::Idle;
        }
        match std::mem::replace(&mut state.waits, true) {
            true => Duty::Waits,
            false => Duty::Renew,
        }
    }

    /// Starts a renewal, or says what to do instead.
    pub(crate) fn begin_renewal(
        &self,
        begun: ClockPair,
        expires: BootInstant,
    ) -> Result<RenewalStart, Duty> {
        let now = begun.moment;
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return Err(Duty::Over);
        }
        state.waits = false;
        if state.pinned_since().is_some() {
            return Err(Duty::Idle);
        }
        let owner_lives = self.owner.strong_count() > 0;
        if let Some(cause) = state.lapse(begun, owner_lives) {
            return Err(Duty::Lapsed(cause));
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
            _ => Err(Duty::Idle),
        }
    }

    /// Notes that a renewal or a level given back has set its lease, unless the hold ended meanwhile.
    pub(crate) fn confirmed(
        &self,
        in_flight_id: InFlightId,
        may_run_again: bool,
        now: BootInstant,
    ) {
        let mut state = self.state.lock();
        if let Some(rare) = &mut state.rare {
            rare.last_trouble = None;
        }
        let request = state.in_flight.iter().find(|it| it.id == in_flight_id);
        if let Some(InFlight { sent, lease, .. }) = request.copied() {
            let counts = matches!(state.phase, Phase::Held) && now < state.valid_until;
            if counts {
                state.confirm(in_flight_id, sent, lease, may_run_again);
            } else {
                state.unanswered(in_flight_id);
            }
        }
    }

    /// Notes that a renewal had no outcome. It extends nothing.
    pub(crate) fn renewal_unknown(&self, in_flight_id: InFlightId, trouble: &str) {
        let mut state = self.state.lock();
        state.unanswered(in_flight_id);
        state.rare().last_trouble = Some(trouble.to_owned());
    }

    /// Says that the watchdog should look at this hold when its validity ends, which is noted as due.
    pub(crate) fn plan_end(&self, now: ClockPair) -> NextCheck {
        let mut state = self.state.lock();
        let end = state.valid_until;
        state.note_due(now.instant_of(end), true)
    }

    /// Says when the watchdog should look at this hold again, which is noted as due; `None` once it is over, and if a look is due
    /// already.
    pub(crate) fn plan(&self, now: ClockPair, again_in: Option<Duration>) -> Option<NextCheck> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return None;
        }
        if state.due.is_some_and(|due| due <= time::now()) {
            // It was asked for while the one before was under way, as another server was found: that one says nothing of it.
            return None;
        }
        let (at, is_end) = self.next_look(&state, now.moment, again_in);
        Some(state.note_due(now.instant_of(at), is_end))
    }

    /// Whether it should be looked at before what is noted as due.
    pub(crate) fn is_due_earlier(&self, now: ClockPair) -> bool {
        let state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return false;
        }
        let (at, _) = self.next_look(&state, now.moment, None);
        state.due.is_none_or(|due| now.instant_of(at) < due)
    }

    /// A third of the lease from when it was set, or when the validity ends, and whether it is the latter.
    fn next_look(
        &self,
        state: &State,
        now: BootInstant,
        again_in: Option<Duration>,
    ) -> (BootInstant, bool) {
        if state.pinned_since().is_some() {
            return (now + PINNED_LOOK, false);
        }
        // While a renewal is under way, or waits for the one before it, there is but the end to look for.
        let is_renewed = state.is_looked_after(self.kind.rules())
            && !state.is_being_renewed()
            && self.owner.strong_count() > 0;
        let pace = state.pace();
        let pace = state
            .longest_pace()
            .map_or(pace, |longest| pace.min(longest));
        let renewal = is_renewed.then(|| match (again_in, pace) {
            (Some(pause), _) => now + pause,
            // On a grid, so that holds fall due in batches; what is overdue is not asked for without a pause.
            (None, pace) => (state.counted_from + pace / 3)
                .floor(pace / 60)
                .max(now + pace / 20),
        });
        match renewal {
            Some(at) if at < state.valid_until => (at, false),
            _ => (state.valid_until, true),
        }
    }

    /// Sets the instant of the heap entry that counts from now on. Returns whether there was another one before.
    pub(crate) fn set_due(&self, due: Option<Instant>) -> bool {
        std::mem::replace(&mut self.state.lock().due, due).is_some()
    }

    pub(crate) fn is_due_at(&self, due: Instant) -> bool {
        self.state.lock().due == Some(due)
    }
}
