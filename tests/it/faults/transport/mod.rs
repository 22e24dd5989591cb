//! Faults between client and server: F1 to F14 of the table in `tests/it/faults/README.md`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod broken_replies;
mod dead_connections;
mod late;
mod lost_replies;
#[cfg(target_os = "linux")]
mod names;
mod subscriber;

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Lock, LossCause};

use crate::invariants::{
    ACQUIRE, Class, INSPECT, RELEASE, RELEASE_LEVEL, RENEW, SLACK, TIMEOUT, WITHDRAW, counts,
    ends_within, every_key_expires, fails, is_empty, leaves_nothing, next_loss,
    no_connection_is_left, not_heard_of, quick, sha, somebody_waits, teach, written,
};
use crate::support::proxy::Rule;
use crate::support::{End, Fault, Monitor, Proxy, RedisServer, eventually, ms};

/// Runs `role` in a child process; returns false for a role of other files.
#[cfg(target_os = "linux")]
pub(super) fn play(role: &str) -> bool {
    names::play(role)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn play(_: &str) -> bool {
    false
}

/// A lease long enough for renewals on a busy machine, and short enough to wait for its end.
const LEASE: Duration = ms(1500);

const ENDS: [End; 2] = [End::Reset, End::Silent];

const FOR_EVER: usize = usize::MAX;

/// A client behind a proxy, and a server with all scripts. The client is dropped first.
struct Fixture {
    client: Client,
    proxy: Proxy,
    server: RedisServer,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with(quick())
    }

    fn with(builder: Builder) -> Fixture {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let client = builder.open(&proxy.url()).unwrap();
        Fixture {
            client,
            proxy,
            server,
        }
    }

    /// Applies `fault` to the next `times` calls of a script.
    fn next(&self, times: usize, script: &str, fault: Fault) -> Rule {
        self.proxy.next(times, Some(sha(script).as_bytes()), fault)
    }

    /// A client without the proxy.
    fn undisturbed(&self) -> Client {
        quick().open(&self.server.url()).unwrap()
    }

    /// Locks and unlocks, to open a connection.
    fn warm(&self) -> Lock {
        let lock = self.client.lock("orders");
        lock.lock().unwrap();
        lock.unlock().unwrap();
        lock
    }
}

fn one_hold_and_then_none(fixture: &Fixture, lock: &Lock) {
    assert_eq!(counts(&fixture.server, "orders"), ["1"]);
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(lock.is_valid());
    lock.unlock().unwrap();
    is_empty(&fixture.server);
}

fn try_lock_is_unknown_and_leaves_nothing(fixture: &Fixture, script: &str, fault: Fault) {
    let lock = fixture.client.lock("orders");
    let rule = fixture.next(1, script, fault);
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
    assert_eq!(rule.hits(), 1);
    assert!(!lock.is_valid());
    leaves_nothing(&fixture.server);
    fails(lock.unlock(), Class::NotHeld);
    assert!(lock.try_lock().unwrap());
    one_hold_and_then_none(fixture, &lock);
}

fn a_waiting_call_gets_one_hold(fixture: &Fixture, script: &str, fault: Fault) {
    let lock = fixture.client.lock("orders");
    let rule = fixture.next(1, script, fault);
    // Long before the lease of half a minute that the lost call may have set.
    let got = ends_within(TIMEOUT + ms(1100), || {
        lock.try_lock_for(Duration::from_secs(20)).unwrap()
    });
    assert!(got);
    assert_eq!(rule.hits(), 1);
    one_hold_and_then_none(fixture, &lock);
}
