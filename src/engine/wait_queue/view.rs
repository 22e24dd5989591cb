//! A queue as one of its waiters sees it.

use std::time::Instant;

/// The turn of a queued waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Ask the store.
    #[default]
    Attempt,
    /// Sleep: a thread of this client holds the lock, as was heard when the queue heard last, and will hand it over.
    HeldLocally,
    /// Sleep: others are before.
    NotFirst,
    /// Sleep until then: the lock is left to other processes.
    Yield(Instant),
}

/// A queue as one of its waiters sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    pub(crate) turn: Turn,
    /// When the store gave a usable answer to anybody in this queue last: it refused the lock, or gave it to one of them.
    pub(crate) last_usable: Option<Instant>,
    /// The last answer was of no use.
    pub(crate) is_in_doubt: bool,
    /// A hold was undone.
    pub(crate) is_undone: bool,
    /// An answer was given to a question that was asked while it stood here.
    pub(crate) is_told: bool,
}
