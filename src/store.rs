//! The seam: where the truth about who holds what is kept.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use crate::ground::claim::{Claim, Kind, VisitorId};
use crate::ground::clock::{BootInstant, PROCESS, Timeline};
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::notify::{Notifier, Parker, Registration};

/// Longer leases are refused, so that sums of times cannot overflow.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A place where locks are kept.
///
/// Every operation ends by `deadline` and, on one server, is one atomic step. An error that may pass and is
/// not ambiguous means that nothing was changed.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Takes the lock, or enters it once more if `claim.count` is above 0.
    fn acquire(&self, claim: &Claim, deadline: Instant) -> Result<Attempt>;

    /// Sets the lease of each hold to that of its claim, one outcome per claim in order.
    fn renew(&self, claims: &[Claim], deadline: Instant) -> Vec<Renewal>;

    /// Gives the whole hold back, whatever its count there.
    fn release(&self, claim: &Claim, deadline: Instant) -> Result<Release>;

    /// Gives one level back: the count goes down to `claim.count - 1`, the lease becomes `claim.lease`.
    fn release_level(&self, claim: &Claim, deadline: Instant) -> Result<Release>;

    /// Whether a hold can be handed over at all.
    fn hands_off(&self) -> bool {
        true
    }

    /// Gives the whole hold `from` back by making the hold `to` of it, which begins with a count of 1: the waiter of
    /// the same process that it is handed to need not ask, and nobody else is woken.
    fn transfer(&self, from: &Claim, to: &Claim, deadline: Instant) -> Result<Transfer>;

    /// Frees what a request without an answer may have left. Returns whether it is settled for good.
    fn resolve(&self, in_doubt: &mut InDoubt, deadline: Instant) -> Result<bool>;

    /// [`Store::resolve`] for many that one [`Store::keeper`] has. Returns what came of each in order; of the last ones
    /// nothing, if one before them had no answer or there was no time left for them.
    fn resolve_all(&self, in_doubts: &mut [&mut InDoubt], deadline: Instant) -> Vec<Result<bool>> {
        let mut outcomes = Vec::with_capacity(in_doubts.len());
        for in_doubt in in_doubts {
            let outcome = self.resolve(in_doubt, deadline);
            let is_silent = matches!(&outcome, Err(error) if error.may_pass());
            outcomes.push(outcome);
            if is_silent || Instant::now() >= deadline {
                break;
            }
        }
        outcomes
    }

    /// What has the lock of this name, of all that can fail alone.
    fn keeper(&self, _name: &str) -> Arc<str> {
        self.node()
    }

    /// Frees the lock whoever holds it. Returns whether somebody did.
    fn force_release(&self, kind: Kind, name: &Arc<str>, deadline: Instant) -> Result<bool>;

    fn inspect(
        &self,
        kind: Kind,
        name: &Arc<str>,
        visitor: Option<&VisitorId>,
        deadline: Instant,
    ) -> Result<Holding>;

    /// Puts a refused visitor where it hears that another try is worth it.
    ///
    /// `source` tells it from other stores that wake the same visitor.
    fn subscribe(
        &self,
        kind: Kind,
        name: &Arc<str>,
        source: u32,
        parker: &Arc<Parker>,
    ) -> Subscription;

    /// The name of the place in messages; has no secret in it.
    fn node(&self) -> Arc<str>;

    /// What tells the place from others: two locks of one name in one place are one lock.
    fn place(&self) -> Arc<str> {
        self.node()
    }

    /// Calls `hook`, which must not block, whenever another server has taken over: what stands there is to be asked.
    fn on_takeover(&self, _hook: Box<dyn Fn() + Send + Sync>) {}

    /// The clock that holds are counted on here.
    fn timeline(&self) -> &Timeline {
        &PROCESS
    }

    /// The longest lease that may be asked for.
    fn longest_lease(&self) -> Duration {
        LONGEST_LEASE
    }

    /// Whether a hold that is lost may stand on in some part of the store.
    fn is_composite(&self) -> bool {
        false
    }

    /// Looks for settings of the server that endanger locks.
    fn check(&self, deadline: Instant) -> Result<Vec<HealthWarning>>;

    /// What renewals have left in some part of the store, to be cleared up after.
    fn leftovers(&self) -> Vec<InDoubt> {
        Vec::new()
    }

    /// The place where everybody who waits for this client sleeps.
    fn notifier(&self) -> &Arc<Notifier>;

    /// Makes ready what the renewals of this lock need, so that its hold is not lost because that cannot be had later.
    fn get_ready_to_renew(&self, _lock: &str, _until: Instant) {}

    /// Ends the threads of the store. Requests go on working.
    fn close(&self);
}

