//! The numbers of [`redlatch`] for the crate [`metrics`], whatever recorder a program has installed.
//!
//! [`Bridge`] is an observer: what happens to locks is counted and timed as it happens. [`record`] adds what no event tells,
//! such as how many threads wait just now; a program calls it now and then, for each client. Both have the names and the labels
//! of `Stats::to_openmetrics`, so one board shows either.
//!
//! The version of this crate is that of the `metrics` that it talks to: with another one in the program, nothing would arrive.
//!
//! # Examples
//!
//! ```
//! use redlatch::Client;
//! use redlatch_metrics::{Bridge, record};
//!
//! let client = Client::builder().observer(Bridge).in_memory()?;
//! client.lock("orders:42").run(|_| ())?;
//! record(&client.stats()); // every few seconds, from a thread of the program
//! # Ok::<(), redlatch::Error>(())
//! ```

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use redlatch::{Event, Observer, Stats};

/// An observer that passes on to the recorder of the program what happens to locks.
///
/// What the locks of one class have in common is the label `class`; no label has the name of a lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bridge;

impl Observer for Bridge {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Acquired {
                class, waited, via, ..
            } => {
                waited_for(class, "acquired", *waited);
                counter!("redlatch_acquisitions_total", "class" => class.to_string(), "via" => *via).increment(1);
            }
            Event::NotAcquired {
                class,
                waited,
                outcome,
                ..
            } => waited_for(class, outcome, *waited),
            Event::Contended { class, .. } => {
                counter!("redlatch_contended_total", "class" => class.to_string()).increment(1);
            }
            Event::Ended {
                class, held, end, ..
            } => {
                histogram!("redlatch_hold_seconds", "class" => class.to_string(), "end" => *end)
                    .record(*held);
            }
            Event::Lost { class, loss, .. } => {
                let cause = loss.cause.kind();
                counter!("redlatch_losses_total", "class" => class.to_string(), "cause" => cause)
                    .increment(1);
            }
            Event::Request {
                operation, took, ..
            } => {
                histogram!("redlatch_request_seconds", "operation" => *operation).record(*took);
            }
            Event::LongWait { class, .. } => {
                counter!("redlatch_long_waits_total", "class" => class.to_string()).increment(1);
            }
            Event::LongHold { class, .. } => {
                counter!("redlatch_long_holds_total", "class" => class.to_string()).increment(1);
            }
            // `record` has it, or it came with a later version.
            _ => {}
        }
    }
}

fn waited_for(class: &str, outcome: &'static str, waited: Duration) {
    histogram!("redlatch_wait_seconds", "class" => class.to_owned(), "outcome" => outcome)
        .record(waited);
}

/// Passes on the numbers of a client that no event tells: what there is at this moment, and what is counted for several holds at
/// a time.
///
/// A program with several clients calls it for the one whose numbers it wants, as those of another one would take their place.
pub fn record(stats: &Stats) {
    for it in &stats.classes {
        gauge!("redlatch_holds", "class" => it.class.clone()).set(exact(it.holds));
        gauge!("redlatch_waiters", "class" => it.class.clone()).set(exact(it.waiters));
    }
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    gauge!("redlatch_oldest_wait_seconds").set(seconds(stats.oldest_wait));
    gauge!("redlatch_oldest_hold_seconds").set(seconds(stats.oldest_hold));
    gauge!("redlatch_doubts").set(exact(stats.doubts));
    for it in &stats.requests {
        for (result, count) in &it.results {
            let labels = [("operation", it.operation), ("result", result)];
            counter!("redlatch_requests_total", &labels).absolute(*count);
        }
    }
    for (result, count) in [
        ("renewed", stats.renewals.renewed),
        ("lost", stats.renewals.lost),
        ("unknown", stats.renewals.unknown),
    ] {
        counter!("redlatch_renewals_total", "result" => result).absolute(count);
    }
    let it = &stats.connections;
    for (state, count) in [("idle", it.idle), ("busy", it.busy)] {
        gauge!("redlatch_connections", "state" => state).set(exact(count));
    }
    for (result, count) in &it.connects {
        counter!("redlatch_connects_total", "result" => *result).absolute(*count);
    }
    for (used, count) in [("woke", it.messages_woke), ("nobody", it.messages_nobody)] {
        counter!("redlatch_messages_total", "use" => used).absolute(count);
    }
    let up = u8::from(!it.is_subscriber_down);
    gauge!("redlatch_subscriber_up").set(f64::from(up));
    counter!("redlatch_master_changes_total").absolute(it.master_changes);
}

/// A number as gauges have them: exact up to 2^53.
fn exact(count: u64) -> f64 {
    count as f64
}
