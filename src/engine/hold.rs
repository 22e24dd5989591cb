//! One hold as this process knows it: its levels, until when it is valid, whether it was lost.
//!
//! The store is the truth; what stands here is what was confirmed last, and says until when it may be believed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use crate::engine::loss_notice::LossNotice;
use crate::ground::claim::{Claim, Kind, VisitorId};
use crate::ground::clock::{BootInstant, ClockPair, PROCESS, Timeline, drift};
use crate::ground::error::Error;
use crate::ground::events::HoldSpan;
use crate::ground::loss::{Loss, LossCause};
use crate::ground::sync::Mutex;
use crate::store::{EXPIRY_SLACK, InDoubt};

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

/// The watchdog looks this often whether a transaction has let go of a hold; the end of a transaction is told to it, too.
const PINNED_LOOK: Duration = Duration::from_secs(1);

/// Identifies one acquisition within a hold.
pub(crate) type LevelId = u32;

#[derive(Debug)]
struct Level {
    id: LevelId,
    lease: Lease,
    /// The end of a fixed lease.
    ends: Option<BootInstant>,
    /// Whether a guard gives it back.
    is_guards: bool,
}

/// Where a hold stands.
///
/// | phase | entered by | valid | renewed | leads to |
/// |---|---|---|---|---|
/// | Held | the grant | until `valid_until` | yes | Released, Lost |
/// | Released | the last release, before it is sent | no | no | Lost, if the release finds it gone |
/// | Lost | the store says so, or `valid_until` has passed | no, for good | no | – |
#[derive(Debug, Clone)]
enum Phase {
    Held,
    Released,
    Lost(LossCause),
}

/// A request that sets the lease in the store: a re-entry, a renewal, a level given back, a commit.
///
/// It may run at any time from when it is sent until it is answered, and until it expires if it is not. Two of them of
/// which neither was answered before the other was sent may run in either order, and the lease of the last one stands:
///
/// | one | the other | what stands at least, and is believed |
/// |---|---|---|
/// | answered before the other was sent | sent later | what the other sets, from when it is sent |
/// | under way, or without an answer, when the other is sent | | the shorter of the two, from when the other was sent |
/// | without an answer, and expired when the other is sent | | what the other sets |
/// | answered, while an earlier copy of it or a part of the store may still have it before it | sent later | as without an answer |
#[derive(Debug, Clone, Copy)]
struct InFlight {
    id: u32,
    by: By,
    sent: BootInstant,
    lease: Duration,
    /// The most that its own confirmation may count, for those that may run after it.
    most: Option<BootInstant>,
    /// From here on the server refuses it.
    expires: BootInstant,
    state: Flying,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flying {
    /// Its answer is waited for.
    Awaited,
    /// Nobody waits for its answer any more.
    Unanswered,
    /// It has its answer, but may run once more: in a part of the store that has not answered, or as an earlier copy on a
    /// connection that was cut. No order of connections bounds that, only its expiry.
    Answered,
}

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Holder,
    Watchdog,
}

/// Identifies a request of a hold that sets the lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlightId {
    id: u32,
}

/// More requests without an answer than these count as one.
const MOST_IN_FLIGHT: usize = 8;

/// A watchdog that looks this much later than it planned did not get to run.
const LATE: Duration = Duration::from_millis(100);

/// What was counted on may be this much less than what levels count on before it is mended, for rounding.
const ROUNDING: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct State {
    phase: Phase,
    levels: SmallVec<[Level; 1]>,
    next_level: LevelId,
    valid_until: BootInstant,
    /// When the request was sent from which that is counted.
    counted_from: BootInstant,
    in_flight: SmallVec<[InFlight; 1]>,
    next_in_flight_id: u32,
    /// The longest lease that any request may have set.
    longest: Duration,
    /// Since when a renewal that fell due waits for the one before it.
    waits_since: Option<BootInstant>,
    /// What the last renewal met with, for the cause of a later loss.
    last_trouble: Option<String>,
    /// When the watchdog looks at this hold next; an entry of its heap made for another instant is void.
    due: Option<Instant>,
    /// Made for the first one who wants to hear of a loss.
    news: Option<Arc<LossNotice>>,
    /// A re-entry without an answer may have set a longer lease in the store than is counted on here.
    may_outlast: bool,
    /// A transaction has locked its row: nobody can take it, nor can it be renewed, until that ends.
    is_pinned: bool,
    /// Levels whose guards went meanwhile.
    put_off: SmallVec<[LevelId; 1]>,
    /// Open while the hold is neither released nor lost.
    span: Option<HoldSpan>,
}

