//! The spin lock on a Redis server: how often it polls, and that it does not subscribe.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Lock};

use crate::laws::until_queued;
use crate::support::{RedisServer, eventually, ms};

fn spin_lock(server: &RedisServer) -> Lock {
    Client::open(&server.url()).unwrap().spin_lock("orders")
}

/// How many requests this many waiters of one client send in a second.
fn asked(server: &RedisServer, lock: &Lock, waiters: usize) -> u64 {
    thread::scope(|scope| {
        for _ in 0..waiters {
            scope.spawn(|| assert!(!lock.try_lock_for(ms(2000)).unwrap()));
        }
        until_queued(lock, waiters);
        let before = server.eval_count();
        thread::sleep(ms(1000));
        let asked = server.eval_count() - before;
        let listening = server.text(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        assert_eq!(listening.as_deref(), Some(""), "nobody listens");
        asked
    })
}

#[test]
fn polls_with_backoff_and_no_subscription() {
    let server = RedisServer::start();
    let held = spin_lock(&server).with_lease_time(Duration::from_secs(60));
    held.lock().unwrap();
    // Delays of 1, 2, 4 … 128 ms, and then 128 ms each: about 14 requests; each delay varies from half to one and a
    // half.
    let other = spin_lock(&server);
    let times = asked(&server, &other, 1);
    assert!((6..=30).contains(&times), "{times}");
    // Half a second each, and one attempt of at most 5 ms.
    let calm = other.with_backoff(ms(500), ms(500));
    let times = asked(&server, &calm, 1);
    assert!((1..=5).contains(&times), "{times}");
    let hasty = other.with_backoff(ms(5), ms(5));
    let times = asked(&server, &hasty, 1);
    assert!(times > 50, "{times}");
    held.unlock().unwrap();
}

#[test]
fn one_thread_of_each_client_polls() {
    let server = RedisServer::start();
    let held = spin_lock(&server).with_lease_time(Duration::from_secs(60));
    held.lock().unwrap();
    let times = asked(&server, &spin_lock(&server), 8);
    assert!((6..=40).contains(&times), "{times}");
    held.unlock().unwrap();
}

#[test]
fn its_unlock_notifies_subscribers() {
    let server = RedisServer::start();
    let held = spin_lock(&server);
    held.lock().unwrap();
    let mut listener = server.admin();
    let mut listener = listener.as_pubsub();
    listener
        .subscribe("redisson_lock__channel:{orders}")
        .unwrap();
    listener.set_read_timeout(Some(ms(3000))).unwrap();
    held.unlock().unwrap();
    let message: String = listener.get_message().unwrap().get_payload().unwrap();
    assert_eq!(message, "0");
    eventually(ms(1000), "it is free", || server.int(&["DBSIZE"]) == 0);
}
