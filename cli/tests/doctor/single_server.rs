//! Findings about one server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::{LONG, answer, bad, doctor, expect, expect_one, healthy, report};
use crate::support::topology_fixtures::Certificates;
use crate::support::{ClockShim, Fault, Proxy, RedisServer, eventually, free_port, ms};
use crate::{ends_with, redlatch, stderr, stdout};

const CANARY: &str = "canary-4f1c";

#[test]
fn a_well_configured_server_has_no_finding() {
    let server = healthy();
    let url = server.url();
    expect(&url, &[], &[]);
    let mut message = Value::Null;
    eventually(LONG, "no finding", || {
        let output = doctor(&url, &["--strict"]).output().unwrap();
        message = report(&output);
        output.status.code() == Some(0)
    });
    for code in [
        "version",
        "role",
        "rights",
        "eviction",
        "persistence",
        "replicas",
        "latency",
        "clock-rate",
        "pubsub",
        "dry-run",
    ] {
        let findings = message["findings"].as_array().unwrap();
        assert!(
            findings.iter().any(|it| it["code"] == code),
            "{code}: {message}"
        );
    }
    for promise in message["promises"].as_array().unwrap() {
        assert_eq!(promise["answer"], "yes", "{message}");
    }
    assert_eq!(server.int(&["DBSIZE"]), 0);
    let output = redlatch()
        .args(["doctor", "--read-only", "--url", &url])
        .output()
        .unwrap();
    ends_with(&output, 0);
    assert!(
        stdout(&output).contains("exclusion over a restart"),
        "{}",
        stdout(&output)
    );
    assert!(
        stderr(&output).contains("--read-only"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn dangerous_settings_are_reported_until_fixed() {
    let server = healthy();
    let url = server.url();
    let printed: Vec<String> = redis::cmd("CONFIG")
        .arg("GET")
        .arg("dir")
        .query(&mut server.admin())
        .unwrap();
    let folder = printed[1].clone();
    let read_only = |expected: &[&str]| expect(&url, &["--read-only"], expected);
    let set = |name: &str, value: &str| drop(server.cmd(&["CONFIG", "SET", name, value]));
    read_only(&[]);
    for (name, value, before, found) in [
        ("appendfsync", "everysec", "always", "persistence note"),
        ("appendfsync", "no", "always", "persistence note"),
        ("appendonly", "no", "yes", "persistence note"),
        ("min-replicas-to-write", "1", "0", "replicas danger"),
    ] {
        set(name, value);
        read_only(&[found]);
        set(name, before);
        read_only(&[]);
    }

    set("maxmemory", "100mb");
    read_only(&[]);
    set("maxmemory-policy", "allkeys-lru");
    read_only(&["eviction danger"]);
    let output = doctor(&url, &["--read-only"]).output().unwrap();
    ends_with(&output, 1);
    let message = report(&output);
    assert_eq!(answer(&message, "exclusion while the server runs"), "no");
    set("maxmemory-policy", "noeviction");
    read_only(&[]);
    set("maxmemory", "1");
    read_only(&["eviction danger"]);
    expect_one(&url, &[], "dry-run danger");
    set("maxmemory", "0");
    read_only(&[]);

    set("dir", "/proc");
    server.cmd(&["BGSAVE"]);
    // No other snapshot is configured, so the server accepts writes.
    read_only(&[]);
    set("save", "3600 1000");
    read_only(&["persistence danger"]);
    set("save", "");
    set("dir", &folder);
    server.cmd(&["BGSAVE"]);
    read_only(&[]);
}

#[test]
fn a_note_exits_with_1_only_if_strict() {
    let server = RedisServer::start();
    for (args, code) in [(&["--read-only"][..], 0), (&["--read-only", "--strict"], 1)] {
        let output = doctor(&server.url(), args).output().unwrap();
        ends_with(&output, code);
        assert_eq!(bad(&report(&output)), ["persistence note"]);
    }
}

#[test]
fn missing_rights_are_named_without_secrets() {
    let server = healthy();
    let secret = format!(">{CANARY}");
    let set = |rule: &[&str]| {
        let user = [
            "ACL",
            "SETUSER",
            "app",
            "on",
            &secret,
            "resetkeys",
            "~orders:*",
            "&*",
        ];
        drop(server.cmd(&[&user, rule].concat()));
    };
    let run = |password: &str| {
        let mut command = doctor(&server.url(), &["--user", "app", "--prefix", "orders:"]);
        let output = command.env("REDLATCH_PASSWORD", password).output().unwrap();
        let all = stdout(&output) + &stderr(&output);
        assert!(!all.contains("canary"), "{all}");
        output
    };
    let eventually_expect = |expected: &[&str]| {
        eventually(LONG, &format!("{expected:?}"), || {
            bad(&report(&run(CANARY))) == expected
        });
    };
    set(&["+@all"]);
    eventually_expect(&[]);
    set(&["-hset"]);
    eventually_expect(&["rights danger"]);
    let named = stdout(&run(CANARY));
    assert!(named.contains("+hset"), "{named}");
    set(&["+hset", "-subscribe"]);
    eventually_expect(&["pubsub danger", "rights note"]);
    set(&["+subscribe", "-info", "-config"]);
    eventually_expect(&["rights note"]);
    set(&["+info", "+config"]);
    eventually_expect(&[]);
    let wrong = run("canary-wrong");
    ends_with(&wrong, 4);
    assert_eq!(bad(&report(&wrong)), ["rights danger"]);
    // Without the prefix, the user has no right to the doctor's lock names.
    let output = doctor(&server.url(), &["--user", "app"])
        .env("REDLATCH_PASSWORD", CANARY)
        .output()
        .unwrap();
    ends_with(&output, 1);
    assert!(stdout(&output).contains("--prefix"), "{}", stdout(&output));
}

/// Returns the report for a user who lacks one right.
fn without(server: &RedisServer, right: &str) -> Value {
    let secret = format!(">{CANARY}");
    let denied = format!("-{right}");
    let user = ["ACL", "SETUSER", "app", "reset", "on", &secret];
    server.cmd(&[&user[..], &["~*", "&*", "+@all", &denied]].concat());
    let mut command = doctor(&server.url(), &["--user", "app"]);
    let command = command.env("REDLATCH_PASSWORD", CANARY);
    report(&command.output().unwrap())
}

/// Returns the severity and text of each finding with this code.
fn findings<'a>(message: &'a Value, code: &str) -> Vec<(&'a str, &'a str)> {
    let all = message["findings"].as_array().unwrap().iter();
    let word = |it: &'a Value, field: &str| it[field].as_str().unwrap();
    all.filter(|it| it["code"] == code)
        .map(|it| (word(it, "severity"), word(it, "seen")))
        .collect()
}

#[test]
fn a_missing_right_is_a_note_if_locks_can_be_acquired() {
    let server = healthy();
    for (right, effect) in [
        ("subscribe", "once a second"),
        ("publish", "once a second"),
        ("unsubscribe", "accumulate"),
        ("hkeys", "an attempt to acquire a held lock"),
        ("hlen", "slow"),
    ] {
        let message = without(&server, right);
        assert_eq!(
            answer(&message, "a lock can be acquired now"),
            "yes",
            "{message}"
        );
        let rights = findings(&message, "rights");
        assert!(rights.iter().all(|it| it.0 == "note"), "{rights:?}");
        let named = format!("+{right}");
        let is_explained = |seen: &str| seen.contains(&*named) && seen.contains(effect);
        assert!(rights.iter().any(|it| is_explained(it.1)), "{rights:?}");
    }
}

#[test]
fn a_successful_dry_run_means_locks_can_be_acquired() {
    let server = healthy();
    // After this run, the server knows the scripts, so the next run needs no EVAL.
    without(&server, "hlen");
    let message = without(&server, "eval");
    assert_eq!(findings(&message, "dry-run")[0].0, "ok", "{message}");
    assert_eq!(findings(&message, "rights")[0].0, "danger", "{message}");
    assert_eq!(
        answer(&message, "a lock can be acquired now"),
        "yes",
        "{message}"
    );
    // Without this right, a hold is lost at the first renewal.
    let message = without(&server, "hexists");
    assert_eq!(findings(&message, "rights")[0].0, "danger", "{message}");
    assert_eq!(
        answer(&message, "a lock can be acquired now"),
        "yes",
        "{message}"
    );
    let message = without(&server, "hset");
    assert_eq!(
        answer(&message, "a lock can be acquired now"),
        "no",
        "{message}"
    );
}

#[test]
fn a_server_without_eval_has_no_scripting() {
    let renamed = "--appendonly yes --appendfsync always --rename-command EVAL";
    let args: Vec<_> = renamed.split(' ').chain([""]).collect();
    let server = RedisServer::with(&args);
    for args in [&[][..], &["--read-only"]] {
        let output = doctor(&server.url(), args).output().unwrap();
        ends_with(&output, 1);
        let message = report(&output);
        assert_eq!(bad(&message), ["state danger"], "{message}");
        assert!(
            message.to_string().contains("scripting is off"),
            "{message}"
        );
        assert!(!message.to_string().contains("+eval"), "{message}");
        assert_eq!(
            answer(&message, "a lock can be acquired now"),
            "no",
            "{message}"
        );
    }
}

#[test]
fn an_unresponsive_server_exits_with_3_and_advice() {
    let server = healthy();
    let gone = format!("redis://127.0.0.1:{}", free_port());
    server.freeze();
    for url in [&gone, &server.url()] {
        for json in [true, false] {
            let mut command = redlatch();
            command.args(["doctor", "--url", url, "--command-timeout", "1s"]);
            command.args(json.then_some("--json"));
            let output = command.output().unwrap();
            ends_with(&output, 3);
            let message = stdout(&output);
            if json {
                assert_eq!(bad(&report(&output)), ["reachable danger"]);
            } else {
                assert_eq!(message.lines().count(), 2, "{message}");
                assert!(message.contains("-> start the server"), "{message}");
            }
        }
    }
    server.thaw();
    expect(&server.url(), &["--read-only"], &[]);
}

#[test]
fn slow_round_trips_and_clock_drift_are_reported() {
    let server = healthy();
    let proxy = Proxy::to(server.addr());
    let url = proxy.url();
    let slow = proxy.next(usize::MAX, None, Fault::DelayRequest(ms(150)));
    expect(&url, &["--read-only", "--lease", "1s"], &["latency danger"]);
    slow.lift();
    expect(&url, &["--read-only"], &[]);

    let shim = ClockShim::build();
    let server = RedisServer::options()
        .args(&["--appendonly", "yes", "--appendfsync", "always"])
        .preload(
            shim.library(),
            &[(crate::support::clock::OFFSET_VARIABLE, shim.offset_path())],
        )
        .start();
    expect(&server.url(), &[], &[]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                // This clock is 10 % too fast.
                shim.set(i64::try_from(start.elapsed().as_millis() / 10).unwrap());
                thread::sleep(ms(2));
            }
        });
        expect_one(&server.url(), &[], "clock-rate danger");
        is_over.store(true, Ordering::Relaxed);
    });
    expect(&server.url(), &[], &[]);
}

#[test]
fn a_certificate_that_expires_soon_is_reported() {
    let certificates = Certificates::new();
    let authority = certificates.authority();
    for (days, expected) in [(13, &["certificate note"][..]), (30, &[])] {
        let (args, port) = certificates.server_args(&certificates.lasting(days), false);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let durable = ["--appendonly", "yes", "--appendfsync", "always"];
        let _server = RedisServer::with(&[&args[..], &durable].concat());
        let url = format!("rediss://127.0.0.1:{port}");
        expect(&url, &["--ca", authority.to_str().unwrap()], expected);
    }
}
