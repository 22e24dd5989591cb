//! How many operations a store was asked for, how each ended, and how long they took.

use std::time::Instant;

use crate::ground::error::{Error, Result};
use crate::ground::observer::{Event, Observed};
use crate::ground::{numbers, time};
use crate::store::{Outcome, Renewal};

/// One kind of operation of a [`Store`](crate::store::Store).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire,
    Release,
    HandOff,
    Write,
    Renew,
    Clear,
    ForceUnlock,
    Ask,
    Count,
    Condition,
    Check,
}

/// The way an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    Done,
    Refused,
    Gone,
    Unknown,
    Unreachable,
    Unavailable,
    Denied,
    Failed,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Acquire => "acquire",
            Operation::Release => "release",
            Operation::HandOff => "hand_off",
            Operation::Write => "write",
            Operation::Renew => "renew",
            Operation::Clear => "clear",
            Operation::ForceUnlock => "force_unlock",
            Operation::Ask => "ask",
            Operation::Count => "count",
            Operation::Condition => "condition",
            Operation::Check => "check",
        }
    }
}

impl RequestEnd {
    pub(crate) fn name(self) -> &'static str {
        match self {
            RequestEnd::Done => "ok",
            RequestEnd::Refused => "refused",
            RequestEnd::Gone => "gone",
            RequestEnd::Unknown => "unknown",
            RequestEnd::Unreachable => "unreachable",
            RequestEnd::Unavailable => "unavailable",
            RequestEnd::Denied => "denied",
            RequestEnd::Failed => "failed",
        }
    }

    fn of_error(error: &Error) -> RequestEnd {
        match error {
            Error::Unknown { .. } => RequestEnd::Unknown,
            Error::Unreachable { .. } | Error::Exhausted { .. } | Error::NoQuorum { .. } => {
                RequestEnd::Unreachable
            }
            Error::Unavailable { .. } | Error::NotReplicated { .. } => RequestEnd::Unavailable,
            Error::Permission { .. } | Error::Untrusted { .. } => RequestEnd::Denied,
            _ => RequestEnd::Failed,
        }
    }
}

/// An answer of a store, as far as it is counted.
pub(crate) trait Answer {
    fn end(&self) -> RequestEnd;
}

impl<D, R> Answer for Outcome<D, R> {
    fn end(&self) -> RequestEnd {
        match self {
            Outcome::Done(_) => RequestEnd::Done,
            Outcome::Refused(_) => RequestEnd::Refused,
            Outcome::Gone(_) => RequestEnd::Gone,
            Outcome::Unknown { .. } => RequestEnd::Unknown,
        }
    }
}

impl<T: Answer> Answer for Result<T> {
    fn end(&self) -> RequestEnd {
        match self {
            Ok(answer) => answer.end(),
            Err(error) => RequestEnd::of_error(error),
        }
    }
}

/// An answer that says nothing but that it was done.
pub(crate) struct Plain<'a, T>(pub(crate) &'a Result<T>);

impl<T> Answer for Plain<'_, T> {
    fn end(&self) -> RequestEnd {
        match self.0 {
            Ok(_) => RequestEnd::Done,
            Err(error) => RequestEnd::of_error(error),
        }
    }
}

impl Answer for Renewal {
    fn end(&self) -> RequestEnd {
        match self {
            Renewal::Renewed | Renewal::RenewedFor(_) => RequestEnd::Done,
            Renewal::Lost(_) => RequestEnd::Gone,
            Renewal::Unknown(_) => RequestEnd::Unknown,
        }
    }
}

/// Tells how the operations of one client end.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    observer: Observed,
}

impl Requests {
    /// Requests that this observer hears of.
    pub(crate) fn told_to(observer: Observed) -> Requests {
        Requests { observer }
    }

    /// The time at which an operation begins, if anybody hears of it.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.observer.is_heard().then(time::now)
    }

    /// Tells of an operation that was begun then and has ended now.
    pub(crate) fn note(&self, operation: Operation, began: Option<Instant>, end: RequestEnd) {
        self.note_all(operation, began, [end].into_iter());
    }

    /// Tells of one that concerned several holds, each with an end of its own.
    pub(crate) fn note_all(
        &self,
        operation: Operation,
        began: Option<Instant>,
        mut ends: impl Iterator<Item = RequestEnd>,
    ) {
        let (Some(began), Some(first)) = (began, ends.next()) else {
            return;
        };
        let operation = operation.name();
        self.observer.tell(|| Event::Request {
            operation,
            result: first.name(),
            took: time::since(began),
        });
        for end in std::iter::once(first).chain(ends) {
            numbers::request(operation, end.name());
        }
    }
}
