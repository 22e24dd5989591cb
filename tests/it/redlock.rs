//! Redlock on real masters.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use redlatch::{Client, Redlock, RedlockBuilder};

use crate::kit::{RedisServer, eventually, ms};

fn servers(count: usize) -> Vec<RedisServer> {
    (0..count).map(|_| RedisServer::start()).collect()
}

fn clients(servers: &[RedisServer]) -> Vec<Client> {
    let client = |server: &RedisServer| Client::open(&server.url()).unwrap();
    servers.iter().map(client).collect()
}

fn builder(servers: &[RedisServer]) -> RedlockBuilder {
    Redlock::builder()
        .nodes(clients(servers))
        .max_lease(ms(2000))
        .node_timeout(ms(200))
        .trust_new_nodes()
}

#[test]
fn a_hold_stands_at_every_node_and_leaves_nothing() {
    let servers = servers(5);
    let redlock = builder(&servers).build().unwrap();
    let lock = redlock.lock("a");
    lock.lock().unwrap();
    lock.lock().unwrap();
    assert_eq!(lock.hold_count().unwrap(), 2);
    eventually(ms(2000), "all have it", || {
        servers.iter().all(|server| server.int(&["HLEN", "a"]) == 1)
    });
    lock.unlock().unwrap();
    lock.unlock().unwrap();
    eventually(ms(2000), "nobody has it", || {
        servers
            .iter()
            .all(|server| server.int(&["EXISTS", "a"]) == 0)
    });
}
