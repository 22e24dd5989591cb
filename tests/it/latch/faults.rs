//! A latch with lost, repeated and late requests and messages.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Latch};

use crate::invariants::{Class, LATCH_COUNT, SLACK, fails, quick, sha, teach};
use crate::support::{End, Fault, Proxy, RedisServer, ms, timed};

/// A latch of 5 behind a proxy, and the server itself.
fn fixture() -> (Client, Latch, Proxy, RedisServer) {
    let server = RedisServer::start();
    teach(&server);
    let proxy = Proxy::to(server.addr());
    let client = quick().open(&proxy.url()).unwrap();
    let latch = client.latch("import");
    assert!(latch.try_set(5).unwrap());
    (client, latch, proxy, server)
}

fn next(proxy: &Proxy, times: usize, fault: Fault) -> crate::support::Rule {
    proxy.next(times, Some(sha(LATCH_COUNT).as_bytes()), fault)
}

#[test]
fn a_count_down_counts_once_under_every_fault() {
    let (_client, latch, proxy, server) = fixture();
    let count = || server.int(&["GET", "import"]);
    for fault in [
        Fault::SwallowReply(End::Reset),
        Fault::SwallowReply(End::Silent),
        Fault::SwallowRequest(End::Reset),
        Fault::DuplicateRequest,
    ] {
        let rule = next(&proxy, 1, fault);
        let left = i64::from(latch.count_down().unwrap());
        assert_eq!(rule.hits(), 1, "{fault:?}");
        assert_eq!(left, count(), "{fault:?}");
    }
    assert_eq!(count(), 1, "four of five");
}

#[test]
fn a_count_down_without_a_reply_is_unknown_and_counts_once() {
    let (_client, latch, proxy, server) = fixture();
    next(&proxy, usize::MAX, Fault::SwallowReply(End::Silent));
    fails(latch.count_down(), Class::Unknown);
    fails(latch.try_set(3), Class::Unknown);
    proxy.heal();
    assert_eq!(server.int(&["GET", "import"]), 4);
    next(&proxy, usize::MAX, Fault::SwallowRequest(End::Silent));
    fails(latch.count_down(), Class::Unknown);
    fails(latch.count(), Class::Unreachable);
    proxy.heal();
    assert_eq!(server.int(&["GET", "import"]), 4);
    // Each recorded reply has a TTL.
    let keys = server.cmd(&["KEYS", "redlatch_once:*"]);
    let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
    assert!(!keys.is_empty());
    for key in keys {
        let left = server.int(&["PTTL", &key]);
        assert!((1..=20_000).contains(&left), "{key}: {left}");
    }
}

#[test]
fn a_waiter_that_misses_the_message_polls() {
    let (_client, latch, proxy, server) = fixture();
    let admin = Client::open(&server.url()).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| latch.wait());
        thread::sleep(ms(400));
        proxy.next(1, None, Fault::DropPush);
        let (took, ()) = timed(|| {
            assert!(admin.latch("import").delete().unwrap());
            waits.join().unwrap().unwrap();
        });
        assert!(took < ms(1100) + SLACK, "{took:?}");
    });
}

#[test]
fn a_server_at_maxmemory_counts_nothing_and_waits_go_on() {
    let (_client, latch, _proxy, server) = fixture();
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    fails(latch.count_down(), Class::Unavailable);
    fails(latch.delete(), Class::Unavailable);
    assert_eq!(latch.count().unwrap(), 5);
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(latch.count_down().unwrap(), 4);
    thread::scope(|scope| {
        let waits = scope.spawn(|| latch.wait_for(Duration::from_secs(20)));
        thread::sleep(ms(300));
        // It is gone with all other data, without a message.
        server.cmd(&["FLUSHALL"]);
        let (took, is_open) = timed(|| waits.join().unwrap().unwrap());
        assert!(is_open && took < ms(1100) + SLACK, "{took:?}");
    });
}

#[test]
fn a_value_that_is_no_count_is_left_alone() {
    let (_client, latch, _proxy, server) = fixture();
    server.cmd(&["SET", "import", "many"]);
    fails(latch.count_down(), Class::WrongType);
    fails(latch.try_set(2), Class::WrongType);
    fails(latch.wait(), Class::WrongType);
    fails(latch.delete(), Class::WrongType);
    assert_eq!(server.text(&["GET", "import"]).as_deref(), Some("many"));
    server.cmd(&["DEL", "import"]);
    server.cmd(&["RPUSH", "import", "1"]);
    fails(latch.count(), Class::WrongType);
    fails(latch.delete(), Class::WrongType);
}
