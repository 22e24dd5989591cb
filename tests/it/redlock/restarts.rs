//! Restarted nodes must not grant again too early what they have forgotten.

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Error, Guard, Redlock, RedlockBuilder};

use super::{
    LONG, SLACK, all_free, all_have, builder, no_quorum, nodes_with_key, redlock, servers,
};
use crate::support::{RedisServer, eventually, ms};

pub(super) const MAX_LEASE: Duration = ms(2000);

fn short(servers: &[RedisServer]) -> RedlockBuilder {
    builder(servers).max_lease(MAX_LEASE)
}

/// A builder that does not trust new nodes.
fn wary(servers: &[RedisServer]) -> RedlockBuilder {
    Redlock::builder()
        .nodes(super::clients(servers.iter().map(RedisServer::url)))
        .max_lease(MAX_LEASE)
        .node_timeout(super::NODE_TIMEOUT)
}

/// A hold on the first two of three nodes: if one forgets it, another client can get a majority.
fn held_by_two(servers: &[RedisServer]) -> Guard {
    servers[2].freeze();
    let lock = short(servers).build().unwrap().lock("a");
    let guard = lock.with_lease_time(MAX_LEASE).guard().unwrap();
    servers[2].thaw();
    eventually(SLACK, "the last one has it not", || {
        nodes_with_key(&servers[2..], "a") == 0
    });
    guard
}

/// Tries until the lock is granted, and returns how often it was refused while the other hold was valid.
pub(super) fn granted_only_after(guard: &Guard, other: &Redlock) -> usize {
    let lock = other.lock("a");
    let start = Instant::now();
    let mut in_vain = 0;
    loop {
        let granted = lock.try_lock();
        let is_valid = guard.is_valid();
        match granted {
            Ok(true) => {
                assert!(!is_valid, "two hold it after {:?}", start.elapsed());
                lock.unlock().unwrap();
                return in_vain;
            }
            Ok(false) => {}
            Err(error) => assert!(matches!(error, Error::NoQuorum { .. }), "{error}"),
        }
        in_vain += usize::from(is_valid);
        assert!(start.elapsed() < MAX_LEASE * 3 + SLACK);
        thread::sleep(ms(5));
    }
}

/// Repeats a round that a busy machine is too slow for, until an attempt was refused in it.
pub(super) fn until_somebody_tried(mut round: impl FnMut() -> usize) {
    let tried = (0..4).any(|_| round() > 0);
    assert!(tried, "the hold was over each time");
}

#[test]
fn a_node_restarted_empty_grants_nothing_to_earlier_clients() {
    let servers = servers(3);
    let other = short(&servers).build().unwrap();
    other.lock("b").lock().unwrap();
    other.lock("b").unlock().unwrap();
    until_somebody_tried(|| {
        let guard = held_by_two(&servers);
        servers[1].restart();
        assert_eq!(
            nodes_with_key(&servers[1..2], "a"),
            0,
            "it has forgotten it"
        );
        granted_only_after(&guard, &other)
    });
}

#[test]
fn a_node_restarted_empty_grants_nothing_to_new_clients() {
    let servers = servers(3);
    let newcomer = wary(&servers).build().unwrap();
    let error = newcomer.lock("a").try_lock().unwrap_err();
    let (counts, said) = no_quorum(&error);
    assert_eq!(counts, [0, 0, 3], "all are new: {error}");
    assert!(said.iter().all(|(_, said)| said.contains("no vote")));
    assert_eq!(nodes_with_key(&servers, "a"), 0);
    wait_until_old_enough(&servers);
    until_somebody_tried(|| {
        let guard = held_by_two(&servers);
        servers[1].restart();
        let other = wary(&servers).build().unwrap();
        granted_only_after(&guard, &other)
    });
    assert!(
        newcomer.lock("a").try_lock_for(SLACK).unwrap(),
        "in time they vote"
    );
    newcomer.lock("a").unlock().unwrap();
}

fn wait_until_old_enough(servers: &[RedisServer]) {
    // Uptimes have whole seconds.
    let up = |server: &RedisServer| server.info("uptime_in_seconds").unwrap();
    eventually(SLACK * 2, "they are old enough", || {
        servers
            .iter()
            .all(|server| up(server).parse::<u64>().unwrap() >= 4)
    });
}

pub(super) const REMEMBERS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[test]
fn a_node_that_remembers_votes_at_once() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::with(&REMEMBERS)).collect();
    let redlock = redlock(&servers);
    let held = redlock.lock("held");
    held.lock().unwrap();
    all_have(&servers, "held");
    servers[1].restart();
    eventually(SLACK, "it has loaded what it knew", || {
        servers[1].try_cmd(&["EXISTS", "held"]).is_ok()
    });
    assert_eq!(
        nodes_with_key(&servers[1..2], "held"),
        1,
        "it has not forgotten it"
    );
    servers[0].freeze();
    let lock = redlock.lock("a");
    assert!(lock.try_lock_for(SLACK).unwrap());
    lock.unlock().unwrap();
    servers[0].thaw();
    held.unlock().unwrap();
    all_free(&servers, "held");
    all_free(&servers, "a");
}

#[test]
fn a_node_that_restarted_gets_the_key_back_after_its_quarantine() {
    let servers = servers(3);
    let redlock = short(&servers).build().unwrap();
    let guard = redlock.lock("a").guard().unwrap();
    all_have(&servers, "a");
    let start = Instant::now();
    servers[1].restart();
    let limit = MAX_LEASE + SLACK * 2;
    eventually(limit, "it gets the key back", || {
        assert!(guard.is_valid(), "after {:?}", start.elapsed());
        nodes_with_key(&servers[1..2], "a") == 1
    });
    assert!(start.elapsed() >= MAX_LEASE, "{:?}", start.elapsed());
    // Its vote counts from then on: another node may fail.
    servers[0].kill();
    thread::sleep(MAX_LEASE);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    all_free(&servers[1..], "a");
}

#[test]
fn a_majority_that_restarts_ends_the_hold() {
    let servers = servers(3);
    let redlock = short(&servers).build().unwrap();
    let guard = redlock.lock("a").guard().unwrap();
    servers[0].restart();
    servers[1].restart();
    let start = Instant::now();
    guard.lost().recv_timeout(MAX_LEASE + SLACK).unwrap();
    assert!(
        start.elapsed() < MAX_LEASE + ms(1000),
        "{:?}",
        start.elapsed()
    );
    assert!(!guard.is_valid());
    let error = guard.unlock().unwrap_err();
    assert!(error.is_lost(), "{error}");
}

#[test]
fn a_lease_longer_than_the_quorum_maximum_is_refused() {
    let servers = servers(3);
    let lock = redlock(&servers).lock("a");
    let error = lock.with_lease_time(LONG + ms(1)).lock().unwrap_err();
    assert!(matches!(error, Error::InvalidLease { .. }), "{error}");
    assert!(error.to_string().contains("60"), "{error}");
    assert_eq!(nodes_with_key(&servers, "a"), 0);
    lock.with_lease_time(LONG).lock().unwrap();
    lock.unlock().unwrap();
}
