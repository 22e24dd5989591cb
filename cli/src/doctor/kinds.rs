//! Each kind of lock that is asked about, tried once.

use std::thread;
use std::time::Duration;

use redlatch::{Client, Lock, Result};

use crate::doctor::Finding;
use crate::errors::message_of;

/// The lease of the locks taken here, which bounds what is left if this process is killed.
const LEASE: Duration = Duration::from_secs(30);
/// How long somebody else who tries the same is waited for.
const WAIT: Duration = Duration::from_secs(5);

/// How long the lock is waited for that is held here.
const MOMENT: Duration = Duration::from_millis(100);

/// A kind of lock, and how it is tried on a name. `false` if somebody else had it for all the time.
type Kind = (&'static str, fn(&Client, &str) -> Result<bool>);

/// The names of the kinds, and that of all of them.
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

/// Takes the permit of a semaphore of either kind, gives it back, and takes the semaphore away.
macro_rules! permit {
    ($semaphore:expr) => {{
        let semaphore = $semaphore;
        semaphore.try_set_for(1, LEASE)?;
        let permits = semaphore.try_acquire_for(1, WAIT)?;
        let is_taken = permits.is_some();
        permits.map(|it| it.release()).transpose()?;
        semaphore.delete()?;
        Ok(is_taken)
    }};
}

const KINDS: [Kind; 9] = [
    ("lock", |client, name| taken(&client.lock(name))),
    ("fair", |client, name| taken(&client.fair_lock(name))),
    ("read-write", |client, name| {
        let sides = client.read_write_lock(name);
        let read = sides.read().with_lease_time(LEASE);
        if !read.try_lock_for(WAIT)? {
            return Ok(false);
        }
        // A second reader looks at the times of the first one.
        let second = thread::scope(|scope| {
            let reading = scope.spawn(|| taken(&sides.read()));
            reading.join().unwrap_or(Ok(false))
        });
        let unlocked = read.unlock();
        let second = second?;
        unlocked?;
        Ok(second && taken(&sides.write())?)
    }),
    // Its key for tokens stays, so it has one name.
    ("fenced", |client, _| {
        taken(&client.fenced_lock("redlatch:doctor:fenced"))
    }),
    ("spin", |client, name| taken(&client.spin_lock(name))),
    ("token", |client, name| taken(&client.token_lock(name))),
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

/// Takes a lock, lets a second thread wait for it for a moment, and gives it back.
fn taken(lock: &Lock) -> Result<bool> {
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

/// Tries the kinds of these names, and says of each whether it works.
pub(super) fn try_kinds(node: &str, client: &Client, names: &[String]) -> Vec<Finding> {
    const CODE: &str = "kinds";
    let is_asked = |kind: &str| names.iter().any(|name| name == kind || name == "all");
    let asked = KINDS.iter().filter(|(kind, _)| is_asked(kind));
    let tried = asked.map(|(kind, once)| {
        let name = format!("redlatch:doctor:{}:{kind}", client.id());
        match once(client, &name) {
            Ok(true) => Finding::ok(node, CODE, format!("{kind}: works")),
            Ok(false) => Finding::note(
                node,
                CODE,
                format!("{kind}: somebody else had it for {} s", WAIT.as_secs()),
                "try again",
            ),
            Err(error) => Finding::danger(
                node,
                CODE,
                format!("{kind}: does not work: {}", message_of(&error)),
                "use another kind there, or look at docs/services.md and docs/rights.md for what it needs",
            ),
        }
    });
    tried.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_but_all_is_that_of_a_kind() {
        let kinds: Vec<_> = KINDS.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, NAMES[1..]);
    }
}
