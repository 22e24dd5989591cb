//! What a client reports of its locks besides events.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redlatch::{Builder, Client, Interrupt};

use crate::laws::until_queued;
use crate::support::{self, RedisServer, ms};
pub(crate) use events::Notes;

mod connections;
mod events;
#[cfg(feature = "tracing")]
mod spans;

/// Far longer than any event here takes.
fn eventually(what: &str, happened: impl FnMut() -> bool) {
    support::eventually(Duration::from_secs(30), what, happened);
}

fn open(server: &RedisServer) -> Client {
    Client::open(&server.url()).unwrap()
}

/// A builder whose client records its events, and the record.
pub(crate) fn noted() -> (Builder, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    (Client::builder().observer(Arc::clone(&notes)), notes)
}

#[test]
fn each_way_to_acquire_has_its_own_event() {
    let server = RedisServer::start();
    let ((one, mine), (two, theirs)) = (noted(), noted());
    let (client, other) = [one, two].map(|it| it.open(&server.url()).unwrap()).into();
    let lock = client.lock("orders:1");
    lock.lock().unwrap();
    lock.lock().unwrap();
    assert!(!other.lock("orders:1").try_lock().unwrap());
    assert!(!other.lock("orders:1").try_lock_for(ms(20)).unwrap());
    thread::scope(|scope| {
        // Handed over within the client.
        let successor = scope.spawn(|| lock.run(|_| ()).unwrap());
        until_queued(&lock, 1);
        let woken = scope.spawn(|| other.lock("orders:1").run(|_| ()).unwrap());
        eventually("another one waits", || !other.activity().waits.is_empty());
        lock.unlock().unwrap();
        lock.unlock().unwrap();
        successor.join().unwrap();
        woken.join().unwrap();
    });
    for (what, times) in [
        ("acquired free", 1),
        ("acquired reentered", 1),
        ("acquired handed", 1),
        ("orders:1 contended", 1),
        ("orders:1 unlocked", 2),
        ("orders:1 lost", 0),
        ("hand_off ok", 1),
    ] {
        assert_eq!(mine.count(what), times, "{what}: {:#?}", mine.said());
    }
    assert_eq!(
        theirs.count("acquired woken") + theirs.count("acquired polled"),
        1
    );
    assert_eq!(theirs.count("orders:1 refused"), 2);
    assert_eq!(theirs.count("orders:1 contended"), 3);
    assert!(theirs.count("acquire refused") >= 3);
    assert_eq!(client.activity().doubts, 0);
}

#[test]
fn an_interrupt_an_error_and_a_loss_are_reported_once() {
    let server = RedisServer::start();
    let ((one, mine), (two, theirs)) = (noted(), noted());
    let client = one.watchdog_timeout(ms(6000)).open(&server.url()).unwrap();
    let other = two.open(&server.url()).unwrap();
    let lock = client.lock("orders:1");
    lock.lock().unwrap();
    let interrupt = Interrupt::new();
    interrupt.raise();
    let interrupted = other.lock("orders:1").lock_interruptibly(&interrupt);
    assert!(interrupted.is_err());
    assert_eq!(theirs.count("orders:1 interrupted"), 1);

    assert!(other.lock("orders:1").force_unlock().unwrap());
    eventually("the loss is told", || mine.count("orders:1 gone: ") == 1);
    assert_eq!(mine.count("orders:1 lost"), 1);
    assert!(lock.unlock().unwrap_err().is_lost());
    assert_eq!(mine.count("orders:1 gone: "), 1);
    assert!(mine.count("renew gone") >= 1);

    // A string that is not a lock.
    server.cmd(&["SET", "orders:2", "text"]);
    assert!(client.lock("orders:2").try_lock().is_err());
    assert_eq!(mine.count("orders:2 failed"), 1);
    assert_eq!(mine.count("acquire failed"), 1);
}

#[test]
fn the_oldest_holds_and_waits_are_listed() {
    let client = Client::in_memory();
    let first = client.lock("orders:1");
    first.lock().unwrap();
    let second = client.lock("orders:2");
    second.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| first.run(|_| redlatch::current_thread_id()).unwrap());
        eventually("it is listed", || client.activity().waits.len() == 1);
        let activity = client.activity();
        let locks: Vec<_> = activity.holds.iter().map(|hold| &*hold.lock).collect();
        assert_eq!(locks, ["orders:1", "orders:2"]);
        assert_eq!(activity.holds[0].thread, redlatch::current_thread_id());
        assert!(activity.holds[0].remaining_validity > Duration::ZERO);
        let wait = activity.waits[0].clone();
        first.unlock().unwrap();
        assert_eq!(waits.join().unwrap(), wait.thread);
        assert_eq!(wait.lock, "orders:1");
    });
    second.unlock().unwrap();
    assert!(client.activity().holds.is_empty() && client.activity().waits.is_empty());
}
