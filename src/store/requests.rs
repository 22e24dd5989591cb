//! How many operations a store was asked for, how each ended, and how long they took.

use std::time::Instant;

use crate::ground::error::{Error, Result};
use crate::ground::observer::{Event, Observed};
use crate::ground::{numbers, time};
use crate::store::{Outcome, Renewal};

/// The word for the way an operation ended that was an error.
fn end_of(error: &Error) -> &'static str {
    match error {
        Error::Unknown { .. } => "unknown",
        Error::Unreachable { .. } | Error::Exhausted { .. } | Error::NoQuorum { .. } => {
            "unreachable"
        }
        Error::Unavailable { .. } | Error::NotReplicated { .. } => "unavailable",
        Error::Permission { .. } | Error::Untrusted { .. } => "denied",
        _ => "failed",
    }
}

/// An answer of a store, as far as it is counted.
pub(crate) trait Answer {
    fn end(&self) -> &'static str;
}

impl<D, R> Answer for Outcome<D, R> {
    fn end(&self) -> &'static str {
        match self {
            Outcome::Done(_) => "ok",
            Outcome::Refused(_) => "refused",
            Outcome::Gone(_) => "gone",
            Outcome::Unknown { .. } => "unknown",
        }
    }
}

impl<T: Answer> Answer for Result<T> {
    fn end(&self) -> &'static str {
        match self {
            Ok(answer) => answer.end(),
            Err(error) => end_of(error),
        }
    }
}

/// The word for the end of an operation that is done, or an error.
pub(crate) fn plain_end<T>(answer: &Result<T>) -> &'static str {
    answer.as_ref().map_or_else(end_of, |_| "ok")
}

impl Answer for Renewal {
    fn end(&self) -> &'static str {
        match self {
            Renewal::Renewed | Renewal::RenewedFor(_) => "ok",
            Renewal::Lost(_) => "gone",
            Renewal::Unknown(_) => "unknown",
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
    pub(crate) fn note(&self, operation: &'static str, began: Option<Instant>, end: &'static str) {
        self.note_all(operation, began, [end].into_iter());
    }

    /// Tells of one that concerned several holds, each with an end of its own.
    pub(crate) fn note_all(
        &self,
        operation: &'static str,
        began: Option<Instant>,
        mut ends: impl Iterator<Item = &'static str>,
    ) {
        let (Some(began), Some(first)) = (began, ends.next()) else {
            return;
        };
        self.observer.tell(|| Event::Request {
            operation,
            result: first,
            took: time::since(began),
        });
        for end in std::iter::once(first).chain(ends) {
            numbers::request(operation, end);
        }
    }
}
