//! Plain data that all modules share: the kinds of locks, their rules, and the ids of holds.

use std::sync::Arc;
use std::time::Duration;

pub use crate::ground::visitor_id::VisitorId;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A reentrant lock. In Redis, the lock is a hash in the format of Redisson.
    #[default]
    Reentrant,
    /// A lock that is not reentrant. In Redis, the lock is a string with the token of the holder.
    Token,
    /// A lock like `Reentrant`, with a fencing token for each hold.
    Fenced,
    /// A latch: a count without a holder. The waiters continue when the count is 0.
    Latch,
    /// Permits of a semaphore. The permits belong to the value that `acquire` returns, not to a thread.
    Permits,
    /// The shared side of a read-write lock.
    Read,
    /// The exclusive side of a read-write lock. Its holder can also acquire the shared side.
    Write,
    /// Permits of a semaphore, each with an id. Any process that knows the id can release the permit.
    PermitIds,
    /// A lock like `Reentrant`, but the waiters of all processes acquire it in order of arrival.
    Fair,
}

impl Kind {
    pub(crate) fn visitor(self, client: &str, thread: u64, hold: u64) -> VisitorId {
        (self.rules().visitor)(client, thread, hold)
    }

    pub(crate) fn rules(self) -> &'static Rules {
        match self {
            Kind::Reentrant => &Rules::PLAIN,
            Kind::Token => &Rules {
                visitor: |_, _, _| VisitorId::token(),
                visitor_of_part: VisitorId::token_of_part,
                is_reentrant: false,
                no_conditions: Some(
                    "a token lock has no conditions, because other programs that use the key publish no messages; \
                        use Client::lock",
                ),
                form: Form::Text,
                ..Rules::PLAIN
            },
            Kind::Fenced => &Rules {
                is_fenced: true,
                ..Rules::PLAIN
            },
            Kind::Latch | Kind::Permits => &Rules::COUNTER,
            Kind::Read => &Rules {
                is_shared: true,
                places_in_store: true,
                queues_locally: false,
                restores_lifetime: true,
                no_conditions: Some(
                    "the read side has no conditions, because another reader could signal between the check and the \
                        wait; use a condition of the write side",
                ),
                side: Some(Side {
                    other: Kind::Write,
                    enters_inside: true,
                }),
                ..Rules::READ_WRITE
            },
            Kind::Write => &Rules {
                visitor: |client, thread, hold| VisitorId::new(client, thread, hold).writing(),
                places_in_store: true,
                visitor_of_part: |visitor, _| visitor.writing(),
                side: Some(Side {
                    other: Kind::Read,
                    enters_inside: false,
                }),
                ..Rules::READ_WRITE
            },
            Kind::PermitIds => &Rules {
                of_permits: |_, permits| VisitorId::of_ids(permits),
                most_permits: MOST_IDS,
                has_ids: true,
                ..Rules::COUNTER
            },
            Kind::Fair => &Rules {
                places_in_store: true,
                queues_locally: false,
                hands_off: false,
                no_waiters: None,
                ..Rules::PLAIN
            },
        }
    }
}

/// The form of a lock in a store. Two locks with the same form and name are one lock, even if their kinds differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A hash with the holder and its hold count.
    Hash,
    /// A string that contains the id of the holder.
    Text,
    /// A shared number: the count of a latch, or the free permits of a semaphore.
    Number,
    /// A hash with the readers and the writer, and their hold counts.
    ReadWrite,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) other: Kind,
    /// Whether the holder of `other` can also acquire this side. If false, the acquisition is an error, because the
    /// holder would wait for itself.
    pub(crate) enters_inside: bool,
}

#[derive(Debug)]
pub(crate) struct Rules {
    /// Makes the id of a hold from the client's uuid, the thread's number and the hold's number.
    pub(crate) visitor: fn(&str, u64, u64) -> VisitorId,
    /// Makes the id of a member's hold from the id of its multi-lock's hold and the member's index.
    /// Each member that is a token lock gets its own token. If two members were the same lock and had equal tokens, the
    /// store would treat the second request as a repetition of the first.
    pub(crate) visitor_of_part: fn(&VisitorId, usize) -> VisitorId,
    pub(crate) is_reentrant: bool,
    /// A hold belongs to the thread that acquired it. A thread can have only one hold of the lock.
    pub(crate) has_thread_owner: bool,
    /// Several clients can hold the lock at the same time. So a thread attempts to acquire the lock even while another
    /// thread of this client holds it.
    pub(crate) is_shared: bool,
    /// A refused waiter leaves a queue entry in the store. The waiter's next attempt uses this entry.
    pub(crate) places_in_store: bool,
    /// The waiters of a client queue locally, and only the first waiter makes attempts.
    pub(crate) queues_locally: bool,
    pub(crate) hands_off: bool,
    /// Other clients can shorten the TTL of the key. So the client renews even a hold with a fixed lease.
    pub(crate) restores_lifetime: bool,
    pub(crate) of_permits: fn(&VisitorId, u32) -> VisitorId,
    pub(crate) most_permits: u32,
    /// Each permit has an id. A permit can stay acquired after its Rust value is dropped, and may never expire.
    pub(crate) has_ids: bool,
    pub(crate) is_fenced: bool,
    /// Why this kind has no condition variables; `None` if it has them.
    pub(crate) no_conditions: Option<&'static str>,
    /// Why the waiters for this kind cannot be counted; `None` if they can be counted.
    pub(crate) no_waiters: Option<&'static str>,
    pub(crate) side: Option<Side>,
    pub(crate) form: Form,
}

