//! Findings about several servers, and about databases.

use super::{LONG, answer, bad, doctor, expect, expect_one, healthy, report};
use crate::stderr;
#[cfg(feature = "mysql")]
use crate::support::MariaDb;
use crate::support::topology_fixtures::{Cluster, Sentinels};
#[cfg(all(feature = "mysql", feature = "tls"))]
use crate::support::{Resolver, topology_fixtures::Certificates};
use crate::support::{eventually, product};
#[cfg(all(feature = "mysql", feature = "tls"))]
use crate::{ends_with, redlatch};

#[test]
fn replica_and_role_problems_are_reported() {
    let (master, replica) = (healthy(), healthy());
    let port = master.port().to_string();
    expect(&replica.url(), &["--read-only"], &[]);
    replica.cmd(&["REPLICAOF", "127.0.0.1", &port]);
    let url = master.url();
    let read_only = |wait: &str, expected: &[&str]| {
        expect(&url, &["--read-only", "--wait-replicas", wait], expected);
    };
    eventually(LONG, "the replica is connected", || {
        replica.info("master_link_status").as_deref() == Some("up")
    });
    expect(&replica.url(), &["--read-only"], &["role danger"]);
    read_only("1", &["replicas danger"]);
    master.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    read_only("1", &[]);
    expect(&url, &["--read-only"], &["replicas note"]);
    read_only("2", &["replicas danger"]);
    // If replicas acknowledge holds, a loss is unlikely.
    let output = doctor(&url, &["--read-only", "--wait-replicas", "1"]).output();
    let message = report(&output.unwrap());
    assert_eq!(
        answer(&message, "exclusion over a failover"),
        "unlikely to break"
    );
    replica.cmd(&["REPLICAOF", "NO", "ONE"]);
    expect(&replica.url(), &["--read-only"], &[]);
}

#[test]
fn the_nodes_of_a_redlock_are_counted() {
    let servers: Vec<_> = (0..3).map(|_| healthy()).collect();
    let url = |at: usize| servers[at].url();
    let run = |nodes: &[String]| {
        let mut command = doctor("", &["--redlock", "--read-only", "--max-lease", "2s"]);
        command.args(["--lease", "2s", "--command-timeout", "5s"]);
        for node in nodes {
            command.args(["--node", node]);
        }
        // On a busy machine, a round trip may be too long for this lease.
        let mut found = bad(&report(&command.output().unwrap()));
        found.retain(|it| !it.starts_with("latency"));
        found
    };
    let three = [url(0), url(1), url(2)];
    eventually(LONG, "all have a vote", || run(&three).is_empty());
    servers[2].kill();
    assert_eq!(run(&three), ["reachable note", "redlock-nodes note"]);
    servers[1].kill();
    assert_eq!(run(&three), ["reachable note", "redlock-nodes danger"]);
    for server in &servers[1..3] {
        server.restart();
    }
    eventually(LONG, "all have a vote again", || run(&three).is_empty());
}

/// All nodes but one grant the lock.
#[test]
fn a_majority_without_one_node_grants_locks() {
    let servers = [(); 3].map(|()| healthy());
    servers[0].cmd(&["ACL", "SETUSER", "default", "-hset"]);
    let mut command = doctor("", &["--redlock", "--max-lease", "2s", "--lease", "2s"]);
    for server in &servers {
        command.args(["--node", &server.url()]);
    }
    eventually(LONG, "all have a vote", || {
        let message = report(&command.output().unwrap());
        bad(&message).contains(&"rights danger".to_owned())
            && answer(&message, "a lock can be acquired now") == "yes"
    });
}

/// The arguments for a read-only check of these nodes.
fn at_nodes<'a>(urls: &'a [String], mode: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["--read-only", "--command-timeout", "6s"];
    args.extend(mode);
    args.extend(urls.iter().flat_map(|url| ["--node", url]));
    args
}

#[test]
fn unresponsive_sentinels_are_reported() {
    let kept = ["--appendonly", "yes", "--appendfsync", "always"];
    let least = ["--min-replicas-to-write", "1"];
    let args: Vec<_> = kept.iter().chain(&least).copied().collect();
    let set = Sentinels::options().args(&args).start();
    set.wait_until_settled();
    let urls = set.urls();
    let mut args = at_nodes(&urls, &["--sentinel", "shop"]);
    let replicas = set.nodes[set.master()].replicas_online().to_string();
    args.extend(["--wait-replicas", &replicas]);
    expect("", &args, &[]);
    set.sentinels[0].freeze();
    expect("", &args, &["sentinel-quorum note"]);
    set.sentinels[1].freeze();
    expect_one("", &args, "sentinel-quorum danger");
    set.sentinels[0].thaw();
    set.sentinels[1].thaw();
    set.wait_until_settled();
    expect("", &args, &[]);
}

