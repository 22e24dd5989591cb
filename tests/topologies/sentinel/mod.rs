//! Locks behind sentinels: F35 to F38 of the table in `tests/it/faults/README.md`.

mod disagreement;
mod failovers;

pub(crate) use disagreement::two_sentinels_of_three_frozen;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, Lock, LossCause, Redlock};

use crate::backends::{
    Grants, KEPT, LEASE, SLACK, all_works, channel, hand_over, is_renewed, is_woken, timed,
};
use crate::report;
use crate::support::topology_fixtures::sentinels::NAME;
use crate::support::topology_fixtures::{AGREEMENT, FakeSentinel, Sentinels};
use crate::support::{Monitor, RedisServer, eventually, free_port, ms};

/// A lease that survives a failover, even on a busy machine.
const PATIENT: Duration = Duration::from_secs(15);

/// A lease longer than any test.
const LONG: Duration = Duration::from_secs(60);

fn client(set: &Sentinels, lease: Duration) -> Client {
    open(Client::builder().watchdog_timeout(lease), set)
}

fn open(builder: Builder, set: &Sentinels) -> Client {
    builder.sentinel(NAME, set.urls()).unwrap()
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn sentinels_and_master_have_passwords_of_their_own() {
    let set = Sentinels::options()
        .password("canary-data")
        .sentinel_password("canary-sentinel")
        .start();
    let good = || Client::builder().credentials("default", "canary-data");
    let client = open(good(), &set);
    all_works(&client.lock("orders"));
    assert!(!format!("{client:?}").contains("canary"), "{client:?}");
    set.failover();
    all_works(&client.lock("orders"));

    let no_password: Vec<_> = set
        .sentinels
        .iter()
        .map(|sentinel| format!("redis://{}", sentinel.addr()))
        .collect();
    let mixed_up: Vec<_> = set
        .sentinels
        .iter()
        .map(|sentinel| format!("redis://:canary-data@{}", sentinel.addr()))
        .collect();
    for client in [
        good().sentinel(NAME, no_password).unwrap(),
        good().sentinel(NAME, mixed_up).unwrap(),
        open(Client::builder(), &set),
        open(
            Client::builder().credentials("default", "canary-wrong"),
            &set,
        ),
        open(Client::builder().credentials("nobody", "canary-data"), &set),
    ] {
        let (took, result) = timed(|| client.lock("orders").try_lock());
        let error = result.unwrap_err();
        assert!(took < SLACK * 2, "{took:?}");
        assert!(matches!(error, Error::Permission { .. }), "{error:?}");
        let text = format!("{error} {error:?} {client:?}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn passwords_of_sentinels_and_master_may_change() {
    let set = Sentinels::options()
        .password("canary-data")
        .sentinel_password("canary-sentinel")
        .start();
    let urls = set.sentinels.iter();
    let urls: Vec<_> = urls.map(|it| format!("redis://{}", it.addr())).collect();
    let passwords = Arc::new(Mutex::new(["canary-data", "canary-old"]));
    let give = |which: usize| {
        let passwords = Arc::clone(&passwords);
        move || Ok::<_, String>(("", passwords.lock().unwrap()[which]))
    };
    let client = Client::builder()
        .credentials_with(give(0))
        .sentinel_settings(Client::builder().credentials_with(give(1)))
        .sentinel(NAME, urls)
        .unwrap();
    let refused = |words: &str| {
        let error = client.lock("orders").try_lock().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(words) && !text.contains("canary"), "{text}");
    };
    refused("the sentinel");
    *passwords.lock().unwrap() = ["canary-old", "canary-sentinel"];
    refused("WRONGPASS");
    *passwords.lock().unwrap() = ["canary-data", "canary-sentinel"];
    all_works(&client.lock("orders"));
    set.failover();
    all_works(&client.lock("orders"));
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_name_that_no_sentinel_knows_is_reported() {
    let set = Sentinels::start();
    let client = Client::builder().sentinel("nobody", set.urls()).unwrap();
    let (took, result) = timed(|| client.lock("orders").try_lock());
    let error = result.unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
    assert!(took < SLACK * 2, "{took:?}");
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let none: [&str; 0] = [];
    let one = ["redis://127.0.0.1:26379"];
    for refused in [
        Client::builder().sentinel(NAME, none),
        Client::builder().sentinel("", one),
        Client::builder().sentinel(NAME, ["http://127.0.0.1:26379"]),
        Client::builder().master_replicas(none),
        Client::builder().cluster(none),
        Client::builder().cluster(["redis://127.0.0.1:26379/3", "redis://127.0.0.1:26380"]),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
    }
}

#[test]
#[ignore = "needs several servers: make topologies"]
fn a_quorum_node_that_fails_over_costs_nothing_and_waits() {
    const MAX_LEASE: Duration = ms(6000);
    let set = Sentinels::start();
    let others = [RedisServer::start(), RedisServer::start()];
    let plain = others
        .iter()
        .map(|server| Client::open(&server.url()).unwrap());
    let redlock = Redlock::builder()
        .nodes(plain.chain([client(&set, LEASE)]))
        .max_lease(MAX_LEASE)
        .node_timeout(ms(500))
        .trust_new_nodes()
        .build()
        .unwrap();
    let lock = redlock.lock("a");
    let held = redlock.lock("held").guard().unwrap();
    let old = set.master();
    eventually(SLACK, "the node has it", || {
        set.nodes[old].int(&["EXISTS", "held"]) == 1
    });
    set.nodes[old].kill();
    for _ in 0..5 {
        assert!(lock.try_lock_for(SLACK).unwrap(), "two of three are there");
        lock.unlock().unwrap();
    }
    set.wait_for_master_after(old);
    assert!(held.is_valid());
    held.unlock().unwrap();
    // From now on the new master has to vote; it was queried not yet, or only recently.
    let seen = Instant::now();
    others[0].freeze();
    let mut told = false;
    loop {
        match lock.try_lock() {
            Ok(granted) if granted => break,
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
                told |= error.to_string().contains("no vote");
            }
        }
        assert!(seen.elapsed() < MAX_LEASE + AGREEMENT);
        thread::sleep(ms(20));
    }
    assert!(told, "it was granted after {:?}", seen.elapsed());
    lock.unlock().unwrap();
    others[0].thaw();
}

/// A client of three fake sentinels: each names a master and the epoch of its failover.
fn sentinels_reporting(
    lease: Duration,
    says: [(&RedisServer, u64); 3],
) -> (Client, [FakeSentinel; 3]) {
    let sentinels = says.map(|(server, epoch)| FakeSentinel::naming_since(server.addr(), epoch));
    let urls: Vec<_> = sentinels.iter().map(FakeSentinel::url).collect();
    let client = Client::builder().watchdog_timeout(lease);
    (client.sentinel(NAME, urls).unwrap(), sentinels)
}

/// Whether this client's locks are on `server` once its connections are new.
fn is_at(client: &Client, server: &RedisServer) -> bool {
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    let guard = client.lock("probe").guard().unwrap();
    let is_there = server.int(&["EXISTS", "probe"]) == 1;
    if let Err(error) = guard.unlock() {
        assert!(error.is_lost(), "{error}");
    }
    is_there
}
