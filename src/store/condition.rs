use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{LockId, VisitorId};

/// A waiter on a condition must query its queue entry at least this often. Otherwise the store treats the waiter as dead.
pub(crate) const CONDITION_ENTRY_LIFE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionOp<'a> {
    pub(crate) lock: &'a LockId,
    pub(crate) condition: &'a Arc<str>,
    /// In a wait, an id of this wait (the ticket). In a signal, the visitor id of the signaller's hold.
    pub(crate) visitor: &'a VisitorId,
    pub(crate) step: ConditionStep<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ConditionStep<'a> {
    /// Joins the end of the condition's queue, if the store has the hold with this visitor id.
    Enlist(&'a VisitorId),
    /// Queries whether the waiter's queue entry was signalled. If not, extends the life of the entry.
    Look,
    /// Leaves the queue, unless the entry was signalled.
    Leave,
    /// Signals at most this number of waiters, the longest waiting first, if the store has the signaller's hold.
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
    /// The entry was signalled, or the store removed it.
    Woken,
    Left,
    Signalled(u32),
}

/// A queue entry that may remain in the store after a request without a reply, or after a failed wait.
#[derive(Clone, Debug)]
pub(crate) struct EntryInDoubt {
    pub(crate) condition: Arc<str>,
    /// Whether the waiter may have been signalled. If so, and its entry is not in the queue, another waiter gets the signal.
    pub(crate) was_told: bool,
}
