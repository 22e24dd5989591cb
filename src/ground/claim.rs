//! The kinds of locks and their rules, visitors and their claims. Plain data that stores, watchdog and log lines share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ground::random;

/// The id of one hold in the store: `client uuid:thread number:hold number`; for a token lock its random token, for permits
/// of a semaphore with their number before it, `permits*…`, or the ids of the permits, 32 hexadecimal digits each.
///
/// An id belongs to one hold and never to a second one, so that a request that arrives late can only touch the hold it
/// was sent for. Redisson uses the same field for `uuid:thread id` and compares it as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VisitorId {
    field: Arc<str>,
}

impl VisitorId {
    pub(crate) fn new(client: &str, thread: u64, hold: u64) -> VisitorId {
        VisitorId::of_field(format!("{client}:{thread}:{hold}"))
    }

    /// The id of a writer, marked as Redisson marks it.
    fn writing(&self) -> VisitorId {
        VisitorId::of_field(format!("{}:write", self.field))
    }

    /// A random token of 20 bytes, as the Redis documentation has it: letters and digits, 119 bits of chance.
    fn token() -> VisitorId {
        const SIGNS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut token = String::with_capacity(20);
        while token.len() < 20 {
            let random = random::uuid().into_bytes();
            // Byte 6 has the version in it. What lies beyond the signs is left out, so that all are equally likely.
            let signs = random.iter().enumerate().filter(|(at, _)| *at != 6);
            let signs = signs.filter_map(|(_, byte)| SIGNS.get(usize::from(byte & 63)));
            token.extend(signs.take(20 - token.len()).map(|sign| char::from(*sign)));
        }
        VisitorId::of_field(token)
    }

    /// The token of part `part` of a hold that is made of several, which no other part and no other hold has.
    fn token_of_part(&self, part: usize) -> VisitorId {
        // A token has no colon.
        VisitorId::of_field(format!("{}-{part}", self.field.replace(':', "-")))
    }

    /// The same for so many permits, which stand at its beginning: whatever frees them knows how many they are.
    pub(crate) fn of_permits(&self, permits: u32) -> VisitorId {
        VisitorId::of_field(format!("{permits}*{}", self.field))
    }

    /// The ids of so many permits, 16 random bytes each.
    fn of_ids(permits: u32) -> VisitorId {
        let ids = (0..permits).map(|_| random::uuid().simple().to_string());
        VisitorId::of_field(ids.collect::<String>())
    }

    /// The owners that it is in the store: the ids of permits are one each.
    pub(crate) fn owners(&self) -> impl Iterator<Item = VisitorId> {
        let length = match self.field.contains(['*', ':']) {
            true => self.field.len(),
            false => ID_LENGTH,
        };
        let starts = (0..self.field.len()).step_by(length.max(1));
        starts.filter_map(move |at| {
            let field = self.field.get(at..at + length)?;
            Some(VisitorId::of_field(field))
        })
    }

    /// The visitor that stands so in the store.
    pub(crate) fn of_field(field: impl Into<Arc<str>>) -> VisitorId {
        VisitorId {
            field: field.into(),
        }
    }

    /// Returns the id in the form that it has in the store.
    pub fn as_str(&self) -> &str {
        &self.field
    }
}

impl fmt::Display for VisitorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)
    }
}

/// The rules of a lock, and how it stands in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Entered again by its holder; in Redis Redisson's hash.
    #[default]
    Reentrant,
    /// Entered once; in Redis a string that holds the token of its holder.
    Token,
    /// As `Reentrant`, and each hold has a number that is larger than that of every earlier one.
    Fenced,
    /// A count that opens at 0 for all who wait; nobody holds it.
    Latch,
    /// Permits of a semaphore, owned by a handle that any thread may have.
    Permits,
    /// The side of a read-write lock that several have at a time.
    Read,
    /// The other side, which one thread has alone; that thread may also read.
    Write,
    /// The same with an id for each permit, by which any process may give it back.
    PermitIds,
    /// As `Reentrant`, and whoever waits gets it in the order of arrival, over all processes.
    Fair,
}

impl Kind {
    /// The identity of a hold that is about to begin.
    pub(crate) fn visitor(self, client: &str, thread: u64, hold: u64) -> VisitorId {
        (self.rules().visitor)(client, thread, hold)
    }

    /// The rules of the engine for locks of this kind.
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

/// The form in which a lock stands in a store. Locks of one form and name exclude each other, whatever their kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A visitor and its count.
    Hash,
    /// The text of a visitor.
    Text,
    /// A number that several share, which [`Store::count`](crate::store::Store::count) changes.
    Number,
    /// Readers, or a writer, and their counts.
    ReadWrite,
}

/// The part that the other side of a read-write lock plays for one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) other: Kind,
    /// The thread that has the other side may have this one, too; else it would wait for itself.
    pub(crate) enters_inside: bool,
}

