//! A slow node: its answers come after the decision.

use std::thread;
use std::time::Instant;

use super::{NODE_TIMEOUT, SLACK, all_free, builder_at, kept, servers};
use crate::kit::{Fault, Proxy, RedisServer, eventually, ms};

/// Four quick servers, and a last one behind a proxy.
fn with_slow() -> (Vec<RedisServer>, Proxy, Vec<String>) {
    let servers = servers(5);
    let slow = Proxy::to(servers[4].addr());
    let urls = servers[..4].iter().map(RedisServer::url);
    let urls = urls.chain([slow.url()]).collect();
    (servers, slow, urls)
}

#[test]
fn a_release_comes_after_the_acquisition_it_follows() {
    for fault in [Fault::DelayRequest(ms(60)), Fault::DelayReply(ms(60))] {
        let (servers, slow, urls) = with_slow();
        let redlock = builder_at(urls).build().unwrap();
        let lock = redlock.lock("warm up");
        lock.lock().unwrap();
        lock.unlock().unwrap();
        let rule = slow.next(usize::MAX, Some(b"EVAL"), fault);
        for round in 0..15 {
            let lock = redlock.lock(&format!("a{}", round % 3));
            lock.lock().unwrap();
            lock.unlock().unwrap();
        }
        assert!(rule.hits() > 5, "the slow one was asked: {}", rule.hits());
        eventually(SLACK * 2, "nothing is left", || {
            servers.iter().all(|server| server.int(&["DBSIZE"]) == 0)
        });
        rule.lift();
        thread::sleep(ms(200));
        assert_eq!(servers[4].int(&["DBSIZE"]), 0);
    }
}

#[test]
fn an_acquisition_that_arrives_after_its_hold_has_ended_is_refused_or_undone() {
    let (servers, slow, urls) = with_slow();
    let redlock = builder_at(urls).build().unwrap();
    let lock = redlock.lock("a");
    lock.lock().unwrap();
    lock.unlock().unwrap();
    all_free(&servers, "a");
    // Its time is over before it comes, and so is the unlock.
    let rule = slow.next(1, Some(b"EVAL"), Fault::DelayRequest(NODE_TIMEOUT * 3));
    lock.lock().unwrap();
    thread::sleep(NODE_TIMEOUT + ms(50));
    lock.unlock().unwrap();
    assert_eq!(rule.hits(), 1);
    thread::sleep(NODE_TIMEOUT * 3);
    all_free(&servers, "a");
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
    // The connections that wait for late answers are made once.
    rounds(20);
    let slowed = rounds(100);
    println!(
        "lock and unlock: {:?} with five quick nodes, {:?} with a slow one among them; the slowest: {:?}, {:?}",
        healthy[50], slowed[50], healthy[99], slowed[99]
    );
    assert!(slowed[50] < ms(40), "{slowed:?}");
    eventually(SLACK, "nothing is left", || kept(&servers, "a") == 0);
}
