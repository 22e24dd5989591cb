//! The seam: where the truth about who holds what is kept.

mod condition;
mod count;
mod health_warning;
mod in_doubt;
mod subscription;
mod survey;
mod traffic;

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::ground::batch::Work;
use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::{BootInstant, PROCESS, Timeline};
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::notify::{Notifier, Parker};
use crate::ground::reply::Reply;
pub(crate) use condition::{ConditionAnswer, ConditionOp, ConditionStep, PLACE_LIFE, PlaceInDoubt};
pub(crate) use count::{CountOp, CountStep};
pub use health_warning::{HealthWarning, Severity};
pub(crate) use in_doubt::{InDoubt, resolve_each};
pub(crate) use subscription::{Delivery, Subscription};
pub(crate) use survey::{
    CUT, Connected, Parts, Position, Scope, SurveyOf, introduce, merged, shown,
};
pub use survey::{Holder, LockInfo, LockKind};
pub use traffic::ConnectionStats;
pub(crate) use traffic::{Opened, Traffic};

/// Longer leases are refused, so that sums of times cannot overflow.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A place where locks are kept.
///
/// Every operation ends by `deadline` and, on one server, is one atomic step. An error of one that changes a hold means
/// that nothing was changed; what is not known is an [`Outcome::Unknown`].
pub(crate) trait Store: Send + Sync {
    /// Takes the lock, or enters it once more if `claim.count` is above 0. If the hold `is_renewed`, what its renewals need
    /// is made ready, so that it is not lost because that cannot be had later.
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>>;

