//! Operations on a number that several share: the count of a latch, the free permits of a semaphore.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{LockId, VisitorId};
use crate::ground::error::Error;

/// One operation on a counter.
#[derive(Clone, Debug)]
pub(crate) struct CountOp<'a> {
    pub(crate) counter: &'a LockId,
    /// The name of the request, which no other one has: copies of it change nothing.
    pub(crate) request: VisitorId,
    /// The permit that it is about, where it is about one.
    pub(crate) permit: Option<&'a VisitorId>,
    pub(crate) step: CountStep,
}

impl CountOp<'_> {
    /// The error of a count that would be too large, or too far below 0.
    pub(crate) fn out_of_range(&self) -> Error {
        Error::InvalidPermits {
            name: Arc::clone(&self.counter.name),
            permits: self.step.amount(),
        }
    }
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
    /// Adds a number, which makes a count if there is none: the count then.
    Add(i64),
    /// The same if there is a count: 1, or 0 if there is none.
    AddIfThere(i64),
    /// Takes all that the count has: how much that was.
    Drain,
    /// Forgets that the visitor, which is the request, owns what it took: 1, or 0 if it owned nothing.
    Forget,
    /// Takes the count away: 1, or 0 if there is none.
    Delete,
    /// Makes so many permits of those that are free and those that were taken: 1.
    Replace(u32),
    /// Tells how many permits with ids were taken.
    Taken,
    /// Tells how many wait for a lock in its queue on the server.
    Waiters,
    /// Gives a permit back: 1, or 0 if it is not taken.
    GiveBack,
    /// Tells how long a permit lasts, in ms; 0 if it is not taken.
    Lease,
    /// Has a permit last for so long: 1, or 0 if it is not taken.
    SetLease(Duration),
}

impl CountStep {
    /// The name of the operation in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CountStep::Get => "question",
            CountStep::SetIfMissing(..) => "set",
            CountStep::CountDown => "count-down",
            CountStep::Add(_) | CountStep::AddIfThere(_) => "addition",
            CountStep::Drain => "drain",
            CountStep::Forget => "hand-over",
            CountStep::Delete => "deletion",
            CountStep::Replace(_) => "replacement",
            CountStep::Taken | CountStep::Waiters | CountStep::Lease => "question",
            CountStep::GiveBack => "release",
            CountStep::SetLease(_) => "new lease",
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_question(self) -> bool {
        self.name() == "question"
    }

    /// The number that it is about; 0 if there is none.
    pub(crate) fn amount(self) -> i64 {
        match self {
            CountStep::SetIfMissing(count, _) | CountStep::Replace(count) => count.into(),
            CountStep::SetLease(lease) => i64::try_from(lease.as_millis()).unwrap_or(i64::MAX),
            CountStep::Add(by) | CountStep::AddIfThere(by) => by,
            _ => 0,
        }
    }

    /// How long the count is to last; zero for ever.
    pub(crate) fn life(self) -> Duration {
        match self {
            CountStep::SetIfMissing(_, Some(life)) => life,
            _ => Duration::ZERO,
        }
    }
}
