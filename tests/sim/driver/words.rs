//! Commands besides the scripts: a real server and the simulated one answer alike.

use redis::Value;
use redlatch_spec::{Config, Server};

use super::wire::{Wire, request};
use crate::support::RedisServer;

/// What one connection says, line by line.
const LINES: &[&[&str]] = &[
    &["PING"],
    &["ping"],
    &["CLIENT", "SETNAME", "redlatch"],
    &["SELECT", "1"],
    &["SELECT", "16"],
    &["SELECT", "x"],
    &["SELECT"],
    &["AUTH", "secret"],
    &["AUTH", "nobody", "secret"],
    &["AUTH"],
    &["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"],
    &["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "1", "a"],
    &["EVALSHA", "ff"],
    &["PUBLISH", "c", "0"],
    &["SPUBLISH", "c", "0"],
    &["PUBLISH", "c"],
    &["PUBSUB", "NUMSUB", "c", "d"],
    &["PUBSUB", "SHARDNUMSUB"],
    &["CONFIG", "GET", "*appendfsync*"],
    &["ROLE"],
    &["WAIT", "0", "10"],
    &["WAIT", "1", "10"],
    &["WAIT", "x", "10"],
    &["WAIT", "1"],
    &["ACL", "WHOAMI"],
    &["ACL", "DRYRUN", "default", "FLUSHALL"],
    &["CLUSTER", "SLOTS"],
    &["SENTINEL", "MASTER", "locks"],
    &["NOTHING", "of", "this"],
    &["SUBSCRIBE"],
    &["UNSUBSCRIBE"],
    &["SUBSCRIBE", "c"],
    &["SSUBSCRIBE", "c"],
    &["TIME"],
    &["PING"],
    &["SUNSUBSCRIBE", "c"],
    &["UNSUBSCRIBE", "d"],
    &["UNSUBSCRIBE"],
    &["PING"],
];

#[test]
fn the_simulated_server_says_what_redis_says() {
    let server = RedisServer::start();
    let mut wire = Wire::to(server.addr());
    let mut spec = Server::new(Config::default(), 0);
    spec.connect(1);
    // A WAIT that is over is answered when the time has come.
    let mut now = 0;
    for line in LINES {
        let real = wire.say(line);
        let mut told = spec.command(now, 1, &request(line));
        now += 20_000;
        told.extend(spec.tick(now));
        assert_eq!(told.len(), 1, "{line:?}");
        let told = redis::parse_redis_value(&told[0].bytes).unwrap();
        let as_text = |value: &Value| match value {
            Value::ServerError(error) => format!("{error:?}"),
            value => format!("{value:?}"),
        };
        assert_eq!(as_text(&told), as_text(&real), "{line:?}");
    }
}

#[test]
fn the_simulated_server_tells_of_itself_what_the_library_reads() {
    let server = RedisServer::start();
    let mut wire = Wire::to(server.addr());
    let mut spec = Server::new(Config::default(), 0);
    spec.connect(1);
    // One that was a replica once has the id of the history before, too.
    wire.say(&["REPLICAOF", "127.0.0.1", "1"]);
    wire.say(&["REPLICAOF", "NO", "ONE"]);
    spec.follow("127.0.0.1", 1, None);
    spec.promote();
    let fields = [
        "redis_version:", "redis_mode:", "run_id:", "uptime_in_seconds:", "loading:", "aof_enabled:",
        "aof_rewrite_in_progress:", "aof_rewrite_scheduled:", "role:", "connected_slaves:", "master_replid:",
        "master_replid2:", "master_repl_offset:", "maxmemory:", "maxmemory_policy:",
    ];
    for section in [&["INFO"][..], &["INFO", "server"], &["INFO", "persistence"], &["INFO", "replication"]] {
        let real: String = redis::from_redis_value(wire.say(section)).unwrap();
        let told = spec.command(0, 1, &request(section)).remove(0);
        let told: String = redis::from_redis_value(redis::parse_redis_value(&told.bytes).unwrap()).unwrap();
        for field in fields {
            let value = |info: &str| {
                let line = info.lines().find_map(|line| line.strip_prefix(field));
                line.map(|value| (value.len() == 40, value.starts_with("000000")))
            };
            assert_eq!(value(&told), value(&real), "{section:?}: {field}");
        }
    }
}
