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

use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::{BootInstant, PROCESS, Timeline};
use crate::ground::error::{Error, Result};
use crate::ground::guarded_work::Work;
use crate::ground::loss::LossCause;
use crate::ground::notify::{Notifier, Parker};
use crate::ground::reply::Reply;
pub(crate) use condition::{
    CONDITION_ENTRY_LIFE, ConditionAnswer, ConditionOp, ConditionStep, EntryInDoubt,
};
pub(crate) use count::{CountOp, CountStep};
pub use health_warning::{HealthWarning, Severity};
pub(crate) use in_doubt::InDoubt;
pub(crate) use subscription::{Delivery, Subscription};
pub(crate) use survey::{
    Connected, Parts, Position, Scope, SurveyOf, TOKEN_CUT, fill_in_processes, merge_nodes,
    shown_token,
};
pub use survey::{Holder, LockInfo, LockKind};
pub use traffic::ConnectionStats;
pub(crate) use traffic::{ConnectionCounter, Opened};

/// Longer leases, except `ENDLESS`, are refused, so that sums of times cannot overflow.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Every operation returns by its `deadline`. A server changes a lock in one atomic step. An operation whose result is
/// an [`Outcome`] returns `Err` only if it changed nothing. If its effect is unknown, it returns [`Outcome::Unknown`].
pub(crate) trait Store: Send + Sync {
    /// Acquires the lock, or re-enters it if `claim.count` is above 0. If `claim.is_renewed` is true, the store also
    /// prepares the connection that will renew the hold.
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Outcome<Granted, Refusal>>;

