//! `watch` with event lines, and on a terminal.

mod terminal;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::topology_fixtures::{Access, Cluster};
use crate::support::{RedisServer, ms};
use crate::{client_of, ends_with, redlatch, stderr};

/// A time limit for a busy machine.
const TIMEOUT: Duration = ms(60_000);

/// The hash field of a Redisson client.
const THEIRS: &str = "9b2a7c44-11d0-4e55-8a3e-2f1d0c9b8a7f:31";

/// A watch that prints event lines.
struct WatchProcess {
    child: Child,
    lines: Receiver<String>,
}

impl WatchProcess {
    fn start(url: &str, args: &[&str]) -> WatchProcess {
        let mut command = redlatch();
        command.env("REDLATCH_URL", url);
        command.args(["watch", "--interval", "100ms"]).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines() {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        WatchProcess { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(TIMEOUT).unwrap()
    }

    /// Asserts which event comes next, and for which lock.
    #[track_caller]
    fn next(&self, event: &str, name: &str) -> Value {
        let value: Value = serde_json::from_str(&self.line()).unwrap();
        crate::schema::assert_matches("event", &value);
        assert_eq!(
            (&value["event"], &value["name"]),
            (&event.into(), &name.into())
        );
        value
    }
}

impl Drop for WatchProcess {
    fn drop(&mut self) {
        // The process may have exited before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn holds_are_reported_as_json() {
    let server = RedisServer::start();
    let client = client_of(&server.url());
    client.lock("orders:1").lock().unwrap();
    client.lock("stock:1").lock().unwrap();
    let watch = WatchProcess::start(&server.url(), &["orders:", "--json"]);
    let held = watch.next("held", "orders:1");
    assert_eq!(held["to"]["pid"], std::process::id());
    assert_eq!(held["from"], Value::Null);

    let lock = client.lock("orders:2");
    lock.lock().unwrap();
    let visitor = lock.describe().unwrap().holders[0].visitor.clone();
    assert_eq!(
        watch.next("acquired", "orders:2")["to"]["visitor"],
        *visitor
    );
    lock.unlock().unwrap();
    let ended = watch.next("ended", "orders:2");
    assert_eq!(ended["from"]["visitor"], *visitor);
    assert!(ended["lasted_ms"].is_u64());

    // Between two snapshots, one hold ends and another one begins.
    let swap = "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 60000)";
    server.cmd(&["EVAL", swap, "1", "orders:1", THEIRS]);
    let handed = watch.next("handed_over", "orders:1");
    assert_eq!(handed["from"]["pid"], std::process::id());
    assert_eq!(handed["to"]["by"], "Redisson");

    // A lease of a minute that was renewed could not have so little left.
    server.cmd(&["PEXPIRE", "orders:1", "4000"]);
    assert_eq!(watch.next("expired", "orders:1")["from"]["visitor"], THEIRS);
}

#[test]
fn an_unreachable_server_and_its_return_are_reported() {
    let server = RedisServer::start();
    server.cmd(&["HSET", "orders:1", THEIRS, "1"]);
    server.cmd(&["PEXPIRE", "orders:1", "600000"]);
    let watch = WatchProcess::start(&server.url(), &["--json"]);
    watch.next("held", "orders:1");
    server.kill();
    let lost: Value = serde_json::from_str(&watch.line()).unwrap();
    crate::schema::assert_matches("event", &lost);
    assert_eq!(
        (&lost["event"], &lost["name"]),
        (&"node_lost".into(), &Value::Null)
    );
    assert_eq!(lost["node"], format!("127.0.0.1:{}", server.port()));
    server.restart();
    let back: Value = serde_json::from_str(&watch.line()).unwrap();
    crate::schema::assert_matches("event", &back);
    assert_eq!(
        (&back["event"], &back["node"]),
        (&"node_back".into(), &lost["node"])
    );
    // The server was restarted, so it has lost the hold.
    watch.next("ended", "orders:1");
}

#[test]
fn an_unreachable_quorum_node_hides_no_end() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    let redlock = crate::redlock_of(&urls);
    let lock = redlock.lock("orders:1");
    lock.lock().unwrap();
    let nodes = urls.each_ref().map(|url| ["--node", url]);
    let args = [&["--json", "--redlock"], nodes.as_flattened()].concat();
    let watch = WatchProcess::start("", &args);
    watch.next("held", "orders:1");
    servers[1].kill();
    let lost: Value = serde_json::from_str(&watch.line()).unwrap();
    assert_eq!(lost["event"], "node_lost");
    assert_eq!(lost["node"], format!("127.0.0.1:{}", servers[1].port()));
    lock.unlock().unwrap();
    watch.next("ended", "orders:1");
}

#[test]
fn the_unreachable_master_of_a_cluster_is_named() {
    // Without the unreachable master, the other masters serve their slots.
    let args = ["--cluster-require-full-coverage", "no"];
    let cluster = Cluster::with(false, Access::default(), &args);
    let lock = cluster.name_at(0, "orders");
    cluster.nodes[0].cmd(&["HSET", &lock, THEIRS, "1"]);
    cluster.nodes[0].cmd(&["PEXPIRE", &lock, "600000"]);
    let urls = cluster.urls();
    let nodes = urls.iter().flat_map(|url| ["--node", url]);
    let mut args = vec!["--json", "--cluster", "--command-timeout", "8s"];
    args.extend(nodes);
    let watch = WatchProcess::start("", &args);
    watch.next("held", &lock);
    // The killed master is neither the first master nor the master of the lock.
    let last = (1..3).max_by_key(|at| cluster.nodes[*at].addr().to_string());
    let last = &cluster.nodes[last.unwrap()];
    last.kill();
    let lost: Value = serde_json::from_str(&watch.line()).unwrap();
    assert_eq!(lost["event"], "node_lost");
    assert_eq!(lost["node"], last.addr().to_string(), "{lost}");
}

#[test]
fn event_lines_escape_control_characters() {
    let server = RedisServer::start();
    let name = "a\u{1b}[2Jb";
    server.cmd(&["HSET", name, THEIRS, "1"]);
    server.cmd(&["PEXPIRE", name, "600000"]);
    let watch = WatchProcess::start(&server.url(), &["--color", "always"]);
    let line = watch.line();
    assert!(
        line.ends_with("a\\u{1b}[2Jb is held by 9b2a…8a7f thread 31 (Redisson)"),
        "{line}"
    );
    assert!(
        !line.contains('\u{1b}'),
        "no problem, so nothing is red: {line}"
    );
    server.kill();
    let line = watch.line();
    assert!(
        line.starts_with("\u{1b}[31m") && line.ends_with("\u{1b}[0m"),
        "{line}"
    );
    drop(watch);

    server.restart();
    let watch = WatchProcess::start(&server.url(), &[]);
    client_of(&server.url()).lock("orders:1").lock().unwrap();
    assert!(watch.line().contains("orders:1"));
    server.kill();
    assert!(
        !watch.line().contains('\u{1b}'),
        "no colours without a terminal"
    );
}

#[test]
fn watch_fails_in_one_line() {
    let server = RedisServer::start();
    server.cmd(&[
        "ACL", "SETUSER", "poor", "on", "nopass", "~*", "+ping", "+hello",
    ]);
    let gone = format!("redis://127.0.0.1:{}", crate::support::free_port());
    for (url, args, kind) in [
        (server.url(), &["--interval", "10ms"][..], "usage"),
        (server.url().replace("//", "//poor:x@"), &[], "permission"),
        (gone, &[], "unreachable"),
    ] {
        let mut command = redlatch();
        command.env("REDLATCH_URL", url);
        command.args(["watch", "--json"]).args(args);
        let output = command.output().unwrap();
        ends_with(
            &output,
            match kind {
                "usage" => 2,
                "permission" => 4,
                _ => 3,
            },
        );
        let error: Value = serde_json::from_str(stderr(&output).trim()).unwrap();
        crate::schema::assert_matches("error", &error);
        assert_eq!(error["error"]["kind"], kind);
    }
}

#[test]
fn events_explain_a_once_per_mark() {
    let server = RedisServer::start();
    let client = client_of(&server.url());
    let mark = client.lock("job:once");
    mark.with_lease_time(ms(7_200_000)).lock().unwrap();
    let watch = WatchProcess::start(&server.url(), &["--json"]);
    let printed = watch.next("held", "job:once");
    let message = printed["message"].as_str().unwrap();
    assert!(
        message.contains("--once-per") && message.contains("again in 1h 59m"),
        "{message}"
    );
    drop(watch);
    let watch = WatchProcess::start(&server.url(), &[]);
    let line = watch.line();
    assert!(
        line.contains("--once-per") && line.contains("again in 1h 59m"),
        "{line}"
    );
}
