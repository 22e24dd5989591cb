//! Where each kind of lock works, and the reason where it does not: in a `MultiLock`, in a quorum, in a database.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlatch::{Builder, Client, Error, Lock, MultiLock, Redlock};

#[cfg(feature = "mysql")]
use crate::support::MariaDb;
use crate::support::{RedisServer, elsewhere, eventually, ms};

/// A busy machine stops a process for seconds. Renewals come three times within the lease.
const LEASE: Duration = ms(4500);

/// Longer than any wait of these tests may take.
const LONG: Duration = Duration::from_secs(30);

/// A lock that becomes a member, as one process has it, and the lock of another process that it excludes.
struct Part {
    kind: &'static str,
    part: Lock,
    bars: Lock,
    /// A lock beside it.
    plain: Lock,
}

/// The kinds of locks of one client, and the locks of another client that they exclude.
fn parts_of(one: &Client, two: &Client) -> Vec<Part> {
    let sides = |name: &str| [one, two].map(|it| it.read_write_lock(name));
    let [read, read_of_two] = sides("prices");
    let [preferred, preferred_of_two] = sides("rates");
    let [write, write_of_two] = sides("stock");
    let part = |kind, part: Lock, bars: Lock| Part {
        kind,
        part,
        bars,
        plain: one.lock(&format!("beside {kind}")),
    };
    let inner = MultiLock::of([&one.lock("inner a"), &one.lock("inner b")]).unwrap();
    vec![
        part("lock", one.lock("a"), two.lock("a")),
        part("token_lock", one.token_lock("b"), two.token_lock("b")),
        part("fenced_lock", one.fenced_lock("c"), two.fenced_lock("c")),
        part("spin_lock", one.spin_lock("d"), two.spin_lock("d")),
        part("read", read.read(), read_of_two.write()),
        part(
            "prefer_readers",
            preferred.prefer_readers().read(),
            preferred_of_two.write(),
        ),
        part("write", write.write(), write_of_two.read()),
        part("MultiLock", inner, two.lock("inner b")),
    ]
}

fn redlock(server: &RedisServer) -> Lock {
    let redlock = Redlock::builder()
        .nodes([Client::open(&server.url()).unwrap()])
        .watchdog_timeout(LEASE)
        .node_timeout(ms(5000))
        .trust_new_nodes();
    redlock.build().unwrap().lock("quorum")
}

/// Everything that a member has to do.
fn works_as_a_member(part: &Part) {
    let Part {
        kind,
        part,
        bars,
        plain,
    } = part;
    let both = MultiLock::of([part, plain]).unwrap();
    let is_held = || !elsewhere(|| bars.try_lock().unwrap());
    let guard = both.guard().unwrap();
    assert!(is_held(), "{kind}");
    assert_eq!(guard.fencing_token(), None, "{kind}");
    match (*kind, both.try_lock()) {
        ("token_lock", again) => {
            assert!(
                matches!(again, Err(Error::NotReentrant { .. })),
                "{again:?}"
            );
        }
        (_, again) => {
            assert!(again.unwrap(), "{kind}");
            assert_eq!(both.hold_count().unwrap(), 2, "{kind}");
            both.unlock().unwrap();
        }
    }
    let mut left = guard.remaining_validity();
    eventually(LONG, "it is renewed", || {
        let before = std::mem::replace(&mut left, guard.remaining_validity());
        left > before
    });
    assert!(guard.is_valid() && is_held(), "{kind}");
    guard.unlock().unwrap();
    bars.lock().unwrap();
    assert!(!elsewhere(|| both.try_lock().unwrap()), "{kind}");
    assert!(
        !plain.is_locked().unwrap(),
        "{kind}: it keeps no other part"
    );
    // It waits, and acquires when the member is free.
    let (sender, got) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            both.lock().unwrap();
            sender.send(()).unwrap();
            both.unlock().unwrap();
        });
        assert!(got.recv_timeout(ms(300)).is_err(), "{kind}");
        bars.unlock().unwrap();
        got.recv_timeout(LONG).unwrap();
    });
    assert!(!is_held() || bars.unlock().is_ok(), "{kind}");
    // It has neither conditions nor guarded writes, whatever its members have.
    let guard = both.guard().unwrap();
    let error = both.condition("filled").signal().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = guard.eval("return 1", &[], &[]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    guard.unlock().unwrap();
}

/// All at the same time, because each waits for a renewal.
fn work_as_parts(parts: &[Part]) {
    thread::scope(|scope| {
        for part in parts {
            scope.spawn(|| works_as_a_member(part));
        }
    });
}

fn open(url: &str) -> Client {
    Client::builder().watchdog_timeout(LEASE).open(url).unwrap()
}

#[test]
fn every_kind_in_redis_can_be_a_member() {
    let server = RedisServer::start();
    let clients = [open(&server.url()), open(&server.url())];
    work_as_parts(&parts_of(&clients[0], &clients[1]));
}

#[cfg(feature = "test-util")]
#[test]
fn every_kind_in_memory_can_be_a_member() {
    let one = Client::builder()
        .watchdog_timeout(LEASE)
        .in_memory()
        .unwrap();
    let two = one.another().unwrap();
    work_as_parts(&parts_of(&one, &two));
}

