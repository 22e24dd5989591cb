//! Properties of the lock table beyond the laws: fencing numbers, no deadlocks, killed connections, names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, LossCause};

use super::{client, client_with, database, make_tables};
use crate::owned::unlock_in_background;
use crate::support::{Database, MariaDb, Proxy, delayed_url, eventually, ms};

/// Deadlocks that the server has counted since its start.
fn deadlocks(database: &Database<'_>) -> u64 {
    let (_, count): (String, u64) = database.first("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
    count
}

/// 16 threads, each with its own client or all with one, lock `names` in turn; the fences of each name must rise.
fn hammer(database: &Database<'_>, names: usize, rounds: usize, is_one_client: bool) {
    let shared = client(database);
    let inside: Vec<AtomicBool> = (0..names).map(|_| AtomicBool::new(false)).collect();
    let fences: Mutex<BTreeMap<usize, Vec<u64>>> = Mutex::default();
    let barrier = Barrier::new(16);
    let overlaps = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..16 {
            let (shared, inside, fences, barrier, overlaps) =
                (&shared, &inside, &fences, &barrier, &overlaps);
            scope.spawn(move || {
                let client = if is_one_client {
                    shared.clone()
                } else {
                    client(database)
                };
                barrier.wait();
                for round in 0..rounds {
                    let name = (number * 7 + round * 13) % names;
                    let guard = client.lock(&format!("key-{name}")).guard().unwrap();
                    if inside[name].swap(true, Ordering::SeqCst) {
                        overlaps.fetch_add(1, Ordering::SeqCst);
                    }
                    let fence = guard.fencing_token().unwrap();
                    fences.lock().unwrap().entry(name).or_default().push(fence);
                    thread::yield_now();
                    inside[name].store(false, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    let fences = fences.into_inner().unwrap();
    let holds: usize = fences.values().map(Vec::len).sum();
    assert_eq!(holds, 16 * rounds);
    for (name, fences) in fences {
        assert!(fences.is_sorted_by(|a, b| a < b), "key-{name}: {fences:?}");
    }
}

#[test]
fn sixteen_threads_on_several_keys_neither_overlap_nor_deadlock() {
    // A private server, because the server counts deadlocks.
    let server = MariaDb::start();
    let database = server.database();
    make_tables(&database);
    for is_one_client in [true, false] {
        hammer(&database, 1, 60, is_one_client);
        hammer(&database, 64, 150, is_one_client);
    }
    assert_eq!(deadlocks(&database), 0);
}

#[test]
fn the_fencing_number_rises_over_releases_losses_and_a_purge() {
    let database = database();
    let client = client(&database);
    let lock = client.lock("orders");
    let fence = || {
        let guard = lock.guard().unwrap();
        let fence = guard.fencing_token().unwrap();
        let again = lock.guard().unwrap();
        assert_eq!(again.fencing_token(), Some(fence), "a hold has one number");
        fence
    };
    let mut last = fence();
    let mut rises = |next: u64| {
        assert!(next > last, "{next} after {last}");
        last = next;
    };
    rises(fence());
    lock.lock().unwrap();
    client.lock("orders").force_unlock().unwrap();
    rises(fence());
    let short = lock.with_lease_time(ms(50));
    short.lock().unwrap();
    thread::sleep(ms(80));
    rises(fence());
    assert_eq!(
        client.purge(Duration::from_secs(60), 100).unwrap(),
        0,
        "too young"
    );
    assert_eq!(client.purge(Duration::ZERO, 100).unwrap(), 1);
    let rows: u64 = database.first("SELECT COUNT(*) FROM redlatch");
    assert_eq!(rows, 0);
    rises(fence());
    // A held lock is not purged.
    lock.lock().unwrap();
    assert_eq!(client.purge(Duration::ZERO, 100).unwrap(), 0);
    assert!(lock.is_valid());
    lock.unlock().unwrap();
    // Nor is a name whose number is ahead of the clock, as after a clock step back.
    database.run("UPDATE redlatch SET fence = fence + 3600000000");
    rises(fence());
    assert_eq!(client.purge(Duration::ZERO, 100).unwrap(), 0);
    rises(fence());
    for longest in [Duration::MAX, Duration::from_secs(3600)] {
        assert_eq!(client.purge(longest, 100).unwrap(), 0);
    }
}

#[test]
fn killed_connections_are_replaced() {
    let database = database();
    let client = client_with(&database, Client::builder().watchdog_timeout(ms(1500)));
    let other = client_with(&database, Client::builder().watchdog_timeout(ms(1500)));
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = other.lock("orders").guard().unwrap();
            guard.unlock().unwrap();
        });
        // The connections of holder, waiter and watchdog, repeatedly over two leases.
        let start = Instant::now();
        let mut killed = 0;
        while start.elapsed() < ms(3000) {
            killed += database.kill_connections();
            thread::sleep(ms(150));
            assert!(guard.is_valid());
        }
        assert!(killed >= 6, "{killed}");
        assert!(lock.is_held_by_current_thread().unwrap());
        database.kill_connections();
        lock.lock().unwrap();
        database.kill_connections();
        lock.unlock().unwrap();
        database.kill_connections();
        guard.unlock().unwrap();
        waiter.join().unwrap();
    });
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn a_hold_outlives_a_restart_of_the_server() {
    let server = MariaDb::start();
    let database = server.database();
    let client = client_with(
        &database,
        Client::builder().watchdog_timeout(Duration::from_secs(20)),
    );
    make_tables(&database);
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let fence = guard.fencing_token().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let other = Client::open(&database.url()).unwrap();
            let guard = other.lock("orders").guard().unwrap();
            let fence = guard.fencing_token().unwrap();
            guard.unlock().unwrap();
            fence
        });
        thread::sleep(ms(300));
        server.kill();
        let error = client.lock("invoices").try_lock().unwrap_err();
        assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
        server.restart();
        assert!(guard.is_valid());
        assert_eq!(lock.hold_count().unwrap(), 1);
        assert!(!waiter.is_finished(), "it still waits");
        guard.unlock().unwrap();
        assert_eq!(waiter.join().unwrap(), fence + 1);
    });
}

