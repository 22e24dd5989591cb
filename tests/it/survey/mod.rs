//! `list` and `inspect` on a Redis server: which kinds they distinguish, and which commands they send.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Error, LockInfo, LockKind, MultiLock};

use crate::laws::until_queued;
use crate::support::{Monitor, RedisServer, eventually, ms};

const REDISSON: &str = "9b2a7c44-11d0-4e55-8a3e-2f1d0c9b8a7f:31";

fn open(server: &RedisServer) -> Client {
    Client::open(&server.url()).unwrap()
}

fn listed(locks: redlatch::Locks) -> Vec<(String, LockKind)> {
    let locks = locks.map(|info| info.unwrap());
    let mut kinds: Vec<_> = locks
        .map(|info| (info.name.to_string(), info.kind))
        .collect();
    kinds.sort();
    kinds
}

fn kinds(expected: &[(&str, LockKind)]) -> Vec<(String, LockKind)> {
    let named = expected
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), *kind));
    named.collect()
}

#[test]
fn exactly_the_held_locks_are_listed() {
    let server = RedisServer::start();
    let client = open(&server);
    client.lock("plain").lock().unwrap();
    client.spin_lock("spin").lock().unwrap();
    client.fenced_lock("fenced").lock().unwrap();
    client.fair_lock("fair").lock().unwrap();
    client.token_lock("token").lock().unwrap();
    let sides = client.read_write_lock("read");
    sides.read().lock().unwrap();
    client.read_write_lock("write").write().lock().unwrap();
    client.semaphore("permits").try_set(3).unwrap();
    let taken = client.semaphore("permits").acquire(1).unwrap();
    client.latch("latch").try_set(2).unwrap();
    server.cmd(&["HSET", "redisson", REDISSON, "2"]);
    server.cmd(&["PEXPIRE", "redisson", "60000"]);
    // Data of other programs.
    server.cmd(&["HSET", "user", "name", "Ada"]);
    server.cmd(&["HSET", "session", "a:1", "1"]);
    server.cmd(&["HSET", "endless", REDISSON, "1"]);
    server.cmd(&["RPUSH", "list", "1"]);
    server.cmd(&["SET", "text", "hello"]);
    server.cmd(&["SET", "cached", &"x".repeat(300), "PX", "60000"]);
    let own = [
        ("fair", LockKind::Reentrant),
        ("fenced", LockKind::Fenced),
        ("plain", LockKind::Reentrant),
        ("read", LockKind::Read),
        ("redisson", LockKind::Reentrant),
        ("spin", LockKind::Reentrant),
        ("write", LockKind::Write),
    ];
    assert_eq!(listed(client.locks("")), kinds(&own));
    let mut more = own.to_vec();
    more.push(("token", LockKind::Token));
    more.sort();
    assert_eq!(listed(client.locks("").with_tokens()), kinds(&more));
    let mut more = own.to_vec();
    more.extend([
        ("permits", LockKind::Semaphore),
        ("latch", LockKind::Counter),
    ]);
    more.sort();
    assert_eq!(listed(client.locks("").with_counters()), kinds(&more));
    drop(taken);
}

#[test]
fn a_holder_is_listed_with_its_process() {
    let server = RedisServer::start();
    let client = open(&server);
    let lock = client.lock("orders");
    lock.lock().unwrap();
    lock.lock().unwrap();
    let other = open(&server).lock("orders");
    thread::scope(|scope| {
        scope.spawn(|| assert!(!other.try_lock_for(ms(1500)).unwrap()));
        until_queued(&other, 1);
        eventually(ms(5000), "somebody listens", || {
            lock.describe().unwrap().listening == Some(1)
        });
        for info in [
            lock.describe().unwrap(),
            client.locks("").next().unwrap().unwrap(),
        ] {
            let holder = &info.holders[0];
            assert_eq!((holder.count, holder.by), (2, "redlatch"));
            assert_eq!(holder.client.as_deref(), Some(client.id()));
            assert_eq!(holder.pid, Some(std::process::id()));
            assert!(holder.host.as_ref().is_some_and(|host| !host.is_empty()));
            assert!(
                holder
                    .address
                    .as_ref()
                    .is_some_and(|it| it.starts_with("127.0.0.1:"))
            );
            assert_eq!(&*info.node, server.addr().to_string());
        }
    });
    server.cmd(&["HSET", "redisson", REDISSON, "3"]);
    server.cmd(&["PEXPIRE", "redisson", "60000"]);
    let info = client.lock("redisson").describe().unwrap();
    let holder = &info.holders[0];
    assert_eq!(
        (holder.by, holder.thread, holder.count),
        ("Redisson", Some(31), 3)
    );
    assert_eq!((holder.hold, holder.pid), (None, None));
}

