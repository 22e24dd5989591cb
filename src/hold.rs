//! One hold as this process knows it: its levels, until when it is valid, whether it was lost.
//!
//! The store is the truth; what stands here is what was confirmed last, and says until when it may be believed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use crate::claim::{Claim, Kind, VisitorId};
use crate::clock::{Moment, Now};
use crate::error::Error;
use crate::loss::{Loss, LossCause, News};
use crate::store::Doubt;
use crate::trace::HoldSpan;

pub(crate) const SHORTEST_LEASE: Duration = Duration::from_millis(10);

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

/// The share of a lease that is not counted on, for clocks that differ in rate (1 %) and in resolution (2 ms).
pub(crate) fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// The watchdog looks this often whether a transaction has let go of a hold; whoever ends one tells it, too.
const PINNED_LOOK: Duration = Duration::from_secs(1);

/// Identifies one acquisition within a hold.
pub(crate) type LevelId = u32;

#[derive(Debug)]
struct Level {
    id: LevelId,
    lease: Lease,
    /// The end of a fixed lease.
    ends: Option<Moment>,
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

/// A request on its way that sets the lease in the store, and may do so after a request that was sent later.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    sent: Moment,
    lease: Duration,
    /// From here on the server refuses it.
    expires: Moment,
}

/// How much later than by our clock a request may expire by the server's: that estimate is off by a round trip.
const EXPIRY_SLACK: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct State {
    phase: Phase,
    levels: SmallVec<[Level; 1]>,
    next_level: LevelId,
    valid_until: Moment,
    in_flight: SmallVec<[InFlight; 1]>,
    /// What the last renewal met with, for the cause of a later loss.
    last_trouble: Option<String>,
    /// When the watchdog looks at this hold next; an entry of its heap made for another instant is void.
    due: Option<Instant>,
    /// Made for the first one who wants to hear of a loss.
    news: Option<Arc<News>>,
    /// A re-entry without an answer may have set a longer lease in the store than is counted on here.
    may_outlast: bool,
    /// A transaction has locked its row: nobody can take it, nor can it be renewed, until that ends.
    is_pinned: bool,
    /// Open while the hold is neither released nor lost.
    span: Option<HoldSpan>,
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
    /// Turns false if the watchdog's thread dies; shared by all holds of a client.
    guarded: Arc<AtomicBool>,
    state: Mutex<State>,
}

