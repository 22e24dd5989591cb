use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{LockId, VisitorId};

/// A waiter on a condition must query its queue entry at least this often. Otherwise the store treats the waiter as dead.
pub(crate) const CONDITION_ENTRY_LIFE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionOp<'a> {
    pub(crate) lock: &'a LockId,
    pub(crate) condition: &'a Arc<str>,
    /// In a wait, an id of this wait (the ticket). In a signal, the id of the signaller's hold.
    pub(crate) visitor: &'a VisitorId,
    pub(crate) step: ConditionStep<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ConditionStep<'a> {
    /// If the store has the waiter's hold with this id, the waiter joins the end of the condition's queue.
    Enlist(&'a VisitorId),
    /// The waiter queries whether its queue entry was signalled. If not, the store extends the life of the entry.
    Look,
    /// The waiter leaves the queue, unless its entry was signalled.
    Leave,
    /// If the store has the signaller's hold, the store signals at most this number of waiters, in order of joining.
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
    Waits,
    /// The entry was signalled, or the store removed it.
    Woken,
    Left,
    Signalled(u32),
}

/// A waiter's entry in the queue of a condition. It may remain in the store after a lost reply or a failed wait.
#[derive(Clone, Debug)]
pub(crate) struct EntryInDoubt {
    pub(crate) condition: Arc<str>,
    /// True if the store may have signalled the waiter. If so, and if its entry is gone, another waiter is signalled.
    pub(crate) was_told: bool,
}
