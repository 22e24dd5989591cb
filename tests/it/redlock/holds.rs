//! The life of a hold: re-entered, extended, lost, and restored on nodes that forgot it.

use std::thread;
use std::time::Instant;

use redlatch::{Client, Error, LossCause, OwnedGuard, Redlock};

use super::{
    LONG, SLACK, all_free, all_have, builder, no_quorum, nodes_with_key, redlock, servers,
};

use crate::owned::unlock_in_background;
use crate::support::{RedisServer, delayed_url, eventually, ms};

/// The count of the only hold on each server; 0 where it has no hold.
fn counts(servers: &[RedisServer], name: &str) -> Vec<i64> {
    let count = |server: &RedisServer| {
        let values: Vec<i64> = redis::from_redis_value(server.cmd(&["HVALS", name])).unwrap();
        values.iter().sum()
    };
    servers.iter().map(count).collect()
}

#[test]
fn a_hold_is_on_every_node_and_leaves_no_key() {
    let servers = servers(5);
    let lock = redlock(&servers).lock("a");
    lock.lock().unwrap();
    lock.lock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 2);
    eventually(SLACK, "all have it", || {
        counts(&servers, "a") == [2, 2, 2, 2, 2]
    });
    lock.unlock().unwrap();
    assert!(lock.is_valid());
    eventually(SLACK, "all have it", || {
        counts(&servers, "a") == [1, 1, 1, 1, 1]
    });
    lock.unlock().unwrap();
    assert!(!lock.is_valid());
    all_free(&servers, "a");
}

#[test]
fn a_failed_re_entry_leaves_the_outer_hold_alone() {
    let servers = servers(5);
    let lease = ms(3000);
    let redlock = builder(&servers).watchdog_timeout(lease).build().unwrap();
    let lock = redlock.lock("a");
    let guard = lock.guard().unwrap();
    all_have(&servers, "a");
    for server in &servers[..3] {
        server.freeze();
    }
    let error = lock.try_lock_for(ms(300)).unwrap_err();
    assert!(no_quorum(&error).0[0] <= 2, "{error}");
    assert!(guard.is_valid());
    for server in &servers[..3] {
        server.thaw();
    }
    thread::sleep(lease + ms(300));
    assert!(guard.is_valid(), "it goes on to be renewed");
    assert_eq!(lock.hold_count().unwrap(), 1);
    lock.lock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 2);
    lock.unlock().unwrap();
    guard.unlock().unwrap();
    all_free(&servers, "a");
}

#[test]
fn a_hold_that_a_majority_forgot_is_lost() {
    let servers = servers(5);
    let redlock = builder(&servers)
        .watchdog_timeout(ms(4500))
        .build()
        .unwrap();
    for is_taken in [false, true] {
        let guard = redlock.lock("a").guard().unwrap();
        all_have(&servers, "a");
        for server in &servers[1..4] {
            server.cmd(&["FLUSHALL"]);
            if is_taken {
                server.cmd(&["HSET", "a", "somebody:1", "1"]);
            }
        }
        let start = Instant::now();
        let loss = guard.lost().recv_timeout(LONG).unwrap();
        let took = start.elapsed();
        // By the next renewal, a third of the lease later, and not by the end of the lease.
        assert!(took < ms(1500) + SLACK, "{took:?}");
        let expected = if is_taken {
            LossCause::HeldBy("somebody:1".to_owned())
        } else {
            LossCause::Gone
        };
        assert_eq!(loss.cause, expected);
        assert!(!guard.is_valid());
        assert!(guard.unlock().unwrap_err().is_lost());
        // The remaining nodes are released before their lease ends.
        for server in [&servers[0], &servers[4]] {
            eventually(SLACK, "the rest is freed", || {
                server.int(&["EXISTS", "a"]) == 0
            });
        }
        for server in &servers[1..4] {
            server.cmd(&["DEL", "a"]);
        }
    }
}

#[test]
fn a_hold_that_a_minority_forgot_is_restored_there() {
    let servers = servers(5);
    let redlock = builder(&servers)
        .watchdog_timeout(ms(2400))
        .build()
        .unwrap();
    let lock = redlock.lock("a");
    let guard = lock.guard().unwrap();
    lock.lock().unwrap();
    for forgetful in [[0, 1], [2, 3], [4, 0]] {
        all_have(&servers, "a");
        for index in forgetful {
            servers[index].cmd(&["FLUSHALL"]);
        }
        eventually(ms(800) + SLACK, "it comes back with its count", || {
            assert!(guard.is_valid());
            counts(&servers, "a") == [2, 2, 2, 2, 2]
        });
    }
    lock.unlock().unwrap();
    guard.unlock().unwrap();
    all_free(&servers, "a");
}

#[test]
fn extensions_can_be_limited() {
    let servers = servers(3);
    let lease = ms(900);
    let limited = |most| {
        builder(&servers)
            .watchdog_timeout(lease)
            .max_extensions(most)
            .build()
            .unwrap()
    };
    for (most, at_least) in [(0, lease - ms(100)), (3, lease + ms(500))] {
        let redlock = limited(most);
        let start = Instant::now();
        let guard = redlock.lock("a").guard().unwrap();
        if most == 0 {
            // Nor does the key outlast the validity.
            let mut left = lease;
            while guard.is_valid() {
                let now = servers[1].int(&["PTTL", "a"]);
                let now = ms(u64::try_from(now).unwrap_or_default());
                assert!(now <= left, "{left:?} became {now:?}");
                left = now;
            }
        }
        let loss = guard.lost().recv_timeout(LONG).unwrap();
        let took = start.elapsed();
        assert!(took > at_least, "{most}: {took:?}");
        assert!(took < lease * (most + 1) + SLACK, "{most}: {took:?}");
        assert!(
            loss.cause.to_string().contains("max_extensions"),
            "{}",
            loss.cause
        );
        drop(guard);
        all_free(&servers, "a");
    }
}