/// The row of one kind of lock: all that the engine has to know of it.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Makes the identity of a hold from the client's uuid, the thread's number and the hold's number.
    pub(crate) visitor: fn(&str, u64, u64) -> VisitorId,
    /// The identity of such a member of a hold that is made of several. Members that stand as text have their own tokens,
    /// for two with the same would pass for copies of one request where two names lead to one lock.
    pub(crate) visitor_of_part: fn(&VisitorId, usize) -> VisitorId,
    /// Its holder may enter it again.
    pub(crate) is_reentrant: bool,
    /// A hold belongs to the thread that took it, and no other hold of that thread may stand beside it.
    pub(crate) has_thread_owner: bool,
    /// Several may hold it at a time, so a holder in this client does not mean that asking is of no use.
    pub(crate) is_shared: bool,
    /// A refused visitor leaves something in the store, which counts for the same visitor when it asks again.
    pub(crate) places_in_store: bool,
    /// The waiters of a client stand in its queue, and only the first of them asks.
    pub(crate) queues_locally: bool,
    /// A hold can be handed off to a waiter of the same client.
    pub(crate) hands_off: bool,
    /// Others may shorten what keeps the hold in the store, so one with a fixed lease is looked after, too.
    pub(crate) restores_lifetime: bool,
    /// The identity of a hold of so many permits.
    pub(crate) of_permits: fn(&VisitorId, u32) -> VisitorId,
    /// So many permits are taken at once at most.
    pub(crate) most_permits: u32,
    /// Each permit has an id of its own, which outlives the handle, and may have no end.
    pub(crate) has_ids: bool,
    /// A fencing token is drawn for each hold.
    pub(crate) is_fenced: bool,
    /// Why nobody can wait on a condition of it, where that is so.
    pub(crate) no_conditions: Option<&'static str>,
    /// Why nobody knows how many wait for it, where that is so.
    pub(crate) no_waiters: Option<&'static str>,
    /// Set for the sides of a read-write lock.
    pub(crate) side: Option<Side>,
    pub(crate) form: Form,
}

impl Rules {
    /// The rules of an exclusive lock of one thread without an order among clients.
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

    /// The rules that both sides of a read-write lock have in common.
    const READ_WRITE: Rules = Rules {
        hands_off: false,
        no_waiters: Some(
            "the store records only the first waiting writer of each process, so the waiters cannot be counted",
        ),
        form: Form::ReadWrite,
        ..Rules::PLAIN
    };

    /// Whether those who wait stand in a queue of the store, each with a place and messages of its own.
    pub(crate) fn waits_in_store(&self) -> bool {
        self.places_in_store && !self.queues_locally
    }

    /// The rules of a count that several share.
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

/// The largest number that a counter may have: that of Redisson, which reads it as an `int`.
pub(crate) const LARGEST_COUNT: u32 = i32::MAX.unsigned_abs();

/// So many permits with ids are taken at once at most: as many as a script can name in one command.
const MOST_IDS: u32 = 1_000;

/// The length of the id of a permit, in hexadecimal digits.
pub(crate) const ID_LENGTH: usize = 32;

/// The lease of a permit that has no end: its end is then the largest that Redisson knows, from whenever it counts.
pub(crate) const ENDLESS: Duration = Duration::from_millis(922_337_203_685_477);

/// One lock: two kinds of the same name are two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockId {
    pub(crate) kind: Kind,
    /// The name of the lock, prefix included.
    pub(crate) name: Arc<str>,
}

/// The wish of one visitor, or what it has in the store.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    /// The name of the lock, prefix included.
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// The hold count as this process knows it; 0 before a hold begins.
    pub(crate) count: u32,
    /// How long the hold is to last, counted from the send: the latest end that any live lease of it counts on. Where the
    /// hold is given back, how long it may last in the store if that does not get there.
    pub(crate) lease: Duration,
    /// Whether the hold is renewed from when this is granted.
    pub(crate) is_renewed: bool,
    /// The hold of the other side of a read-write lock that its thread has while it asks for this one.
    pub(crate) inside: Option<VisitorId>,
    pub(crate) queueing: Queueing,
}

/// A visitor that waits in the store looks again before this time is over, or is taken for dead.
pub(crate) const COUNTS_AS_WAITING: Duration = Duration::from_secs(3);

/// How a visitor stands among others that wait, where the store keeps turns.
#[derive(Clone, Debug, Default)]
pub(crate) enum Queueing {
    /// It asks once, or leaves no note, and others who wait do not matter to it.
    #[default]
    Barges,
    /// It asks once, and leaves the lock to those who wait.
    Tries,
    /// It waits: whether it takes a place among those who wait, and whether it was told that it has one. Of a client that
    /// has a queue of its own the first in line alone takes a place, for the others do not ask again before they are that.
    Waits { takes_place: bool, had_place: bool },
}
