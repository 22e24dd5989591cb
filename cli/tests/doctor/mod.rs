//! `doctor`: each look has a setting that brings a finding about, and one that heals it.

mod services;
mod several_servers;
mod single_server;

use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{RedisServer, ms};
use crate::{redlatch, stderr, stdout};

/// A busy machine may need this long.
const LONG: Duration = Duration::from_secs(120);

/// A server without any finding.
fn quiet() -> RedisServer {
    let args = "--appendonly yes --appendfsync always";
    let args: Vec<_> = args.split(' ').collect();
    RedisServer::with(&args)
}

fn doctor(url: &str, args: &[&str]) -> Command {
    let mut command = redlatch();
    command.args(["doctor", "--json"]).args(args);
    if !url.is_empty() {
        command.env("REDLATCH_URL", url);
    }
    command
}

/// The object that was printed.
fn report(output: &Output) -> Value {
    let text = stdout(output);
    let object = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text:?} {}", stderr(output)));
    crate::schema::assert_matches("doctor", &object);
    for it in object["findings"].as_array().unwrap() {
        // Each line that is not well says what to do.
        assert_eq!(it["severity"] != "ok", it["advice"].is_string(), "{it}");
        assert!(!it["node"].as_str().unwrap().is_empty(), "{it}");
    }
    object
}

/// The findings that are not well, as `code severity`.
fn bad(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let bad = findings.filter(|it| it["severity"] != "ok");
    let mut bad: Vec<_> = bad
        .map(|it| {
            format!(
                "{} {}",
                it["code"].as_str().unwrap(),
                it["severity"].as_str().unwrap()
            )
        })
        .collect();
    bad.sort_unstable();
    bad.dedup();
    bad
}

/// Whether a promise holds.
fn answer<'a>(report: &'a Value, promise: &str) -> &'a str {
    let mut promises = report["promises"].as_array().unwrap().iter();
    let found = promises.find(|it| it["promise"] == promise);
    found.unwrap_or_else(|| panic!("{report}"))["answer"]
        .as_str()
        .unwrap()
}

fn check(url: &str, args: &[&str]) -> Vec<String> {
    bad(&report(&doctor(url, args).output().unwrap()))
}

/// Waits until the doctor finds exactly this: servers take their time, and a busy machine hides things.
#[track_caller]
fn finds(url: &str, args: &[&str], expected: &[&str]) {
    let mut found = Vec::new();
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        found = check(url, args);
        if found == expected {
            return;
        }
        thread::sleep(ms(50));
    }
    panic!("{found:?} in place of {expected:?}");
}

#[track_caller]
fn finds_one(url: &str, args: &[&str], wanted: &str) {
    let mut found = Vec::new();
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        found = check(url, args);
        if found.iter().any(|it| it == wanted) {
            return;
        }
        thread::sleep(ms(50));
    }
    panic!("{found:?} without {wanted}");
}