/// What became of a client, for all its holds.
#[derive(Debug, Default)]
pub(crate) struct ClientState {
    has_no_watchdog: AtomicBool,
    is_gone: AtomicBool,
}

impl ClientState {
    /// Notes that a thread of the watchdog has died: nothing is renewed any more, so nothing is valid.
    pub(crate) fn watchdog_died(&self) {
        self.has_no_watchdog.store(true, Ordering::Release);
    }

    pub(crate) fn has_watchdog(&self) -> bool {
        !self.has_no_watchdog.load(Ordering::Acquire)
    }

    /// Notes that the last handle of the client is gone: what it holds nobody can unlock any more.
    pub(crate) fn is_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }
}

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// Its fencing number, where the store draws one.
    pub(crate) fence: Option<u64>,
    /// Its thread's number, and what lives as long as that thread.
    thread: u64,
    owner: Weak<()>,
    client: Arc<ClientState>,
    /// The clock that it is counted on.
    timeline: Timeline,
    state: Mutex<State>,
}

/// What the watchdog is to do about a hold that is due.
#[derive(Debug)]
pub(crate) enum Duty {
    /// Renew it, and look whether that was in time when its validity ends.
    Renew,
    /// It waits for its renewal already.
    Waits,
    /// The validity has ended.
    Lapsed(LossCause),
    /// Nothing but look again later.
    Idle,
    /// It was released or lost meanwhile.
    Over,
}

