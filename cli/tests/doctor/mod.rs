//! `doctor`: each check has a setting that causes a finding, and a setting that removes the finding.

mod recognised_services;
mod several_servers;
mod single_server;

use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{RedisServer, ms};
use crate::{redlatch, stderr, stdout};

/// A time limit for a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// A server that causes no finding.
fn healthy() -> RedisServer {
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

fn report(output: &Output) -> Value {
    let text = stdout(output);
    let object = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text:?} {}", stderr(output)));
    crate::schema::assert_matches("doctor", &object);
    for it in object["findings"].as_array().unwrap() {
        assert_eq!(it["severity"] != "ok", it["advice"].is_string(), "{it}");
        assert!(!it["node"].as_str().unwrap().is_empty(), "{it}");
    }
    object
}

/// Returns the notes and dangers, as `code severity`.
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

/// Waits until the doctor reports exactly these notes and dangers, because servers and busy machines react late.
#[track_caller]
fn expect(url: &str, args: &[&str], expected: &[&str]) {
    let mut found = Vec::new();
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        found = check(url, args);
        if found == expected {
            return;
        }
        thread::sleep(ms(50));
    }
    panic!("found {found:?}, expected {expected:?}");
}

#[track_caller]
fn expect_one(url: &str, args: &[&str], wanted: &str) {
    let mut found = Vec::new();
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        found = check(url, args);
        if found.iter().any(|it| it == wanted) {
            return;
        }
        thread::sleep(ms(50));
    }
    panic!("found {found:?} without {wanted}");
}