    /// Gives back what `left` says, whatever the count of the hold is there.
    fn release(
        &self,
        claim: &Claim,
        left: Left<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Released>>;

    /// Sets the lease of each hold to that of its claim, one outcome per claim in order.
    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal>;

    /// Frees what requests without an answer may have left, all at the same [`Store::node`]. Returns for each in order
    /// whether nothing is left of it for good; of the last ones nothing, if one before them had no answer or there was no
    /// time left for them.
    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>>;

    /// Frees the lock whoever holds it. Returns whether somebody did.
    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool>;

    /// Tells who holds the lock, and how often `visitor` does.
    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding>;

    /// Looks at one lock, or at the next locks of a scope, from where `position` is. After an error it is over, unless `position` says
    /// that others are left to be asked.
    fn survey(
        &self,
        of: SurveyOf<'_>,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>>;

    /// Registers a refused visitor for the messages after which another try is worth it. `entry` is its entry in a queue of
    /// the store, if it has one, whose messages go to no other visitor.
    ///
    /// Its sources, from `source` on, tell it from other stores that wake the same visitor.
    fn subscribe(
        &self,
        lock: &LockId,
        entry: Option<StoreEntry<'_>>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription;

    /// Looks at the settings and the state of the server, and returns what is found, also what is well.
    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>>;

    /// The operations that only one Redis server has.
    fn redis(&self) -> Option<&dyn RedisOperations> {
        None
    }

    /// The properties of the store.
    fn facts(&self) -> &Facts;

    /// The name, without a secret, of what has this lock and can fail alone; without a lock that of the whole store.
    fn node(&self, lock: Option<&str>) -> Arc<str>;

    /// Tells of the connections as they are now, and of what has come over them so far.
    fn connections(&self) -> ConnectionStats {
        ConnectionStats::default()
    }

    /// Ends the threads of the store, if they do not belong to other clients. Requests go on working.
    fn close(&self) {}
}

/// The operations on what only one Redis server keeps: data, counts and conditions.
pub(crate) trait RedisOperations {
    /// Does work if the hold that it is for stands, in one step with the look at that. Refused, and nothing done, if it is to
    /// be tried again after so long: a copy of the request that began the hold may come, or its validity is about to end.
    fn guarded(
        &self,
        work: &Guarded<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Vec<Reply>, Duration>>;

    /// Changes a counter, or asks for it, at most once whatever copies of the request are sent.
    fn count(&self, op: &CountOp<'_>, deadline: Instant) -> Result<i64>;

    /// Carries out a step of a thread that waits on a condition, or of one that signals it.
    fn condition(
        &self,
        op: &ConditionOp<'_>,
        deadline: Instant,
    ) -> Result<Outcome<ConditionAnswer>>;
}

impl dyn Store + '_ {
    /// The operations that only one Redis server has, for this lock.
    pub(crate) fn redis_for(&self, lock: &LockId) -> Result<&dyn RedisOperations> {
        self.redis()
            .ok_or_else(|| Error::unsupported(&lock.name, self.facts().lacks))
    }
}

/// What a release leaves of a hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left<'a> {
    /// So many levels, at least 1, with the lease of the claim.
    Levels(u32),
    Nothing,
    /// Nothing, and waiters need not be notified where a message would cost much.
    NothingQuietly,
    /// This hold instead, which begins with a count of 1: the waiter of the same process that it is handed to need not ask,
    /// and nobody else is woken. Not asked of a store that does not [hand off](Facts::hands_off).
    Successor(&'a Claim),
}

/// The entry of a waiter in a queue of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreEntry<'a> {
    OfLock(&'a VisitorId),
    /// Among those who wait on this condition, by its ticket.
    OfCondition(&'a Arc<str>, &'a VisitorId),
}

impl<'a> StoreEntry<'a> {
    pub(crate) fn visitor(self) -> &'a VisitorId {
        match self {
            StoreEntry::OfLock(visitor) | StoreEntry::OfCondition(_, visitor) => visitor,
        }
    }
}

/// The hook of the one client that uses a store.
pub(crate) type TakeoverHook = OnceLock<Box<dyn Fn() + Send + Sync>>;

/// The properties of a store that never change.
pub(crate) struct Facts {
    /// The part of its node that the locks are in: two locks of one name, one node and one area are one lock.
    pub(crate) area: String,
    /// The clock that holds are counted on.
    pub(crate) timeline: Timeline,
    /// The place where everybody who waits for this client sleeps.
    pub(crate) notifier: Arc<Notifier>,
    /// The longest lease that may be asked for.
    pub(crate) longest_lease: Duration,
    /// Says why no lock of this kind and name can be kept here, which is asked when it is made; `None` if one can.
    pub(crate) refuses: fn(Kind, &Arc<str>) -> Option<Error>,
    /// Whether nobody is told of the unlock of a lock of this kind, so that waiters ask now and then.
    pub(crate) is_polled: fn(Kind) -> bool,
    /// Whether it is made of other stores: a hold that is lost may stand on in some of them.
    pub(crate) is_composite: bool,
    /// Whether a hold goes to a waiter of the same client in one request. If not, the waiter takes it when it is free.
    pub(crate) hands_off: bool,
    /// Why it has no [`RedisOperations`], where that is so.
    pub(crate) lacks: &'static str,
    /// Called after another server has taken over, which may lack holds. It must not block.
    pub(crate) takeover_hook: Arc<TakeoverHook>,
}

impl Facts {
    /// The properties of one server or another place that is not made of others.
    pub(crate) fn of(area: String, notifier: &Arc<Notifier>) -> Facts {
        Facts {
            area,
            timeline: PROCESS.clone(),
            notifier: Arc::clone(notifier),
            longest_lease: LONGEST_LEASE,
            refuses: |_, _| None,
            is_polled: |_| false,
            is_composite: false,
            hands_off: true,
            lacks: "",
            takeover_hook: Arc::default(),
        }
    }

    /// The properties of a store whose parts have clients of their own.
    pub(crate) fn of_composite(area: String, longest_lease: Duration) -> Facts {
        Facts {
            longest_lease,
            is_composite: true,
            hands_off: false,
            ..Facts::of(area, &Arc::default())
        }
    }
}

/// The outcome of a request that changes a hold: `D` if it was done, `R` if somebody else has the lock.
#[derive(Debug)]
pub(crate) enum Outcome<D, R = Infallible> {
    Done(D),
    Refused(R),
    /// The hold that it is about is gone.
    Gone(LossCause),
    /// The request was sent and not answered.
    Unknown {
        /// Of a hand-off the successor may stand instead, until the same server time.
        in_doubt: InDoubt,
        error: Error,
    },
}

impl<D, R> Outcome<D, R> {
    pub(crate) fn unknown(in_doubt: InDoubt, error: Error) -> Outcome<D, R> {
        Outcome::Unknown { in_doubt, error }
    }
}

/// Work that is done only where its hold stands.
#[derive(Debug)]
pub(crate) struct Guarded<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) work: Work<'a>,
    /// From here on nobody may count on the hold, as far as known now, and the server refuses the work.
    pub(crate) valid_until: BootInstant,
}

/// A hold that was begun, entered once more, or handed off.
#[derive(Debug)]
pub(crate) struct Granted {
    /// A moment before the request was sent, which the lease is counted from.
    pub(crate) sent: BootInstant,
    /// The fencing number of the hold, where the store draws one.
    pub(crate) fence: Option<u64>,
    /// How long what it is taken from lasts, if that ends before the lease, which counts no longer then.
    pub(crate) life: Option<Duration>,
    /// The effect that an earlier copy of the request may yet have, which got no answer.
    pub(crate) leftover: Option<InDoubt>,
}

impl Granted {
    /// A grant that left nothing, without a fencing number.
    pub(crate) fn at(sent: BootInstant) -> Granted {
        Granted {
            sent,
            fence: None,
            life: None,
            leftover: None,
        }
    }
}

/// A hold, or levels of it, that were given back.
#[derive(Debug, Default)]
pub(crate) struct Released {
    /// How many in other processes have heard that the lock is free, or listen to a lock that was handed off.
    pub(crate) others: u32,
    /// The hold that it was handed off to.
    pub(crate) successor: Option<Granted>,
    /// The part of the hold that may be left in some part of the store. Of levels: the effect that an earlier copy of
    /// the request may yet have, which got no answer.
    pub(crate) leftover: Option<InDoubt>,
}

/// Somebody else holds the lock.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    /// For how long, as far as known now; `None` if for ever.
    pub(crate) retry_after: Option<Duration>,
    /// The holder, where the store names it.
    pub(crate) holder: Option<Box<str>>,
    /// Nobody holds it, but several ask at once and none got enough of the nodes: how long a round trip takes.
    pub(crate) split: Option<Duration>,
    /// The hold that this attempt may have left in some part of the store.
    pub(crate) leftover: Option<InDoubt>,
    /// How long a lost message may cost this visitor, where that is more than it may cost others.
    pub(crate) recheck_after: Option<Duration>,
}

