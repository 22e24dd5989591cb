//! Faults of the server itself, and bad input that only a real server can refuse: F16 to F33 and F42 of the table in
//! `tests/it/faults/README.md`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod addresses;
mod announced;
mod data_loss;
mod fields;
mod foreign_keys;
mod idle;
mod maxclients;
mod moved;
mod no_scripts;
mod paused;
mod rights;
mod routed;
mod secrets;
mod states;
mod topologies;

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Guard, HealthWarning, Lock, LossCause};

use crate::invariants::{
    ACQUIRE, CANARY, Class, INSPECT, Log, RELEASE, SLACK, TIMEOUT, connections, counts,
    ends_within, every_key_expires, fails, is_empty, keys, leaves_nothing, next_loss,
    no_connection_is_left, no_secret, not_heard_of, quick, sha, somebody_waits, teach, written,
};
use crate::support::{Fault, Monitor, Proxy, RedisServer, elsewhere, eventually, ms, product};

/// A lease long enough for renewals on a busy machine.
const LEASE: Duration = ms(1500);

/// A lease for tests of a loss.
const SHORT: Duration = ms(900);

fn client(server: &RedisServer) -> Client {
    quick().open(&server.url()).unwrap()
}

fn keeping(server: &RedisServer) -> Client {
    quick().watchdog_timeout(LEASE).open(&server.url()).unwrap()
}

fn losing(server: &RedisServer) -> Client {
    quick().watchdog_timeout(SHORT).open(&server.url()).unwrap()
}

/// Each operation once: all work.
fn all_works(lock: &Lock, between: &dyn Fn()) {
    let step = |work: &dyn Fn()| {
        between();
        work();
    };
    step(&|| assert!(!lock.is_locked().unwrap()));
    step(&|| assert!(lock.try_lock().unwrap()));
    step(&|| assert!(lock.try_lock().unwrap()));
    step(&|| assert_eq!(lock.hold_count().unwrap(), 2));
    step(&|| assert!(!elsewhere(|| lock.try_lock().unwrap())));
    step(&|| lock.unlock().unwrap());
    step(&|| lock.unlock().unwrap());
    step(&|| lock.lock().unwrap());
    step(&|| assert!(lock.force_unlock().unwrap()));
    step(&|| assert!(lock.unlock().unwrap_err().is_lost()));
    step(&|| assert!(lock.try_lock_for(ms(200)).unwrap()));
    step(&|| lock.unlock().unwrap());
}

/// Creates a user with these rules, and returns its URL.
fn user(server: &RedisServer, name: &str, rules: &[&str]) -> String {
    let password = format!(">{CANARY}");
    let mut words = vec![
        "ACL", "SETUSER", name, "reset", "on", &password, "~*", "&*", "+@all",
    ];
    words.extend(rules);
    server.cmd(&words);
    server
        .url()
        .replace("redis://", &format!("redis://{name}:{CANARY}@"))
}

// Bad input

/// Invalid URLs, most of them with a password.
fn bad_urls() -> Vec<String> {
    [
        "",
        "p",
        "p@",
        "redis:",
        "redis://",
        "redis:///0",
        "redis://app:p@",
        "redis://app:p@host:port",
        "redis://app:p@host:99999999",
        "redis://app:p@:6379",
        "redis://app:p@[::1",
        "redis://app:p@[p]:6379",
        "redis://app:p/x@host:6379",
        "redis://app:p?x@host:6379",
        "redis://app:p#x@host:6379",
        "redis://app:p x@host name:6379",
        "redis://app:p@host:6379/p",
        "redis://app:p@host:6379/-1",
        "redis://app:p@host:6379/99999999999999999999",
        "redis://app:p@host:6379/0?protocol=p",
        "redis://app:p%zz%ff@host/x",
        "redis://ap%ffp:p@host/x",
        "http://app:p@host",
        "rediss://app:p@host:6379",
        "rediss://app:p@host:6379/#insecure",
        "valkeys://app:p@host:6379",
        "redis-sentinel://app:p@host:26379",
        "redis+unix://app:p@host/x?db=p",
        "redis+unix:///x?db=p&pass=p",
        "unix:///x?db=0&protocol=p&pass=p",
        "://app:p@host",
        "app:p@host:6379",
        "host:6379",
    ]
    .iter()
    .map(|url| {
        url.replace(":p", &format!(":{CANARY}"))
            .replace("=p", &format!("={CANARY}"))
            .replace("/p", &format!("/{CANARY}"))
            .replace("[p", &format!("[{CANARY}"))
    })
    .map(|url| {
        if url.starts_with('p') {
            url.replacen('p', CANARY, 1)
        } else {
            url
        }
    })
    .collect()
}
