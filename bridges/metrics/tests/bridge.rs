//! The bridge with a recorder that a test can read.
#![allow(clippy::unwrap_used, reason = "what cannot go on fails the test")]

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use redlatch::Client;
use redlatch_metrics::{Bridge, record};

/// The families of the page, without the endings of samples, and with their labels.
fn of_the_page(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut families = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
        let endings = ["_bucket", "_count", "_sum"];
        let name = endings
            .iter()
            .find_map(|it| name.strip_suffix(it))
            .unwrap_or(name);
        let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = labels.map_or("", |(labels, _)| labels).split(',');
        let labels = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        let mut labels: Vec<String> = labels.filter(|label| label != "le").collect();
        labels.sort();
        families.insert(name.to_owned(), labels);
    }
    families
}

#[test]
fn the_recorder_gets_what_the_page_has() {
    let recorder = DebuggingRecorder::new();
    let seen = recorder.snapshotter();
    recorder.install().unwrap();

    let client = Client::builder()
        .observer(Bridge)
        .watchdog_timeout(Duration::from_secs(3))
        .warn_after(Duration::from_millis(1), Duration::from_millis(1))
        .in_memory()
        .unwrap();
    let other = client.another().unwrap();
    let lock = client.lock("orders:1");
    let guard = lock.guard().unwrap();
    assert!(
        !other
            .lock("orders:1")
            .try_lock_for(Duration::from_millis(1500))
            .unwrap()
    );
    let late = Instant::now() + Duration::from_secs(60);
    while client.stats().renewals.renewed == 0 {
        assert!(Instant::now() < late, "it is never renewed");
        thread::sleep(Duration::from_millis(10));
    }
    guard.unlock().unwrap();
    lock.lock().unwrap();
    assert!(other.lock("orders:1").force_unlock().unwrap());
    assert!(lock.unlock().unwrap_err().is_lost());

    let stats = client.stats();
    record(&stats);
    let mut families: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut values = BTreeMap::new();
    for (key, _, _, value) in seen.snapshot().into_vec() {
        let (_, key) = key.into_parts();
        let mut labels: Vec<String> = key.labels().map(|it| it.key().to_owned()).collect();
        labels.sort();
        let text: Vec<String> = key
            .labels()
            .map(|it| format!("{}={}", it.key(), it.value()))
            .collect();
        families.insert(key.name().to_owned(), labels);
        values.insert(format!("{} {}", key.name(), text.join(" ")), value);
    }
    // Names and labels are those of the page: a board shows either.
    let page = of_the_page(&stats.to_openmetrics());
    assert_eq!(families, page);

    let of = |key: &str| {
        values
            .get(key)
            .unwrap_or_else(|| panic!("{key}: {values:#?}"))
    };
    let orders = stats.class("orders").unwrap();
    let count = |key: &str| match of(key) {
        DebugValue::Counter(count) => *count,
        other => panic!("{key}: {other:?}"),
    };
    let times = |key: &str| match of(key) {
        DebugValue::Histogram(times) => times.len() as u64,
        other => panic!("{key}: {other:?}"),
    };
    // Both clients have the settings of the first, and so its observer.
    let theirs = other.stats();
    let theirs = theirs.class("orders").unwrap();
    assert_eq!(
        count("redlatch_acquisitions_total class=orders via=free"),
        orders.acquisitions.free
    );
    assert_eq!(count("redlatch_losses_total class=orders cause=gone"), 1);
    assert_eq!(
        count("redlatch_contended_total class=orders"),
        orders.contended + theirs.contended
    );
    assert_eq!(
        count("redlatch_long_waits_total class=orders"),
        theirs.long_waits
    );
    assert_eq!(
        count("redlatch_renewals_total result=renewed"),
        stats.renewals.renewed
    );
    assert_eq!(
        times("redlatch_wait_seconds class=orders outcome=acquired"),
        orders.acquired.count()
    );
    assert_eq!(
        times("redlatch_wait_seconds class=orders outcome=refused"),
        theirs.refused.count()
    );
    assert_eq!(
        times("redlatch_hold_seconds class=orders end=unlocked"),
        orders.unlocked.count()
    );
    match of("redlatch_subscriber_up ") {
        DebugValue::Gauge(up) => assert_eq!(up.into_inner(), 1.0),
        other => panic!("{other:?}"),
    }
}