impl Rules {
    pub(crate) const PLAIN: Rules = Rules {
        visitor: VisitorId::new,
        visitor_of_part: |visitor, _| visitor.clone(),
        is_reentrant: true,
        has_thread_owner: true,
        is_shared: false,
        places_in_store: false,
        queues_locally: true,
        hands_off: true,
        restores_lifetime: false,
        of_permits: VisitorId::of_permits,
        most_permits: LARGEST_COUNT,
        has_ids: false,
        is_fenced: false,
        no_conditions: None,
        no_waiters: Some("its waiters are not recorded in the store, so they cannot be counted"),
        side: None,
        form: Form::Hash,
    };

    const READ_WRITE: Rules = Rules {
        hands_off: false,
        no_waiters: Some(
            "the store records only the first waiting writer of each process, so the waiters cannot be counted",
        ),
        form: Form::ReadWrite,
        ..Rules::PLAIN
    };

    /// Whether each waiter has its own entry in a queue of the store.
    pub(crate) fn waits_in_store(&self) -> bool {
        self.places_in_store && !self.queues_locally
    }

    const COUNTER: Rules = Rules {
        is_reentrant: false,
        has_thread_owner: false,
        is_shared: true,
        hands_off: false,
        no_conditions: Some("it is not a lock and has no conditions"),
        form: Form::Number,
        ..Rules::PLAIN
    };
}

/// The largest value of a counter, because Redisson reads a counter as an `int`.
pub(crate) const LARGEST_COUNT: u32 = i32::MAX.unsigned_abs();

/// The most permit ids of one acquisition. The scripts pass all ids to Lua's `unpack`, which fails for too many values.
const MOST_IDS: u32 = 1_000;

/// The length of a permit id in hexadecimal digits.
pub(crate) const ID_LENGTH: usize = 32;

/// The lease of a permit that never expires. Like Redisson, the store writes 1970 plus this duration as the permit's end.
pub(crate) const ENDLESS: Duration = Duration::from_millis(922_337_203_685_477);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LockId {
    pub(crate) kind: Kind,
    /// The name of the lock, prefix included.
    pub(crate) name: Arc<str>,
}

/// A hold that a client requests or has.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    /// The name of the lock, prefix included.
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// The hold count in this process; 0 before the acquisition.
    pub(crate) count: u32,
    /// The lease that the request sets for the hold. The client counts the lease from the sending of the request. In a
    /// release of the last level, `lease` is the longest time that the hold can stay in the store if the release fails.
    pub(crate) lease: Duration,
    pub(crate) is_renewed: bool,
    /// The thread's hold of the other side of the read-write lock, if any.
    pub(crate) inside: Option<VisitorId>,
    pub(crate) queueing: Queueing,
}

impl Claim {
    pub(crate) fn new(kind: Kind, name: &Arc<str>, visitor: VisitorId, lease: Duration) -> Claim {
        Claim {
            kind,
            name: Arc::clone(name),
            visitor,
            count: 0,
            lease,
            is_renewed: false,
            inside: None,
            queueing: Queueing::default(),
        }
    }
}

/// In a read-write lock, a waiter without an attempt for this long counts as dead. Fair locks have other limits.
pub(crate) const COUNTS_AS_WAITING: Duration = Duration::from_secs(3);

/// How an attempt uses the store's queue, which only some kinds of locks have.
#[derive(Clone, Debug, Default)]
pub(crate) enum Queueing {
    /// The attempt leaves no queue entry, and ignores the waiters in the queue.
    #[default]
    Barges,
    /// The attempt leaves no queue entry, and is refused if the queue has waiters.
    Tries,
    /// The attempt belongs to a waiter. If `takes_place`, the attempt adds the waiter to the store's queue. If
    /// `had_place`, the store has confirmed a queue entry of the waiter. If the waiters of a client queue locally, only
    /// the first waiter joins the store's queue.
    Waits { takes_place: bool, had_place: bool },
}
