//! The trait that every store of locks implements, and the types of its requests and replies.

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
pub(crate) use condition::{
    CONDITION_ENTRY_LIFE, ConditionAnswer, ConditionOp, ConditionStep, EntryInDoubt,
};
pub(crate) use count::{CountOp, CountStep};
pub use health_warning::{HealthWarning, Severity};
pub(crate) use in_doubt::{InDoubt, resolve_each};
pub(crate) use subscription::{Delivery, Subscription};
pub(crate) use survey::{
    Connected, Parts, Position, Scope, SurveyOf, TOKEN_CUT, fill_in_processes, merge_nodes,
    shown_token,
};
pub use survey::{Holder, LockInfo, LockKind};
pub use traffic::ConnectionStats;
pub(crate) use traffic::{ConnectionCounter, Opened};

/// Longer leases are refused, so that sums of times cannot overflow.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A store of locks.
///
/// Every operation ends by `deadline`. On one server, an operation is one atomic step. An `Err` of an operation that changes
/// a hold means that nothing was changed; an unknown outcome is [`Outcome::Unknown`].
pub(crate) trait Store: Send + Sync {
    /// Acquires the lock, or re-enters it if `claim.count` is above 0. If `claim.is_renewed` is true, the store also
    /// prepares the connection for the renewals of the hold.
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>>;

