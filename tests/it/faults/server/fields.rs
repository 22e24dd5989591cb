//! The server in use has each field of `INFO` and of other replies that the client reads: F31.

use super::*;
use crate::support::product;

/// The fields of `INFO` that the source reads; each server has one of the names in a row.
const FIELDS: [&[&str]; 19] = [
    &["aof_enabled"],
    &["aof_last_write_status"],
    &["aof_rewrite_in_progress"],
    &["aof_rewrite_scheduled"],
    &["cluster_enabled"],
    &["connected_slaves"],
    &["master_replid"],
    &["master_replid2"],
    &["maxmemory"],
    &["maxmemory_policy"],
    &["min_slaves_good_slaves"],
    &["rdb_last_bgsave_status"],
    &["redis_mode", "server_mode"],
    &["redis_version"],
    &["repl_backlog_active"],
    &["role"],
    &["run_id"],
    &["uptime_in_seconds"],
    &["used_memory"],
];

/// The fields of `CLUSTER INFO`.
const OF_CLUSTERS: [&str; 3] = ["cluster_slots_ok", "cluster_slots_pfail", "cluster_state"];

#[test]
fn the_server_reports_every_field_that_the_client_reads() {
    let master = RedisServer::with(&[
        "--appendonly",
        "yes",
        "--min-replicas-to-write",
        "1",
        "--repl-diskless-sync-delay",
        "0",
    ]);
    let port = master.port().to_string();
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
    eventually(ms(10_000), "the replica is online", || {
        let line = master.info("slave0").unwrap_or_default();
        line.contains("state=online") && line.contains("lag=")
    });
    for names in FIELDS {
        let found = names.iter().find_map(|name| master.info(name));
        assert!(found.is_some(), "{names:?}");
    }
    let mode = |server: &RedisServer| {
        let modes = ["redis_mode", "server_mode"];
        modes.iter().find_map(|name| server.info(name)).unwrap()
    };
    for (field, value) in [
        ("aof_last_write_status", "ok"),
        ("cluster_enabled", "0"),
        ("connected_slaves", "1"),
        ("master_replid2", &"0".repeat(40)),
        ("maxmemory_policy", "noeviction"),
        ("min_slaves_good_slaves", "1"),
        ("rdb_last_bgsave_status", "ok"),
        ("repl_backlog_active", "1"),
        ("role", "master"),
    ] {
        assert_eq!(master.info(field).as_deref(), Some(value), "{field}");
    }
    assert_eq!(mode(&master), "standalone");
    assert_eq!(replica.info("role").as_deref(), Some("slave"));
    let replication = "return redis.call('INFO', 'replication')";
    let replication = master.text(&["EVAL", replication, "0"]).unwrap();
    for word in ["role:master", "master_replid:"] {
        assert!(replication.contains(word), "{replication}");
    }
    let settings: Vec<String> =
        redis::from_redis_value(master.cmd(&["CONFIG", "GET", "*appendfsync*"])).unwrap();
    for name in ["appendfsync", "no-appendfsync-on-rewrite"] {
        assert!(settings.iter().any(|it| it == name), "{settings:?}");
    }

    let node = RedisServer::with(&["--cluster-enabled", "yes"]);
    assert_eq!(mode(&node), "cluster");
    assert_eq!(node.info("cluster_enabled").as_deref(), Some("1"));
    let info = node.text(&["CLUSTER", "INFO"]).unwrap();
    for field in OF_CLUSTERS {
        assert!(info.contains(&format!("{field}:")), "{field}: {info}");
    }
}

#[test]
fn the_check_names_the_product_and_every_item() {
    let server = RedisServer::start();
    let findings = client(&server).examine().unwrap();
    let product = product();
    let name = match product.is_valkey {
        true => "Valkey",
        false => "Redis",
    };
    let (major, minor) = product.version;
    let version = format!("{name} {major}.{minor}.");
    let is_named = |it: &HealthWarning| it.code == "version" && it.message.starts_with(&version);
    assert!(findings.iter().any(is_named), "{version} {findings:?}");
    for it in &findings {
        assert!(!it.message.contains("not tell"), "{it}");
    }
}