#[derive(Debug)]
pub(crate) enum Attempt {
    /// Counted from `sent`, a moment before the request was sent.
    Granted {
        sent: BootInstant,
        /// The fencing number of the hold, where the store draws one.
        fence: Option<u64>,
        /// What an earlier copy of the request may yet do, which got no answer.
        leftover: Option<InDoubt>,
    },
    Refused(Refusal),
    /// A re-entry found its hold gone.
    Lost(LossCause),
    /// The request was sent and not answered.
    Unknown {
        in_doubt: InDoubt,
        error: Error,
    },
}

/// Somebody else holds the lock.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    /// For how long, as far as known now; `None` if for ever.
    pub(crate) retry_after: Option<Duration>,
    /// Who, where the store says so.
    pub(crate) holder: Option<Box<str>>,
    /// Nobody holds it, but several ask at once and none got enough of the nodes: how long a round trip takes.
    pub(crate) split: Option<Duration>,
    /// What this attempt may have left in some part of the store.
    pub(crate) leftover: Option<InDoubt>,
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
        /// What may be left in some part of the store. Of a level: what an earlier copy of the request may yet do, which
        /// got no answer.
        leftover: Option<InDoubt>,
    },
    NotHeld(LossCause),
    Unknown {
        in_doubt: InDoubt,
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
        sent: BootInstant,
        /// The fencing number of the new hold, where the store draws one.
        fence: Option<u64>,
        /// Whether somebody may be waiting in another process.
        others_wait: bool,
    },
    NotHeld(LossCause),
    /// Either of the two may stand.
    Unknown {
        in_doubts: Box<[InDoubt; 2]>,
        error: Error,
    },
}

/// A field that a request without an answer may have left in the store, or may yet put there.
#[derive(Debug, Clone)]
pub(crate) struct InDoubt {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// For each node: the request is refused there after this time of the node's own clock, in ms, so that a release
    /// answered later settles it. [`SETTLED`] where nothing is left; a node that is not listed is as the last one.
    pub(crate) not_after: SmallVec<[i64; 1]>,
    /// When the lease that the request may have set has run out in any case.
    pub(crate) ends: BootInstant,
}

impl Claim {
    /// The doubt whether a hold of this claim stands, or comes to stand until the server's time `not_after`.
    pub(crate) fn in_doubt(&self, not_after: i64) -> InDoubt {
        InDoubt {
            not_after: smallvec![not_after],
            ..InDoubt::of(self.kind, &self.name, &self.visitor, self.lease)
        }
    }
}

impl InDoubt {
    /// The doubt whether the visitor still has a hold, with this lease at most.
    pub(crate) fn of(kind: Kind, name: &Arc<str>, visitor: &VisitorId, lease: Duration) -> InDoubt {
        InDoubt {
            kind,
            name: Arc::clone(name),
            visitor: visitor.clone(),
            not_after: SmallVec::new(),
            ends: BootInstant::now() + lease + LONGEST_WAY,
        }
    }

    /// The server time after which nothing comes any more at node `node`.
    pub(crate) fn not_after(&self, node: usize) -> i64 {
        let listed = self.not_after.get(node).or(self.not_after.last());
        listed.copied().unwrap_or_default()
    }
}

/// A request that is to arrive by an instant changes nothing any more from this long after it on, by our clock. So long
/// a hold reckons with what it has sent.
///
/// A store sees to it by the expiry that it sends along: `clock::Offset::expiry` keeps within a slack of its own, which
/// has to be less than this by all that the request may take effect later than it arrives, and by [`EXPIRY_DRIFT`].
pub(crate) const EXPIRY_SLACK: Duration = Duration::from_secs(5);

/// Clocks may part by this much from the expiry of a request to the end of its slack.
pub(crate) const EXPIRY_DRIFT: Duration = Duration::from_millis(100);

/// The expiry of a request that has left nothing.
pub(crate) const SETTLED: i64 = i64::MIN;

/// A request without an answer may take this long to arrive, and its lease counts from then.
const LONGEST_WAY: Duration = Duration::from_secs(30);

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
pub(crate) enum Delivery {
    /// From now on.
    Live,
    /// Soon, and it is woken when that begins.
    Pending,
    /// Never; it has to ask now and then.
    Polling,
}

/// A place in a queue of waiters, and whatever has to be kept so that wake-ups arrive there.
pub(crate) struct Subscription {
    pub(crate) registration: Registration,
    pub(crate) delivery: Delivery,
    /// How long it waits at most, by chance, between being woken and asking, so that not all ask at once.
    pub(crate) jitter: Duration,
    pub(crate) keep: Option<Box<dyn Send>>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("ticket", &self.registration)
            .field("hearing", &self.delivery)
            .finish_non_exhaustive()
    }
}

/// Something about the server that endangers locks, found by [`Client::check`](crate::Client::check).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthWarning {
    /// The server.
    pub node: Arc<str>,
    /// The finding, and what to do about it.
    pub message: String,
}

impl fmt::Display for HealthWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.message)
    }
}
