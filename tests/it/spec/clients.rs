//! The library on simulated servers: they behave so that it works.

use std::time::Duration;

use redlatch::{Client, LossCause};
use redlatch_spec::{Persistence, SlotRange};

use super::front::Front;
use crate::support::{elsewhere, eventually, ms, timed};

#[test]
fn threads_of_two_clients_wake_each_other() {
    let front = Front::start();
    let [one, two] = [(); 2].map(|()| Client::open(&front.url()).unwrap());
    let (one, two) = (one.lock("orders"), two.lock("orders"));
    one.lock().unwrap();
    assert!(!elsewhere(|| two.try_lock().unwrap()));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            two.lock().unwrap();
            two.unlock().unwrap();
        });
        eventually(ms(2000), "it listens", || {
            front.with(|server, _| server.clients().1 == 1)
        });
        let (waited, ()) = timed(|| {
            one.unlock().unwrap();
            waits.join().unwrap();
        });
        assert!(waited < ms(500), "{waited:?}");
    });
}

#[test]
fn a_restart_without_keys_loses_a_hold() {
    let front = Front::start();
    let client = Client::builder()
        .watchdog_timeout(ms(900))
        .open(&front.url())
        .unwrap();
    let guard = client.lock("orders").guard().unwrap();
    front.restart(Persistence::All);
    std::thread::sleep(ms(500));
    assert!(guard.is_valid());
    front.restart(Persistence::Nothing);
    let loss = guard.lost().recv_timeout(ms(2000)).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
}

#[test]
fn a_replica_that_takes_over_has_the_lock() {
    let fronts = [Front::start(), Front::start()];
    let [one, two] = &fronts;
    let snapshot = one.with(|server, _| server.snapshot());
    two.with(|server, _| server.follow("127.0.0.1", one.port(), Some(snapshot)));
    one.with(|server, now| server.acknowledge(now, 2, ("127.0.0.1", two.port()), 0));
    let client = Client::builder().wait_replicas(1, Duration::from_millis(200));
    let client = client
        .master_replicas(fronts.iter().map(Front::url))
        .unwrap();
    let lock = client.lock("orders");
    // Nobody tells the replica.
    assert!(matches!(
        lock.try_lock(),
        Err(redlatch::Error::NotReplicated { .. })
    ));
    let replicate = || {
        let changes = two.with(|to, _| one.with(|from, _| from.changes_for(to, 100).unwrap()));
        let has = two.with(|to, _| to.replay(&changes));
        one.deliver(|from, now| from.acknowledge(now, 2, ("127.0.0.1", two.port()), has));
    };
    std::thread::scope(|scope| {
        let locks = scope.spawn(|| elsewhere(|| lock.lock()));
        while !locks.is_finished() {
            replicate();
            std::thread::sleep(ms(2));
        }
        locks.join().unwrap().unwrap();
    });
    replicate();
    one.with(|server, now| server.stop(now));
    one.cut();
    two.with(|server, _| server.promote());
    // A connection that was cut just now fails once.
    eventually(ms(2000), "the replica says so", || {
        matches!(client.lock("orders").is_locked(), Ok(true))
    });
}

#[test]
fn a_cluster_sends_each_lock_to_its_server() {
    let fronts = [Front::start(), Front::start()];
    let address = |at: usize| ("127.0.0.1".to_owned(), fronts[at].port());
    let range = |first, last, at| SlotRange {
        first,
        last,
        master: address(at),
        replicas: Vec::new(),
    };
    let ranges = vec![range(0, 8191, 0), range(8192, 16383, 1)];
    for (at, front) in fronts.iter().enumerate() {
        front.with(|server, _| server.set_slots(address(at), ranges.clone()));
    }
    let client = Client::builder().cluster([fronts[0].url()]).unwrap();
    let names: Vec<String> = (0..20).map(|n| format!("order-{n}")).collect();
    for name in &names {
        client.lock(name).lock().unwrap();
    }
    let kept = |front: &Front| front.with(|server, _| server.keys().iter().count());
    let [one, two] = [kept(&fronts[0]), kept(&fronts[1])];
    assert!(one > 0 && two > 0 && one + two == 20, "{one} and {two}");
    for name in &names {
        client.lock(name).unlock().unwrap();
    }
}

#[test]
fn a_sentinel_leads_to_the_master() {
    let (sentinel, one, two) = (Front::sentinel(), Front::start(), Front::start());
    sentinel.deliver(|it, _| it.name_master("locks", "127.0.0.1", one.port(), 0));
    two.with(|server, _| server.follow("127.0.0.1", one.port(), None));
    let client = Client::builder()
        .sentinel("locks", [sentinel.url()])
        .unwrap();
    let lock = client.lock("orders");
    lock.lock().unwrap();
    assert_eq!(one.with(|server, _| server.keys().iter().count()), 1);
    lock.unlock().unwrap();
    two.with(|server, _| server.promote());
    one.with(|server, _| server.follow("127.0.0.1", two.port(), None));
    sentinel.deliver(|it, _| it.name_master("locks", "127.0.0.1", two.port(), 1));
    eventually(ms(3000), "it finds the new one", || {
        matches!(lock.try_lock(), Ok(true))
    });
    assert_eq!(two.with(|server, _| server.keys().iter().count()), 1);
    lock.unlock().unwrap();
}