    /// Reduces the hold to `left`, whatever hold count the store has.
    fn release(
        &self,
        claim: &Claim,
        left: Left<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Released>>;

    /// Renews each hold with the lease of its claim. Returns one outcome per claim, in the order of `claims`.
    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal>;

    /// Releases what a request with an unknown outcome may have acquired. `true` means that nothing is left to release, and
    /// that the request can no longer acquire anything.
    fn resolve(&self, in_doubt: &mut InDoubt, deadline: Instant) -> Result<bool>;

    /// Frees the lock, whichever client holds it. Returns whether the lock was held.
    fn force_release(&self, lock: &LockId, deadline: Instant) -> Result<bool>;

    fn inspect(
        &self,
        lock: &LockId,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding>;

    /// Describes one lock, or the next locks of a scope after `position`. After an error, the survey is over if
    /// `position.is_over` is true. Otherwise the next call continues with the next server.
    fn survey(
        &self,
        of: SurveyOf<'_>,
        position: &mut Position,
        deadline: Instant,
    ) -> Result<Vec<LockInfo>>;

    /// Subscribes a refused waiter to the messages that make it attempt again. `entry` is the waiter's queue entry in the
    /// store, if any. Messages for a queue entry reach only the waiter of that entry.
    ///
    /// `parker` can get messages from nodes of several stores, and numbers these nodes. `source` is the number of the first
    /// node of this store.
    fn subscribe(
        &self,
        lock: &LockId,
        entry: Option<StoreEntry<'_>>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription;

    /// Checks the settings and the state of the server. Correct settings are reported as [`Severity::Ok`].
    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>>;

    fn redis(&self) -> Option<&dyn RedisOperations> {
        None
    }

    fn facts(&self) -> &Facts;

    /// The name of the node that has `lock`. If `lock` is `None` or the store is composite, the whole store's name. The
    /// name contains no password. A node is a part of the store that can fail alone.
    fn node(&self, lock: Option<&str>) -> Arc<str>;

    fn connections(&self) -> ConnectionStats {
        ConnectionStats::default()
    }

    /// Ends the threads of the store, except threads that other clients use. The store accepts requests even after this
    /// call.
    fn close(&self) {}
}

/// The operations that only a Redis store has: guarded writes, counts and conditions.
pub(crate) trait RedisOperations {
    /// Executes `work` if its hold is valid. The check and the execution are one atomic step. `Refused(pause)` means that
    /// nothing was executed, because the validity of the hold is about to end. After `pause`, a renewal may have extended
    /// the validity, so the caller may repeat the request.
    fn guarded(
        &self,
        work: &Guarded<'_>,
        deadline: Instant,
    ) -> Result<Outcome<Vec<Reply>, Duration>>;

    /// Changes or reads a counter. The server executes a request once, even if the request arrives twice.
    fn count(&self, op: &CountOp<'_>, deadline: Instant) -> Result<i64>;

    fn condition(
        &self,
        op: &ConditionOp<'_>,
        deadline: Instant,
    ) -> Result<Outcome<ConditionAnswer>>;
}

impl dyn Store + '_ {
    pub(crate) fn redis_for(&self, lock: &LockId) -> Result<&dyn RedisOperations> {
        let unsupported = || Error::unsupported(&lock.name, self.facts().lacks);
        self.redis().ok_or_else(unsupported)
    }
}

/// The part of a hold that stays after a release.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left<'a> {
    /// The hold stays with this hold count, at least 1. The lease of the claim becomes the lease of the hold.
    Levels(u32),
    Nothing,
    /// Nothing. The store may omit the unlock message if sending it is expensive.
    NothingQuietly,
    /// The store passes the lock to a waiter of the same client, with this claim and a hold count of 1. It sends no unlock
    /// message. The caller uses this variant only if [`Facts::hands_off`] is true.
    Successor(&'a Claim),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum StoreEntry<'a> {
    OfLock(&'a VisitorId),
    /// An entry in the queue of a condition. The visitor id identifies one wait.
    OfCondition(&'a Arc<str>, &'a VisitorId),
}

impl<'a> StoreEntry<'a> {
    pub(crate) fn visitor(self) -> &'a VisitorId {
        match self {
            StoreEntry::OfLock(visitor) | StoreEntry::OfCondition(_, visitor) => visitor,
        }
    }
}

pub(crate) type TakeoverHook = OnceLock<Box<dyn Fn() + Send + Sync>>;

/// The properties of a store that never change.
pub(crate) struct Facts {
    /// The part of a node that contains the locks, such as a database number. Two locks are the same lock if name, node and
    /// area are equal.
    pub(crate) area: String,
    pub(crate) timeline: Timeline,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) longest_lease: Duration,
    /// Returns an error if the store cannot keep a lock of this kind and name. A new handle of the lock calls this function.
    pub(crate) refuses: fn(Kind, &Arc<str>) -> Option<Error>,
    /// Whether waiters for this kind of lock must poll, because an unlock sends no message.
    pub(crate) is_polled: fn(Kind) -> bool,
    /// Whether the store consists of other stores, as a quorum does. After a loss, some of these stores may still have the
    /// hold.
    pub(crate) is_composite: bool,
    /// Whether one request can hand a hold to a waiter of the same client. Otherwise the lock is freed, and the waiter
    /// acquires it.
    pub(crate) hands_off: bool,
    /// The reason why the store has no [`RedisOperations`], or an empty text if the store has [`RedisOperations`].
    pub(crate) lacks: &'static str,
    /// The store calls this hook after another server has become the master and may lack holds. The hook must not block.
    pub(crate) takeover_hook: Arc<TakeoverHook>,
}

impl Facts {
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

    pub(crate) fn of_composite(area: String, longest_lease: Duration) -> Facts {
        Facts {
            longest_lease,
            is_composite: true,
            hands_off: false,
            ..Facts::of(area, &Arc::default())
        }
    }
}

/// The outcome of a request that changes a hold. `D` describes an executed request, `R` a refused request.
#[derive(Debug)]
pub(crate) enum Outcome<D, R = Infallible> {
    Done(D),
    Refused(R),
    /// The store does not have the hold of the request.
    Gone(LossCause),
    /// The request was sent, but its outcome is not known.
    Unknown {
        /// In a hand-off, the successor may have the lock, or may acquire it until `in_doubt.not_after`.
        in_doubt: InDoubt,
        error: Error,
    },
}

impl<D, R> Outcome<D, R> {
    pub(crate) fn unknown(in_doubt: InDoubt, error: Error) -> Outcome<D, R> {
        Outcome::Unknown { in_doubt, error }
    }
}

#[derive(Debug)]
pub(crate) struct Guarded<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) work: Work<'a>,
    /// The end of the hold's validity, as the client knows it. From this moment on, the server refuses the work.
    pub(crate) valid_until: BootInstant,
}

#[derive(Debug)]
pub(crate) struct Granted {
    /// A moment just before the request was sent. The lease counts from this moment.
    pub(crate) sent: BootInstant,
    /// The fencing token, if the store issues fencing tokens.
    pub(crate) fence: Option<u64>,
    /// The remaining life of the semaphore's key, if the key expires before the lease of the permits ends.
    pub(crate) life: Option<Duration>,
    /// Requests of this call that got no reply, such as an earlier attempt. The store can still execute them.
    pub(crate) leftover: Option<InDoubt>,
}

impl Granted {
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
    /// How many subscribers outside this client's queue receive the unlock messages of the lock.
    pub(crate) others: u32,
    pub(crate) successor: Option<Granted>,
    /// Requests of this call that got no reply. After a full release, some nodes may still have the hold. After a release of
    /// one level, the store can still execute an earlier attempt.
    pub(crate) leftover: Option<InDoubt>,
}

#[derive(Debug, Default)]
pub(crate) struct Refusal {
    /// After this time, the lock may be free even without an unlock. `None` if the key of the lock has no TTL.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) holder: Option<Box<str>>,
    /// The time of a round trip, if several clients each acquired only a minority of the nodes of a quorum.
    pub(crate) split: Option<Duration>,
    pub(crate) leftover: Option<InDoubt>,
    /// The longest pause until the next attempt, if it differs from the default pause.
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
    /// The hold was renewed, but its key expires after this time, before the lease ends.
    RenewedFor(Duration),
    Lost(LossCause),
    Unknown(String),
}

/// A request with an expiry takes effect at most this long after its deadline, by this client's clock.
///
/// The expiry is a server time, which `clock::Offset::expiry` calculates from the deadline and a `slack`. That `slack` is
/// this constant minus [`EXPIRY_DRIFT`], minus the longest time from the arrival of a request to its effect.
pub(crate) const EXPIRY_SLACK: Duration = Duration::from_secs(5);

/// How far the clocks of client and server may drift apart during [`EXPIRY_SLACK`].
pub(crate) const EXPIRY_DRIFT: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Holding {
    pub(crate) is_locked: bool,
    /// The hold count of the visitor that was passed to [`Store::inspect`]; 0 if the visitor holds nothing.
    pub(crate) count: u32,
    /// The remaining life of the present hold if nothing renews it; `None` if there is no hold or the hold has no end.
    pub(crate) remaining: Option<Duration>,
}
