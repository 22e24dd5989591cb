//! A minority of the nodes fails, and a majority.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, LossCause, Redlock};

use super::{
    LONG, NODE_TIMEOUT, SLACK, all_free, all_have, builder, builder_at, clients, elsewhere,
    no_quorum, nodes_with_key, proxies, redlock, servers,
};
use crate::support::{Proxy, RedisServer, eventually, ms};

/// Five servers behind proxies, and their failures.
struct Nodes {
    servers: Vec<RedisServer>,
    proxies: Vec<Proxy>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    Killed,
    Frozen,
    BlackHoled,
}

impl Nodes {
    fn start() -> Nodes {
        let servers = servers(5);
        let proxies = proxies(&servers);
        Nodes { servers, proxies }
    }

    fn redlock(&self, node_timeout: Duration) -> Redlock {
        let redlock = builder_at(self.proxies.iter().map(Proxy::url))
            .node_timeout(node_timeout)
            .outage_timeout(ms(700))
            .build()
            .unwrap();
        let lock = redlock.lock("warm up");
        lock.lock().unwrap();
        lock.unlock().unwrap();
        all_free(&self.servers, "warm up");
        redlock
    }

    fn fail(&self, count: usize, failure: Failure) {
        for (server, proxy) in self.servers.iter().zip(&self.proxies).take(count) {
            match failure {
                Failure::Killed => server.kill(),
                Failure::Frozen => server.freeze(),
                Failure::BlackHoled => proxy.black_hole(),
            }
        }
    }

    fn mend(&self, count: usize, failure: Failure) {
        for (server, proxy) in self.servers.iter().zip(&self.proxies).take(count) {
            match failure {
                Failure::Killed => server.restart(),
                Failure::Frozen => server.thaw(),
                Failure::BlackHoled => proxy.heal(),
            }
        }
    }
}

/// The end of two nodes delays no call.
fn a_minority_fails(failure: Failure) {
    let nodes = Nodes::start();
    // A call that waited for one of them would be late.
    let redlock = nodes.redlock(ms(4000));
    nodes.fail(2, failure);
    let lock = redlock.lock("a");
    let start = Instant::now();
    lock.lock().unwrap();
    let took = start.elapsed();
    assert!(took < SLACK, "{took:?}");
    assert!(lock.is_valid());
    assert!(!elsewhere(|| lock.try_lock().unwrap()));
    let start = Instant::now();
    lock.unlock().unwrap();
    let took = start.elapsed();
    assert!(took < SLACK, "{took:?}");
    assert_eq!(nodes_with_key(&nodes.servers[2..], "a"), 0);
    nodes.mend(2, failure);
    // Requests sent to them before are undone when they are reachable.
    eventually(SLACK * 2, "nobody keeps the key", || {
        nodes_with_key(&nodes.servers, "a") == 0
    });
}

#[test]
fn a_minority_is_killed() {
    a_minority_fails(Failure::Killed);
}

#[test]
fn a_minority_is_frozen() {
    a_minority_fails(Failure::Frozen);
}

#[test]
fn a_minority_is_in_a_black_hole() {
    a_minority_fails(Failure::BlackHoled);
}

/// With three dead nodes each call fails in time, and leaves nothing.
fn a_majority_fails(failure: Failure) {
    let nodes = Nodes::start();
    let redlock = nodes.redlock(NODE_TIMEOUT);
    nodes.fail(3, failure);
    let lock = redlock.lock("a");
    let start = Instant::now();
    let error = lock.try_lock_for(ms(600)).unwrap_err();
    let took = start.elapsed();
    assert!(took >= ms(600) && took < ms(600) + SLACK, "{took:?}");
    let (counts, _) = no_quorum(&error);
    // A healthy node may be slow.
    assert!(counts[0] <= 2 && counts[1] == 0, "{error}");
    assert_eq!(counts.iter().sum::<usize>(), 5, "{error}");
    all_free(&nodes.servers[3..], "a");
    let mut error = error;
    eventually(SLACK * 4, "the healthy ones have granted it", || {
        error = lock.try_lock().unwrap_err();
        no_quorum(&error).0 == [2, 0, 3]
    });
    let (_, said) = no_quorum(&error);
    for (index, (proxy, (node, answer))) in nodes.proxies.iter().zip(&said).enumerate() {
        assert_eq!(*node, proxy.addr().to_string());
        assert_eq!(answer == "granted", index >= 3, "{error}");
        assert!(!answer.is_empty(), "{error}");
        assert!(error.to_string().contains(node), "{error}");
    }
    all_free(&nodes.servers[3..], "a");
    let start = Instant::now();
    let error = lock.lock().unwrap_err();
    let took = start.elapsed();
    assert!(no_quorum(&error).0[0] <= 2, "{error}");
    // The outage time-out.
    assert!(took >= ms(700) && took < ms(700) + SLACK, "{took:?}");
    assert!(!lock.is_valid());
    all_free(&nodes.servers[3..], "a");

    nodes.mend(3, failure);
    eventually(SLACK * 2, "nobody keeps the key", || {
        nodes_with_key(&nodes.servers, "a") == 0
    });
    // Nor do requests in flight restore it.
    thread::sleep(NODE_TIMEOUT * 2);
    assert_eq!(nodes_with_key(&nodes.servers, "a"), 0);
    if failure != Failure::Killed {
        // A skipped node is connected again at the first call, which succeeds without it.
        assert!(lock.try_lock_for(LONG).unwrap());
        lock.unlock().unwrap();
        thread::sleep(NODE_TIMEOUT);
        assert!(lock.try_lock_for(LONG).unwrap());
        all_have(&nodes.servers, "a");
        lock.unlock().unwrap();
        all_free(&nodes.servers, "a");
    }
}