#[test]
fn an_unlock_reaches_all_nodes_even_late() {
    let servers = servers(5);
    let lock = redlock(&servers).lock("a");
    lock.lock().unwrap();
    all_have(&servers, "a");
    servers[4].freeze();
    let start = Instant::now();
    lock.unlock().unwrap();
    assert!(start.elapsed() < SLACK);
    assert_eq!(nodes_with_key(&servers[..4], "a"), 0);
    thread::sleep(ms(300));
    servers[4].thaw();
    all_free(&servers, "a");

    lock.lock().unwrap();
    all_have(&servers, "a");
    for server in &servers[..3] {
        server.freeze();
    }
    let error = lock.unlock().unwrap_err();
    let (counts, _) = no_quorum(&error);
    assert!(counts[0] <= 2 && counts[1] == 0, "{error}");
    assert!(!lock.is_valid());
    assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
    for server in &servers[..3] {
        server.thaw();
    }
    all_free(&servers, "a");
}

#[test]
fn a_force_unlock_frees_it_at_all_nodes() {
    let servers = servers(5);
    let (lock, other) = (redlock(&servers).lock("a"), redlock(&servers).lock("a"));
    assert!(!other.force_unlock().unwrap());
    let guard = lock.guard().unwrap();
    all_have(&servers, "a");
    assert!(other.force_unlock().unwrap());
    assert_eq!(nodes_with_key(&servers, "a"), 0);
    assert!(other.try_lock().unwrap());
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(other.is_valid());
    all_have(&servers, "a");
    // A hold on a minority is void, and is released all the same.
    other.unlock().unwrap();
    all_free(&servers, "a");
    servers[0].cmd(&["HSET", "a", "somebody:1", "1"]);
    assert!(!other.is_locked().unwrap());
    assert_eq!(other.remaining_lease().unwrap(), None);
    assert!(!other.force_unlock().unwrap());
    assert_eq!(nodes_with_key(&servers, "a"), 0);
}

#[test]
fn a_lease_without_renewal_ends_at_all_nodes() {
    let servers = servers(3);
    let redlock = redlock(&servers);
    let lock = redlock.lock("a").with_lease_time(ms(600));
    let start = Instant::now();
    lock.lock().unwrap();
    assert!(redlock.lock("a").remaining_lease().unwrap().unwrap() <= ms(600));
    all_free(&servers, "a");
    assert!(start.elapsed() >= ms(500), "{:?}", start.elapsed());
    assert!(!lock.is_valid());
    assert!(lock.unlock().unwrap_err().is_lost());
}

/// The layout of programs in other languages.
#[test]
fn a_canonical_hold_is_one_string_with_one_token_on_all_nodes() {
    let servers = servers(3);
    let canonical = || builder(&servers).canonical().build().unwrap().lock("a");
    let (lock, other) = (canonical(), canonical());
    let guard = lock.guard().unwrap();
    all_have(&servers, "a");
    for server in &servers {
        assert_eq!(
            server.text(&["GET", "a"]).as_deref(),
            Some(guard.visitor().as_str())
        );
        assert!(server.int(&["PTTL", "a"]) > 50_000);
    }
    assert!(!other.try_lock().unwrap());
    assert!(matches!(lock.lock(), Err(Error::NotReentrant { .. })));
    guard.unlock().unwrap();
    all_free(&servers, "a");
    for (taken, is_free) in [(1, true), (2, false)] {
        for server in &servers[..taken] {
            server.cmd(&["SET", "a", "foreign", "NX", "PX", "60000"]);
        }
        assert_eq!(lock.try_lock().unwrap(), is_free, "{taken} of 3 are taken");
        if is_free {
            lock.unlock().unwrap();
        }
        eventually(SLACK, "ours is gone, theirs stays", || {
            nodes_with_key(&servers, "a") == taken
        });
    }
}

#[test]
fn a_shutdown_sends_unlocks_also_where_connections_were_cut() {
    for count in [1, 20] {
        let servers = servers(3);
        let redlock = builder(&servers).node_timeout(SLACK).build().unwrap();
        let names: Vec<String> = (0..count).map(|at| format!("job:{at}")).collect();
        let guards: Vec<_> = names
            .iter()
            .map(|name| redlock.lock(name).owned().unwrap())
            .collect();
        names.iter().for_each(|name| all_have(&servers, name));
        // As something between them does that forgets idle connections.
        for server in &servers {
            server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        thread::sleep(ms(200));
        guards
            .into_iter()
            .for_each(OwnedGuard::unlock_in_background);
        redlock.shutdown();
        names.iter().for_each(|name| all_free(&servers, name));
    }
}

#[test]
fn unlocks_in_the_background_keep_pace_at_distant_nodes() {
    let servers = servers(3);
    let clients = servers
        .iter()
        .map(|server| Client::open(&delayed_url(server.addr(), ms(10))).unwrap());
    let redlock = Redlock::builder().nodes(clients).trust_new_nodes();
    let redlock = redlock.node_timeout(SLACK).build().unwrap();
    unlock_in_background(50, |name| redlock.lock(name));
    // One after the other they would take 10 s.
    redlock.shutdown();
    for server in &servers {
        assert_eq!(server.int(&["DBSIZE"]), 0);
    }
}