#[test]
fn a_redlock_can_be_a_member() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let client = open(&other.url());
    works_as_a_member(&Part {
        kind: "Redlock",
        part: redlock(&server),
        bars: redlock(&server),
        plain: client.lock("plain"),
    });
}

#[cfg(feature = "mysql")]
#[test]
fn a_database_lock_can_be_a_member() {
    let database = MariaDb::shared().database();
    let clients = [open(&database.url()), open(&database.url())];
    crate::mysql::make_tables(&database);
    let server = RedisServer::start();
    let client = open(&server.url());
    let part = |kind, lock: fn(&Client, &str) -> Lock| Part {
        kind,
        part: lock(&clients[0], kind),
        bars: lock(&clients[1], kind),
        plain: client.lock(kind),
    };
    work_as_parts(&[
        part("lock", Client::lock),
        part("spin_lock", Client::spin_lock),
    ]);
}

#[track_caller]
fn is_unsupported<T: std::fmt::Debug>(outcome: Result<T, Error>, words: &str) {
    let error = outcome.unwrap_err();
    let is_told = matches!(&error, Error::Unsupported { reason, .. } if reason.contains(words));
    assert!(is_told, "{error}");
}

/// Waiters of these kinds have no queue in the store, so they cannot be counted.
#[test]
fn waiters_cannot_be_counted_without_a_queue_in_the_store() {
    let server = RedisServer::start();
    let clients = [Client::in_memory(), open(&server.url())];
    for client in &clients {
        for part in parts_of(client, client) {
            is_unsupported(part.part.waiters(), "cannot be counted");
        }
    }
    is_unsupported(redlock(&server).waiters(), "cannot be counted");
    let parts = [&clients[0].fair_lock("i"), &clients[1].fair_lock("j")];
    let of_fair = MultiLock::of(parts).unwrap();
    is_unsupported(of_fair.waiters(), "cannot be counted");
    assert_eq!(server.int(&["DBSIZE"]), 0, "nothing is asked");
}

/// A quorum has one kind of lock, which also polls; it has no fencing token, no guarded writes and no conditions.
#[test]
fn a_quorum_has_locks_that_listen_and_locks_that_poll() {
    let server = RedisServer::start();
    let lock = redlock(&server);
    for lock in [lock.clone(), lock.with_backoff(ms(1), ms(20))] {
        let guard = lock.guard().unwrap();
        assert_eq!(guard.fencing_token(), None);
        is_unsupported(
            guard.eval("return 1", &[], &[]),
            "Redlock has no guarded writes",
        );
        is_unsupported(
            lock.condition("filled").signal(),
            "no conditions, because its nodes",
        );
        guard.unlock().unwrap();
    }
}

#[cfg(feature = "mysql")]
#[test]
fn a_database_says_why_it_has_no_other_kinds() {
    let database = MariaDb::shared().database();
    crate::mysql::make_tables(&database);
    let client = Client::open(&database.url()).unwrap();
    for lock in [
        client.lock("a"),
        client.fenced_lock("b"),
        client.spin_lock("c"),
    ] {
        let guard = lock.guard().unwrap();
        assert!(guard.fencing_token().is_some());
        is_unsupported(guard.eval("return 1", &[], &[]), "Guard::transaction");
        is_unsupported(lock.condition("filled").wait(), "in a database");
        guard.unlock().unwrap();
    }
    let prices = client.read_write_lock("prices");
    is_unsupported(client.token_lock("d").try_lock(), "in a database");
    is_unsupported(prices.read().try_lock(), "in a database");
    is_unsupported(prices.write().try_lock(), "in a database");
    is_unsupported(client.semaphore("e").try_acquire(1), "in a database");
    is_unsupported(client.permit_semaphore("f").try_acquire(1), "in a database");
    is_unsupported(client.latch("g").count(), "in a database");
    // A part that cannot be had is an error of the whole.
    let both = MultiLock::of([&client.token_lock("d"), &client.lock("a")]).unwrap();
    is_unsupported(both.try_lock(), "in a database");
    assert!(!client.lock("a").is_locked().unwrap());
}

#[test]
fn key_prefix_once_is_not_added_twice() {
    let server = RedisServer::start();
    let open = |builder: Builder| builder.open(&server.url()).unwrap();
    let once = open(Client::builder().key_prefix_once("app:"));
    let always = open(Client::builder().key_prefix("app:"));
    once.lock("orders").lock().unwrap();
    assert!(once.lock("app:orders").is_held_by_current_thread().unwrap());
    assert!(always.lock("orders").is_locked().unwrap());
    assert!(!always.lock("app:orders").is_locked().unwrap());
    for prefix in ["", "ord", "app:ord"] {
        let found: Vec<String> = once
            .locks(prefix)
            .map(|it| it.unwrap().name.to_string())
            .collect();
        assert_eq!(found, ["app:orders"], "{prefix:?}");
    }
    assert!(once.semaphore("permits").try_set(1).unwrap());
    assert_eq!(once.semaphore("app:permits").available().unwrap(), 1);
    // A quorum inherits the rule from its clients, which must agree.
    let redlock = |client: &Client| {
        let other = open(Client::builder().key_prefix("app:"));
        Redlock::builder().nodes([client.clone(), other]).build()
    };
    let error = redlock(&once).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    assert!(error.to_string().contains("prefix"), "{error}");
}
