//! A slow node, whose replies arrive after the decision.

use std::time::Instant;

use super::{NODE_TIMEOUT, SLACK, builder_at, nodes_with_key, servers};
use crate::support::{Fault, Proxy, RedisServer, eventually, ms};

/// Four fast servers, and a fifth one behind a proxy.
fn with_slow() -> (Vec<RedisServer>, Proxy, Vec<String>) {
    let servers = servers(5);
    let slow = Proxy::to(servers[4].addr());
    let urls = servers[..4].iter().map(RedisServer::url);
    let urls = urls.chain([slow.url()]).collect();
    (servers, slow, urls)
}

#[test]
fn one_slow_node_does_not_slow_the_others_down() {
    let (servers, slow, urls) = with_slow();
    let redlock = builder_at(urls).build().unwrap();
    let lock = redlock.lock("a");
    let rounds = |count| -> Vec<_> {
        let round = |_| {
            let start = Instant::now();
            lock.lock().unwrap();
            lock.unlock().unwrap();
            start.elapsed()
        };
        let mut took: Vec<_> = (0..count).map(round).collect();
        took.sort_unstable();
        took
    };
    rounds(20);
    let healthy = rounds(100);
    let _rule = slow.next(usize::MAX, None, Fault::DelayReply(ms(40)));
    // The connections that read late replies are opened once.
    rounds(20);
    let slowed = rounds(100);
    println!(
        "lock and unlock: {:?} with five quick nodes, {:?} with a slow one among them; the slowest: {:?}, {:?}",
        healthy[50], slowed[50], healthy[99], slowed[99]
    );
    assert!(slowed[50] < ms(40), "{slowed:?}");
    // No call waits for the slow node's replies to earlier requests. Some calls may wait for a busy machine.
    assert!(slowed[75] < NODE_TIMEOUT, "{slowed:?}");
    // On the slow node a release may overtake its acquisition, which is then resolved in the background.
    eventually(SLACK * 4, "nothing is left", || {
        nodes_with_key(&servers, "a") == 0
    });
}
