//! One hold as this process knows it: its levels, until when it is valid, whether it was lost.
//!
//! The store is the truth; what stands here is what was confirmed last, and says until when it may be believed.

mod lifecycle;
#[cfg(feature = "mysql")]
mod pin;
mod renewal_schedule;
mod state;
#[cfg(test)]
mod tests;
mod validity;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use crate::engine::counters::Counters;
use crate::engine::counters::class::ClassId;
pub(crate) use crate::engine::hold::renewal_schedule::{Duty, NextCheck};
use crate::engine::hold::state::{Level, Phase, State, count};
use crate::engine::hold::validity::By;
pub(crate) use crate::engine::hold::validity::InFlightId;
use crate::engine::hold::validity::end_of_validity;
use crate::ground::claim::{Claim, Kind, LockId, Queueing, VisitorId};
use crate::ground::clock::{BootInstant, PROCESS, Timeline};
use crate::ground::loss::LossCause;
use crate::ground::sync::Mutex;

/// How long an acquisition counts on the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Until it is unlocked; renewed with this lease time meanwhile.
    Watchdog(Duration),
    /// This long from the acquisition, never renewed.
    Fixed(Duration),
}

impl Lease {
    pub(crate) fn duration(self) -> Duration {
        match self {
            Lease::Watchdog(lease) | Lease::Fixed(lease) => lease,
        }
    }
}

/// Identifies one acquisition within a hold.
pub(crate) type LevelId = u32;

/// The data a releaser needs to create a hold for a waiter.
#[derive(Debug)]
pub(crate) struct HandOffOffer {
    pub(crate) thread: u64,
    /// Lives as long as the thread.
    pub(crate) liveness: Weak<()>,
    pub(crate) lease: Lease,
}

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// Its fencing number, where the store draws one.
    pub(crate) fence: Option<u64>,
    /// The number of its owner, which is a thread or as good as one, and what lives as long as that.
    thread: u64,
    owner: Weak<()>,
    client: Arc<Counters>,
    /// The class that it is counted in, if it is.
    class: Option<ClassId>,
    /// The clock that it is counted on.
    timeline: Timeline,
    state: Mutex<State>,
}

/// The request that gives one level back.
#[derive(Debug)]
pub(crate) enum ReleasePlan {
    /// The hold was lost before; nothing is to be sent. The level may have been given back before, too.
    Lost { cause: LossCause, had_level: bool },
    /// Nothing is to be sent.
    AlreadyGivenBack,
    /// It was the last level: the whole hold is to be released.
    Whole(Claim),
    /// The claim's lease is what the remaining levels count on.
    Part(Claim, InFlightId),
    /// The rest has no lease left; the whole hold is to be released and the remaining levels are lost.
    Expired(Claim),
}

