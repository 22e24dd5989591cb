//! Tries each requested kind of lock once.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Lock, Result};

use crate::doctor::Finding;
use crate::errors::message_of;

/// If this process is killed, its locks expire after this time.
const LEASE: Duration = Duration::from_secs(30);
/// How long to wait for a lock that another doctor holds.
const WAIT: Duration = Duration::from_secs(5);

/// How long the second thread waits for the lock that the first thread holds.
const MOMENT: Duration = Duration::from_millis(100);

/// A kind of lock, and a function that tries it on a name. The function returns `false` if another client held the lock
/// until the timeout.
type Kind = (&'static str, fn(&Client, &str) -> Result<bool>);

pub(super) const NAMES: [&str; 10] = [
    "all",
    "lock",
    "fair",
    "read-write",
    "fenced",
    "spin",
    "token",
    "semaphore",
    "permits",
    "latch",
];

macro_rules! permit {
    ($semaphore:expr) => {{
        let semaphore = $semaphore;
        semaphore.try_set_for(1, LEASE)?;
        let permits = semaphore.try_acquire_for(1, WAIT)?;
        let is_acquired = permits.is_some();
        permits.map(|it| it.release()).transpose()?;
        semaphore.delete()?;
        Ok(is_acquired)
    }};
}

const KINDS: [Kind; 9] = [
    ("lock", |client, name| exercise(&client.lock(name))),
    ("fair", |client, name| exercise(&client.fair_lock(name))),
    ("read-write", |client, name| {
        let sides = client.read_write_lock(name);
        let read = sides.read().with_lease_time(LEASE);
        if !read.try_lock_for(WAIT)? {
            return Ok(false);
        }
        // With a second reader, the script also reads the TTL key of the first reader.
        let second = thread::scope(|scope| {
            let reading = scope.spawn(|| exercise(&sides.read()));
            reading.join().unwrap_or(Ok(false))
        });
        let unlocked = read.unlock();
        let second = second?;
        unlocked?;
        Ok(second && exercise(&sides.write())?)
    }),
    // The key of the last token is never deleted. So the name is fixed, and only one such key remains.
    ("fenced", |client, _| {
        exercise(&client.fenced_lock("redlatch:doctor:fenced"))
    }),
    ("spin", |client, name| exercise(&client.spin_lock(name))),
    ("token", |client, name| exercise(&client.token_lock(name))),
    ("semaphore", |client, name| permit!(client.semaphore(name))),
    ("permits", |client, name| {
        permit!(client.permit_semaphore(name))
    }),
    ("latch", |client, name| {
        let latch = client.latch(name);
        latch.try_set(1)?;
        Ok(latch.count_down()? == 0)
    }),
];

fn exercise(lock: &Lock) -> Result<bool> {
    let lock = lock.with_lease_time(LEASE);
    if !lock.try_lock_for(WAIT)? {
        return Ok(false);
    }
    let waited = thread::scope(|scope| {
        let waiting = scope.spawn(|| match lock.try_lock_for(MOMENT)? {
            true => lock.unlock(),
            false => Ok(()),
        });
        waiting.join().unwrap_or(Ok(()))
    });
    lock.unlock().and(waited).map(|()| true)
}

pub(super) fn try_kinds(node: &str, client: &Client, names: &[String]) -> Vec<Finding> {
    const CODE: &str = "kinds";
    let is_requested = |kind: &str| names.iter().any(|name| name == kind || name == "all");
    let requested = KINDS.iter().filter(|(kind, _)| is_requested(kind));
    let findings = requested.map(|(kind, once)| {
        let name = format!("redlatch:doctor:{}:{kind}", client.id());
        match once(client, &name) {
            Ok(true) => Finding::ok(node, CODE, format!("{kind}: works")),
            Ok(false) => Finding::note(
                node,
                CODE,
                format!("{kind}: another client held the test lock for {} s", WAIT.as_secs()),
                "run redlatch doctor again",
            ),
            Err(error) => Finding::danger(
                node,
                CODE,
                format!("{kind}: does not work: {}", message_of(&error)),
                "use another kind of lock, or see docs/services.md and docs/rights.md for what this kind needs",
            ),
        }
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_except_all_is_a_kind() {
        let kinds: Vec<_> = KINDS.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, NAMES[1..]);
    }
}
