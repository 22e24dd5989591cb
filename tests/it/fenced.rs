//! The fenced lock on a Redis server: its keys, and its tokens when something fails.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use redlatch::{Client, Error, Lock, MultiLock};

use crate::invariants::{Class, fails, quick};
use crate::laws::until_queued;
use crate::support::{ClockShim, RedisServer, eventually, ms};

const COUNTER: &str = "redisson_lock_token:{orders}";
const LEASE: Duration = ms(900);

/// A token that the clock reaches in the year 2096.
const FAR: u64 = 4_000_000_000_000_000;

fn open(url: &str) -> Client {
    quick().watchdog_timeout(LEASE).open(url).unwrap()
}

fn counter(server: &RedisServer) -> u64 {
    server.text(&["GET", COUNTER]).unwrap().parse().unwrap()
}

/// Acquires the lock for a moment, and returns the token of that hold.
fn token_of(lock: &Lock) -> u64 {
    lock.guard().unwrap().fencing_token().unwrap()
}

/// Like [`token_of`], for a server that may be unreachable for a moment.
fn token_after_all(lock: &Lock) -> u64 {
    let mut token = None;
    eventually(ms(5000), "it is had again", || {
        token = lock.guard().ok().and_then(|guard| guard.fencing_token());
        token.is_some()
    });
    token.unwrap()
}

#[test]
fn its_keys_match_redisson() {
    let server = RedisServer::start();
    let client = open(&server.url());
    for (name, key) in [
        ("orders", COUNTER),
        ("{shop}:orders", "redisson_lock_token:{shop}:orders"),
    ] {
        let lock = client.fenced_lock(name);
        let guard = lock.guard().unwrap();
        let token = guard.fencing_token().unwrap();
        assert_eq!(server.text(&["GET", key]), Some(token.to_string()));
        assert_eq!(server.int(&["PTTL", key]), -1, "it has no end");
        let field = guard.visitor().as_str();
        assert_eq!(server.text(&["HGET", name, field]).as_deref(), Some("1"));
        assert!(server.int(&["PTTL", name]) > 0);
        // It excludes a plain lock of this name, also in the same thread.
        assert!(!client.lock(name).try_lock().unwrap());
        let inner = lock.guard().unwrap();
        assert_eq!(server.text(&["GET", key]), Some(token.to_string()));
        drop(inner);
        guard.unlock().unwrap();
        assert_eq!(server.int(&["EXISTS", name]), 0);
        assert_eq!(server.text(&["GET", key]), Some(token.to_string()));
    }
}

#[test]
fn tokens_rise_by_one_where_the_clock_is_behind() {
    let server = RedisServer::start();
    server.cmd(&["SET", COUNTER, &FAR.to_string()]);
    let locks =
        [open(&server.url()), open(&server.url())].map(|client| client.fenced_lock("orders"));
    for (step, lock) in (1..).zip(locks.iter().cycle().take(5)) {
        assert_eq!(token_of(lock), FAR + step);
    }
    // A refused attempt and a re-entry draw no token.
    let [lock, other] = &locks;
    let guard = lock.guard().unwrap();
    assert!(!other.try_lock().unwrap());
    assert!(lock.try_lock().unwrap());
    assert_eq!(counter(&server), FAR + 6);
    lock.unlock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| token_of(lock));
        until_queued(lock, 1);
        guard.unlock().unwrap();
        assert_eq!(waits.join().unwrap(), FAR + 7);
    });
}