#[test]
fn a_frozen_server_ends_every_call_in_time() {
    let server = MariaDb::start();
    let database = server.database();
    let client = client_with(
        &database,
        Client::builder()
            .watchdog_timeout(ms(1500))
            .command_timeout(ms(1000)),
    );
    make_tables(&database);
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    let other = client.lock("invoices");
    assert!(other.try_lock().unwrap());
    other.unlock().unwrap();
    server.freeze();
    let start = Instant::now();
    let error = other.try_lock_for(ms(100)).unwrap_err();
    assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
    assert!(start.elapsed() < ms(800), "{:?}", start.elapsed());
    let start = Instant::now();
    assert!(other.try_lock().is_err());
    assert!(start.elapsed() < ms(1800), "{:?}", start.elapsed());
    let loss = guard.lost().recv_timeout(ms(4000)).unwrap();
    assert!(
        matches!(loss.cause, LossCause::Unreachable { .. }),
        "{loss}"
    );
    server.thaw();
    // Leftovers of late requests are resolved long before the lease of the default client would end.
    let fresh = Client::open(&database.url()).unwrap();
    for name in ["orders", "invoices"] {
        assert!(
            fresh
                .lock(name)
                .try_lock_for(Duration::from_secs(10))
                .unwrap(),
            "{name}"
        );
    }
}

#[test]
fn names_are_bytes() {
    let database = database();
    let client = client(&database);
    let names = ["Job", "job", "job ", "jöb", "job  ", "jo\u{301}b", "joób"];
    let guards: Vec<_> = names
        .iter()
        .map(|name| client.lock(name).try_guard().unwrap().expect(name))
        .collect();
    assert_eq!(guards.len(), names.len());
    let longest = "x".repeat(255);
    let guard = client.lock(&longest).guard().unwrap();
    let other = super::client(&database);
    assert!(!other.lock(&longest).try_lock().unwrap());
    guard.unlock().unwrap();
    let umlauts = "ü".repeat(128);
    for name in ["x".repeat(256), umlauts] {
        let error = client.lock(&name).lock().unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{error}");
        assert!(error.to_string().contains("255"), "{error}");
    }
    let prefixed = client_with(&database, Client::builder().key_prefix("p:"));
    assert!(prefixed.lock(&"x".repeat(253)).try_lock().unwrap());
    assert!(prefixed.lock(&"x".repeat(254)).try_lock().is_err());
}