/// What comes of a renewal that is due.
#[derive(Debug)]
pub(crate) enum RenewalStart {
    Renewal {
        claim: Claim,
        in_flight_id: InFlightId,
        valid_until: BootInstant,
        /// The lease that the watchdog renews it by, which may be shorter than that of its claim.
        pace: Duration,
    },
    /// The validity has ended.
    Lapsed(LossCause),
    /// Its thread has ended: it is not renewed, which frees it within one lease; until then others are kept out. Or a
    /// transaction has its row.
    Unowned,
    /// It was released or lost meanwhile.
    Over,
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

/// What is to be sent to give one level back.
#[derive(Debug)]
pub(crate) enum ReleasePlan {
    /// The hold was lost before; nothing is to be sent. The level may have been given back before, too.
    Lost { cause: LossCause, had_level: bool },
    /// The level was given back before; nothing is to be sent.
    Before,
    /// It was the last level: the whole hold is to be released.
    Whole(Claim),
    /// The claim's lease is what the remaining levels count on.
    Part(Claim, InFlightId),
    /// What remains has no lease left; the whole hold is to be released and the remaining levels are lost.
    Expired(Claim),
}

impl Hold {
    pub(crate) fn new(
        claim: &Claim,
        thread: u64,
        owner: Weak<()>,
        client: Arc<ClientState>,
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
                waits_since: None,
                last_trouble: None,
                due: None,
                news: None,
                may_outlast: false,
                is_pinned: false,
                put_off: SmallVec::new(),
                span: Some(HoldSpan::open(&claim.name, &claim.visitor)),
            }),
        }
    }

    pub(crate) fn with_fence(mut self, fence: Option<u64>) -> Hold {
        self.fence = fence;
        self
    }

    /// Says by which clock it is counted, in place of that of the process.
    pub(crate) fn counted_by(mut self, timeline: &Timeline) -> Hold {
        self.timeline = timeline.clone();
        self
    }

    /// Leaves the hold to a transaction, which the clock does not end and the watchdog does not disturb. Returns
    /// whether it is held and no other transaction has it.
    #[cfg(feature = "mysql")]
    pub(crate) fn pin(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = matches!(state.phase, Phase::Held) && !state.is_pinned;
        state.is_pinned |= is_free;
        is_free
    }

    /// The levels that are to be given back now that no transaction has it any more.
    #[cfg(feature = "mysql")]
    pub(crate) fn take_put_off(&self) -> SmallVec<[LevelId; 1]> {
        std::mem::take(&mut self.state.lock().put_off)
    }

    /// Ends what [`Hold::pin`] began. `committed` is the lease that the transaction has set, and from when it counts:
    /// it holds even if the one before it had run out meanwhile, because nobody could take the row.
    #[cfg(feature = "mysql")]
    pub(crate) fn unpin(&self, committed: Option<(BootInstant, Duration)>) {
        let mut state = self.state.lock();
        state.is_pinned = false;
        if let (Phase::Held, Some((sent, lease))) = (&state.phase, committed) {
            // A renewal that was sent before may have waited for the row.
            let in_flight_id = state.note_in_flight(By::Holder, sent, lease, sent);
            state.confirm(in_flight_id, sent, lease, false);
        }
    }

    /// Whether a transaction has it.
    pub(crate) fn is_pinned(&self) -> bool {
        self.state.lock().is_pinned
    }

    /// Leaves level `id` to be given back behind the transaction that has the hold. Returns whether one has.
    pub(crate) fn put_off(&self, id: LevelId) -> bool {
        let mut state = self.state.lock();
        if state.is_pinned {
            state.put_off.push(id);
        }
        state.is_pinned
    }

    /// The claim that extends this hold; its lease is zero if no level counts on it any more.
    #[cfg(feature = "mysql")]
    pub(crate) fn extension(&self) -> Claim {
        let state = self.state.lock();
        let rest = state.rest(self.timeline.now()).unwrap_or_default();
        self.claim(&state, rest)
    }

    /// Whether the holder may still act on the lock, as far as this process knows. No I/O.
    pub(crate) fn is_valid(&self) -> bool {
        let state = self.state.lock();
        matches!(state.phase, Phase::Held)
            && self.timeline.now() < state.valid_until
            && self.client.has_watchdog()
    }

    pub(crate) fn remaining_validity(&self) -> Duration {
        let state = self.state.lock();
        match state.phase {
            Phase::Held if self.client.has_watchdog() => {
                self.timeline.now().until(state.valid_until)
            }
            _ => Duration::ZERO,
        }
    }

    /// Whether it keeps its thread from taking a lock that overlaps: it is valid, or a transaction has its row, and it
    /// can still be unlocked. The watchdog turns what has ended lost, but a client that ended has none.
    pub(crate) fn stands(&self) -> bool {
        let state = self.state.lock();
        matches!(state.phase, Phase::Held)
            && (state.is_pinned || self.timeline.now() < state.valid_until)
            && self.client.has_watchdog()
            && !self.has_no_client()
    }

    /// Whether the last handle of its client is gone.
    pub(crate) fn has_no_client(&self) -> bool {
        self.client.is_gone.load(Ordering::Acquire)
    }

    /// Whether the hold is neither released nor known to be lost. It may have ended by the clock, see [`Hold::lapse`].
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Held)
    }

    pub(crate) fn loss_cause(&self) -> Option<LossCause> {
        match &self.state.lock().phase {
            Phase::Lost(cause) => Some(cause.clone()),
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
        let claim = self.claim(&state, rest.max(lease.duration()));
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
        state
            .in_flight
            .retain(|request| request.id != in_flight_id.id);
    }

    /// Notes that a request had no outcome. It extends nothing, and what it shortens was noted when it was sent.
    pub(crate) fn unanswered(&self, in_flight_id: InFlightId) {
        self.state.lock().unanswered(in_flight_id);
    }

    /// Whether the store may still keep the hold after it has ended here.
    pub(crate) fn may_outlast(&self) -> bool {
        self.state.lock().may_outlast
    }

    /// Takes level `id` away, before anything is sent, and says what to send.
    pub(crate) fn leave(&self, id: LevelId, deadline: Instant) -> ReleasePlan {
        // Whatever hears of the end of the span is not to be called under the lock.
        let _span;
        let mut state = self.state.lock();
        let mut claim = self.claim(&state, Duration::ZERO);
        let before = state.levels.len();
        state.levels.retain(|level| level.id != id);
        if let Phase::Lost(cause) = &state.phase {
            return ReleasePlan::Lost {
                cause: cause.clone(),
                had_level: state.levels.len() < before,
            };
        }
        if state.levels.len() == before {
            return ReleasePlan::Before;
        }
        if state.levels.is_empty() {
            // From here on nobody renews it: the last release ends the hold here, whatever becomes of the request.
            state.phase = Phase::Released;
            _span = state.span.take();
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

    /// Looks what is to be done about a hold that has come out of the timer.
    pub(crate) fn duty(&self, now: ClockPair) -> Duty {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return Duty::Over;
        }
        if state.is_pinned {
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
        match state.waits_since.replace(now.moment) {
            Some(since) => {
                state.waits_since = Some(since);
                Duty::Waits
            }
            None => Duty::Renew,
        }
    }

    /// Starts a renewal.
    pub(crate) fn begin_renewal(&self, begun: ClockPair, expires: BootInstant) -> RenewalStart {
        let now = begun.moment;
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return RenewalStart::Over;
        }
        let waits_since = state.waits_since.take();
        if state.is_pinned {
            return RenewalStart::Unowned;
        }
        // What a loss says is said with what it waited for.
        state.waits_since = waits_since;
        let owner_lives = self.owner.strong_count() > 0;
        if let Some(cause) = state.lapse(begun, owner_lives) {
            return RenewalStart::Lapsed(cause);
        }
        state.waits_since = None;
        match state.rest(now) {
            Some(lease) if owner_lives => {
                let in_flight_id = state.note_in_flight(By::Watchdog, now, lease, expires);
                RenewalStart::Renewal {
                    claim: self.claim(&state, lease),
                    in_flight_id,
                    valid_until: state.valid_until,
                    pace: state.pace(),
                }
            }
            _ => RenewalStart::Unowned,
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
        state.last_trouble = None;
        let request = state.in_flight.iter().find(|it| it.id == in_flight_id.id);
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
        state.last_trouble = Some(trouble.to_owned());
    }

    /// Says that the watchdog should look at this hold when its validity ends, which is noted as due.
    pub(crate) fn plan_end(&self, now: ClockPair) -> NextCheck {
        let mut state = self.state.lock();
        let due = now.instant_of(state.valid_until);
        NextCheck {
            due,
            is_end: true,
            replaces_another: state.due.replace(due).is_some(),
        }
    }

    /// Says when the watchdog should look at this hold again, which is noted as due; `None` once it is over.
    pub(crate) fn plan(&self, now: ClockPair, again_in: Option<Duration>) -> Option<NextCheck> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) {
            return None;
        }
        let (at, is_end) = self.next_look(&state, now.moment, again_in);
        let due = now.instant_of(at);
        Some(NextCheck {
            due,
            is_end,
            replaces_another: state.due.replace(due).is_some(),
        })
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
        if state.is_pinned {
            return (now + PINNED_LOOK, false);
        }
        // While a renewal is under way, or waits for the one before it, there is but the end to look for.
        let is_renewed = (state.renewed_lease().is_some() || state.is_short())
            && !state.is_being_renewed()
            && self.owner.strong_count() > 0;
        let renewal = is_renewed.then(|| match (again_in, state.pace()) {
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

    /// Whether it counts on renewal.
    #[cfg(feature = "test-util")]
    pub(crate) fn is_renewed(&self) -> bool {
        self.state.lock().renewed_lease().is_some()
    }

    /// Sets the instant of the heap entry that counts from now on. Returns whether there was another one before.
    pub(crate) fn set_due(&self, due: Option<Instant>) -> bool {
        std::mem::replace(&mut self.state.lock().due, due).is_some()
    }

    pub(crate) fn is_due_at(&self, due: Instant) -> bool {
        self.state.lock().due == Some(due)
    }

    /// Turns the hold lost for good. Returns the event the first time, `None` if it had ended before.
    pub(crate) fn lose(&self, cause: LossCause) -> Option<Loss> {
        // The span ends behind the mutex: a subscriber's code runs then.
        let (loss, _span) = {
            let mut state = self.state.lock();
            let is_held = matches!(state.phase, Phase::Held);
            let span = state.span.take_if(|_| is_held);
            (is_held.then(|| self.lose_now(&mut state, cause)), span)
        };
        loss
    }

    /// Turns the hold lost although its release is under way, for the release itself, which found it gone.
    ///
    /// A renewal that finds the same at that time has only come behind the release.
    pub(crate) fn lose_in_release(&self, cause: LossCause) -> Option<Loss> {
        let mut state = self.state.lock();
        matches!(state.phase, Phase::Released).then(|| self.lose_now(&mut state, cause))
    }

    fn lose_now(&self, state: &mut State, cause: LossCause) -> Loss {
        state.phase = Phase::Lost(cause.clone());
        let loss = self.loss(cause);
        if let Some(news) = &state.news {
            news.tell(loss.clone());
        }
        loss
    }

    /// The cause if the validity has ended by the clock alone.
    pub(crate) fn lapse(&self) -> Option<LossCause> {
        let owner_lives = self.owner.strong_count() > 0;
        self.state.lock().lapse(self.timeline.read(), owner_lives)
    }

    /// The doubt whether the store still has this hold, which has ended here.
    pub(crate) fn in_doubt(&self) -> InDoubt {
        let lease = self.state.lock().may_stand(&self.timeline);
        InDoubt::of(self.kind, &self.name, &self.visitor, lease)
    }

    /// Tells those who listen, and those who will, that nobody looks after it any more.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Held) {
            let loss = self.loss(LossCause::Closed);
            state.news.get_or_insert_default().tell(loss);
        }
    }

    pub(crate) fn loss(&self, cause: LossCause) -> Loss {
        Loss {
            lock: Arc::clone(&self.name),
            visitor: self.visitor.clone(),
            thread: self.thread,
            cause,
        }
    }

    /// Where a loss is told, and that the hold ended well.
    pub(crate) fn news(&self) -> Arc<LossNotice> {
        let mut state = self.state.lock();
        if let Some(news) = &state.news {
            return Arc::clone(news);
        }
        let news: Arc<LossNotice> = Arc::default();
        match &state.phase {
            Phase::Held => {}
            Phase::Lost(cause) => news.tell(self.loss(cause.clone())),
            Phase::Released => news.end(),
        }
        state.news = Some(Arc::clone(&news));
        news
    }

    pub(crate) fn lost_error(&self, cause: LossCause) -> Error {
        Error::Lost {
            lock: Arc::clone(&self.name),
            visitor: self.visitor.clone(),
            cause,
        }
    }

    /// Tells those who listen to a released hold that it ended well, unless the release found it lost.
    pub(crate) fn close_listeners(&self) {
        if let Some(news) = &self.state.lock().news {
            news.end();
        }
    }
}

impl Level {
    fn new(id: LevelId, lease: Lease, sent: BootInstant) -> Level {
        Level {
            id,
            lease,
            ends: match lease {
                Lease::Watchdog(_) => None,
                Lease::Fixed(lease) => Some(sent + lease),
            },
            is_guards: false,
        }
    }
}

impl State {
    fn lapse(&self, now: ClockPair, owner_lives: bool) -> Option<LossCause> {
        let is_held = matches!(self.phase, Phase::Held);
        if now.moment < self.valid_until || self.is_pinned || !is_held {
            return None;
        }
        Some(if !owner_lives {
            LossCause::ThreadEnded
        } else if self.renewed_lease().is_none() && !self.is_short() {
            LossCause::LeaseEnded
        } else {
            LossCause::Unreachable {
                reason: self.trouble(now),
            }
        })
    }

    /// Why no renewal was confirmed in time.
    fn trouble(&self, now: ClockPair) -> String {
        let in_ms = |since: BootInstant| since.until(now.moment).as_millis();
        let asked = |it: &&InFlight| it.by == By::Watchdog && it.state == Flying::Awaited;
        let what = if let Some(trouble) = &self.last_trouble {
            trouble.clone()
        } else if let Some(renewal) = self.in_flight.iter().rfind(asked) {
            format!(
                "the renewal that was sent {} ms before has no answer",
                in_ms(renewal.sent)
            )
        } else if let Some(since) = self.waits_since {
            format!(
                "its renewal has waited for {} ms behind that of others",
                in_ms(since)
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
                "{what}; this process may have been paused, it was {} ms late",
                late.as_millis()
            )
        } else if ahead >= LATE {
            format!(
                "{what}; this machine was suspended, or its clock jumped, for {} ms at least",
                ahead.as_millis()
            )
        } else {
            what
        }
    }

    /// Whether less is counted on than the levels count on, for requests that may have shortened the lease.
    fn is_short(&self) -> bool {
        let counted_on = self.levels.iter().filter_map(|level| {
            let end = level.ends?;
            Some(end.earlier(drift(level.lease.duration()) + ROUNDING))
        });
        counted_on.max().is_some_and(|end| self.valid_until < end)
    }

    fn is_being_renewed(&self) -> bool {
        let asked = |it: &InFlight| it.by == By::Watchdog && it.state == Flying::Awaited;
        self.waits_since.is_some() || self.in_flight.iter().any(asked)
    }

    /// The time in which it has to be renewed once.
    fn pace(&self) -> Duration {
        let counted = self.counted_from.until(self.valid_until);
        let lease = self.renewed_lease();
        lease.map_or(counted, |lease| lease.min(counted + drift(lease)))
    }

    /// How long the store may still have it from now on, whatever it was asked for.
    fn may_stand(&self, timeline: &Timeline) -> Duration {
        if self.in_flight.is_empty() {
            return self.longest;
        }
        let now = timeline.now();
        let expiries = self.in_flight.iter().map(|it| now.until(it.expires));
        self.longest + expiries.max().unwrap_or_default()
    }

    /// The lease time of the levels that count on renewal.
    fn renewed_lease(&self) -> Option<Duration> {
        self.levels
            .iter()
            .filter_map(|level| match level.lease {
                Lease::Watchdog(lease) => Some(lease),
                Lease::Fixed(_) => None,
            })
            .max()
    }

    /// How long from `now` the levels count on the hold; `None` if no level counts on it any more.
    fn rest(&self, now: BootInstant) -> Option<Duration> {
        let fixed = self
            .levels
            .iter()
            .filter_map(|level| level.ends)
            .max()
            .map(|ends| now.until(ends))
            .filter(|rest| *rest >= Duration::from_millis(1));
        fixed.max(self.renewed_lease())
    }

    /// Notes a request that is about to be sent and is refused from `expires` on.
    fn note_in_flight(
        &mut self,
        by: By,
        sent: BootInstant,
        lease: Duration,
        expires: BootInstant,
    ) -> InFlightId {
        self.in_flight.retain(|request| sent < request.expires);
        self.merge();
        // The store may be about to shorten the lease, whether we hear of it or not.
        let end = end_of_validity(sent, lease);
        self.valid_until = self.valid_until.min(end);
        self.longest = self.longest.max(lease);
        let mut most = None;
        for other in &mut self.in_flight {
            other.most = Some(other.most.map_or(end, |most| most.min(end)));
            let behind = end_of_validity(sent, other.lease);
            most = Some(most.map_or(behind, |most: BootInstant| most.min(behind)));
        }
        let id = self.next_in_flight_id;
        self.next_in_flight_id = id.wrapping_add(1);
        self.in_flight.push(InFlight {
            id,
            by,
            sent,
            lease,
            most,
            expires: expires + EXPIRY_SLACK,
            state: Flying::Awaited,
        });
        InFlightId { id }
    }

    /// Makes one of many requests that nobody waits for any more, which promises no more than any of them.
    fn merge(&mut self) {
        if self.in_flight.len() < MOST_IN_FLIGHT {
            return;
        }
        let mut left: SmallVec<[InFlight; 1]> = SmallVec::new();
        for request in self.in_flight.drain(..) {
            let alike = |it: &&mut InFlight| (it.by, it.state) == (request.by, request.state);
            match left.iter_mut().find(alike) {
                Some(one) if request.state != Flying::Awaited => {
                    one.lease = one.lease.min(request.lease);
                    one.expires = one.expires.max(request.expires);
                }
                _ => left.push(request),
            }
        }
        self.in_flight = left;
    }

    /// Notes that nobody waits for the answer any more.
    fn unanswered(&mut self, in_flight_id: InFlightId) {
        let request = self
            .in_flight
            .iter_mut()
            .find(|it| it.id == in_flight_id.id);
        if let Some(request) = request {
            request.state = Flying::Unanswered;
        }
    }

    /// Counts a confirmed lease, from before its request was sent.
    fn confirm(
        &mut self,
        in_flight_id: InFlightId,
        sent: BootInstant,
        lease: Duration,
        may_run_again: bool,
    ) {
        let Some(at) = self
            .in_flight
            .iter()
            .position(|it| it.id == in_flight_id.id)
        else {
            return;
        };
        let mut end = end_of_validity(sent, lease);
        if let Some(request) = self.in_flight.get_mut(at) {
            end = request.most.map_or(end, |most| most.min(end));
            request.state = Flying::Answered;
        }
        if !may_run_again {
            self.in_flight.swap_remove(at);
        }
        if self.valid_until <= end {
            self.valid_until = end;
            self.counted_from = sent;
        }
    }
}

fn count(levels: &[Level]) -> u32 {
    u32::try_from(levels.len()).unwrap_or(u32::MAX)
}

fn end_of_validity(sent: BootInstant, lease: Duration) -> BootInstant {
    sent + lease.saturating_sub(drift(lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request in the model, as the servers see it.
    struct Request {
        in_flight_id: InFlightId,
        by: By,
        sent: BootInstant,
        lease: Duration,
        expires: BootInstant,
        /// Where it is still under way.
        pending: Vec<usize>,
        ran_at: usize,
        state: Flying,
    }

    /// Draws an order in which requests are sent, run and answered, at `servers` of which `needed` have to answer.
    fn play(seed: u64, servers: usize, needed: usize) {
        let mut draw = fastrand::Rng::with_seed(seed);
        let millis = Duration::from_millis;
        let mut now = PROCESS.now();
        let hold = Hold::new(
            &Claim {
                kind: Kind::Reentrant,
                name: "orders".into(),
                visitor: Kind::Reentrant.visitor("model", 1, 1),
                count: 0,
                lease: millis(60_000),
            },
            1,
            Weak::new(),
            Arc::default(),
            Lease::Watchdog(millis(60_000)),
            now,
        );
        let mut state = hold.state.lock();
        let mut ends = vec![now + millis(60_000); servers];
        let mut requests: Vec<Request> = Vec::new();
        for step in 0..300 {
            now = now + millis(draw.u64(..40));
            // Some servers run something.
            for (server, end) in ends.iter_mut().enumerate() {
                let at = draw.usize(..=requests.len());
                let Some(request) = requests.get_mut(at) else {
                    continue;
                };
                // Connections are cut, so nothing keeps an order among them, nor among copies of one request.
                let Some(copy) = request.pending.iter().position(|it| *it == server) else {
                    continue;
                };
                request.pending.swap_remove(copy);
                if now < request.expires {
                    request.ran_at += 1;
                    *end = now + request.lease;
                }
            }
            for by in [By::Holder, By::Watchdog] {
                let awaited = |it: &&mut Request| it.by == by && it.state == Flying::Awaited;
                match requests.iter_mut().find(awaited) {
                    Some(request) if request.ran_at >= needed && draw.bool() => {
                        request.state = Flying::Answered;
                        let Request {
                            in_flight_id,
                            sent,
                            lease,
                            ..
                        } = *request;
                        let may_run_again = servers > 1 || !request.pending.is_empty();
                        state.confirm(in_flight_id, sent, lease, may_run_again);
                    }
                    Some(request) if draw.u8(..8) == 0 => {
                        request.state = Flying::Unanswered;
                        state.unanswered(request.in_flight_id);
                    }
                    Some(_) => {}
                    None if draw.bool() => {
                        let lease = millis([6_000, 60_000, 600_000][draw.usize(..3)]);
                        let expires = now + millis(draw.u64(1..2_000));
                        requests.push(Request {
                            in_flight_id: state.note_in_flight(by, now, lease, expires),
                            by,
                            sent: now,
                            lease,
                            expires,
                            pending: match servers {
                                1 => vec![0; draw.usize(1..3)],
                                _ => (0..servers).collect(),
                            },
                            ran_at: 0,
                            state: Flying::Awaited,
                        });
                    }
                    None => {}
                }
            }
            let lasting = ends.iter().filter(|end| state.valid_until <= **end);
            assert!(
                lasting.count() >= needed,
                "seed {seed}, step {step}: {:?} is believed, the servers have {ends:?}",
                state.valid_until
            );
            assert!(state.in_flight.len() <= MOST_IN_FLIGHT + 1);
        }
    }

    #[test]
    fn in_any_order_no_more_is_believed_than_the_store_has() {
        (0..500).for_each(|seed| play(seed, 1, 1));
    }

    #[test]
    fn in_any_order_no_more_is_believed_than_a_majority_has() {
        (0..500).for_each(|seed| play(seed, 3, 2));
    }

    #[test]
    fn a_late_look_is_told_from_a_late_answer() {
        let sent = PROCESS.read();
        let lease = Duration::from_secs(3);
        let hold = |span: Duration| {
            let claim = Claim {
                kind: Kind::Reentrant,
                name: "orders".into(),
                visitor: Kind::Reentrant.visitor("model", 1, 1),
                count: 0,
                lease,
            };
            let hold = Hold::new(
                &claim,
                1,
                Weak::new(),
                Arc::default(),
                Lease::Watchdog(lease),
                sent.moment,
            );
            hold.state.lock().due = Some(sent.instant + span);
            hold
        };
        let later = |moment, instant| ClockPair {
            moment: sent.moment + moment,
            instant: sent.instant + instant,
            ..sent
        };
        let (in_time, late) = (lease + Duration::from_millis(1), lease * 5);
        let cause = |hold: &Hold, now| {
            let state = hold.state.lock();
            match state.lapse(now, true) {
                Some(LossCause::Unreachable { reason }) => reason,
                other => panic!("{other:?}"),
            }
        };
        let renewed = hold(lease);
        let expires = sent.moment + lease;
        let in_flight_id =
            renewed
                .state
                .lock()
                .note_in_flight(By::Watchdog, sent.moment, lease, expires);
        let reason = cause(&renewed, later(in_time, in_time));
        assert!(
            reason.contains("no answer") && !reason.contains("paused"),
            "{reason}"
        );
        renewed.renewal_unknown(in_flight_id, "the port refuses");
        let reason = cause(&renewed, later(in_time, in_time));
        assert_eq!(reason, "the port refuses");
        let reason = cause(&renewed, later(late, late));
        assert!(reason.contains("paused"), "{reason}");
        let waits = hold(lease);
        waits.state.lock().waits_since = Some(sent.moment + lease / 3);
        let reason = cause(&waits, later(in_time, in_time));
        assert!(
            reason.contains("behind") && !reason.contains("paused"),
            "{reason}"
        );
        let paused = cause(&hold(lease / 3), later(late, late));
        assert!(paused.contains("paused"), "{paused}");
        let suspended = cause(&hold(lease / 3), later(late, lease / 6));
        assert!(suspended.contains("suspended"), "{suspended}");
    }
}
