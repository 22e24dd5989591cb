//! Redlock on real masters, beyond the laws of every lock.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and one that goes on may say how far"
)]

mod clocks;
mod contention;
mod distant;
mod flapping;
mod holds;
mod late;
mod nodes;
mod restarts;
mod takeovers;
mod topologies;
mod waiting;

use std::time::Duration;

use redlatch::{Client, Error, Redlock, RedlockBuilder};

use crate::support::{Proxy, RedisServer, elsewhere, eventually, ms};

pub(crate) use flapping::{ROLE, take_it};

/// The slack of a busy machine.
const SLACK: Duration = ms(2500);

/// A lease longer than all tests: a key that is gone earlier was released.
const LONG: Duration = Duration::from_secs(60);

/// The node timeout, for a busy machine.
const NODE_TIMEOUT: Duration = ms(400);

fn servers(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start()).collect()
}

fn proxies(servers: &[RedisServer]) -> Vec<Proxy> {
    let proxy = |server: &RedisServer| Proxy::to(server.addr());
    servers.iter().map(proxy).collect()
}

fn clients(urls: impl IntoIterator<Item = String>) -> Vec<Client> {
    let open = |url: String| Client::open(&url).unwrap();
    urls.into_iter().map(open).collect()
}

/// A quorum of these new servers, with the long lease.
fn builder(servers: &[RedisServer]) -> RedlockBuilder {
    builder_at(servers.iter().map(RedisServer::url))
}

fn builder_at(urls: impl IntoIterator<Item = String>) -> RedlockBuilder {
    Redlock::builder()
        .nodes(clients(urls))
        .max_lease(LONG)
        .node_timeout(NODE_TIMEOUT)
        .trust_new_nodes()
}

fn redlock(servers: &[RedisServer]) -> Redlock {
    builder(servers).build().unwrap()
}

/// On how many of these servers the key exists.
fn nodes_with_key(servers: &[RedisServer], name: &str) -> usize {
    let has = |server: &&RedisServer| server.int(&["EXISTS", name]) == 1;
    servers.iter().filter(has).count()
}

#[track_caller]
fn all_free(servers: &[RedisServer], name: &str) {
    eventually(SLACK, "no node keeps the key", || {
        nodes_with_key(servers, name) == 0
    });
}

#[track_caller]
fn all_have(servers: &[RedisServer], name: &str) {
    eventually(SLACK * 2, "all nodes have the key", || {
        nodes_with_key(servers, name) == servers.len()
    });
}

/// Asserts that the error reports the quorum: granted, refused and unreachable nodes, and the error of each.
#[track_caller]
fn no_quorum(error: &Error) -> ([usize; 3], Vec<(String, String)>) {
    let Error::NoQuorum {
        granted,
        refused,
        unreachable,
        nodes,
        ..
    } = error
    else {
        panic!("{error}");
    };
    let nodes = nodes
        .iter()
        .map(|node| (node.node.to_string(), node.answer.clone()));
    ([*granted, *refused, *unreachable], nodes.collect())
}
