//! How a master that was replaced is left, tried with real servers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;
use std::thread;

use super::super::*;
use crate::stores::redis::transport::TlsConfig;
use crate::support::topology_fixtures::FakeSentinel;
use crate::support::{Proxy, RedisServer, ms};

/// A client of these sentinels, which looks after its master by itself once in ten seconds.
fn client_of(fakes: &[FakeSentinel]) -> Sentinels {
    let at = |url: &str| Address::parse(url, ms(1000), &TlsConfig::default()).unwrap();
    let settings = Settings {
        command_timeout: ms(1000),
        connect_timeout: ms(1000),
        ..crate::stores::redis::tests::stub::settings()
    };
    let addresses = fakes.iter().map(|fake| at(&fake.url())).collect();
    Sentinels::new("m", addresses, at("redis://127.0.0.1:1"), &settings)
}

fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + ms(4000);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(ms(5));
    }
}

#[test]
fn a_master_that_was_replaced_is_left_and_the_new_one_tried_until_it_is_reached() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let way = Proxy::to(new.addr());
    way.refuse();
    let fakes = [(); 3].map(|()| FakeSentinel::naming_since(old.addr(), 1));
    let client = client_of(&fakes);
    let in_a_second = || Instant::now() + ms(1000);
    let is_at = |address: SocketAddr| *client.node() == *address.to_string();
    let asked = || fakes.iter().map(FakeSentinel::asked).sum::<usize>();
    let name = |address, epoch| {
        // The thread looks at once when it listens again.
        fakes.iter().for_each(FakeSentinel::hush);
        fakes.iter().for_each(|fake| fake.name(address, epoch));
        fakes.iter().for_each(FakeSentinel::speak);
    };
    let is_left = || {
        soon("the replaced one is left", || !is_at(old.addr()));
        assert!(client.connect(in_a_second()).is_err());
        let before = asked();
        thread::sleep(ms(1500));
        let checks = (asked() - before) / fakes.len();
        assert!((1..=20).contains(&checks), "{checks} checks");
    };
    client.connect(in_a_second()).unwrap();
    assert!(is_at(old.addr()));

    // Settled by the sentinels, which say otherwise.
    name(way.addr(), 2);
    is_left();
    fakes.iter().for_each(|fake| fake.name(old.addr(), 3));
    soon("it is master again", || is_at(old.addr()));

    // Settled by the new one, which calls itself a replica at first.
    name(way.addr(), 4);
    is_left();
    new.cmd(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    way.heal();
    is_left();
    new.cmd(&["REPLICAOF", "NO", "ONE"]);
    soon("the new one is used", || is_at(way.addr()));
    thread::sleep(ms(100));
    let before = asked();
    thread::sleep(ms(1000));
    assert_eq!(asked(), before, "it is settled");

    // The end does not wait for it.
    way.refuse();
    name(way.addr(), 5);
    let begun = Instant::now();
    client.close();
    assert!(begun.elapsed() < ms(2000), "{:?}", begun.elapsed());
}
