//! `doctor`: each look has a setting that brings a finding about, and one that heals it.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::topology_fixtures::{Cluster, Sentinels};
use crate::support::{ClockShim, Fault, MariaDb, Proxy, RedisServer, eventually, free_port, ms};
use crate::{ends_with, redlatch, stderr, stdout};

const CANARY: &str = "canary-4f1c";

/// A busy machine may need this long.
const LONG: Duration = Duration::from_secs(120);

/// A server without any finding.
fn quiet() -> RedisServer {
    let args = "--appendonly yes --appendfsync always --enable-protected-configs yes";
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
    crate::schema::holds("doctor", &object);
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

fn look(url: &str, args: &[&str]) -> Vec<String> {
    bad(&report(&doctor(url, args).output().unwrap()))
}

/// Waits until the doctor finds exactly this: servers take their time, and a busy machine hides things.
#[track_caller]
fn finds(url: &str, args: &[&str], expected: &[&str]) {
    let mut found = Vec::new();
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        found = look(url, args);
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
        found = look(url, args);
        if found.iter().any(|it| it == wanted) {
            return;
        }
        thread::sleep(ms(50));
    }
    panic!("{found:?} without {wanted}");
}

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
    let promises = report(&output)["promises"].clone();
    let runs = promises.as_array().unwrap().iter();
    let runs = runs
        .clone()
        .find(|it| it["promise"] == "exclusion while the server runs");
    assert_eq!(runs.unwrap()["answer"], "no", "{promises}");
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
    read_only(&["persistence danger"]);
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
fn replicas_and_roles_are_found_and_healed() {
    let (master, replica) = (quiet(), quiet());
    let port = master.port().to_string();
    finds(&replica.url(), &["--read-only"], &[]);
    replica.cmd(&["REPLICAOF", "127.0.0.1", &port]);
    let url = master.url();
    let read_only = |wait: &str, expected: &[&str]| {
        finds(&url, &["--read-only", "--wait-replicas", wait], expected);
    };
    eventually(LONG, "it follows", || {
        replica.info("master_link_status").as_deref() == Some("up")
    });
    finds(&replica.url(), &["--read-only"], &["role danger"]);
    read_only("1", &["replicas danger"]);
    master.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    read_only("1", &[]);
    finds(&url, &["--read-only"], &["replicas note"]);
    read_only("2", &["replicas danger"]);
    // With replicas that acknowledge it is unlikely to break.
    let output = doctor(&url, &["--read-only", "--wait-replicas", "1"]).output();
    let said = report(&output.unwrap());
    let promises = said["promises"].as_array().unwrap();
    let over = promises
        .iter()
        .find(|it| it["promise"] == "exclusion over a failover");
    assert_eq!(over.unwrap()["answer"], "unlikely to break", "{said}");
    replica.cmd(&["REPLICAOF", "NO", "ONE"]);
    finds(&replica.url(), &["--read-only"], &[]);
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
    eventually_finds(&["pubsub danger", "rights danger"]);
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
fn the_nodes_of_a_redlock_are_counted() {
    let servers: Vec<_> = (0..4).map(|_| quiet()).collect();
    let url = |at: usize| servers[at].url();
    let run = |nodes: &[String]| {
        let mut command = doctor("", &["--redlock", "--read-only", "--max-lease", "2s"]);
        command.args(["--lease", "2s", "--command-timeout", "5s"]);
        for node in nodes {
            command.args(["--node", node]);
        }
        // That somebody may flush is told for each.
        let mut found = bad(&report(&command.output().unwrap()));
        found.retain(|it| !it.starts_with("latency"));
        found
    };
    for server in &servers {
        for command in ["+flushall", "+flushdb"] {
            let deny = command.replace('+', "-");
            server.cmd(&["ACL", "SETUSER", "default", &deny]);
        }
    }
    let three = [url(0), url(1), url(2)];
    eventually(LONG, "all have a vote", || run(&three).is_empty());
    servers[3].cmd(&["ACL", "SETUSER", "default", "+flushall"]);
    assert_eq!(run(&[url(0), url(1), url(3)]), ["redlock-nodes note"]);
    assert_eq!(
        run(&[url(0), url(1), url(2), url(3)]),
        ["redlock-nodes note"]
    );
    servers[2].kill();
    assert_eq!(run(&three), ["reachable note", "redlock-nodes note"]);
    servers[1].kill();
    assert_eq!(run(&three), ["reachable note", "redlock-nodes danger"]);
    for server in &servers[1..3] {
        server.restart();
        for command in ["-flushall", "-flushdb"] {
            server.cmd(&["ACL", "SETUSER", "default", command]);
        }
    }
    eventually(LONG, "all have a vote again", || run(&three).is_empty());
}

#[test]
fn sentinels_that_could_not_act_are_found_and_healed() {
    let kept = ["--appendonly", "yes", "--appendfsync", "always"];
    let least = ["--min-replicas-to-write", "1"];
    let args: Vec<_> = kept.iter().chain(&least).copied().collect();
    let set = Sentinels::options().args(&args).start();
    set.wait_until_settled();
    let urls = set.urls();
    let mut args = vec![
        "--read-only",
        "--sentinel",
        "shop",
        "--command-timeout",
        "6s",
    ];
    for url in &urls {
        args.extend(["--node", url]);
    }
    let replicas = set.nodes[set.master()].replicas_online().to_string();
    args.extend(["--wait-replicas", &replicas]);
    finds("", &args, &[]);
    set.sentinels[0].freeze();
    finds("", &args, &["sentinel-quorum note"]);
    set.sentinels[1].freeze();
    finds_one("", &args, "sentinel-quorum danger");
    set.sentinels[0].thaw();
    set.sentinels[1].thaw();
    set.wait_until_settled();
    finds("", &args, &[]);
}

#[test]
fn slots_of_a_cluster_without_a_master_are_found() {
    let cluster = Cluster::start();
    let urls = cluster.urls();
    let mut args = vec![
        "--read-only",
        "--cluster",
        "--command-timeout",
        "6s",
        "--wait-replicas",
        "1",
    ];
    for url in &urls {
        args.extend(["--node", url]);
    }
    let expected = ["persistence note", "replicas note"];
    finds("", &args, &expected);
    finds_one(
        &cluster.nodes[0].url(),
        &["--read-only"],
        "cluster-state danger",
    );
    let id: String = cluster.nodes[1].ask(&["CLUSTER", "MYID"]);
    assert!(!id.is_empty());
    let slot = cluster.slot_of("orders").to_string();
    let owner = &cluster.nodes[cluster.owner_of("orders")];
    for node in &cluster.nodes {
        if node.is_master() {
            node.cmd(&["CLUSTER", "DELSLOTS", &slot]);
        }
    }
    finds_one("", &args, "cluster-state danger");
    owner.cmd(&["CLUSTER", "ADDSLOTS", &slot]);
    cluster.wait_until_healthy();
    finds("", &args, &expected);
}

#[cfg(feature = "mysql")]
#[test]
fn a_database_is_looked_at() {
    let server = MariaDb::start();
    let database = server.database();
    let url = database.url();
    // The servers of the tests are quick, and keep less.
    database.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    finds(
        &url,
        &["--read-only"],
        &["latency danger", "lock-table danger"],
    );
    crate::client_of(&database.url()).create_tables().unwrap();
    finds(&url, &[], &[]);
    database.run("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    finds(&url, &["--read-only"], &["persistence note"]);
    database.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    database.run("SET GLOBAL read_only = 1");
    finds(&url, &["--read-only"], &["role danger"]);
    database.run("SET GLOBAL read_only = 0");
    finds(&url, &["--read-only"], &[]);
}
