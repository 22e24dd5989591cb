//! Operations on a number that several share: the count of a latch, the free permits of a semaphore.

use std::time::Duration;

use crate::ground::claim::{LockId, VisitorId};

/// One operation on a counter.
#[derive(Clone, Debug)]
pub(crate) struct CountOp<'a> {
    pub(crate) counter: &'a LockId,
    /// The name of the request, which no other one has: copies of it change nothing.
    pub(crate) request: VisitorId,
    pub(crate) step: CountStep,
}

/// The change that an operation makes, and how its answer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountStep {
    /// Tells the count; 0 if there is none.
    Get,
    /// Sets the count if there is none, to end after so long if it ever does: 1, or 0 if there is one.
    SetIfMissing(u32, Option<Duration>),
    /// Takes 1 from the count, which goes when none is left: the count that is left.
    CountDown,
    /// Takes the count away: 1, or 0 if there is none.
    Delete,
}

impl CountStep {
    /// The name of the operation in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CountStep::Get => "question",
            CountStep::SetIfMissing(..) => "set",
            CountStep::CountDown => "count-down",
            CountStep::Delete => "deletion",
        }
    }

    /// The number that it is about; 0 if there is none.
    pub(crate) fn amount(self) -> i64 {
        match self {
            CountStep::SetIfMissing(count, _) => count.into(),
            _ => 0,
        }
    }
}
