//! The plain token lock, beyond the laws of every lock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Lock, LossCause};

use crate::support::{RedisServer, elsewhere, ms};

const LEASE: Duration = ms(900);
const SLACK: Duration = ms(2500);

/// The release script of programs in other languages.
const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

fn client_at(url: &str) -> Client {
    Client::builder()
        .watchdog_timeout(LEASE)
        .command_timeout(ms(500))
        .open(url)
        .unwrap()
}

fn lock_at(server: &RedisServer) -> Lock {
    client_at(&server.url()).token_lock("a")
}

/// Acquires the key like other programs: for a minute, if it is free.
fn taken_by(server: &RedisServer, token: &str) -> bool {
    let set = server.text(&["SET", "a", token, "NX", "PX", "60000"]);
    set.as_deref() == Some("OK")
}

fn given_back_by(server: &RedisServer, token: &str) -> bool {
    server.int(&["EVAL", COMPARE_AND_DELETE, "1", "a", token]) == 1
}

#[test]
fn its_key_is_a_random_string_with_the_lease_as_ttl() {
    let server = RedisServer::start();
    let lock = lock_at(&server);
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let guard = lock
            .with_lease_time(Duration::from_secs(20))
            .guard()
            .unwrap();
        let token = server.text(&["GET", "a"]).unwrap();
        assert_eq!(token.len(), 20);
        assert!(token.bytes().all(|sign| sign.is_ascii_alphanumeric()));
        assert_eq!(guard.visitor().as_str(), token);
        let left = server.int(&["PTTL", "a"]);
        assert!(left > 10_000 && left <= 20_000, "{left}");
        assert_eq!(lock.hold_count().unwrap(), 1);
        guard.unlock().unwrap();
        assert_eq!(server.int(&["EXISTS", "a"]), 0);
        tokens.push(token);
    }
    tokens.dedup();
    assert_eq!(tokens.len(), 3, "each hold has its own");
}

#[test]
fn it_excludes_token_locks_of_other_programs() {
    let server = RedisServer::start();
    let lock = lock_at(&server);
    assert!(taken_by(&server, "theirs"));
    assert!(!lock.try_lock().unwrap());
    assert!(!lock.try_lock_for(ms(100)).unwrap());
    assert!(lock.is_locked().unwrap());
    assert!(!lock.is_held_by_current_thread().unwrap());
    assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
    assert_eq!(server.text(&["GET", "a"]).as_deref(), Some("theirs"));
    // Token locks publish no message, so the waiter polls.
    let waited = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            lock.lock().unwrap();
            let now = Instant::now();
            assert!(!taken_by(&server, "theirs"));
            assert!(!given_back_by(&server, "theirs"));
            assert!(lock.is_valid());
            lock.unlock().unwrap();
            now
        });
        thread::sleep(ms(300));
        let freed = Instant::now();
        assert!(given_back_by(&server, "theirs"));
        waiting.join().unwrap().saturating_duration_since(freed)
    });
    assert!(waited < ms(150) * 10, "{waited:?}");
    assert!(taken_by(&server, "theirs"));
}

#[test]
fn it_is_not_reentrant() {
    let server = RedisServer::start();
    let lock = lock_at(&server);
    let guard = lock.guard().unwrap();
    for error in [
        lock.lock().unwrap_err(),
        lock.try_lock().unwrap_err(),
        lock.try_lock_for(Duration::from_secs(60)).unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotReentrant { .. }), "{error}");
        assert!(error.to_string().contains('a'), "{error}");
    }
    assert!(guard.is_valid());
    thread::sleep(LEASE + ms(300));
    assert!(guard.is_valid(), "it is renewed all the same");
    assert!(!elsewhere(|| lock.try_lock().unwrap()));
    guard.unlock().unwrap();
    assert!(elsewhere(
        || lock.try_lock().unwrap() && lock.unlock().is_ok()
    ));
}

#[test]
fn one_name_is_one_kind_of_lock() {
    let server = RedisServer::start();
    let client = client_at(&server.url());
    let (token, reentrant) = (client.token_lock("a"), client.lock("a"));
    for (held, other) in [(&token, &reentrant), (&reentrant, &token)] {
        held.lock().unwrap();
        // The same thread holds it as the other kind.
        let error = other.try_lock().unwrap_err();
        assert!(matches!(error, Error::WrongType { .. }), "{error}");
        assert!(matches!(other.unlock(), Err(Error::NotHeld { .. })));
        assert!(held.is_valid());
        assert!(held.is_held_by_current_thread().unwrap());
        held.unlock().unwrap();
    }
    assert_eq!(server.int(&["EXISTS", "a"]), 0);
}

#[test]
fn a_new_owner_of_the_key_is_left_alone_and_reported() {
    let server = RedisServer::start();
    let lock = lock_at(&server);
    let guard = lock.guard().unwrap();
    server.cmd(&["SET", "a", "theirs", "PX", "60000"]);
    let loss = guard.lost().recv_timeout(LEASE + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::HeldBy("theirs".to_owned()));
    assert!(guard.unlock().unwrap_err().is_lost());
    assert_eq!(server.text(&["GET", "a"]).as_deref(), Some("theirs"));
    assert!(server.int(&["PTTL", "a"]) > 40_000);

    server.cmd(&["DEL", "a"]);
    let guard = lock.guard().unwrap();
    server.cmd(&["SET", "a", "theirs", "PX", "60000"]);
    let error = guard.unlock().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert_eq!(server.text(&["GET", "a"]).as_deref(), Some("theirs"));
    assert!(lock.force_unlock().unwrap(), "whoever holds it");
    assert_eq!(server.int(&["EXISTS", "a"]), 0);
}

#[test]
fn a_renewal_does_not_recreate_a_deleted_key() {
    let server = RedisServer::start();
    let guard = lock_at(&server).guard().unwrap();
    server.cmd(&["DEL", "a"]);
    let loss = guard.lost().recv_timeout(LEASE + SLACK).unwrap();
    assert_eq!(loss.cause, LossCause::Gone);
    assert_eq!(server.int(&["EXISTS", "a"]), 0);
}

#[test]
fn threads_of_a_client_hand_it_off_without_a_pause() {
    let server = RedisServer::start();
    let lock = lock_at(&server);
    let until = Instant::now() + Duration::from_secs(2);
    let acquire = || {
        let mut count = 0;
        while Instant::now() < until {
            lock.run(|_| count += 1).unwrap();
        }
        count
    };
    let count: u32 = thread::scope(|scope| {
        let threads = [(); 8].map(|()| scope.spawn(acquire));
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    // With a pause for pollers after each four hand-offs, there would be at most about 60.
    assert!(count > 100, "{count}");
}
