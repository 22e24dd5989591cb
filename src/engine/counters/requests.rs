//! Counts requests by operation and outcome, and reports their duration.

use crate::engine::counters::Counters;
use crate::ground::error::{Error, Result};
use crate::ground::observer::Event;
use crate::ground::{metrics, time};
use crate::store::{HealthWarning, Holding, LockInfo, Outcome, Renewal};

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

pub(crate) trait Answer {
    /// Calls `note` with the outcome as a label. `Vec<Renewal>` calls `note` once for each hold.
    fn ends(&self, note: &mut dyn FnMut(&'static str)) {
        note("ok");
    }
}

impl Answer for bool {}
impl Answer for i64 {}
impl Answer for Holding {}
impl Answer for Vec<LockInfo> {}
impl Answer for Vec<HealthWarning> {}

impl<D, R> Answer for Outcome<D, R> {
    fn ends(&self, note: &mut dyn FnMut(&'static str)) {
        note(match self {
            Outcome::Done(_) => "ok",
            Outcome::Refused(_) => "refused",
            Outcome::Gone(_) => "gone",
            Outcome::Unknown { .. } => "unknown",
        });
    }
}

impl<T: Answer> Answer for Result<T> {
    fn ends(&self, note: &mut dyn FnMut(&'static str)) {
        match self {
            Ok(answer) => answer.ends(note),
            Err(error) => note(end_of(error)),
        }
    }
}

impl Answer for Vec<Renewal> {
    fn ends(&self, note: &mut dyn FnMut(&'static str)) {
        for renewal in self {
            note(match renewal {
                Renewal::Renewed | Renewal::RenewedFor(_) => "ok",
                Renewal::Lost(_) => "gone",
                Renewal::Unknown(_) => "unknown",
            });
        }
    }
}

impl Counters {
    pub(crate) fn request<T: Answer>(&self, operation: &'static str, ask: impl FnOnce() -> T) -> T {
        let observer = &self.settings.observer;
        if !observer.is_heard() {
            return ask();
        }
        let began = time::now();
        let answer = ask();
        let took = time::since(began);
        let mut is_first = true;
        answer.ends(&mut |result| {
            if std::mem::take(&mut is_first) {
                let event = || Event::Request {
                    operation,
                    result,
                    took,
                };
                observer.tell(event);
            }
            metrics::request(operation, result);
        });
        answer
    }
}
