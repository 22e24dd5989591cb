//! One server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use super::{LONG, answer, bad, doctor, finds, finds_one, quiet, report};
use crate::support::topology_fixtures::Certificates;
use crate::support::{ClockShim, Fault, Proxy, RedisServer, eventually, free_port, ms};
use crate::{ends_with, redlatch, stderr, stdout};

const CANARY: &str = "canary-4f1c";

#[test]
fn a_server_that_is_as_it_should_be_has_no_finding() {
    let server = quiet();
    let url = server.url();
    finds(&url, &[], &[]);
    let mut said = Value::Null;
    eventually(LONG, "nothing is found", || {
        let output = doctor(&url, &["--strict"]).output().unwrap();
        said = report(&output);
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
        let findings = said["findings"].as_array().unwrap();
        assert!(
            findings.iter().any(|it| it["code"] == code),
            "{code}: {said}"
        );
    }
    for promise in said["promises"].as_array().unwrap() {
        assert_eq!(promise["answer"], "yes", "{said}");
    }
    // It leaves nothing.
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
fn settings_are_found_and_healed() {
    let server = quiet();
    let url = server.url();
    let told: Vec<String> = redis::cmd("CONFIG")
        .arg("GET")
        .arg("dir")
        .query(&mut server.admin())
        .unwrap();
    let folder = told[1].clone();
    let read_only = |expected: &[&str]| finds(&url, &["--read-only"], expected);
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
    let said = report(&output);
    assert_eq!(answer(&said, "exclusion while the server runs"), "no");
    set("maxmemory-policy", "noeviction");
    read_only(&[]);
    set("maxmemory", "1");
    read_only(&["eviction danger"]);
    // A lock cannot be had then.
    finds_one(&url, &[], "dry-run danger");
    set("maxmemory", "0");
    read_only(&[]);

    set("dir", "/proc");
    server.cmd(&["BGSAVE"]);
    // It takes writes all the same, as it is to make no other snapshot.
    read_only(&[]);
    set("save", "3600 1000");
    read_only(&["persistence danger"]);
    set("save", "");
    set("dir", &folder);
    server.cmd(&["BGSAVE"]);
    read_only(&[]);
}

#[test]
fn a_note_ends_with_1_only_if_strict() {
    let server = RedisServer::start();
    for (args, code) in [(&["--read-only"][..], 0), (&["--read-only", "--strict"], 1)] {
        let output = doctor(&server.url(), args).output().unwrap();
        ends_with(&output, code);
        assert_eq!(bad(&report(&output)), ["persistence note"]);
    }
}

#[test]
fn missing_rights_are_named_and_no_secret_is_shown() {
    let server = quiet();
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
    let eventually_finds = |expected: &[&str]| {
        eventually(LONG, &format!("{expected:?}"), || {
            bad(&report(&run(CANARY))) == expected
        });
    };
    set(&["+@all"]);
    eventually_finds(&[]);
    set(&["-hset"]);
    eventually_finds(&["rights danger"]);
    let named = stdout(&run(CANARY));
    assert!(named.contains("+hset"), "{named}");
    set(&["+hset", "-subscribe"]);
    eventually_finds(&["pubsub danger", "rights note"]);
    set(&["+subscribe", "-info", "-config"]);
    eventually_finds(&["rights note"]);
    set(&["+info", "+config"]);
    eventually_finds(&[]);
    let wrong = run("canary-wrong");
    ends_with(&wrong, 4);
    assert_eq!(bad(&report(&wrong)), ["rights danger"]);
    // Without the prefix the names of the doctor are none of this user's.
    let output = doctor(&server.url(), &["--user", "app"])
        .env("REDLATCH_PASSWORD", CANARY)
        .output()
        .unwrap();
    ends_with(&output, 1);
    assert!(stdout(&output).contains("--prefix"), "{}", stdout(&output));
}

/// A user who may do all of this but one thing, at this server.
fn without(server: &RedisServer, right: &str) -> Value {
    let secret = format!(">{CANARY}");
    let denied = format!("-{right}");
    let user = ["ACL", "SETUSER", "app", "reset", "on", &secret];
    server.cmd(&[&user[..], &["~*", "&*", "+@all", &denied]].concat());
    let mut command = doctor(&server.url(), &["--user", "app"]);
    let command = command.env("REDLATCH_PASSWORD", CANARY);
    report(&command.output().unwrap())
}

/// The findings of this code, each as severity and words.
fn findings<'a>(said: &'a Value, code: &str) -> Vec<(&'a str, &'a str)> {
    let all = said["findings"].as_array().unwrap().iter();
    let word = |it: &'a Value, field: &str| it[field].as_str().unwrap();
    all.filter(|it| it["code"] == code)
        .map(|it| (word(it, "severity"), word(it, "seen")))
        .collect()
}

#[test]
fn a_right_that_taking_a_lock_does_not_need_is_a_note() {
    let server = quiet();
    for (right, effect) in [
        ("subscribe", "once a second"),
        ("publish", "once a second"),
        ("unsubscribe", "accumulate"),
        ("hkeys", "somebody else holds"),
        ("hlen", "slow"),
    ] {
        let said = without(&server, right);
        assert_eq!(answer(&said, "a lock can be had now"), "yes", "{said}");
        let rights = findings(&said, "rights");
        assert!(rights.iter().all(|it| it.0 == "note"), "{rights:?}");
        let named = format!("+{right}");
        let is_told = |seen: &str| seen.contains(&*named) && seen.contains(effect);
        assert!(rights.iter().any(|it| is_told(it.1)), "{rights:?}");
    }
}

#[test]
fn a_lock_that_was_taken_can_be_had() {
    let server = quiet();
    // It knows the scripts, and would take no new one.
    without(&server, "hlen");
    let said = without(&server, "eval");
    assert_eq!(findings(&said, "dry-run")[0].0, "ok", "{said}");
    assert_eq!(findings(&said, "rights")[0].0, "danger", "{said}");
    assert_eq!(answer(&said, "a lock can be had now"), "yes", "{said}");
    // Holds are lost without it, at the first renewal.
    let said = without(&server, "hexists");
    assert_eq!(findings(&said, "rights")[0].0, "danger", "{said}");
    assert_eq!(answer(&said, "a lock can be had now"), "yes", "{said}");
    let said = without(&server, "hset");
    assert_eq!(answer(&said, "a lock can be had now"), "no", "{said}");
}

#[test]
fn a_server_without_eval_has_scripting_off() {
    let renamed = "--appendonly yes --appendfsync always --rename-command EVAL";
    let args: Vec<_> = renamed.split(' ').chain([""]).collect();
    let server = RedisServer::with(&args);
    for args in [&[][..], &["--read-only"]] {
        let output = doctor(&server.url(), args).output().unwrap();
        ends_with(&output, 1);
        let said = report(&output);
        assert_eq!(bad(&said), ["state danger"], "{said}");
        assert!(said.to_string().contains("scripting is off"), "{said}");
        assert!(!said.to_string().contains("+eval"), "{said}");
        assert_eq!(answer(&said, "a lock can be had now"), "no", "{said}");
    }
}

#[test]
fn a_server_that_is_down_or_frozen_ends_with_3_and_says_what_to_do() {
    let server = quiet();
    let gone = format!("redis://127.0.0.1:{}", free_port());
    server.freeze();
    for url in [&gone, &server.url()] {
        for json in [true, false] {
            let mut command = redlatch();
            command.args(["doctor", "--url", url, "--command-timeout", "1s"]);
            command.args(json.then_some("--json"));
            let output = command.output().unwrap();
            ends_with(&output, 3);
            let said = stdout(&output);
            if json {
                assert_eq!(bad(&report(&output)), ["reachable danger"]);
            } else {
                assert_eq!(said.lines().count(), 2, "{said}");
                assert!(said.contains("-> start it"), "{said}");
            }
        }
    }
    server.thaw();
    finds(&server.url(), &["--read-only"], &[]);
}

#[test]
fn slow_round_trips_and_a_wrong_clock_are_found_and_healed() {
    let server = quiet();
    let proxy = Proxy::to(server.addr());
    let url = proxy.url();
    let slow = proxy.next(usize::MAX, None, Fault::DelayRequest(ms(150)));
    finds(&url, &["--read-only", "--lease", "1s"], &["latency danger"]);
    slow.lift();
    finds(&url, &["--read-only"], &[]);

    let shim = ClockShim::build();
    let server = RedisServer::options()
        .args(&["--appendonly", "yes", "--appendfsync", "always"])
        .preload(
            shim.library(),
            &[(crate::support::clock::OFFSET_VARIABLE, shim.offset_path())],
        )
        .start();
    finds(&server.url(), &[], &[]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                // A tenth too fast.
                shim.set(i64::try_from(start.elapsed().as_millis() / 10).unwrap());
                thread::sleep(ms(2));
            }
        });
        finds_one(&server.url(), &[], "clock-rate danger");
        is_over.store(true, Ordering::Relaxed);
    });
    finds(&server.url(), &[], &[]);
}

#[test]
fn a_certificate_that_ends_soon_is_found_and_healed() {
    let certificates = Certificates::new();
    let authority = certificates.authority();
    for (days, expected) in [(13, &["certificate note"][..]), (30, &[])] {
        let (args, port) = certificates.server_args(&certificates.lasting(days), false);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let durable = ["--appendonly", "yes", "--appendfsync", "always"];
        let _server = RedisServer::with(&[&args[..], &durable].concat());
        let url = format!("rediss://127.0.0.1:{port}");
        finds(&url, &["--ca", authority.to_str().unwrap()], expected);
    }
}