#[test]
fn a_key_of_another_kind_is_not_described() {
    let server = RedisServer::start();
    let client = open(&server);
    server.cmd(&["HSET", "user", "name", "Ada"]);
    server.cmd(&["SET", "text", "hello"]);
    client.read_write_lock("sides").read().lock().unwrap();
    for lock in [
        client.lock("user"),
        client.lock("text"),
        client.lock("sides"),
    ] {
        let error = lock.describe().unwrap_err();
        assert!(matches!(error, Error::WrongType { .. }), "{error}");
        assert_eq!(error.kind(), "wrong_type");
    }
    let parts = [client.lock("a"), client.lock("b")];
    let error = MultiLock::of(&parts).unwrap().describe().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

/// A query writes nothing and runs no command that blocks a server.
#[test]
fn a_query_only_reads() {
    let server = RedisServer::start();
    let client = open(&server);
    let guards: Vec<_> = ["plain", "fenced"].map(|it| client.fenced_lock(it)).into();
    for lock in &guards {
        lock.with_lease_time(Duration::from_secs(60))
            .lock()
            .unwrap();
    }
    client
        .read_write_lock("sides")
        .read()
        .with_lease_time(Duration::from_secs(60))
        .lock()
        .unwrap();
    let other = open(&server);
    let monitor = Monitor::start(&server);
    let all: Vec<LockInfo> = other
        .locks("")
        .with_tokens()
        .with_counters()
        .map(|it| it.unwrap())
        .collect();
    assert_eq!(all.len(), 3, "{all:?}");
    other.lock("plain").describe().unwrap();
    const READS: [&str; 15] = [
        "SCAN", "TYPE", "HLEN", "HKEYS", "HGETALL", "HGET", "PTTL", "GET", "STRLEN", "EXISTS",
        "PUBSUB", "CLIENT", "TIME", "PING", "HELLO",
    ];
    // The holder's client checks the server's settings once, at any moment.
    let connections = server.text(&["CLIENT", "LIST"]).unwrap();
    let own: Vec<String> = connections
        .lines()
        .filter(|it| it.contains(other.id()))
        .filter_map(|it| it.split(' ').find_map(|word| word.strip_prefix("addr=")))
        .map(|addr| format!(" {addr}] "))
        .collect();
    let mut lines = monitor.lines();
    lines.retain(|line| own.iter().any(|addr| line.contains(addr)));
    assert!(
        lines.iter().any(|line| line.contains("\"SCAN\"")),
        "{lines:?}"
    );
    for line in lines {
        let command = line.split('"').nth(1).unwrap_or_default();
        assert!(READS.contains(&&*command.to_uppercase()), "{line}");
    }
}

#[test]
fn many_foreign_keys_are_skipped_page_by_page() {
    let server = RedisServer::start();
    let client = open(&server);
    client.lock("lock:1").lock().unwrap();
    server.cmd(&["DEBUG", "POPULATE", "20000", "foreign"]);
    let fields: Vec<String> = (0..5000).map(|at| format!("{at}")).collect();
    for part in fields.chunks(500) {
        let words: Vec<&str> = part.iter().flat_map(|it| [&**it, "1"]).collect();
        server.cmd(&[&["HSET", "large"], &words[..]].concat());
    }
    let monitor = Monitor::start(&server);
    assert_eq!(
        listed(client.locks("")),
        kinds(&[("lock:1", LockKind::Reentrant)])
    );
    let scans = monitor.lines_containing("\"SCAN\"").len();
    assert!(scans >= 20_000 / 512, "{scans} pages");
    for field in ["HKEYS", "HGETALL"] {
        let asked = monitor.lines_containing(&format!("\"{field}\""));
        assert!(
            asked.iter().all(|line| !line.contains("large")),
            "{asked:?}"
        );
    }
}

#[test]
fn a_stopped_server_ends_the_list_with_an_error() {
    let server = RedisServer::start();
    let client = crate::invariants::quick().open(&server.url()).unwrap();
    server.kill();
    let mut locks = client.locks("orders:");
    let error = locks.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(error.kind(), "unreachable");
    assert!(locks.next().is_none());
}
