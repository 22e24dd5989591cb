//! The seam: where the truth about who holds what is kept.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use crate::claim::{Claim, Kind, VisitorId};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::loss::LossCause;
use crate::signals::{Parker, Signals, Ticket};

/// A place where locks are kept.
///
/// Every operation ends by `until` and, on one server, is one atomic step. An error that is retryable and not
/// ambiguous means that nothing was changed.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Takes the lock, or enters it once more if `claim.count` is above 0.
    fn acquire(&self, claim: &Claim, until: Instant) -> Result<Attempt>;

    /// Sets the lease of each hold to that of its claim, one outcome per claim in order.
    fn renew(&self, claims: &[Claim], until: Instant) -> Vec<Renewal>;

    /// Gives the whole hold back, whatever its count there.
    fn release(&self, claim: &Claim, until: Instant) -> Result<Release>;

    /// Gives one level back: the count goes down to `claim.count - 1`, the lease becomes `claim.lease`.
    fn release_level(&self, claim: &Claim, until: Instant) -> Result<Release>;

    /// Gives the whole hold `from` back by making the hold `to` of it, which begins with a count of 1: the waiter of
    /// the same process that it is handed to need not ask, and nobody else is woken.
    fn transfer(&self, from: &Claim, to: &Claim, until: Instant) -> Result<Transfer>;

    /// Frees what a request without an answer may have left. Returns whether it is settled for good.
    fn withdraw(&self, doubt: &mut Doubt, until: Instant) -> Result<bool>;

    /// Frees the lock whoever holds it. Returns whether somebody did.
    fn force_release(&self, kind: Kind, name: &Arc<str>, until: Instant) -> Result<bool>;

    fn inspect(
        &self,
        kind: Kind,
        name: &Arc<str>,
        visitor: Option<&VisitorId>,
        until: Instant,
    ) -> Result<Holding>;

    /// Puts a refused visitor where it hears that another try is worth it.
    fn subscribe(&self, kind: Kind, name: &Arc<str>, parker: &Arc<Parker>) -> Subscription;

    /// Looks for settings of the server that endanger locks.
    fn check(&self, until: Instant) -> Result<Vec<Warning>>;

    /// The place where everybody who waits for this client sleeps.
    fn signals(&self) -> &Arc<Signals>;

    /// Ends the threads of the store. Requests go on working.
    fn close(&self);
}

#[derive(Debug)]
pub(crate) enum Attempt {
    /// Counted from `sent`, a moment before the request was sent.
    Granted {
        sent: Moment,
        /// The fencing number of the hold, where the store draws one.
        fence: Option<u64>,
    },
    Refused(Refusal),
    /// A re-entry found its hold gone.
    Lost(LossCause),
    /// The request was sent and not answered.
    Unknown {
        doubt: Doubt,
        error: Error,
    },
}

/// Somebody else holds the lock.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    /// For how long, as far as known now; `None` if for ever.
    pub(crate) retry_after: Option<Duration>,
    /// Who, where the store says so.
    #[expect(dead_code, reason = "a quorum compares the answers of its nodes by it")]
    pub(crate) holder: Option<Box<str>>,
    /// Nobody holds it, but several ask at once and none got enough of the nodes: how long a round trip takes.
    pub(crate) split: Option<Duration>,
    /// What this attempt may have left in some part of the store.
    pub(crate) leftover: Option<Doubt>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Renewal {
    Renewed,
    Lost(LossCause),
    /// With the reason why nothing is known.
    Unknown(String),
}

#[derive(Debug)]
pub(crate) enum Release {
    /// The hold, or the level, was given back.
    Done {
        /// Whether somebody in another process has heard that the lock is free.
        others_wait: bool,
        /// What may be left in some part of the store.
        leftover: Option<Doubt>,
    },
    NotHeld(LossCause),
    Unknown {
        doubt: Doubt,
        error: Error,
    },
}

impl Release {
    /// It was given back, and nobody else is known to wait.
    pub(crate) fn done() -> Release {
        Release::Done {
            others_wait: false,
            leftover: None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Transfer {
    /// The hold of the other visitor stands, counted from `sent`.
    Done {
        sent: Moment,
        /// The fencing number of the new hold, where the store draws one.
        fence: Option<u64>,
        /// Whether somebody may be waiting in another process.
        others_wait: bool,
    },
    NotHeld(LossCause),
    /// Either of the two may stand.
    Unknown {
        doubts: Box<[Doubt; 2]>,
        error: Error,
    },
}

/// A field that a request without an answer may have left in the store, or may yet put there.
#[derive(Debug, Clone)]
pub(crate) struct Doubt {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// For each node: the request is refused there after this time of the node's own clock, in ms, so that a release
    /// answered later settles it. A node that is not listed may have anything.
    pub(crate) not_after: SmallVec<[i64; 1]>,
    /// When the lease that the request may have set has run out in any case.
    pub(crate) ends: Moment,
}

impl Claim {
    /// The doubt whether a hold of this claim stands, or comes to stand until the server's time `not_after`.
    pub(crate) fn doubt(&self, not_after: i64) -> Doubt {
        Doubt {
            not_after: smallvec![not_after],
            ..Doubt::of(self.kind, &self.name, &self.visitor, self.lease)
        }
    }
}

impl Doubt {
    /// The doubt whether the visitor still has a hold, with this lease at most.
    pub(crate) fn of(kind: Kind, name: &Arc<str>, visitor: &VisitorId, lease: Duration) -> Doubt {
        Doubt {
            kind,
            name: Arc::clone(name),
            visitor: visitor.clone(),
            not_after: SmallVec::new(),
            ends: Moment::now() + lease.max(LEAST_DOUBT),
        }
    }

    /// The server time after which nothing comes any more at node `node`.
    pub(crate) fn not_after(&self, node: usize) -> i64 {
        self.not_after.get(node).copied().unwrap_or_default()
    }
}

/// A release claims no lease, and what it was to free may have any.
const LEAST_DOUBT: Duration = Duration::from_secs(30);

/// What the store says about one lock.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    pub(crate) is_locked: bool,
    /// The hold count of the visitor asked for; 0 if it holds nothing.
    pub(crate) count: u32,
    /// How long the present hold lasts if nobody renews it; `None` if nobody holds it or it has no end.
    pub(crate) remaining: Option<Duration>,
}

/// Whether a visitor in a queue of waiters is told when another try is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// From now on.
    Live,
    /// Soon, and it is woken when that begins.
    Soon,
    /// Never; it has to ask now and then.
    Never,
}

/// A place in a queue of waiters, and whatever has to be kept so that wake-ups arrive there.
pub(crate) struct Subscription {
    pub(crate) ticket: Ticket,
    pub(crate) hearing: Hearing,
    /// How long it waits at most, by chance, between being woken and asking, so that not all ask at once.
    pub(crate) jitter: Duration,
    pub(crate) keep: Option<Box<dyn Send>>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("ticket", &self.ticket)
            .field("hearing", &self.hearing)
            .finish_non_exhaustive()
    }
}

/// Something about the server that endangers locks, found by [`Client::check`](crate::Client::check).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The server.
    pub node: Arc<str>,
    /// What was found and what to do about it.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.message)
    }
}
