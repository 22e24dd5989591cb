//! Operations on a shared number: the count of a latch, the free permits of a semaphore.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{LockId, VisitorId};
use crate::ground::error::Error;

#[derive(Clone, Debug)]
pub(crate) struct CountOp<'a> {
    pub(crate) counter: &'a LockId,
    /// The unique id of the request: the store executes it once.
    pub(crate) request: VisitorId,
    /// The permit that the operation concerns, if it concerns one.
    pub(crate) permit: Option<&'a VisitorId>,
    pub(crate) step: CountStep,
}

impl CountOp<'_> {
    pub(crate) fn out_of_range(&self) -> Error {
        Error::InvalidPermits {
            name: Arc::clone(&self.counter.name),
            permits: self.step.amount(),
        }
    }
}

/// The step of an operation, and the number that the store returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountStep {
    /// Returns the count; 0 if there is none.
    Get,
    /// Sets the count if there is none, with this TTL if one is given. Returns 1, or 0 if there is a count.
    SetIfMissing(u32, Option<Duration>),
    /// Subtracts 1, and deletes the count at 0. Returns the new count.
    CountDown,
    /// Adds a number to the count, or to 0 if there is none. Returns the sum.
    Add(i64),
    /// Adds a number if there is a count. Returns 1, or 0 if there is none.
    AddIfThere(i64),
    /// Sets the count to 0. Returns the former count.
    Drain,
    /// Removes the owner record of the visitor whose id is `CountOp::request`. Returns 1, or 0 if it owned nothing.
    Forget,
    /// Deletes the count. Returns 1, or 0 if there is none.
    Delete,
    /// Sets the sum of free and acquired permits. Returns 1.
    Replace(u32),
    /// Returns the number of acquired permits with ids.
    Taken,
    /// Returns the number of waiters in the lock's queue on the server.
    Waiters,
    /// Releases a permit. Returns 1, or 0 if it is not acquired.
    GiveBack,
    /// Returns the remaining life of a permit in ms; 0 if it is not acquired.
    Lease,
    /// Sets the lease of a permit. Returns 1, or 0 if it is not acquired.
    SetLease(Duration),
}

impl CountStep {
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

    pub(crate) fn is_question(self) -> bool {
        self.name() == "question"
    }

    pub(crate) fn amount(self) -> i64 {
        match self {
            CountStep::SetIfMissing(count, _) | CountStep::Replace(count) => count.into(),
            CountStep::SetLease(lease) => i64::try_from(lease.as_millis()).unwrap_or(i64::MAX),
            CountStep::Add(by) | CountStep::AddIfThere(by) => by,
            _ => 0,
        }
    }

    /// The TTL of the count; zero for none.
    pub(crate) fn life(self) -> Duration {
        match self {
            CountStep::SetIfMissing(_, Some(life)) => life,
            _ => Duration::ZERO,
        }
    }
}
