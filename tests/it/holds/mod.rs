//! The state of a hold: its validity, its end, and its traces in the store.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod in_doubt;
mod shutdown;
mod validity;

use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Error, Guard, Lock, LossCause, MultiLock, Redlock};

use crate::invariants::{ACQUIRE, RELEASE_LEVEL, RENEW, SLACK, quick, sha, teach};
#[cfg(any(feature = "test-util", target_os = "linux"))]
use crate::support::child::arg;
use crate::support::child::say;
use crate::support::{Child, Fault, Proxy, RedisServer, eventually, ms};

/// A lease with frequent renewals.
const SHORT: Duration = ms(600);

/// A lease of an inner level that outlasts every test.
const LONG: Duration = Duration::from_secs(600);

const FOR_EVER: usize = usize::MAX;

/// The time limit of a child.
const CHILD: Duration = Duration::from_secs(30);

/// Runs `role` in a child process; returns false for a role of other files.
pub(crate) fn play(role: &str) -> bool {
    match role {
        #[cfg(feature = "test-util")]
        "holder of an hour" => in_doubt::holder_of_an_hour(),
        _ => return false,
    }
    true
}

/// A server with all scripts, and a proxy in front of it.
fn server() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    teach(&server);
    let proxy = Proxy::to(server.addr());
    (server, proxy)
}

/// The lock `orders` of a client behind the proxy, renewed for `lease`.
fn renewed_for(proxy: &Proxy, lease: Duration) -> Lock {
    let client = Client::builder().watchdog_timeout(lease);
    client.open(&proxy.url()).unwrap().lock("orders")
}

/// The longest possible TTL of the key of `name`, just after `asked`.
fn lease_of(server: &RedisServer, name: &str) -> Duration {
    ms(server.int(&["PTTL", name]).max(0).unsigned_abs())
}

/// The law: the client's view of a hold never exceeds the store's.
#[track_caller]
fn validity_is_at_most(guard: &Guard, lease: impl FnOnce() -> Duration, when: &str) {
    let believed = guard.remaining_validity();
    let asked = Instant::now();
    let lease = lease() + asked.elapsed();
    // PTTL is rounded.
    assert!(
        believed <= lease + ms(1),
        "{when}: {believed:?} is believed, {lease:?} is left"
    );
}

/// A panicking `tracing` subscriber ends neither a call nor a thread.
#[cfg(feature = "tracing")]
mod subscribers {
    use std::fmt::Debug;

    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::{Interest, with_default};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    struct Panics;

    impl Subscriber for Panics {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
            Interest::sometimes()
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            if event.metadata().target() == "redlatch" {
                panic!("a subscriber that panics");
            }
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
        fn try_close(&self, _: Id) -> bool {
            panic!("a subscriber that panics")
        }
    }

    impl Debug for Panics {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Panics")
        }
    }

    #[test]
    fn a_subscriber_that_panics_ends_nothing() {
        let client = Client::builder()
            .watchdog_timeout(SLACK * 2)
            .in_memory()
            .unwrap();
        let lock = client.lock("orders");
        with_default(Panics, || {
            lock.lock().unwrap();
            let [ready, go] = [(); 2].map(|()| std::sync::Barrier::new(2));
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    ready.wait();
                    let got = lock.try_lock_for(SLACK).unwrap();
                    go.wait();
                    got && lock.unlock().is_ok()
                });
                ready.wait();
                crate::laws::until_queued(&lock, 1);
                // Handed over to the waiter, with an event in between.
                let unlocked = lock.unlock();
                go.wait();
                unlocked.unwrap();
                assert!(waiter.join().unwrap());
            });
        });
        assert!(!lock.is_locked().unwrap());
    }
}
