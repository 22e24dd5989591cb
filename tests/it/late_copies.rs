//! Copies of a request that come late, behind what ended its hold: the network keeps the first one, and the connection
//! behind it is cut, so that the second one is answered first.

use std::thread;
use std::time::Duration;

use redlatch::{Client, MultiLock, Redlock};

use crate::invariants;
use crate::laws::until_queued;
use crate::support::{End, Fault, Proxy, RedisServer, Rule, eventually, ms};

/// By which requests for the lock `a` can be told from others.
const KEY: &[u8] = b"$1\r\na\r\n";

/// A server behind two proxies: the inner one keeps a copy while the outer one is cut.
fn two_proxies() -> (RedisServer, Proxy, Proxy) {
    let server = RedisServer::start();
    let inner = Proxy::to(server.addr());
    let outer = Proxy::to(inner.addr());
    (server, inner, outer)
}

fn open(proxy: &Proxy, command_timeout: Duration) -> Client {
    let builder = Client::builder().command_timeout(command_timeout);
    builder.open(&proxy.url()).unwrap()
}

/// Runs `take`, whose first copy the network keeps, and cuts the connection behind it. Returns the copy.
fn kept_copy(inner: &Proxy, outer: &Proxy, take: impl FnOnce()) -> Rule {
    let first = inner.next(1, Some(KEY), Fault::Hold);
    thread::scope(|scope| {
        scope.spawn(|| {
            eventually(ms(3000), "the first copy is held", || first.hits() == 1);
            outer.cut();
        });
        take();
    });
    first
}

/// Lets the copy go, and waits until what it left is freed.
fn comes_late(copy: Rule, server: &RedisServer) {
    thread::sleep(ms(300));
    copy.release();
    thread::sleep(ms(50));
    nothing_is_left(server);
}

/// What came late is freed in the background, long before its lease of a minute ends.
fn nothing_is_left(server: &RedisServer) {
    eventually(ms(9000), "it is freed", || {
        server.int(&["EXISTS", "a"]) == 0
    });
}

/// The reply to a hand-off to a waiter with a short fixed lease is lost: the releaser's own unlock reads as a loss.
#[test]
fn a_hand_off_whose_first_answer_was_lost_is_no_loss() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let client = Client::builder()
        .command_timeout(ms(1500))
        .open(&proxy.url())
        .unwrap();
    let lock = client.lock("orders");
    invariants::teach_one(&server, invariants::TRANSFER);
    let guard = lock.guard().unwrap();
    let visitor = guard.visitor().to_string();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let short = lock.with_lease_time(ms(300));
            short.lock().unwrap();
            // Its lease is over if the second copy was late.
            let _ = short.unlock();
        });
        until_queued(&lock, 1);
        thread::sleep(ms(100));
        proxy.next(
            1,
            Some(visitor.as_bytes()),
            Fault::SwallowReply(End::Silent),
        );
        assert!(guard.is_valid());
        let outcome = guard.unlock();
        waiter.join().unwrap();
        assert!(
            !matches!(&outcome, Err(error) if error.is_lost()),
            "the valid hold was told lost"
        );
    });
}

/// A token whose request was cut off is in doubt, and is not asked for again: what the request may yet take is withdrawn.
#[test]
fn the_request_of_a_token_that_was_cut_off_leaves_nothing() {
    let (server, inner, outer) = two_proxies();
    let client = open(&outer, ms(3000));
    for is_multi in [false, true] {
        let token = client.token_lock("a");
        let lock = match is_multi {
            true => MultiLock::of([&token, &client.token_lock("b")]).unwrap(),
            false => token,
        };
        let lock = lock.with_lease_time(Duration::from_secs(60));
        lock.lock().unwrap();
        lock.unlock().unwrap();
        let request = kept_copy(&inner, &outer, || {
            let error = lock.try_lock().unwrap_err();
            assert!(error.is_ambiguous(), "{error}");
        });
        comes_late(request, &server);
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
}

/// A node of a quorum that had forgotten the script is asked again, and that request is cut off and repeated.
#[test]
fn a_copy_behind_a_release_at_a_node_leaves_nothing() {
    let mut servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let inner = Proxy::to(servers[0].addr());
    let outer = Proxy::to(inner.addr());
    let urls = [outer.url(), servers[1].url(), servers[2].url()];
    let open = |url: String| {
        let builder = Client::builder().command_timeout(ms(3000));
        builder.open(&url).unwrap()
    };
    let redlock = Redlock::builder()
        .nodes(urls.map(open))
        .trust_new_nodes()
        .max_lease(Duration::from_secs(60))
        .node_timeout(ms(2500))
        .canonical()
        .build()
        .unwrap();
    let lock = redlock.lock("a");
    for _ in 0..3 {
        lock.lock().unwrap();
        lock.unlock().unwrap();
    }
    drop(servers.remove(2));
    lock.lock().unwrap();
    lock.unlock().unwrap();
    servers[0].cmd(&["SCRIPT", "FLUSH"]);
    let first = inner.next(
        1,
        Some(b"call('SET', key, token, 'PX', lease)"),
        Fault::Hold,
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_lock_for(ms(4000)).unwrap());
            lock.unlock().unwrap();
        });
        eventually(ms(2500), "the first copy is held", || first.hits() == 1);
        outer.cut();
    });
    nothing_is_left(&servers[0]);
    thread::sleep(ms(100));
    first.release();
    thread::sleep(ms(50));
    nothing_is_left(&servers[0]);
}
