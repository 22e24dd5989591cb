//! Operations on the places of those who wait on a condition.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{LockId, VisitorId};

/// A thread that waits on a condition looks within this time, or is taken for dead.
pub(crate) const PLACE_LIFE: Duration = Duration::from_secs(10);

/// One step of a thread that waits on a condition, or of one that signals it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionOp<'a> {
    pub(crate) lock: &'a LockId,
    pub(crate) condition: &'a Arc<str>,
    /// The ticket of the place, which is that of one wait; of a signal the hold under which it is given.
    pub(crate) visitor: &'a VisitorId,
    pub(crate) step: ConditionStep<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ConditionStep<'a> {
    /// Takes a place behind the others, if this hold stands.
    Enlist(&'a VisitorId),
    /// Asks whether the place was signalled, and keeps it alive if not.
    Look,
    /// Gives the place up, unless it was signalled.
    Leave,
    /// Signals so many of those who wait, the longest waiting first, if the hold stands.
    Signal(u32),
}

impl ConditionStep<'_> {
    /// The name of the step in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ConditionStep::Enlist(_) => "wait",
            ConditionStep::Look => "look",
            ConditionStep::Leave => "end of a wait",
            ConditionStep::Signal(_) => "signal",
        }
    }
}

/// The answer to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionAnswer {
    /// The place is there, and was not signalled.
    Waits,
    /// The place is gone: it was signalled, or the store has forgotten it.
    Woken,
    /// The place was there, and is given up.
    Left,
    /// So many were signalled.
    Signalled(u32),
}

/// A place that a request without an answer, or a wait that failed, may have left.
#[derive(Clone, Debug)]
pub(crate) struct PlaceInDoubt {
    pub(crate) condition: Arc<str>,
    /// Its thread may have been told of a signal, which nobody else knows of: unless the place is still there, another one
    /// gets it.
    pub(crate) was_told: bool,
}