#[test]
fn a_majority_is_killed() {
    a_majority_fails(Failure::Killed);
}

#[test]
fn a_majority_is_frozen() {
    a_majority_fails(Failure::Frozen);
}

#[test]
fn a_majority_is_in_a_black_hole() {
    a_majority_fails(Failure::BlackHoled);
}

#[test]
fn a_hold_ends_in_time_when_a_majority_fails_under_it() {
    let nodes = Nodes::start();
    let redlock = builder_at(nodes.proxies.iter().map(Proxy::url))
        .watchdog_timeout(ms(1500))
        .build()
        .unwrap();
    let other = nodes.redlock(NODE_TIMEOUT);
    let guard = redlock.lock("a").guard().unwrap();
    nodes.fail(3, Failure::Frozen);
    let loss = guard.lost().recv_timeout(ms(1500) + SLACK).unwrap();
    assert!(!guard.is_valid());
    let LossCause::Unreachable { reason, .. } = &loss.cause else {
        panic!("{}", loss.cause);
    };
    assert!(!reason.is_empty());
    assert!(guard.unlock().unwrap_err().is_lost());
    // The rest is released when they are back, long before the lease ends.
    nodes.mend(3, Failure::Frozen);
    assert!(other.lock("a").try_lock_for(SLACK * 2).unwrap());
    other.lock("a").unlock().unwrap();
}

#[test]
fn one_server_has_one_vote() {
    let servers = servers(2);
    let by_name = format!("redis://localhost:{}", servers[0].port());
    for twin in [servers[0].url(), servers[0].unix_url(), by_name] {
        let urls = [servers[0].url(), servers[1].url(), twin];
        let error = builder_at(urls).build().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
        assert!(
            error.to_string().contains(&servers[0].addr().to_string()),
            "{error}"
        );
    }
}

#[test]
fn a_duplicate_node_found_later_has_no_vote() {
    let servers = servers(2);
    let twin = Proxy::to(servers[1].addr());
    twin.refuse();
    let urls = [servers[0].url(), servers[1].url(), twin.url()];
    let redlock = builder_at(urls).build().unwrap();
    twin.heal();
    servers[0].kill();
    let lock = redlock.lock("a");
    let error = lock.try_lock_for(ms(1500)).unwrap_err();
    let (counts, said) = no_quorum(&error);
    assert_eq!(counts[0], 1, "{error}");
    assert!(said[2].1.contains("same server"), "{error}");
    all_free(&servers[1..], "a");
}

#[test]
fn a_weak_number_of_nodes_is_reported() {
    let servers = servers(4);
    for (count, is_poor) in [(1, true), (2, true), (3, false), (4, true)] {
        let redlock = redlock(&servers[..count]);
        let warnings = redlock.check().unwrap();
        let says = |warning: &redlatch::HealthWarning| warning.message.contains("nodes");
        assert_eq!(warnings.iter().any(says), is_poor, "{count}: {warnings:?}");
        let lock = redlock.lock("a");
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
    let error = Redlock::new(clients([])).unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
}

#[test]
fn bad_settings_are_refused() {
    let servers = servers(1);
    for builder in [
        builder(&servers).max_lease(ms(9)),
        builder(&servers).max_lease(Duration::MAX),
        builder(&servers)
            .max_lease(ms(500))
            .watchdog_timeout(ms(501)),
        builder(&servers).watchdog_timeout(ms(9)),
        builder(&servers).node_timeout(Duration::ZERO),
        builder(&servers).outage_timeout(Duration::MAX),
        builder(&servers).nodes([Client::builder()
            .key_prefix("another:")
            .open(&servers[0].unix_url())
            .unwrap()]),
    ] {
        let error = builder.build().unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    }
}
