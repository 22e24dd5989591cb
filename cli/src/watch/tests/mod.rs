//! A watch without a server: looks are made by hand.
#![allow(clippy::unwrap_used, reason = "what cannot go on fails the test")]

mod changes;
mod keys;
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

/// The same without a connection of its holder.
fn disconnected(mut info: LockInfo) -> LockInfo {
    for holder in &mut info.holders {
        (holder.address, holder.host, holder.pid) = (None, None, None);
    }
    info
}

/// A watch and its time.
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

    /// A look at this second, at which these servers were silent.
    fn snapshot(&self, second: u64, locks: &[LockInfo], unreachable: &[&str]) -> Snapshot {
        let told = |node: &&str| {
            let notice = format!("{node} cannot be reached: Connection refused");
            ((*node).to_owned(), notice)
        };
        let unreachable: BTreeMap<_, _> = unreachable.iter().map(told).collect();
        let clock = Fixture::clock(second);
        Snapshot::made(self.at(second), clock, locks.to_vec(), unreachable)
    }

    /// Takes a look in, and returns what has happened, and to which lock or server.
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

/// One event of `orders:1`.
fn one(what: EventKind) -> Vec<(EventKind, String)> {
    vec![(what, "orders:1".to_owned())]
}