/// A request that cannot be refused is refused never.
impl From<Infallible> for Refusal {
    fn from(never: Infallible) -> Refusal {
        match never {}
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Renewal {
    Renewed,
    /// It is renewed, but what it was taken from ends in so long, before the lease.
    RenewedFor(Duration),
    Lost(LossCause),
    /// With the reason why nothing is known.
    Unknown(String),
}

/// Until its deadline and this time after it, on our clock, a request may still run; after that every store refuses it. So
/// long a hold reckons with what it has sent.
///
/// A store sees to it by the expiry that it sends along: `clock::Offset::expiry` keeps within a slack of its own, which
/// has to be less than this by all that the request may take effect later than it arrives, and by [`EXPIRY_DRIFT`].
pub(crate) const EXPIRY_SLACK: Duration = Duration::from_secs(5);

/// Clocks may part by this much from the expiry of a request to the end of its slack.
pub(crate) const EXPIRY_DRIFT: Duration = Duration::from_millis(100);

/// The state of one lock.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    pub(crate) is_locked: bool,
    /// The hold count of the visitor asked for; 0 if it holds nothing.
    pub(crate) count: u32,
    /// How long the present hold lasts if nobody renews it; `None` if nobody holds it or it has no end.
    pub(crate) remaining: Option<Duration>,
}
