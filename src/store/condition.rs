//! Operations on the queue of a condition.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{LockId, VisitorId};

/// A waiter on a condition must query its queue entry within this time, or the store treats the waiter as dead.
pub(crate) const CONDITION_ENTRY_LIFE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionOp<'a> {
    pub(crate) lock: &'a LockId,
    pub(crate) condition: &'a Arc<str>,
    /// For a wait, its ticket. For a signal, the visitor id of the hold under which the signal is sent.
    pub(crate) visitor: &'a VisitorId,
    pub(crate) step: ConditionStep<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ConditionStep<'a> {
    /// Joins the end of the queue, if the store has this hold.
    Enlist(&'a VisitorId),
    /// Queries whether the entry was signalled, and keeps it alive if not.
    Look,
    /// Leaves the queue, unless the entry was signalled.
    Leave,
    /// Signals this number of waiters, the longest waiting first, if the store has the hold.
    Signal(u32),
}

impl ConditionStep<'_> {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ConditionStep::Enlist(_) => "wait",
            ConditionStep::Look => "look",
            ConditionStep::Leave => "end of a wait",
            ConditionStep::Signal(_) => "signal",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionAnswer {
    /// The entry is in the queue, and was not signalled.
    Waits,
    /// The entry is gone: it was signalled, or the store removed it.
    Woken,
    Left,
    /// The number of signalled waiters.
    Signalled(u32),
}

/// A queue entry that an in-doubt request or a failed wait may have left.
#[derive(Clone, Debug)]
pub(crate) struct EntryInDoubt {
    pub(crate) condition: Arc<str>,
    /// The waiter may have received a signal that it did not use: unless the entry is still in the queue, another waiter
    /// gets the signal.
    pub(crate) was_told: bool,
}
