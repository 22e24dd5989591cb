//! The fixture of both sides: a server, a client of this library and one of Redisson.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

use redlatch::{Builder, Client, Lock};

use crate::jvm::{JavaLock, Jvm, Redisson};
use crate::support::{RedisServer, eventually, ms};
pub(crate) use crate::support::{elsewhere, timed};

/// The lease of both watchdogs in tests of its end.
pub(crate) const LEASE: Duration = ms(1500);

/// A lease longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The lease with many waiters: a Redisson waiter that misses a message sleeps for the rest of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The slack of a busy machine.
pub(crate) const SLACK: Duration = ms(2500);

/// Tests that measure time run alone.
static QUIET: RwLock<()> = RwLock::new(());

/// A server with a client of either side. Clients are dropped first.
pub(crate) struct BothSides {
    pub(crate) rust: Client,
    pub(crate) java: Redisson,
    pub(crate) server: RedisServer,
    _run_lock: RunLock,
}

/// How many other tests may run at the same time.
pub(crate) enum RunLock {
    Together {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

impl RunLock {
    pub(crate) fn together() -> RunLock {
        RunLock::Together {
            _guard: QUIET.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    pub(crate) fn alone() -> RunLock {
        RunLock::Alone {
            _guard: QUIET.write().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl BothSides {
    /// Both watchdogs renew for [`LONG`].
    pub(crate) fn new() -> BothSides {
        BothSides::with(RunLock::together(), LONG)
    }

    /// Both watchdogs renew for `lease`.
    pub(crate) fn with(turn: RunLock, lease: Duration) -> BothSides {
        let server = RedisServer::start();
        let rust = Client::builder().watchdog_timeout(lease);
        BothSides {
            rust: rust.open(&server.url()).unwrap(),
            java: Redisson::open(&Jvm::shared(), &server.url(), lease),
            server,
            _run_lock: turn,
        }
    }

    pub(crate) fn locks(&self, name: &str) -> (Lock, JavaLock) {
        (self.rust.lock(name), self.java.lock(name))
    }

    /// Another client of this library, with other settings, at `url`.
    pub(crate) fn another(&self, builder: Builder, url: &str) -> Client {
        builder.open(url).unwrap()
    }

    pub(crate) fn hash(&self, name: &str) -> BTreeMap<String, String> {
        let value = self.server.cmd(&["HGETALL", name]);
        redis::from_redis_value(value).unwrap()
    }

    /// Waits until the unlock channel of `name` has a subscriber.
    #[track_caller]
    pub(crate) fn until_somebody_waits(&self, channel: &str) {
        eventually(SLACK, "somebody waits", || {
            let reply = self.server.cmd(&["PUBSUB", "NUMSUB", channel]);
            let (_, listeners): (String, u32) = redis::from_redis_value(reply).unwrap();
            listeners > 0
        });
        // One more attempt comes between the subscription and the sleep.
        thread::sleep(ms(50));
    }
}

/// Prints a result to the terminal, past the output capture of the test harness.
pub(crate) fn report(text: &str) {
    let version = std::env::var("REDISSON").unwrap_or_default();
    let _ = writeln!(std::io::stderr().lock(), "\n{version}: {text}");
}