#[test]
fn tokens_rise_across_an_empty_restart() {
    let server = RedisServer::start();
    let (lock, other) = (
        open(&server.url()).fenced_lock("orders"),
        open(&server.url()).fenced_lock("orders"),
    );
    let mut last = token_of(&lock);
    for (round, lock) in [&other, &lock, &other].into_iter().enumerate() {
        match round {
            0 => server.restart(),
            1 => drop(server.cmd(&["FLUSHALL"])),
            // As after the restore of an old dump.
            _ => drop(server.cmd(&["SET", COUNTER, "41"])),
        }
        let next = token_after_all(lock);
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

#[cfg(target_os = "linux")]
#[test]
fn tokens_rise_for_a_client_after_the_clock_steps_back() {
    let clock = ClockShim::build();
    let server = RedisServer::with_clock(&clock);
    let (lock, other) = (
        open(&server.url()).fenced_lock("orders"),
        open(&server.url()).fenced_lock("orders"),
    );
    let first = token_of(&lock);
    clock.set(-10_000);
    // The server's counter exists: tokens rise for every client.
    let second = token_after_all(&other);
    assert_eq!(second, first + 1);
    assert_eq!(token_after_all(&lock), second + 1);
    // Without the counter they rise for each client that has seen a token.
    server.cmd(&["DEL", COUNTER]);
    assert_eq!(token_after_all(&lock), second + 2);
    server.cmd(&["DEL", COUNTER]);
    assert_eq!(token_after_all(&other), second + 1);
    // Data loss and the clock step are noticed only by a client that has seen a token.
    server.cmd(&["DEL", COUNTER]);
    let newcomer = open(&server.url()).fenced_lock("orders");
    assert!(token_after_all(&newcomer) < second);
}

#[test]
fn a_token_at_its_maximum_is_an_error_and_unchanged() {
    let server = RedisServer::start();
    let lock = open(&server.url()).fenced_lock("orders");
    let put = |words: &[&str]| {
        server.cmd(&["DEL", COUNTER]);
        server.cmd(words);
    };
    let wrong: [&[&str]; 5] = [
        &["RPUSH", COUNTER, "1"],
        &["SET", COUNTER, "many"],
        &["SET", COUNTER, "-7"],
        &["SET", COUNTER, "9007199254740991"],
        &["SET", COUNTER, "12345678901234567890123"],
    ];
    for words in wrong {
        put(words);
        let before = server.cmd(&["DUMP", COUNTER]);
        let error = fails(lock.try_lock(), Class::WrongType);
        assert!(
            words[0] == "RPUSH" || error.to_string().contains(COUNTER),
            "{error}"
        );
        assert_eq!(server.int(&["EXISTS", "orders"]), 0, "{words:?}");
        assert_eq!(server.cmd(&["DUMP", COUNTER]), before);
    }
    // The largest token.
    put(&["SET", COUNTER, "9007199254740990"]);
    lock.lock().unwrap();
    assert_eq!(lock.fencing_token().unwrap(), Some(9_007_199_254_740_991));
    thread::scope(|scope| {
        let waits = scope.spawn(|| lock.try_lock_for(ms(2000)));
        until_queued(&lock, 1);
        lock.unlock().unwrap();
        fails(waits.join().unwrap(), Class::WrongType);
    });
    assert_eq!(server.int(&["EXISTS", "orders"]), 0);
}

/// A relay to a server that can replace bytes of requests by others of the same length.
struct Relay {
    addr: SocketAddr,
    swap: Arc<Mutex<Replacement>>,
}

/// The bytes to replace and their replacement; both empty for none.
type Replacement = (Vec<u8>, Vec<u8>);

impl Relay {
    fn to(target: SocketAddr) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let swap = Arc::<Mutex<Replacement>>::default();
        let own = Arc::clone(&swap);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(target).unwrap());
                let (mut replies, mut back) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut replies, &mut back));
                let own = Arc::clone(&own);
                thread::spawn(move || send_on(client, server, &own));
            }
        });
        Relay { addr, swap }
    }

    /// Replaces these texts from now on.
    fn swap(&self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        *self.swap.lock().unwrap() = (from.into(), to.into());
    }
}

fn send_on(mut client: TcpStream, mut server: TcpStream, swap: &Mutex<Replacement>) {
    let mut block = [0; 16 * 1024];
    // A request of this test arrives in one piece.
    while let Ok(read @ 1..) = client.read(&mut block) {
        let bytes = &mut block[..read];
        let (from, to) = &*swap.lock().unwrap();
        if !from.is_empty() {
            let places = bytes.windows(from.len()).enumerate();
            let places: Vec<_> = places
                .filter(|(_, it)| it == from)
                .map(|(at, _)| at)
                .collect();
            for at in places {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
        if server.write_all(bytes).is_err() {
            return;
        }
    }
    // The server sees the close, too.
    let _ = server.shutdown(std::net::Shutdown::Write);
}

#[cfg(target_os = "linux")]
#[test]
fn a_token_below_the_minimum_is_an_error_and_is_released() {
    let clock = ClockShim::build();
    let server = RedisServer::with_clock(&clock);
    let relay = Relay::to(server.addr());
    let lock = open(&format!("redis://{}", relay.addr)).fenced_lock("orders");
    let seen = token_of(&lock);
    // The server no longer gets the client's minimum token, has lost its own, and its clock is set back.
    relay.swap(&(seen + 1).to_string(), &"0".repeat(16));
    server.cmd(&["DEL", COUNTER]);
    clock.set(-10_000);
    let is_regress = |error: Error| {
        assert!(!error.is_retryable() && !error.is_ambiguous() && !error.is_lost());
        assert_eq!(
            (error.lock_name(), error.node().is_some()),
            (Some("orders"), true)
        );
        let text = error.to_string();
        match error {
            Error::FenceRegressed {
                seen: it, drawn, ..
            } => {
                assert!(it == seen && drawn < seen, "{text}");
                assert!(text.contains(&drawn.to_string()), "{text}");
            }
            error => panic!("{error}"),
        }
    };
    let mut error = lock.try_lock();
    if error.as_ref().is_err_and(Error::is_retryable) {
        // By the old clock it was too late.
        error = lock.try_lock();
    }
    is_regress(error.unwrap_err());
    let is_free = || server.int(&["EXISTS", "orders"]) == 0;
    eventually(ms(3000), "it is given back", is_free);
    assert!(matches!(lock.unlock(), Err(Error::NotHeld { .. })));
    is_regress(lock.lock().unwrap_err());
    eventually(ms(3000), "it is given back", is_free);
}

#[test]
fn only_the_members_of_a_multi_lock_have_tokens() {
    let server = RedisServer::start();
    server.cmd(&["SET", COUNTER, &FAR.to_string()]);
    let client = open(&server.url());
    let (fenced, plain) = (client.fenced_lock("orders"), client.lock("stock"));
    let both = MultiLock::of([&fenced, &plain]).unwrap();
    let guard = both.guard().unwrap();
    assert_eq!(guard.fencing_token(), None);
    assert_eq!(both.fencing_token().unwrap(), None);
    assert!(both.try_lock().unwrap());
    both.unlock().unwrap();
    assert_eq!(counter(&server), FAR + 1);
    guard.unlock().unwrap();
    assert_eq!(token_of(&fenced), FAR + 2);
    assert!(plain.guard().unwrap().fencing_token().is_none());
}
