//! The metrics of connections, messages and masters.

use std::sync::Arc;
use std::thread;

use redlatch::{Client, ConnectionStats, Lock};

use super::{Notes, eventually, open};
use crate::support::{Proxy, RedisServer, free_port};

fn of(client: &Client) -> ConnectionStats {
    client.activity().connections
}

/// Waits until the server reports a subscriber.
fn until_subscribed(lock: &Lock) {
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
        now.idle > 0 && now.busy == 0
    });

    let held = holder.lock("orders:1").guard().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| client.lock("orders:1").run(|_| ()).unwrap());
        until_subscribed(&holder.lock("orders:1"));
        assert!(!of(&client).is_subscriber_down);
        eventually("one is busy listening", || of(&client).busy == 1);
        held.unlock().unwrap();
        waiter.join().unwrap();
    });
    client.shutdown();
    let now = of(&client);
    assert_eq!((now.idle, now.busy), (0, 0), "all are closed");
}

#[test]
fn connection_attempts_are_reported_with_their_result() {
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
    for result in ["ok", "refused", "unreachable"] {
        assert!(notes.count(&format!("connected {result}")) > 0, "{result}");
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
        until_subscribed(&holder.lock("orders:1"));
        proxy.refuse();
        proxy.cut();
        eventually("it is down", || of(&client).is_subscriber_down);
        proxy.heal();
        eventually("it is up", || !of(&client).is_subscriber_down);
        held.unlock().unwrap();
        waiter.join().unwrap();
    });
}
