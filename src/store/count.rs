//! Operations on a shared number: the count of a latch, the free permits of a semaphore.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::{LockId, VisitorId};
use crate::ground::error::Error;

#[derive(Clone, Debug)]
pub(crate) struct CountOp<'a> {
    pub(crate) counter: &'a LockId,
    /// The unique id of the request. The store recognizes a repeated request by this id, and does not execute it again.
    pub(crate) request: VisitorId,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountStep {
    /// Returns the count; 0 if no count exists. Permits whose leases have expired count as free.
    Get,
    /// If no count exists, sets the count and an optional TTL. Returns 1, or 0 if a count exists.
    SetIfMissing(u32, Option<Duration>),
    /// Subtracts 1, and deletes the count if the result is 0. Returns the new count.
    CountDown,
    /// Adds a number to the count, or to 0 if no count exists. Returns the sum.
    Add(i64),
    /// Adds a number to an existing count. Returns 1, or 0 if no count exists.
    AddIfThere(i64),
    /// Sets the count to 0. Returns the former count. Permits whose leases have expired count as free.
    Drain,
    /// The permits of the hold `CountOp::request` stay acquired, without a lease. Returns 1, or 0 if the hold has none.
    Forget,
    /// Deletes the count. Returns 1, or 0 if no count exists.
    Delete,
    /// Sets the sum of free and acquired permits. Returns 1.
    Replace(u32),
    /// Returns the number of acquired permits with ids.
    Taken,
    /// Returns the number of waiters in the lock's queue on the server.
    Waiters,
    /// Releases a permit. Returns 1, or 0 if nobody has acquired the permit.
    GiveBack,
    /// Returns the remaining life of a permit in ms, or 0 if nobody has acquired the permit.
    Lease,
    /// Sets the lease of a permit. Returns 1, or 0 if nobody has acquired the permit.
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

    /// The TTL of the count; zero if the count gets no TTL.
    pub(crate) fn life(self) -> Duration {
        match self {
            CountStep::SetIfMissing(_, Some(life)) => life,
            _ => Duration::ZERO,
        }
    }
}
