//! The numbers of a client as OpenMetrics text.
//!
//! The format is that of the [OpenMetrics](https://prometheus.io/docs/specs/om/open_metrics_spec/) specification, version 1.0:
//! a family begins with its type, unit and help, all its samples follow, and the text ends with `# EOF`.

use std::fmt::Write;
use std::time::Duration;

use crate::ground::histogram::Durations;
use crate::stats::{Acquisitions, ClassStats, ConnectionStats, RequestStats, Stats};

/// The text of a page that is being written.
struct Page(String);

pub(super) fn text(stats: &Stats) -> String {
    let mut page = Page(String::with_capacity(8192));
    waits_and_holds(&mut page, &stats.classes);
    requests(&mut page, &stats.requests);
    page.counter("redlatch_renewals", "Renewals of holds by the watchdog.");
    for (result, count) in [
        ("renewed", stats.renewals.renewed),
        ("lost", stats.renewals.lost),
        ("unknown", stats.renewals.unknown),
    ] {
        page.count("redlatch_renewals", &[("result", result)], count);
    }
    page.seconds(
        "redlatch_oldest_wait_seconds",
        "How long the thread has waited that waits longest.",
        stats.oldest_wait,
    );
    page.seconds(
        "redlatch_oldest_hold_seconds",
        "How long the oldest hold has lasted.",
        stats.oldest_hold,
    );
    page.gauge(
        "redlatch_doubts",
        "Requests without an answer that are still being cleared up.",
    );
    page.sample("redlatch_doubts", &[], stats.doubts);
    connections(&mut page, &stats.connections);
    page.0.push_str("# EOF\n");
    page.0
}

fn waits_and_holds(page: &mut Page, classes: &[ClassStats]) {
    page.histogram(
        "redlatch_wait_seconds",
        "How long calls took that asked for a lock.",
    );
    for it in classes {
        for (outcome, durations) in [
            ("acquired", &it.acquired),
            ("refused", &it.refused),
            ("interrupted", &it.interrupted),
            ("failed", &it.failed),
        ] {
            let labels = [("class", &*it.class), ("outcome", outcome)];
            page.durations("redlatch_wait_seconds", &labels, durations);
        }
    }
    page.histogram("redlatch_hold_seconds", "How long holds lasted.");
    for it in classes {
        for (end, durations) in [("unlocked", &it.unlocked), ("lost", &it.lost)] {
            let labels = [("class", &*it.class), ("end", end)];
            page.durations("redlatch_hold_seconds", &labels, durations);
        }
    }
    page.counter("redlatch_acquisitions", "Locks that threads got.");
    for it in classes {
        let Acquisitions {
            free,
            woken,
            polled,
            handed,
            reentered,
        } = it.acquisitions;
        for (via, count) in [
            ("free", free),
            ("woken", woken),
            ("polled", polled),
            ("handed", handed),
            ("reentered", reentered),
        ] {
            let labels = [("class", &*it.class), ("via", via)];
            page.count("redlatch_acquisitions", &labels, count);
        }
    }
    page.counter(
        "redlatch_contended",
        "Calls that found somebody else there first.",
    );
    for it in classes {
        page.count("redlatch_contended", &[("class", &it.class)], it.contended);
    }
    page.counter("redlatch_losses", "Losses of holds.");
    for it in classes {
        for (cause, count) in &it.losses {
            let labels = [("class", &*it.class), ("cause", cause)];
            page.count("redlatch_losses", &labels, *count);
        }
    }
    page.counter(
        "redlatch_long_waits",
        "Waits that were told to last for long.",
    );
    for it in classes {
        page.count(
            "redlatch_long_waits",
            &[("class", &it.class)],
            it.long_waits,
        );
    }
    page.counter(
        "redlatch_long_holds",
        "Holds that were told to last for long.",
    );
    for it in classes {
        page.count(
            "redlatch_long_holds",
            &[("class", &it.class)],
            it.long_holds,
        );
    }
    page.gauge("redlatch_holds", "Holds that there are.");
    for it in classes {
        page.sample("redlatch_holds", &[("class", &it.class)], it.holds);
    }
    page.gauge("redlatch_waiters", "Threads that wait behind others.");
    for it in classes {
        page.sample("redlatch_waiters", &[("class", &it.class)], it.waiters);
    }
}

