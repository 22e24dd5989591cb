//! A watch without a server. The tests create its snapshots.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod changes;
mod key_presses;
mod panic;
mod screens;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redlatch::{Client, LockInfo};

use super::event::EventKind;
use super::snapshot::Snapshot;
use super::state::State;

const NODE: &str = "10.0.0.1:6379";
const CLIENT: &str = "1f6f2b1c-94d3-4c1e-8a57-0c6f5e2d4d6e";

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// A lock that a thread of `web-3` holds.
fn held(name: &str, thread: u64, left: u64) -> LockInfo {
    let lock = Client::in_memory().lock("any");
    lock.lock().unwrap();
    let mut info = lock.describe().unwrap();
    info.name = name.into();
    let holder = &mut info.holders[0];
    holder.visitor = format!("{CLIENT}:{thread}:1");
    holder.client = Some(CLIENT.to_owned());
    holder.thread = Some(thread);
    holder.address = Some("10.0.0.7:51234".to_owned());
    holder.host = Some("web-3".to_owned());
    holder.pid = Some(812);
    info.expires = Some(seconds(left));
    info.node = NODE.into();
    info
}

/// Removes the connection of the lock's holder.
fn disconnected(mut info: LockInfo) -> LockInfo {
    for holder in &mut info.holders {
        (holder.address, holder.host, holder.pid) = (None, None, None);
    }
    info
}

/// A watch whose time the test sets.
struct Fixture {
    state: State,
    begun: Instant,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture {
            state: State::new(NODE, "orders:", seconds(1), seconds(30)),
            begun: Instant::now(),
        }
    }

    fn at(&self, second: u64) -> Instant {
        self.begun + seconds(second)
    }

    fn clock(second: u64) -> SystemTime {
        UNIX_EPOCH + seconds(1_800_000_000 + second)
    }

    /// `second` is the time of the snapshot.
    fn snapshot(&self, second: u64, locks: &[LockInfo], unreachable: &[&str]) -> Snapshot {
        let with_message = |node: &&str| {
            let message = format!("{node} cannot be reached: Connection refused");
            ((*node).to_owned(), message)
        };
        let unreachable: BTreeMap<_, _> = unreachable.iter().map(with_message).collect();
        let clock = Fixture::clock(second);
        Snapshot::made(self.at(second), clock, locks.to_vec(), unreachable)
    }

    /// Applies a snapshot. Returns each event with its lock or server.
    fn apply(&mut self, second: u64, locks: &[LockInfo]) -> Vec<(EventKind, String)> {
        self.apply_partial(second, locks, &[])
    }

    fn apply_partial(
        &mut self,
        second: u64,
        locks: &[LockInfo],
        unreachable: &[&str],
    ) -> Vec<(EventKind, String)> {
        let snapshot = self.snapshot(second, locks, unreachable);
        let events = self.state.apply(snapshot);
        let brief = |it: super::event::Event| {
            let name = it.name.as_deref().unwrap_or(&it.node);
            (it.what, name.to_owned())
        };
        events.into_iter().map(brief).collect()
    }
}

fn one(what: EventKind) -> Vec<(EventKind, String)> {
    vec![(what, "orders:1".to_owned())]
}
