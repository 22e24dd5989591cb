//! The metrics that a recorder of the crate `metrics` gets, as a Prometheus exporter shows them.
#![allow(clippy::unwrap_used, reason = "what cannot go on fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redlatch::{Client, Guard};

/// The series on a page by name, with the labels of each sample, without the suffixes of histograms.
fn series(page: &str) -> BTreeMap<String, Vec<String>> {
    let mut series = BTreeMap::<String, Vec<String>>::new();
    for line in page
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let (name, sample) = line.split_at(line.find(['{', ' ']).unwrap());
        let endings = ["_count", "_sum", "_bucket"];
        let stem = endings.iter().find_map(|end| name.strip_suffix(end));
        series
            .entry(stem.unwrap_or(name).to_owned())
            .or_default()
            .push(sample.to_owned());
    }
    series
}

/// The names of series that a text has.
fn named_in(text: &str) -> BTreeSet<String> {
    let is_part = |sign: char| sign.is_ascii_lowercase() || sign == '_';
    let words = text.split(|sign| !is_part(sign));
    let words = words.filter(|word| word.starts_with("redlatch_"));
    words
        .map(|word| {
            word.strip_suffix("_bucket")
                .or(word.strip_suffix("_count"))
                .unwrap_or(word)
                .to_owned()
        })
        .collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Causes every event that has a metric, except those that need a real server.
fn work(client: &Client, other: &Client) -> Guard {
    let lock = client.lock("customer-4711:1");
    let guard = lock.guard().unwrap();
    let theirs = other.lock("customer-4711:1");
    assert!(!theirs.try_lock_for(Duration::from_millis(1500)).unwrap());
    thread::sleep(Duration::from_millis(1100));
    guard.unlock().unwrap();
    lock.lock().unwrap();
    assert!(theirs.force_unlock().unwrap());
    assert!(lock.unlock().unwrap_err().is_lost());
    lock.guard().unwrap()
}

fn eventually(handle: &PrometheusHandle, sample: &str) {
    let end = Instant::now() + Duration::from_secs(30);
    while !handle.render().contains(sample) {
        assert!(
            Instant::now() < end,
            "{sample} is not in\n{}",
            handle.render()
        );
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_exporter_shows_what_the_page_names_and_no_name_of_a_lock() {
    let handle = PrometheusBuilder::new()
        .set_buckets(&[0.01, 1.0, 60.0])
        .unwrap()
        .install_recorder()
        .unwrap();
    let client = Client::builder()
        .lock_class(|name| name.rsplit_once('-').map_or(name, |(class, _)| class))
        .watchdog_timeout(Duration::from_secs(3))
        .warn_after(Duration::from_millis(1), Duration::from_millis(1))
        .in_memory()
        .unwrap();
    let other = client.another().unwrap();
    let held = work(&client, &other);
    for sample in [
        "redlatch_holds{class=\"customer\"} 1\n",
        "redlatch_waiters{class=\"customer\"} 0\n",
        "redlatch_acquisitions_total{class=\"customer\",via=\"free\"} ",
        "redlatch_contended_total{class=\"customer\"} ",
        "redlatch_losses_total{class=\"customer\",cause=\"gone\"} 1\n",
        "redlatch_wait_seconds_count{class=\"customer\",outcome=\"refused\"} 1\n",
        "redlatch_requests_total{operation=\"renew\",result=\"ok\"} ",
        "redlatch_connects_total{result=\"ok\"} ",
        "redlatch_messages_total{use=\"",
    ] {
        eventually(&handle, sample);
    }
    let page = handle.render();
    let visitor = held.visitor().to_string();
    for secret in ["4711", client.id(), &visitor] {
        assert!(!page.contains(secret), "{secret} is on the page");
    }
    held.unlock().unwrap();
    eventually(&handle, "redlatch_holds{class=\"customer\"} 0\n");

    let documented = named_in(&read("docs/observability.md"));
    let shown: BTreeSet<String> = series(&page).into_keys().collect();
    assert!(shown.is_subset(&documented), "{shown:?}");
    // These need a server that closes connections, or a failover.
    let rare = [
        "redlatch_master_changes_total",
        "redlatch_subscriber_failures_total",
    ];
    let missing: Vec<_> = documented.difference(&shown).collect();
    assert_eq!(missing, rare);
    for path in [
        "docs/observability/board.json",
        "docs/observability/alerts.yml",
    ] {
        let named = named_in(&read(path));
        assert!(named.is_subset(&documented), "{path}: {named:?}");
    }
}

#[test]
fn the_board_is_json_and_each_alert_is_explained() {
    serde_json::from_str::<serde_json::Value>(&read("docs/observability/board.json")).unwrap();
    let (page, alerts) = (
        read("docs/observability.md"),
        read("docs/observability/alerts.yml"),
    );
    let names = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in names {
        assert!(page.contains(&format!("| `{alert}` |")), "{alert}");
    }
}