#[test]
fn cluster_slots_without_a_master_are_reported() {
    let cluster = Cluster::start();
    let urls = cluster.urls();
    let args = at_nodes(&urls, &["--cluster", "--wait-replicas", "1"]);
    let expected = ["persistence note", "replicas note"];
    expect("", &args, &expected);
    expect_one(
        &cluster.nodes[0].url(),
        &["--read-only"],
        "cluster-state danger",
    );
    let slot = cluster.slot_of("orders").to_string();
    let owner = &cluster.nodes[cluster.owner_of("orders")];
    for node in &cluster.nodes {
        if node.is_master() {
            node.cmd(&["CLUSTER", "DELSLOTS", &slot]);
        }
    }
    expect_one("", &args, "cluster-state danger");
    owner.cmd(&["CLUSTER", "ADDSLOTS", &slot]);
    cluster.wait_until_healthy();
    expect("", &args, &expected);
}

#[test]
fn unreachable_announced_addresses_can_be_mapped() {
    if product().is_before_7() {
        return;
    }
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        let host = if node.is_master() {
            "127.0.0.1"
        } else {
            "127.0.0.9"
        };
        node.cmd(&["CONFIG", "SET", "cluster-announce-hostname", host]);
        node.cmd(&[
            "CONFIG",
            "SET",
            "cluster-preferred-endpoint-type",
            "hostname",
        ]);
    }
    let urls = [cluster.nodes[0].url()];
    let mut args = at_nodes(&urls, &["--cluster", "--wait-replicas", "1"]);
    expect(
        "",
        &args,
        &["persistence note", "reachable note", "replicas note"],
    );
    let output = doctor("", &args).output().unwrap();
    assert!(crate::stdout(&output).contains("127.0.0.9"));
    args.extend(["--map", "127.0.0.9=127.0.0.1"]);
    expect("", &args, &["persistence note", "replicas note"]);
    args.extend(["--map", "nonsense"]);
    let output = doctor("", &args).output().unwrap();
    assert!(stderr(&output).contains("FROM=TO"), "{output:?}");
    let output = doctor(&cluster.nodes[0].url(), &["--map", "a=b"]).output();
    assert!(stderr(&output.unwrap()).contains("map_address"));
}

#[test]
#[cfg(all(feature = "mysql", feature = "tls"))]
fn a_database_is_checked_over_tls() {
    let certificates = Certificates::new();
    let server = MariaDb::encrypted(&certificates, &certificates.of("db", "DNS:db.example"), &[]);
    let database = server.database();
    database.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    let authority = certificates.authority().display().to_string();
    let by_name = database.url().replace("127.0.0.1", "db.example");
    let url = by_name.replace("mysql:", "mysqls:");
    let resolver = Resolver::saying("127.0.0.1");
    let with_tls = |words: &[&str]| {
        let mut command = redlatch();
        command.args(words).args(["--ca", &authority]);
        command.env("REDLATCH_URL", &url).envs(resolver.env());
        command.output().unwrap()
    };
    ends_with(&with_tls(&["create-tables"]), 0);
    let check = |url: &str, args: &[&str]| {
        let mut command = doctor(url, &["--read-only"]);
        bad(&report(
            &command.args(args).envs(resolver.env()).output().unwrap(),
        ))
    };
    assert_eq!(check(&url, &["--ca", &authority]), [""; 0]);
    let by_address = database.url().replace("mysql:", "mysqls:");
    let named = ["--ca", &authority, "--tls-name", "db.example"];
    assert_eq!(check(&by_address, &named), [""; 0]);
    assert_eq!(check(&by_address, &named[..2]), ["reachable danger"]);
    assert_eq!(check(&by_name, &[]), ["plain-text note"]);
    ends_with(&with_tls(&["list"]), 0);
    let mut command = redlatch();
    command
        .args(["list", "--ca", &authority])
        .env("TMPDIR", "/nowhere");
    command.env("REDLATCH_URL", &url).envs(resolver.env());
    let output = command.output().unwrap();
    assert!(stderr(&output).contains("TMPDIR"), "{output:?}");
    let redis = healthy();
    let by_name = redis.url().replace("127.0.0.1", "redis.example");
    assert_eq!(check(&by_name, &[]), ["plain-text note"]);
}

#[test]
#[cfg(feature = "mysql")]
fn a_database_is_checked() {
    let server = MariaDb::start();
    let database = server.database();
    let url = database.url();
    // By default, the test servers are less durable, because this is faster.
    database.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    expect(&url, &["--read-only"], &["lock-table danger"]);
    let message = report(&doctor(&url, &["--read-only"]).output().unwrap());
    assert_eq!(
        answer(&message, "a lock can be acquired now"),
        "no",
        "{message}"
    );
    // This is the statement that the page shows.
    let page = include_str!("../../../docs/cli.md");
    let statement = page.split("```").find_map(|it| it.strip_prefix("sql\n"));
    database.run(statement.unwrap());
    expect(&url, &[], &[]);
    database.run("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    expect(&url, &["--read-only"], &["persistence note"]);
    database.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    database.run("SET GLOBAL read_only = 1");
    expect(&url, &["--read-only"], &["role danger"]);
    database.run("SET GLOBAL read_only = 0");
    expect(&url, &["--read-only"], &[]);
}
