//! Copies of requests that come late, at one part, behind later requests of the hold.

use std::thread;
use std::time::Instant;

use redlatch::{Client, Lock, MultiLock, Redlock};

use crate::support::proxy::Rule;
use crate::support::{Fault, Proxy, RedisServer, elsewhere, eventually, ms};

/// A server behind a proxy that keeps copies, behind one that cuts connections.
struct Side {
    outer: Proxy,
    inner: Proxy,
    server: RedisServer,
}

fn side() -> Side {
    let server = RedisServer::start();
    let inner = Proxy::to(server.addr());
    let outer = Proxy::to(inner.addr());
    Side {
        outer,
        inner,
        server,
    }
}

fn open(url: &str) -> Client {
    let builder = Client::builder().command_timeout(ms(5000));
    builder.open(url).unwrap()
}

fn quorum(urls: impl Iterator<Item = String>, is_canonical: bool) -> Redlock {
    let nodes: Vec<_> = urls.map(|url| open(&url)).collect();
    let builder = Redlock::builder().nodes(nodes).max_lease(ms(30_000));
    let builder = builder.node_timeout(ms(2500)).trust_new_nodes();
    if is_canonical {
        builder.canonical().build().unwrap()
    } else {
        builder.build().unwrap()
    }
}

/// Cuts the connections of these once each has kept a copy.
fn cut_when_kept(kept: &[Rule], sides: &[Side]) {
    eventually(ms(5000), "a copy is kept", || {
        kept.iter().all(|rule| rule.hits() == 1)
    });
    for side in sides {
        side.outer.cut();
    }
}

/// Lets the copies run, and sees that nobody gets `rival` while `held`, of which it is a part, is valid.
fn release_and_watch(kept: Vec<Rule>, held: &Lock, rival: &Lock) {
    kept.into_iter().for_each(Rule::release);
    let start = Instant::now();
    // The copies set what was left of a lease of 6 s after half of it.
    while start.elapsed() < ms(4500) {
        let is_theirs = elsewhere(|| rival.try_lock().is_ok_and(|it| it) && rival.is_valid());
        assert!(
            !(is_theirs && held.is_valid()),
            "two hold it after {:?}",
            start.elapsed()
        );
        thread::sleep(ms(20));
    }
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_way_back_that_comes_late_ends_no_valid_hold() {
    let mut sides = [side(), side()];
    // They are taken in the order of their addresses as text.
    sides.sort_by_key(|side| side.outer.url());
    let [first, second] = &sides;
    let (a, b) = (open(&first.outer.url()), open(&second.outer.url()));
    let both = MultiLock::of([&a.lock("a"), &b.lock("b")]).unwrap();
    both.with_lease_time(ms(6000)).lock().unwrap();
    thread::sleep(ms(3500));
    // The re-entry is done at the first part and cannot be sent to the second one.
    second.outer.refuse();
    second.outer.cut();
    let way_back: &[u8] = b"$1\r\n2\r\n$1\r\n1\r\n";
    let kept = vec![first.inner.next(1, Some(way_back), Fault::Hold)];
    thread::scope(|scope| {
        scope.spawn(|| cut_when_kept(&kept, &sides[..1]));
        assert!(both.with_lease_time(ms(500)).try_lock().is_err());
    });
    second.outer.heal();
    assert!(both.with_lease_time(ms(20_000)).try_lock().unwrap());
    let rival = open(&first.server.url()).lock("a");
    release_and_watch(kept, &both, &rival);
}

#[test]
fn a_re_entry_that_comes_late_at_a_quorum_ends_no_valid_hold() {
    let sides: Vec<_> = (0..3).map(|_| side()).collect();
    let mine = quorum(sides.iter().map(|side| side.outer.url()), false);
    let plain = RedisServer::start();
    let parts = [mine.lock("m"), open(&plain.url()).lock("b")];
    let both = MultiLock::of(&parts).unwrap();
    both.with_lease_time(ms(6000)).lock().unwrap();
    thread::sleep(ms(3500));
    let re_entry: &[u8] = b"$1\r\n1\r\n$1\r\n2\r\n";
    let keep = |side: &Side| side.inner.next(1, Some(re_entry), Fault::Hold);
    let kept: Vec<_> = sides[..2].iter().map(keep).collect();
    thread::scope(|scope| {
        scope.spawn(|| cut_when_kept(&kept, &sides[..2]));
        assert!(both.with_lease_time(ms(500)).try_lock().is_err());
    });
    assert!(both.with_lease_time(ms(20_000)).try_lock().unwrap());
    let theirs = quorum(sides.iter().map(|side| side.server.url()), false);
    release_and_watch(kept, &both, &theirs.lock("m"));
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_lease_of_a_token_that_is_set_late_at_a_quorum_ends_no_valid_hold() {
    let sides: Vec<_> = (0..3).map(|_| side()).collect();
    let mine = quorum(sides.iter().map(|side| side.outer.url()), true);
    let plain = RedisServer::start();
    let parts = [mine.lock("m"), open(&plain.url()).lock("b")];
    let both = MultiLock::of(&parts).unwrap();
    both.with_lease_time(ms(6000)).lock().unwrap();
    eventually(ms(5000), "all have it", || {
        sides
            .iter()
            .all(|side| side.server.int(&["EXISTS", "m"]) == 1)
    });
    thread::sleep(ms(3500));
    // The first re-entry is done at two nodes, and the last node keeps it.
    let [_, second, last] = &sides[..] else {
        unreachable!("there are three");
    };
    let kept = vec![last.inner.next(1, Some(b"$1\r\nm\r\n"), Fault::Hold)];
    thread::scope(|scope| {
        scope.spawn(|| cut_when_kept(&kept, &sides[2..]));
        assert!(both.with_lease_time(ms(500)).try_lock().unwrap());
    });
    // The second one is done at the first and at the last.
    second.outer.refuse();
    second.outer.cut();
    assert!(both.with_lease_time(ms(20_000)).try_lock().unwrap());
    second.outer.heal();
    let theirs = quorum(sides.iter().map(|side| side.server.url()), true);
    release_and_watch(kept, &both, &theirs.lock("m"));
}