fn requests(page: &mut Page, requests: &[RequestStats]) {
    page.counter("redlatch_requests", "Requests by their result.");
    for it in requests {
        for (result, count) in &it.results {
            let labels = [("operation", it.operation), ("result", result)];
            page.count("redlatch_requests", &labels, *count);
        }
    }
    page.histogram("redlatch_request_seconds", "How long requests took.");
    for it in requests {
        let labels = [("operation", it.operation)];
        page.durations("redlatch_request_seconds", &labels, &it.took);
    }
}

fn connections(page: &mut Page, it: &ConnectionStats) {
    page.gauge("redlatch_connections", "Connections that there are.");
    for (state, count) in [("idle", it.idle), ("busy", it.busy)] {
        page.sample("redlatch_connections", &[("state", state)], count);
    }
    page.counter("redlatch_connects", "Attempts to connect by their result.");
    for (result, count) in &it.connects {
        page.count("redlatch_connects", &[("result", result)], *count);
    }
    page.counter("redlatch_messages", "Unlock messages that arrived.");
    for (used, count) in [("woke", it.messages_woke), ("nobody", it.messages_nobody)] {
        page.count("redlatch_messages", &[("use", used)], count);
    }
    page.gauge(
        "redlatch_subscriber_up",
        "Whether messages arrive for those who wait for them.",
    );
    let up = u64::from(!it.is_subscriber_down);
    page.sample("redlatch_subscriber_up", &[], up);
    page.counter(
        "redlatch_master_changes",
        "Servers found in the place of a master before.",
    );
    page.count("redlatch_master_changes", &[], it.master_changes);
}

impl Page {
    /// Begins a family. Its unit is seconds if its name says so.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# TYPE {name} {kind}"));
        if name.ends_with("_seconds") {
            self.line(format_args!("# UNIT {name} seconds"));
        }
        self.line(format_args!("# HELP {name} {help}"));
    }

    fn counter(&mut self, name: &str, help: &str) {
        self.family(name, "counter", help);
    }

    fn gauge(&mut self, name: &str, help: &str) {
        self.family(name, "gauge", help);
    }

    fn histogram(&mut self, name: &str, help: &str) {
        self.family(name, "histogram", help);
    }

    /// A gauge of one sample, 0 where there is nothing to measure.
    fn seconds(&mut self, name: &str, help: &str, span: Option<Duration>) {
        self.gauge(name, help);
        let seconds = span.unwrap_or_default().as_secs_f64();
        self.line(format_args!("{name} {seconds}"));
    }

    fn count(&mut self, name: &str, labels: &[(&str, &str)], count: u64) {
        let name = format!("{name}_total");
        self.sample(&name, labels, count);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let labels = written(labels, None);
        self.line(format_args!("{name}{labels} {value}"));
    }

    fn durations(&mut self, name: &str, labels: &[(&str, &str)], durations: &Durations) {
        let mut below = 0;
        for (bound, count) in durations.buckets() {
            below += count;
            let bound = bound.map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
            let labels = written(labels, Some(&bound));
            self.line(format_args!("{name}_bucket{labels} {below}"));
        }
        let labels = written(labels, None);
        self.line(format_args!("{name}_count{labels} {below}"));
        let sum = durations.sum().as_secs_f64();
        self.line(format_args!("{name}_sum{labels} {sum}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A string takes whatever is written to it.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Labels in braces, with the bound of a bucket as the last one; nothing where there are none.
fn written(labels: &[(&str, &str)], bound: Option<&str>) -> String {
    let bound = bound.map(|bound| ("le", bound));
    let pairs = labels.iter().copied().chain(bound);
    let pairs: Vec<_> = pairs
        .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
        .collect();
    match pairs.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", pairs.join(",")),
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
