//! Locks without conditions, and threads that could not reacquire: each call returns the reason and changes nothing.

use std::time::Duration;

use redlatch::{Client, Error, Lock, MultiLock, Redlock};

use crate::support::{RedisServer, ms};

#[track_caller]
fn is_refused(lock: &Lock, words: &str) {
    lock.lock().unwrap();
    let condition = lock.condition("filled");
    for error in [
        condition.wait().unwrap_err(),
        condition.wait_for(ms(1)).unwrap_err(),
        condition.signal().unwrap_err(),
        condition.signal_all().unwrap_err(),
    ] {
        let is_told = matches!(&error, Error::Unsupported { reason, .. } if reason.contains(words));
        assert!(is_told, "{error}");
    }
    assert!(lock.is_valid());
    lock.unlock().unwrap();
    // Without the lock.
    let error = condition.wait().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn a_lock_without_conditions_says_why() {
    let server = RedisServer::start();
    for client in [Client::in_memory(), Client::open(&server.url()).unwrap()] {
        is_refused(&client.token_lock("token"), "publish no messages");
        is_refused(&client.spin_lock("spin"), "receive no messages");
        let polls = client
            .fenced_lock("polled")
            .with_backoff(ms(1), Duration::from_millis(9));
        is_refused(&polls, "receive no messages");
        is_refused(&client.read_write_lock("prices").read(), "write side");
        let both = MultiLock::of([&client.lock("a"), &client.lock("b")]).unwrap();
        is_refused(&both, "MultiLock");
    }
    let redlock = Redlock::builder()
        .nodes([Client::open(&server.url()).unwrap()])
        .trust_new_nodes()
        .build()
        .unwrap();
    is_refused(&redlock.lock("c"), "a Redlock has no guarded writes");
}

#[test]
fn a_reader_can_signal_but_not_wait() {
    let server = RedisServer::start();
    for client in [Client::in_memory(), Client::open(&server.url()).unwrap()] {
        let prices = client.read_write_lock("prices");
        let (read, write) = (prices.read(), prices.write());
        let condition = write.condition("filled");
        write.lock().unwrap();
        read.lock().unwrap();
        let error = condition.wait().unwrap_err();
        assert!(matches!(error, Error::Upgrade { .. }), "{error}");
        assert!(write.is_valid() && read.is_valid());
        assert!(!condition.signal().unwrap());
        read.unlock().unwrap();
        assert!(!condition.wait_for(ms(1)).unwrap());
        write.unlock().unwrap();
    }
}

#[test]
fn conditions_of_two_locks_are_independent() {
    let server = RedisServer::start();
    let client = Client::open(&server.url()).unwrap();
    for (lock, condition) in [("{x}:a", "b"), ("{x}", "a"), ("x", "a")] {
        let lock = client.lock(lock);
        lock.lock().unwrap();
        assert!(!lock.condition(condition).wait_for(ms(1)).unwrap());
        lock.unlock().unwrap();
    }
    let colon = client.lock("{x}").condition("a:b").signal().unwrap_err();
    assert!(matches!(colon, Error::InvalidName { .. }), "{colon}");
}