    /// Reduces the hold to `left`, whatever its count in the store is.
    fn release(
        &self,
        claim: &Claim,
        left: Left<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Released>>;

    /// Renews each hold with the lease of its claim. Returns one outcome per claim, in order.
    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal>;

    /// Resolves in-doubt requests, all at the same [`Store::node`]. The outcomes are in order; `true` means that nothing of
    /// the request is left, and nothing can arrive later. The result may be shorter than `in_doubts`, if a request got no
    /// reply or `deadline` passed.
    fn resolve(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>>;

    /// Frees the lock, whichever client holds it. Returns whether it was held.
    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool>;

    /// Returns whether the lock is held, and the hold count of `visitor`.
    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding>;

    /// Describes one lock, or the next locks of a scope, from `position` on. An error ends the survey if it sets
    /// `position.is_over`. If not, the survey continues with the next server.
    fn survey(
        &self,
        of: SurveyOf<'_>,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>>;

    /// Subscribes a refused visitor to the messages after which it should attempt again. `entry` is its queue entry in the
    /// store, if it has one; the messages for that entry reach no other visitor.
    ///
    /// Several stores may wake one parker. So each store numbers its sources from the `source` that the caller passes.
    fn subscribe(
        &self,
        lock: &LockId,
        entry: Option<StoreEntry<'_>>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription;

    /// Checks the settings and the state of the server. The findings include settings that are as they should be.
    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>>;

    /// The operations that only a store on one Redis server has.
    fn redis(&self) -> Option<&dyn RedisOperations> {
        None
    }

    fn facts(&self) -> &Facts;

    /// The name of the node that has this lock, without a secret. A node is a part of the store that can fail alone. If
    /// `lock` is `None`, the name of the whole store.
    fn node(&self, lock: Option<&str>) -> Arc<str>;

    fn connections(&self) -> ConnectionStats {
        ConnectionStats::default()
    }

    /// Ends the threads of the store, unless other clients use them. Requests still work.
    fn close(&self) {}
}

/// The operations of a store on one Redis server: guarded writes, counts and conditions.
pub(crate) trait RedisOperations {
    /// Checks in one atomic step that the hold of the work is valid, and executes the work. `Refused` with a duration means
    /// that nothing was done, and that the caller may repeat the request after that duration: a request of the hold may
    /// still arrive, or the validity is about to end.
    fn guarded(
        &self,
        work: &Guarded<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Vec<Reply>, Duration>>;

    /// Changes or reads a counter. A request that arrives more than once is executed once.
    fn count(&self, op: &CountOp<'_>, deadline: Instant) -> Result<i64>;

    /// Executes one step of a wait on a condition, or a signal.
    fn condition(
        &self,
        op: &ConditionOp<'_>,
        deadline: Instant,
    ) -> Result<Outcome<ConditionAnswer>>;
}

impl dyn Store + '_ {
    /// [`Store::redis`], or the error that says why this lock has none.
    pub(crate) fn redis_for(&self, lock: &LockId) -> Result<&dyn RedisOperations> {
        let unsupported = || Error::unsupported(&lock.name, self.facts().lacks);
        self.redis().ok_or_else(unsupported)
    }
}

/// The part of a hold that stays after a release.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left<'a> {
    /// This number of levels, at least 1, with the lease of the claim.
    Levels(u32),
    Nothing,
    /// Nothing. The store may omit the unlock message if it is expensive.
    NothingQuietly,
    /// A new hold with a count of 1, for a waiter of the same client. No unlock message is sent. Only for a store that
    /// [hands off](Facts::hands_off).
    Successor(&'a Claim),
}

/// The queue entry of a waiter in the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreEntry<'a> {
    OfLock(&'a VisitorId),
    /// An entry in the queue of a condition, under the ticket of one wait.
    OfCondition(&'a Arc<str>, &'a VisitorId),
}

impl<'a> StoreEntry<'a> {
    pub(crate) fn visitor(self) -> &'a VisitorId {
        match self {
            StoreEntry::OfLock(visitor) | StoreEntry::OfCondition(_, visitor) => visitor,
        }
    }
}

/// The hook of the client that uses a store. A store has only one such client.
pub(crate) type TakeoverHook = OnceLock<Box<dyn Fn() + Send + Sync>>;

/// The properties of a store that never change.
pub(crate) struct Facts {
    /// The part of the node that has the locks, such as a database number. Locks with equal name, node and area are one
    /// lock.
    pub(crate) area: String,
    /// The clock of the validity of holds.
    pub(crate) timeline: Timeline,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) longest_lease: Duration,
    /// The error if the store cannot keep a lock of this kind and name. Called when the lock is made.
    pub(crate) refuses: fn(Kind, &Arc<str>) -> Option<Error>,
    /// Whether an unlock of this kind of lock sends no message, so that waiters poll.
    pub(crate) is_polled: fn(Kind) -> bool,
    /// Whether the store consists of other stores. Some of them may keep a hold that is lost.
    pub(crate) is_composite: bool,
    /// Whether one request hands a hold to a waiter of the same client. If not, the waiter acquires the free lock.
    pub(crate) hands_off: bool,
    /// Why the store has no [`RedisOperations`]; empty if it has them.
    pub(crate) lacks: &'static str,
    /// Called after another server has taken over. That server may lack holds. The hook must not block.
    pub(crate) takeover_hook: Arc<TakeoverHook>,
}

impl Facts {
    /// The properties of a store that does not consist of others.
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

    /// The properties of a store that consists of the stores of other clients.
    pub(crate) fn of_composite(area: String, longest_lease: Duration) -> Facts {
        Facts {
            longest_lease,
            is_composite: true,
            hands_off: false,
            ..Facts::of(area, &Arc::default())
        }
    }
}

/// The outcome of a request that changes a hold: `D` if it was done, `R` if it was refused.
#[derive(Debug)]
pub(crate) enum Outcome<D, R = Infallible> {
    Done(D),
    Refused(R),
    /// The store does not have the hold of the request.
    Gone(LossCause),
    /// The request was sent, and no reply came.
    Unknown {
        /// If the request was a hand-off, the successor's hold is in doubt as well, until the same server time.
        in_doubt: InDoubt,
        error: Error,
    },
}

impl<D, R> Outcome<D, R> {
    pub(crate) fn unknown(in_doubt: InDoubt, error: Error) -> Outcome<D, R> {
        Outcome::Unknown { in_doubt, error }
    }
}

/// Work that is executed only while its hold is valid.
#[derive(Debug)]
pub(crate) struct Guarded<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) work: Work<'a>,
    /// The end of the hold's validity, as known now. The server refuses the work from then on.
    pub(crate) valid_until: BootInstant,
}

#[derive(Debug)]
pub(crate) struct Granted {
    /// A moment before the request was sent, from which the lease counts.
    pub(crate) sent: BootInstant,
    /// The fencing token, if the store draws one.
    pub(crate) fence: Option<u64>,
    /// The remaining life of the key if that ends before the lease.
    pub(crate) life: Option<Duration>,
    /// The in-doubt request, if an earlier attempt of this call got no reply.
    pub(crate) leftover: Option<InDoubt>,
}

impl Granted {
    /// A grant without a fencing token and without an in-doubt request.
    pub(crate) fn at(sent: BootInstant) -> Granted {
        Granted {
            sent,
            fence: None,
            life: None,
            leftover: None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Released {
    /// The number of subscribers in other processes that received the unlock message, or listen to a lock that was handed
    /// off.
    pub(crate) others: u32,
    pub(crate) successor: Option<Granted>,
    /// The in-doubt part: what a part of the store may still have of the hold, or, for levels, an earlier attempt of this
    /// call that got no reply.
    pub(crate) leftover: Option<InDoubt>,
}

#[derive(Debug, Default)]
pub(crate) struct Refusal {
    /// The remaining life of the present hold; `None` if it has no end.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) holder: Option<Box<str>>,
    /// Set if the votes of a quorum were split, so that no client got a majority: the time of a round trip.
    pub(crate) split: Option<Duration>,
    /// The in-doubt part of this attempt.
    pub(crate) leftover: Option<InDoubt>,
    /// The time after which this visitor should check again, if that is longer than usual.
    pub(crate) recheck_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn until(retry_after: Option<Duration>) -> Refusal {
        Refusal {
            retry_after,
            ..Refusal::default()
        }
    }
}

impl From<Infallible> for Refusal {
    fn from(never: Infallible) -> Refusal {
        match never {}
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Renewal {
    Renewed,
    /// Renewed, but the key ends after this time, before the lease.
    RenewedFor(Duration),
    Lost(LossCause),
    Unknown(String),
}

/// A request may arrive until this time after its deadline, on this client's clock. After that every store refuses it.
///
/// The expiry that a store sends with the request enforces this limit. The slack that the store passes to
/// `clock::Offset::expiry` must be shorter than this limit by [`EXPIRY_DRIFT`] plus any time between the arrival and the
/// effect of the request.
pub(crate) const EXPIRY_SLACK: Duration = Duration::from_secs(5);

/// The clocks may drift by this much between the expiry of a request and the end of its slack.
pub(crate) const EXPIRY_DRIFT: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Holding {
    pub(crate) is_locked: bool,
    /// The hold count of the requested visitor; 0 if it holds nothing.
    pub(crate) count: u32,
    /// The remaining life of the present hold without a renewal; `None` if there is no hold, or it has no end.
    pub(crate) remaining: Option<Duration>,
}
