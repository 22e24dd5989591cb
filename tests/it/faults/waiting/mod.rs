//! Faults of waiting and of its messages: F59 to F67 of the table in `tests/it/faults/README.md`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod grants;
mod messages;
mod time_bounds;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Interrupt, Lock};

use crate::support::child::{arg, listen, say};
use crate::support::{Child, Fault, Proxy, RedisServer, elsewhere, eventually, ms};

/// The slack of a busy machine.
const SLACK: Duration = ms(2500);

/// The longest delay of a waiter by a lost message.
const POLL: Duration = ms(1100);

/// A lease longer than any test, so that no waiter is woken by its end.
const MINUTE: Duration = Duration::from_secs(60);

/// A wait shorter than this was woken by a message; a polling waiter takes most of [`POLL`].
const WOKEN: Duration = ms(500);

const CHANNEL: &str = "redisson_lock__channel:{orders}";

fn lock_of(url: &str) -> Lock {
    Client::open(url)
        .unwrap()
        .lock("orders")
        .with_lease_time(MINUTE)
}

/// The number of subscribers of the lock's channel.
fn listeners(server: &RedisServer) -> i64 {
    match server.cmd(&["PUBSUB", "NUMSUB", CHANNEL]) {
        redis::Value::Array(items) => match items.last() {
            Some(redis::Value::Int(count)) => *count,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Acquires and releases the lock. Returns when it acquired.
fn pass(lock: &Lock) -> Instant {
    lock.lock().unwrap();
    let now = Instant::now();
    lock.unlock().unwrap();
    now
}

/// The median: some rounds may be slow on a busy machine, or coincide with a poll.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Runs `role` in a child process; returns false for a role of other files.
pub(crate) fn play(role: &str) -> bool {
    match role {
        "waiter" => waiter(),
        _ => return false,
    }
    true
}

fn waiter() {
    let lock = lock_of(&arg("URL"));
    say("waiting");
    lock.lock().unwrap();
    say("got");
    lock.unlock().unwrap();
    while listen().is_some() {}
}