/// A client whose connections can be cut, and the proxy that cuts them.
pub(super) fn behind_a_proxy(
    database: &Database<'_>,
    server: &MariaDb,
    builder: Builder,
) -> (Client, Proxy) {
    let proxy = Proxy::to(server.addr());
    let url = database
        .url()
        .replace(&server.addr().to_string(), &proxy.addr().to_string());
    (builder.open(&url).unwrap(), proxy)
}

#[test]
fn an_acquisition_on_a_cut_connection_leaves_no_row() {
    let server = MariaDb::shared();
    let database = database();
    let lease = Duration::from_secs(3);
    let (client, proxy) = behind_a_proxy(&database, server, Client::builder());
    // The row exists; a trigger hides the number of a new row.
    client.lock("orders").run(|_| ()).unwrap();
    // Inserts of one connection take a second. The server does not notice meanwhile that its client has gone.
    database.run(
        "CREATE TABLE slow (id BIGINT UNSIGNED PRIMARY KEY);\n\
         CREATE TRIGGER slow BEFORE INSERT ON redlatch FOR EACH ROW \
         BEGIN IF (SELECT COUNT(*) FROM slow WHERE id = CONNECTION_ID()) THEN DO SLEEP(1); END IF; END",
    );
    for is_kept in [true, false] {
        // Releases of the round before would use connections that are not slow.
        eventually(ms(10_000), "nothing is in doubt", || {
            (0..5).all(|_| {
                thread::sleep(ms(20));
                client.activity().doubts == 0
            })
        });
        database.kill_connections();
        let lock = client.lock("orders").with_lease_time(lease);
        lock.lock().unwrap();
        lock.unlock().unwrap();
        // The connection of the first copy, which has received the statement.
        database.run(
            "REPLACE INTO slow SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE()",
        );
        let start = Instant::now();
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let guard = lock
                    .try_guard_for(Duration::from_secs(20))
                    .unwrap()
                    .unwrap();
                assert!(start.elapsed() > ms(300), "it was cut");
                let mut seen = Vec::new();
                while is_kept && start.elapsed() < ms(1800) {
                    let asked = Instant::now();
                    let valid = guard.remaining_validity();
                    let left = lock.remaining_lease().unwrap().unwrap_or_default();
                    // The reply may take long on a busy machine, and the lease shortens meanwhile.
                    seen.push((valid, left + asked.elapsed()));
                    thread::sleep(ms(50));
                }
                guard.unlock().unwrap();
                seen
            });
            thread::sleep(ms(400));
            proxy.cut();
            for (valid, left) in holder.join().unwrap() {
                assert!(valid <= left, "{valid:?} of {left:?}");
            }
        });
        // Its leftovers are freed long before the lease ends.
        thread::sleep(ms(1500).saturating_sub(start.elapsed()));
        let taken = lock.try_lock_for(ms(1200)).unwrap();
        assert!(taken, "it was taken by nobody");
        lock.unlock().unwrap();
    }
}

#[test]
fn a_release_on_a_cut_connection_is_no_loss() {
    let database = database();
    let (client, proxy) = behind_a_proxy(&database, MariaDb::shared(), Client::builder());
    let lock = client.lock("orders");
    lock.lock().unwrap();
    // The server does not notice meanwhile that its client has gone.
    database.run(
        "CREATE TRIGGER slow BEFORE UPDATE ON redlatch FOR EACH ROW \
         BEGIN IF NEW.owner IS NULL THEN DO SLEEP(0.7); END IF; END",
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(ms(200));
            proxy.cut();
        });
        lock.unlock().unwrap();
    });
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn unlocks_in_the_background_keep_pace_at_a_distant_server() {
    let server = MariaDb::shared();
    let database = database();
    let distant = delayed_url(server.addr(), ms(10));
    let place = distant.trim_start_matches("redis://");
    let url = database.url().replace(&server.addr().to_string(), place);
    let client = Client::open(&url).unwrap();
    unlock_in_background(20, |name| client.lock(name));
    client.shutdown();
    let held: u64 = database.first("SELECT COUNT(*) FROM redlatch WHERE owner IS NOT NULL");
    assert_eq!(held, 0);
}
