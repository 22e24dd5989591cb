//! The metrics of the feature `metrics`. Without the feature, these functions do nothing.
//!
//! `docs/observability.md` lists the names and labels. A recorder is user code, so its panics are caught.

use crate::ground::observer::Event;

#[cfg(feature = "metrics")]
fn contain(record: impl FnOnce()) {
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(
        record,
    )));
}

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
    holds(class: &str, more: f64)
        metrics::gauge!("redlatch_holds", "class" => class.to_owned()).increment(more);
    waiters(class: &str, more: f64)
        metrics::gauge!("redlatch_waiters", "class" => class.to_owned()).increment(more);
    connections(more: f64)
        metrics::gauge!("redlatch_connections").increment(more);
    /// A renewal of n holds counts as n requests.
    request(operation: &'static str, result: &'static str)
        metrics::counter!("redlatch_requests_total", "operation" => operation, "result" => result).increment(1);
    message(used: &'static str)
        metrics::counter!("redlatch_messages_total", "use" => used).increment(1);
    subscriber_failed()
        metrics::counter!("redlatch_subscriber_failures_total").increment(1);
    master_changed()
        metrics::counter!("redlatch_master_changes_total").increment(1);
}

/// The caller catches panics of the recorder.
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
