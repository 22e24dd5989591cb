//! The metrics of the feature `metrics`. Without the feature, these functions do nothing.
//!
//! `docs/observability.md` has the names and labels. A recorder is user code, so its panics are contained.

use crate::ground::observer::Event;

/// Records a number, unless the recorder panics.
#[cfg(feature = "metrics")]
fn contain(record: impl FnOnce()) {
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(
        record,
    )));
}

/// Defines a function for each metric that is not recorded from an event.
macro_rules! numbers {
    ($($(#[$meta:meta])* $name:ident($($arg:ident: $type:ty),*) $record:expr;)*) => {$(
        $(#[$meta])*
        pub(crate) fn $name($($arg: $type),*) {
            #[cfg(feature = "metrics")]
            contain(|| $record);
            #[cfg(not(feature = "metrics"))]
            let _ = ($($arg,)*);
        }
    )*};
}

numbers! {
    /// Adds to the number of holds of a class.
    holds(class: &str, more: f64)
        metrics::gauge!("redlatch_holds", "class" => class.to_owned()).increment(more);
    /// Adds to the number of threads that wait for locks of a class.
    waiters(class: &str, more: f64)
        metrics::gauge!("redlatch_waiters", "class" => class.to_owned()).increment(more);
    /// Adds to the number of open connections.
    connections(more: f64)
        metrics::gauge!("redlatch_connections").increment(more);
    /// Counts the result of a request for one hold.
    request(operation: &'static str, result: &'static str)
        metrics::counter!("redlatch_requests_total", "operation" => operation, "result" => result).increment(1);
    /// Counts an unlock message, by whether it woke a waiter.
    message(used: &'static str)
        metrics::counter!("redlatch_messages_total", "use" => used).increment(1);
    /// Counts a failed subscriber connection.
    subscriber_failed()
        metrics::counter!("redlatch_subscriber_failures_total").increment(1);
    /// Counts a change of the master.
    master_changed()
        metrics::counter!("redlatch_master_changes_total").increment(1);
}

/// Records an event. The caller contains panics.
#[cfg(feature = "metrics")]
pub(crate) fn record(event: &Event<'_>) {
    use metrics::{counter, histogram};
    let waited_for = |class: &str, outcome: &'static str, waited| {
        histogram!("redlatch_wait_seconds", "class" => class.to_owned(), "outcome" => outcome)
            .record(waited);
    };
    match *event {
        Event::Acquired {
            class, waited, via, ..
        } => {
            waited_for(class, "acquired", waited);
            counter!("redlatch_acquisitions_total", "class" => class.to_owned(), "via" => via)
                .increment(1);
        }
        Event::NotAcquired {
            class,
            waited,
            outcome,
            ..
        } => waited_for(class, outcome, waited),
        Event::Contended { class, .. } => {
            counter!("redlatch_contended_total", "class" => class.to_owned()).increment(1);
        }
        Event::Ended {
            class, held, end, ..
        } => {
            histogram!("redlatch_hold_seconds", "class" => class.to_owned(), "end" => end)
                .record(held);
        }
        Event::Lost { class, loss } => {
            let labels = [
                ("class", class.to_owned()),
                ("cause", loss.cause.kind().to_owned()),
            ];
            counter!("redlatch_losses_total", &labels).increment(1);
        }
        Event::Request {
            operation, took, ..
        } => histogram!("redlatch_request_seconds", "operation" => operation).record(took),
        Event::Connected { result, .. } => {
            counter!("redlatch_connects_total", "result" => result).increment(1);
        }
        Event::LongWait { class, .. } => {
            counter!("redlatch_long_waits_total", "class" => class.to_owned()).increment(1);
        }
        Event::LongHold { class, .. } => {
            counter!("redlatch_long_holds_total", "class" => class.to_owned()).increment(1);
        }
    }
}

#[cfg(not(feature = "metrics"))]
pub(crate) fn record(_: &Event<'_>) {}