/// The leases that the levels of a hold were taken with, the first one first.
pub(crate) type Leases = SmallVec<[Lease; 1]>;

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
            timeline: PROCESS.clone(),
            state: Mutex::new(State {
                phase: Phase::Held,
                levels: smallvec![Level::new(0, lease, sent)],
                next_level: 1,
                valid_until: end_of_validity(sent, claim.lease),
                counted_from: sent,
                in_flight: SmallVec::new(),
                next_in_flight_id: 0,
                longest: claim.lease,
                waits: false,
                due: None,
                news: None,
                may_outlast: false,
                is_abandoned: false,
                began: None,
                span: None,
                rare: None,
            }),
        }
    }

    /// Notes that a request that began it, sent until `deadline`, may yet set its first lease again.
    pub(crate) fn with_late_copy(self, lease: Duration, deadline: Instant) -> Hold {
        let now = self.timeline.read();
        let expires = now.moment_of(deadline);
        let mut state = self.state.lock();
        let first = state.note_in_flight(By::Holder, now.moment, lease, expires);
        state.answered(first);
        state.may_outlast = true;
        drop(state);
        self
    }

    /// Sets the class, the clock of the store, and the fencing token. Where other clients may shorten the lease of the lock's
    /// key, to `least` at the shortest, the hold is renewed as often as with that lease.
    pub(crate) fn kept_by(
        mut self,
        class: ClassId,
        timeline: &Timeline,
        fence: Option<u64>,
        least: Duration,
    ) -> Hold {
        self.class = Some(class);
        self.timeline = timeline.clone();
        self.fence = fence;
        if self.kind.rules().restores_lifetime {
            self.state.lock().rare().longest_pace = Some(least);
        }
        self
    }

    pub(crate) fn lock(&self) -> LockId {
        LockId {
            kind: self.kind,
            name: Arc::clone(&self.name),
        }
    }

    /// Whether the holder may still act on the lock, as far as this process knows. No I/O.
    pub(crate) fn is_valid(&self) -> bool {
        self.counts(&self.state.lock())
    }

    fn counts(&self, state: &State) -> bool {
        matches!(state.phase, Phase::Held)
            && self.timeline.now() < state.valid_until
            && self.client.has_watchdog()
    }

    pub(crate) fn remaining_validity(&self) -> Duration {
        let state = self.state.lock();
        match self.counts(&state) {
            true => self.timeline.now().until(state.valid_until),
            false => Duration::ZERO,
        }
    }

    /// Whether it keeps its thread from taking a lock that overlaps: it is valid, or a transaction has its row, and it
    /// can still be unlocked. The watchdog turns what has ended lost, but a client that ended has none.
    pub(crate) fn stands(&self) -> bool {
        let state = self.state.lock();
        let is_pinned = state.pinned_since().is_some() && self.client.has_watchdog();
        let is_held = matches!(state.phase, Phase::Held) && is_pinned || self.counts(&state);
        is_held && !self.has_no_client()
    }

    /// Whether the last handle of its client is gone.
    pub(crate) fn has_no_client(&self) -> bool {
        self.client.is_gone()
    }

    /// Whether the hold is neither released nor known to be lost. It may have ended by the clock, see [`Hold::lapse`].
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

    /// The level that an unlock by hand gives back: the last one that no guard will, else the last one.
    pub(crate) fn top_level(&self) -> Option<LevelId> {
        let state = self.state.lock();
        let by_hand = state.levels.iter().rfind(|level| !level.is_guards);
        by_hand.or(state.levels.last()).map(|level| level.id)
    }

    /// Leaves it to a guard to give level `id` back.
    pub(crate) fn guard(&self, id: LevelId) {
        let mut state = self.state.lock();
        if let Some(level) = state.levels.iter_mut().rfind(|level| level.id == id) {
            level.is_guards = true;
        }
    }

    /// The claim that enters this hold once more, by a request that is about to be sent and expires at `deadline`.
    pub(crate) fn reentry(&self, lease: Lease, deadline: Instant) -> (Claim, InFlightId) {
        let now = self.timeline.read();
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
            kind: self.kind,
            name: Arc::clone(&self.name),
            visitor: self.visitor.clone(),
            count: count(&state.levels),
            lease,
            is_renewed: false,
            inside: None,
            queueing: Queueing::default(),
        }
    }

    /// Notes a granted re-entry; `None` if the hold ended while it was asked for.
    pub(crate) fn entered(
        &self,
        claim: &Claim,
        in_flight_id: InFlightId,
        lease: Lease,
        sent: BootInstant,
        may_run_again: bool,
    ) -> Option<LevelId> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) || self.timeline.now() >= state.valid_until {
            return None;
        }
        let id = state.next_level;
        state.next_level = state.next_level.wrapping_add(1);
        state.levels.push(Level::new(id, lease, sent));
        state.confirm(in_flight_id, sent, claim.lease, may_run_again);
        Some(id)
    }

    /// Notes that a request had no outcome, for a re-entry. The hold goes on as it was.
    pub(crate) fn reentry_unknown(&self, in_flight_id: InFlightId) {
        let mut state = self.state.lock();
        state.may_outlast = true;
        state.unanswered(in_flight_id);
    }

    /// Notes that a request was not sent, or changed nothing.
    pub(crate) fn not_done(&self, in_flight_id: InFlightId) {
        let mut state = self.state.lock();
        state.in_flight.retain(|it| it.id != in_flight_id);
    }

    /// Notes that a request had no outcome. It extends nothing, and what it shortens was noted when it was sent.
    pub(crate) fn unanswered(&self, in_flight_id: InFlightId) {
        self.state.lock().unanswered(in_flight_id);
    }

    /// Whether the store may still keep the hold after it has ended here.
    pub(crate) fn may_outlast(&self) -> bool {
        self.state.lock().may_outlast
    }

    /// Notes that its thread has, or asks for, the other side of the same read-write lock: what ends by its lease stays there
    /// as long as the other one.
    pub(crate) fn note_other_side(&self) {
        self.state.lock().may_outlast = true;
    }

    /// Takes level `id` away, before anything is sent, and says what to send.
    pub(crate) fn leave(&self, id: LevelId, deadline: Instant) -> ReleasePlan {
        // Whatever hears of the end is not to be called under the lock.
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
            // From here on nobody renews it: the last release ends the hold here, whatever becomes of the request.
            state.phase = Phase::Released;
            _ended = self.end_notice(&mut state, false);
            claim.lease = state.may_stand(&self.timeline);
            return ReleasePlan::Whole(claim);
        }
        let now = self.timeline.read();
        match state.rest(now.moment) {
            Some(lease) => {
                let expires = now.moment_of(deadline);
                let in_flight_id = state.note_in_flight(By::Holder, now.moment, lease, expires);
                ReleasePlan::Part(Claim { lease, ..claim }, in_flight_id)
            }
            None => {
                claim.lease = state.may_stand(&self.timeline);
                ReleasePlan::Expired(claim)
            }
        }
    }

    /// Whether a transaction has it.
    pub(crate) fn is_pinned(&self) -> bool {
        self.state.lock().pinned_since().is_some()
    }

    /// Leaves level `id` to be given back behind the transaction that has the hold. Returns whether one has.
    pub(crate) fn put_off(&self, id: LevelId) -> bool {
        let mut state = self.state.lock();
        let is_pinned = state.pinned_since().is_some();
        if is_pinned {
            state.rare().put_off.push(id);
        }
        is_pinned
    }

    /// Takes a level out of a hold that was lost, which was unlocked by the name of the lock: one by hand rather than one
    /// that a guard has yet to give back.
    pub(crate) fn forget_level(&self) {
        let mut state = self.state.lock();
        let by_hand = state.levels.iter().rposition(|level| !level.is_guards);
        match by_hand {
            Some(at) => drop(state.levels.remove(at)),
            None => drop(state.levels.pop()),
        }
    }

    /// Whether each of its levels is given back by hand; with `guards`, whether the only one is a guard's.
    pub(crate) fn has_levels_of(&self, guards: bool) -> bool {
        let state = self.state.lock();
        let are_alike = state.levels.iter().all(|level| level.is_guards == guards);
        are_alike && (state.levels.len() == 1 || !guards)
    }

    /// Takes all levels away, before anything is sent, and says what to send. The cause if it was lost before.
    pub(crate) fn leave_all(&self) -> Result<(Claim, Leases), LossCause> {
        let mut state = self.state.lock();
        match &state.phase {
            Phase::Held => {}
            Phase::Lost(cause) => return Err(LossCause::clone(cause)),
            Phase::Released => return Err(LossCause::Gone),
        }
        let mut claim = self.claim(&state, Duration::ZERO);
        let leases = state.levels.drain(..).map(|level| level.lease()).collect();
        // From here on nobody renews it.
        state.phase = Phase::Released;
        let _ended = self.end_notice(&mut state, false);
        claim.lease = state.may_stand(&self.timeline);
        // Whatever hears of the end is not to be called under the lock.
        drop(state);
        Ok((claim, leases))
    }

    /// Returns the claim of a guarded write, and the end of its validity; `None` if this hold is not valid.
    pub(crate) fn begin_write(&self) -> Option<(Claim, BootInstant)> {
        let state = self.state.lock();
        let claim = || (self.claim(&state, Duration::ZERO), state.valid_until);
        self.counts(&state).then(claim)
    }
}
