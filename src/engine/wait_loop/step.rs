//! The steps of a wait, what it sees before each, and what it tells others after it.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use crate::engine::wait_queue::View;
use crate::ground::error::Result;
use crate::store::Delivery;

/// The next step of a wait.
#[derive(Debug)]
pub(super) enum Next {
    /// The wait is over without the lock: it was refused until the limit, or failed.
    Return(Result<()>),
    /// Ask the store, until then.
    Attempt(Instant),
    /// Join the queue of this client, where that applies; it was refused just now, or was not.
    Join { is_refused: bool },
    /// Subscribe to messages.
    Listen,
    /// Sleep until woken, or until then.
    Sleep(Instant),
    /// Sleep until then, whatever messages come.
    Rest(Instant),
}

/// The present, and the end of the wait as it is by now; a test may bring that nearer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) now: Instant,
    /// `None` for a single attempt, and for a wait without a deadline.
    pub(super) end: Option<Instant>,
}

impl Time {
    /// Whether a wait that began then has a deadline that is over, and had some time until then.
    pub(super) fn has_waited(self, began: Instant) -> bool {
        self.end.is_some_and(|end| began < end && end <= self.now)
    }
}

/// The view of a wait at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) time: Time,
    /// The queue of this client, if it stands in it.
    pub(super) queue: Option<View>,
    /// Whether and how messages arrive, and up to how long to wait after one, if it listens.
    pub(super) messages: Option<(Delivery, Duration)>,
}

/// News of the lock that is for all who wait for it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// Somebody else has it; that this may be undone in a moment makes it of no use.
    Refused {
        is_usable: bool,
    },
    /// No usable answer came; a hold may have been undone.
    Trouble {
        is_undone: bool,
    },
}
