//! The connections of a store, how connecting ended, and what comes over them unasked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::ground::observer::{Event, Observed};
use crate::ground::time;

/// The connections of a client, and what has come over them.
///
/// Those of a [`Redlock`](crate::Redlock) are those of its nodes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// How many are ready for the next request.
    pub idle: u64,
    /// How many are in use: by a request or a transaction, to listen, or to ask a sentinel.
    pub busy: u64,
    /// How many attempts to connect ended in which way: `ok`, `unreachable`, `refused` (the server answered with an error,
    /// such as that the password is wrong) or `untrusted` (its certificate); those that never were are left out.
    pub connects: Vec<(&'static str, u64)>,
    /// How many unlock messages woke somebody.
    pub messages_woke: u64,
    /// How many unlock messages found nobody to wake.
    pub messages_nobody: u64,
    /// Whether somebody waits for messages and there is no connection that they come over.
    pub is_subscriber_down: bool,
    /// How often another server was found in the place of a master.
    pub master_changes: u64,
}

impl ConnectionStats {
    /// Adds those of another store.
    pub(crate) fn add(&mut self, other: ConnectionStats) {
        self.idle += other.idle;
        self.busy += other.busy;
        for (result, count) in other.connects {
            match self.connects.iter_mut().find(|(name, _)| *name == result) {
                Some((_, sum)) => *sum += count,
                None => self.connects.push((result, count)),
            }
        }
        self.messages_woke += other.messages_woke;
        self.messages_nobody += other.messages_nobody;
        self.is_subscriber_down |= other.is_subscriber_down;
        self.master_changes += other.master_changes;
    }
}

/// The way an attempt to connect ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectEnd {
    Done,
    Unreachable,
    Refused,
    Untrusted,
}

impl ConnectEnd {
    const ALL: [(ConnectEnd, &'static str); 4] = [
        (ConnectEnd::Done, "ok"),
        (ConnectEnd::Unreachable, "unreachable"),
        (ConnectEnd::Refused, "refused"),
        (ConnectEnd::Untrusted, "untrusted"),
    ];

    fn name(self) -> &'static str {
        ConnectEnd::ALL
            .get(self as usize)
            .map_or("", |(_, name)| name)
    }
}

/// The counters of the connections of one client.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    observer: Observed,
    open: AtomicU64,
    /// By [`ConnectEnd`].
    connects: [AtomicU64; ConnectEnd::ALL.len()],
    messages_woke: AtomicU64,
    messages_nobody: AtomicU64,
    master_changes: AtomicU64,
}

/// An open connection, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Opened(Arc<Traffic>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Traffic {
    /// Counters whose connects this observer hears of.
    pub(crate) fn told_to(observer: Observed) -> Traffic {
        Traffic {
            observer,
            ..Traffic::default()
        }
    }

    pub(crate) fn opened(self: &Arc<Self>) -> Opened {
        self.open.fetch_add(1, Ordering::Relaxed);
        Opened(Arc::clone(self))
    }

    /// Counts an attempt to connect that was begun then and has ended now.
    pub(crate) fn connected(&self, node: &str, began: Instant, end: ConnectEnd) {
        if let Some(count) = self.connects.get(end as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.observer.tell(|| Event::Connected {
            node,
            result: end.name(),
            took: time::since(began),
        });
    }

    /// Counts an unlock message, which woke somebody or nobody.
    pub(crate) fn heard(&self, woke: bool) {
        let count = match woke {
            true => &self.messages_woke,
            false => &self.messages_nobody,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that another server is the master.
    pub(crate) fn master_changed(&self) {
        self.master_changes.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far; of the connections those that are not idle are busy.
    pub(crate) fn read(&self, idle: u32, is_subscriber_down: bool) -> ConnectionStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let open = read(&self.open);
        // A slot may be empty.
        let idle = u64::from(idle).min(open);
        let connects = ConnectEnd::ALL.iter().zip(&self.connects);
        let connects = connects.map(|((_, name), count)| (*name, read(count)));
        ConnectionStats {
            idle,
            busy: open - idle,
            connects: connects.filter(|(_, count)| *count > 0).collect(),
            messages_woke: read(&self.messages_woke),
            messages_nobody: read(&self.messages_nobody),
            is_subscriber_down,
            master_changes: read(&self.master_changes),
        }
    }
}