/// What comes of a renewal that is due.
#[derive(Debug)]
pub(crate) enum Begun {
    Renewal {
        claim: Claim,
        valid_until: Moment,
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
pub(crate) struct Look {
    pub(crate) due: Instant,
    /// Whether that is the end of its validity.
    pub(crate) is_end: bool,
    /// Whether another entry of the heap was made void by it.
    pub(crate) replaces_another: bool,
}

/// What is to be sent to give one level back.
#[derive(Debug)]
pub(crate) enum Return {
    /// The hold was lost before; nothing is to be sent.
    Lost(LossCause),
    /// The level was given back before; nothing is to be sent.
    Before,
    /// It was the last level: the whole hold is to be released.
    Whole(Claim),
    /// The claim's lease is what the remaining levels count on, from the moment given.
    Part(Claim, Moment),
    /// What remains has no lease left; the whole hold is to be released and the remaining levels are lost.
    Expired(Claim),
}

impl Hold {
    pub(crate) fn new(
        claim: &Claim,
        thread: u64,
        owner: Weak<()>,
        guarded: Arc<AtomicBool>,
        lease: Lease,
        sent: Moment,
    ) -> Hold {
        Hold {
            kind: claim.kind,
            name: Arc::clone(&claim.name),
            visitor: claim.visitor.clone(),
            fence: None,
            thread,
            owner,
            guarded,
            state: Mutex::new(State {
                phase: Phase::Held,
                levels: smallvec![Level::new(0, lease, sent)],
                next_level: 1,
                valid_until: end_of_validity(sent, claim.lease),
                in_flight: SmallVec::new(),
                last_trouble: None,
                due: None,
                news: None,
                may_outlast: false,
                is_pinned: false,
                span: Some(HoldSpan::open(&claim.name, &claim.visitor)),
            }),
        }
    }

    pub(crate) fn with_fence(mut self, fence: Option<u64>) -> Hold {
        self.fence = fence;
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

    /// Ends what [`Hold::pin`] began. `committed` is the lease that the transaction has set, and from when it counts:
    /// it holds even if the one before it had run out meanwhile, because nobody could take the row.
    #[cfg(feature = "mysql")]
    pub(crate) fn unpin(&self, committed: Option<(Moment, Duration)>) {
        let mut state = self.state.lock();
        state.is_pinned = false;
        if let (Phase::Held, Some((sent, lease))) = (&state.phase, committed) {
            state.confirm(sent, lease, Moment::now());
        }
    }

    /// The claim that extends this hold; its lease is zero if no level counts on it any more.
    #[cfg(feature = "mysql")]
    pub(crate) fn extension(&self) -> Claim {
        let state = self.state.lock();
        let rest = state.rest(Moment::now()).unwrap_or_default();
        self.claim(&state, rest)
    }

    /// Whether the holder may still act on the lock, as far as this process knows. No I/O.
    pub(crate) fn is_valid(&self) -> bool {
        let state = self.state.lock();
        matches!(state.phase, Phase::Held)
            && !state.valid_until.has_passed()
            && self.guarded.load(Ordering::Acquire)
    }

    pub(crate) fn remaining_validity(&self) -> Duration {
        let state = self.state.lock();
        match state.phase {
            Phase::Held if self.guarded.load(Ordering::Acquire) => state.valid_until.remaining(),
            _ => Duration::ZERO,
        }
    }

    /// Whether the hold is neither released nor known to be lost.
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

    /// The lease of the levels that count on renewal, if any does.
    pub(crate) fn renewed_lease(&self) -> Option<Duration> {
        self.state.lock().renewed_lease()
    }

    /// The claim that enters this hold once more.
    pub(crate) fn reentry(&self, lease: Lease) -> Claim {
        let state = self.state.lock();
        let rest = state.rest(Moment::now()).unwrap_or_default();
        self.claim(&state, rest.max(lease.duration()))
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
    pub(crate) fn entered(&self, claim: &Claim, lease: Lease, sent: Moment) -> Option<LevelId> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Held) || state.valid_until.has_passed() {
            return None;
        }
        let id = state.next_level;
        state.next_level = state.next_level.wrapping_add(1);
        state.levels.push(Level::new(id, lease, sent));
        state.confirm(sent, claim.lease, Moment::now());
        Some(id)
    }

    /// Notes that a re-entry had no outcome. The hold goes on as it was.
    pub(crate) fn reentry_unknown(&self) {
        self.state.lock().may_outlast = true;
    }

    /// Whether the store may still keep the hold after it has ended here.
    pub(crate) fn may_outlast(&self) -> bool {
        self.state.lock().may_outlast
    }

    /// Takes level `id` away, before anything is sent, and says what to send.
    pub(crate) fn leave(&self, id: LevelId, until: Instant) -> Return {
        let mut state = self.state.lock();
        let claim = self.claim(&state, Duration::ZERO);
        let before = state.levels.len();
        state.levels.retain(|level| level.id != id);
        if let Phase::Lost(cause) = &state.phase {
            return Return::Lost(cause.clone());
        }
        if state.levels.len() == before {
            return Return::Before;
        }
        if state.levels.is_empty() {
            // From here on nobody renews it: the last release ends the hold here, whatever becomes of the request.
            state.phase = Phase::Released;
            state.span = None;
            return Return::Whole(claim);
        }
        let now = Now::read();
        match state.rest(now.moment) {
            Some(lease) => {
                let sent = now.moment;
                // The store is about to shorten the lease, whether we hear of it or not.
                state.valid_until = state.valid_until.min(end_of_validity(sent, lease));
                state.launch(sent, lease, now.moment_of(until));
                Return::Part(Claim { lease, ..claim }, sent)
            }
            None => Return::Expired(claim),
        }
    }

    /// Starts a renewal, of a hold that has come out of the timer.
    pub(crate) fn begin_renewal(&self, now: Moment, expires: Moment) -> Begun {
        let mut state = self.state.lock();
        state.due = None;
        if !matches!(state.phase, Phase::Held) {
            return Begun::Over;
        }
        if state.is_pinned {
            return Begun::Unowned;
        }
        let owner_lives = self.owner.strong_count() > 0;
        if let Some(cause) = state.lapse(now, owner_lives) {
            return Begun::Lapsed(cause);
        }
        match state.rest(now) {
            Some(lease) if owner_lives => {
                state.launch(now, lease, expires);
                Begun::Renewal {
                    claim: self.claim(&state, lease),
                    valid_until: state.valid_until,
                }
            }
            _ => Begun::Unowned,
        }
    }

    /// Notes that the request sent at `sent` has set the lease of `claim`, unless the hold ended meanwhile.
    pub(crate) fn confirmed(&self, claim: &Claim, sent: Moment, now: Moment) {
        let mut state = self.state.lock();
        state.in_flight.retain(|request| request.sent != sent);
        state.last_trouble = None;
        if matches!(state.phase, Phase::Held) && now < state.valid_until {
            state.confirm(sent, claim.lease, now);
        }
    }

    /// Notes that a renewal had no outcome. It extends nothing.
    pub(crate) fn renewal_unknown(&self, trouble: &str) {
        self.state.lock().last_trouble = Some(trouble.to_owned());
    }

    /// Says when the watchdog should look at this hold again, which is noted as due.
    pub(crate) fn plan(&self, now: Now, again_in: Option<Duration>) -> Look {
        let mut state = self.state.lock();
        let (at, is_end) = self.next_look(&state, now.moment, again_in);
        let due = now.instant_of(at);
        Look {
            due,
            is_end,
            replaces_another: state.due.replace(due).is_some(),
        }
    }

    /// Whether it should be looked at before what is noted as due.
    pub(crate) fn is_due_earlier(&self, now: Now) -> bool {
        let state = self.state.lock();
        let (at, _) = self.next_look(&state, now.moment, None);
        state.due.is_none_or(|due| now.instant_of(at) < due)
    }

    /// A third of the lease from now, or when the validity ends, and whether it is the latter.
    fn next_look(&self, state: &State, now: Moment, again_in: Option<Duration>) -> (Moment, bool) {
        let renewal = state
            .renewed_lease()
            .filter(|_| self.owner.strong_count() > 0)
            .map(|lease| match again_in {
                Some(pause) => now + pause,
                // On a grid, so that holds fall due in batches.
                None => (now + lease / 3).floor(lease / 60),
            });
        if state.is_pinned {
            return (now + PINNED_LOOK, false);
        }
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

    /// Turns the hold lost for good. Returns the event the first time, `None` if it had ended before.
    pub(crate) fn lose(&self, cause: LossCause) -> Option<Loss> {
        let mut state = self.state.lock();
        matches!(state.phase, Phase::Held).then(|| self.lose_now(&mut state, cause))
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
        state.span = None;
        let loss = self.loss(cause);
        if let Some(news) = &state.news {
            news.tell(loss.clone());
        }
        loss
    }

    /// The cause if the validity has ended by the clock alone.
    pub(crate) fn lapse(&self) -> Option<LossCause> {
        let owner_lives = self.owner.strong_count() > 0;
        self.state.lock().lapse(Moment::now(), owner_lives)
    }

    /// The doubt whether the store still has this hold, which has ended here.
    pub(crate) fn doubt(&self) -> Doubt {
        let lease = self.renewed_lease().unwrap_or_default();
        Doubt::of(self.kind, &self.name, &self.visitor, lease)
    }

    /// Tells the listeners that nobody will tell them anything more.
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
    pub(crate) fn news(&self) -> Arc<News> {
        let mut state = self.state.lock();
        if let Some(news) = &state.news {
            return Arc::clone(news);
        }
        let news: Arc<News> = Arc::default();
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
    pub(crate) fn hush(&self) {
        if let Some(news) = &self.state.lock().news {
            news.end();
        }
    }
}

impl Level {
    fn new(id: LevelId, lease: Lease, sent: Moment) -> Level {
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
    fn lapse(&self, now: Moment, owner_lives: bool) -> Option<LossCause> {
        if now < self.valid_until || self.is_pinned {
            return None;
        }
        Some(if !owner_lives {
            LossCause::ThreadEnded
        } else if self.renewed_lease().is_none() {
            LossCause::LeaseEnded
        } else {
            LossCause::Unreachable {
                reason: match &self.last_trouble {
                    Some(trouble) => trouble.clone(),
                    None => "no renewal was confirmed in time, this process may have been paused"
                        .to_owned(),
                },
            }
        })
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
    fn rest(&self, now: Moment) -> Option<Duration> {
        let fixed = self
            .levels
            .iter()
            .filter_map(|level| level.ends)
            .max()
            .map(|ends| now.until(ends))
            .filter(|rest| *rest >= Duration::from_millis(1));
        fixed.max(self.renewed_lease())
    }

    fn launch(&mut self, sent: Moment, lease: Duration, expires: Moment) {
        self.in_flight.retain(|request| sent < request.expires);
        self.in_flight.push(InFlight {
            sent,
            lease,
            expires: expires + EXPIRY_SLACK,
        });
    }

    /// Counts a confirmed lease, from before its request was sent.
    fn confirm(&mut self, sent: Moment, lease: Duration, now: Moment) {
        // A request still on its way may set its own lease over the one just confirmed. It then does so after `sent`.
        let lease = self
            .in_flight
            .iter()
            .filter(|request| now < request.expires)
            .map(|request| request.lease)
            .fold(lease, Duration::min);
        self.valid_until = self.valid_until.max(end_of_validity(sent, lease));
    }
}

fn count(levels: &[Level]) -> u32 {
    u32::try_from(levels.len()).unwrap_or(u32::MAX)
}

fn end_of_validity(sent: Moment, lease: Duration) -> Moment {
    sent + lease.saturating_sub(drift(lease))
}
