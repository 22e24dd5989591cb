//! A slow node: its answers come after the decision.

use std::thread;
use std::time::Instant;

use super::{KEY, NODE_TIMEOUT, SLACK, all_free, all_have, builder_at, elsewhere, kept, servers};
use crate::support::{Fault, Proxy, RedisServer, eventually, ms};

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
        let lock = redlock.lock("a");
        lock.lock().unwrap();
        lock.unlock().unwrap();
        let mut hits = 0;
        for _ in 0..10 {
            // It is the acquisition alone that takes its time: on a connection of its own the release would overtake it.
            let rule = slow.next(1, Some(KEY), fault);
            lock.lock().unwrap();
            lock.unlock().unwrap();
            hits += rule.hits();
            rule.lift();
            thread::sleep(ms(100));
        }
        assert!(hits > 3, "the slow one was asked: {hits}");
        eventually(SLACK * 2, "nothing is left", || {
            servers.iter().all(|server| server.int(&["DBSIZE"]) == 0)
        });
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
    let rule = slow.next(1, Some(KEY), Fault::DelayRequest(NODE_TIMEOUT * 3));
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
    // Nobody waits for the answers to earlier requests that come from it one by one.
    assert!(slowed[99] < NODE_TIMEOUT, "{slowed:?}");
    // At the slow one a release may overtake its acquisition, which is withdrawn in the background then.
    eventually(SLACK * 4, "nothing is left", || kept(&servers, "a") == 0);
}

#[test]
fn a_hold_given_back_that_arrives_after_its_release_is_undone() {
    let servers = servers(3);
    let inner = Proxy::to(servers[2].addr());
    let slow = Proxy::to(inner.addr());
    let urls = [servers[0].url(), servers[1].url(), slow.url()];
    let redlock = builder_at(urls)
        .watchdog_timeout(ms(9000))
        .node_timeout(ms(2000))
        .build()
        .unwrap();
    let lock = redlock.lock("a");
    for _ in 0..3 {
        lock.lock().unwrap();
        thread::sleep(ms(30));
        lock.unlock().unwrap();
        thread::sleep(ms(30));
    }
    lock.lock().unwrap();
    all_have(&servers, "a");
    servers[2].cmd(&["DEL", "a"]);
    // The network keeps what gives it back, while its connection ends.
    let held = inner.next(1, Some(b"$1\r\n0\r\n$1\r\n1\r\n"), Fault::Hold);
    eventually(ms(9000), "it is given back", || held.hits() == 1);
    slow.cut();
    thread::sleep(ms(100));
    elsewhere(|| {
        let other = redlock.lock("other");
        other.lock().unwrap();
        thread::sleep(ms(50));
        other.unlock().unwrap();
    });
    // The unlock ends before this node has answered, so what is left there is looked after in the background.
    let rule = slow.next(1, Some(KEY), Fault::DelayReply(ms(300)));
    lock.unlock().unwrap();
    eventually(SLACK, "the node is asked", || rule.hits() == 1);
    thread::sleep(ms(700));
    held.release();
    // It would stay for the rest of its lease.
    let mut came = false;
    let limit = Instant::now() + ms(2500);
    while Instant::now() < limit {
        came |= kept(&servers, "a") == 1;
        thread::sleep(ms(1));
    }
    println!("it came after its release: {came}");
    assert_eq!(kept(&servers, "a"), 0);
}
