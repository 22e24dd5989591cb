//! The numbers of connections, messages and masters.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redlatch::{Client, ConnectionStats, Interrupt, Lock};

use super::observed::Notes;
use super::{eventually, open};
use crate::laws::until_queued;
use crate::support::topology_fixtures::Replicas;
use crate::support::{Proxy, RedisServer, free_port};

fn of(client: &Client) -> ConnectionStats {
    client.stats().connections
}

fn connects(stats: &ConnectionStats, result: &str) -> u64 {
    let found = stats.connects.iter().filter(|(name, _)| *name == result);
    found.map(|(_, count)| count).sum()
}

/// Waits until somebody listens, as the server has it.
fn until_heard(lock: &Lock) {
    eventually("somebody listens", || {
        lock.describe().unwrap().listening == Some(1)
    });
}

#[test]
fn connections_are_counted_by_what_they_do() {
    let server = RedisServer::start();
    let (client, holder) = (open(&server), open(&server));
    assert_eq!(of(&client), ConnectionStats::default());
    client.lock("orders:1").run(|_| ()).unwrap();
    eventually("what is open is idle", || {
        let now = of(&client);
        assert!(now.idle <= connects(&now, "ok"), "{now:?}");
        now.idle > 0 && now.busy == 0
    });

    // A message wakes nobody while its waiter is awake to look again, as it is when its subscription has just begun. The
    // subscription outlasts the waiter for a while, in which its own unlock is nobody's concern.
    eventually("a message wakes the waiter, and one finds nobody", || {
        let held = holder.lock("orders:1").guard().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("orders:1").run(|_| ()).unwrap());
            until_heard(&holder.lock("orders:1"));
            until_queued(&client.lock("orders:1"), 1);
            assert!(!of(&client).is_subscriber_down);
            eventually("one is busy listening", || of(&client).busy == 1);
            held.unlock().unwrap();
            waiter.join().unwrap();
        });
        let now = of(&client);
        now.messages_woke > 0 && now.messages_nobody > 0
    });
    client.shutdown();
    let now = of(&client);
    assert_eq!((now.idle, now.busy), (0, 0), "all are closed");
}

#[test]
fn attempts_to_connect_are_told_with_their_result() {
    let server = RedisServer::with(&["--requirepass", "hush-hush"]);
    let notes = Arc::new(Notes::default());
    let at = |url: &str| {
        let builder = Client::builder().observer(Arc::clone(&notes));
        builder.open(url).unwrap()
    };
    let known = at(&server.url().replace("redis://", "redis://:hush-hush@"));
    known.lock("orders:1").run(|_| ()).unwrap();
    let unknown = at(&server.url().replace("redis://", "redis://:guess@"));
    assert!(unknown.lock("orders:1").try_lock().is_err());
    let nowhere = at(&format!("redis://127.0.0.1:{}", free_port()));
    assert!(nowhere.lock("orders:1").try_lock().is_err());
    for (client, result) in [
        (&known, "ok"),
        (&unknown, "refused"),
        (&nowhere, "unreachable"),
    ] {
        let stats = of(client);
        let count = connects(&stats, result);
        assert!(count > 0, "{result}: {stats:?}");
        assert_eq!(stats.connects.len(), 1, "{stats:?}");
        eventually("each is told", || {
            notes.count(&format!("connected {result}")) as u64 == connects(&of(client), result)
        });
    }
    assert_eq!(notes.count("hush-hush") + notes.count("guess"), 0);
}

#[test]
fn a_subscriber_without_a_connection_is_down() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let (client, holder) = (Client::open(&proxy.url()).unwrap(), open(&server));
    let held = holder.lock("orders:1").guard().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.lock("orders:1").run(|_| ()).unwrap());
        until_heard(&holder.lock("orders:1"));
        proxy.refuse();
        proxy.cut();
        eventually("it is down", || of(&client).is_subscriber_down);
        let page = client.stats().to_openmetrics();
        assert!(page.contains("\nredlatch_subscriber_up 0\n"), "{page}");
        proxy.heal();
        eventually("it is up", || !of(&client).is_subscriber_down);
        held.unlock().unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn another_master_is_counted() {
    let set = Replicas::start(1);
    let client = Client::builder()
        .command_timeout(Duration::from_secs(20))
        .master_replicas(set.urls())
        .unwrap();
    client.lock("orders:1").run(|_| ()).unwrap();
    assert_eq!(of(&client).master_changes, 0);
    set.switch_to(1);
    eventually("the other one has it", || {
        client.lock("orders:1").run(|_| ()).is_ok() && of(&client).master_changes == 1
    });
}

#[test]
fn a_waiter_whose_predecessor_left_was_woken_by_no_message() {
    let server = RedisServer::start();
    let client = open(&server);
    let holder = open(&server).lock("orders");
    holder.lock().unwrap();
    let (lock, interrupt) = (client.lock("orders"), Interrupt::new());
    thread::scope(|scope| {
        scope.spawn(|| lock.lock_interruptibly(&interrupt));
        until_queued(&lock, 1);
        eventually("the head listens", || server.eval_count() >= 3);
        let next = scope.spawn(|| lock.run(|_| ()).unwrap());
        until_queued(&lock, 2);
        // Gone without a message.
        server.cmd(&["DEL", "orders"]);
        interrupt.raise();
        next.join().unwrap();
    });
    let stats = client.stats();
    let ways = stats.classes[0].acquisitions;
    assert_eq!((ways.woken, ways.polled), (0, 1), "{ways:?}");
    assert_eq!(stats.connections.messages_woke, 0);
}
