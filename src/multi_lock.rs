//! Several locks taken as one.

use std::any::Any;
use std::sync::Arc;

use crate::claim::Kind;
use crate::core::{Core, Times};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::store::Store;
use crate::stores::all::{All, Member};

/// Several locks that are taken all together or not at all.
///
/// The locks may be of any clients and kinds: two names on one server, names on several servers, a
/// [`Redlock`](crate::Redlock) and a row of a lock table. What [`MultiLock::of`] returns is a [`Lock`] like any other.
///
/// It never waits while it holds: an attempt that one of the locks refuses gives back what it has taken, waits until
/// something changes there, and starts over; so two of them can never wait for each other. One wait time is meant for
/// all of them together. The hold is valid as long as every part of it is, and lost with the first part that is.
///
/// It is a hold of its own: a thread that holds one of the locks by itself cannot take them together, nor the other way
/// round. Both would wait for themselves, so both are [`Error::Overlap`]. (Redisson's `RedissonMultiLock` enters the
/// single locks again instead.)
///
/// # Examples
///
/// ```
/// use redlatch::{Client, MultiLock};
///
/// let client = Client::in_memory();
/// let (from, to) = (client.lock("lock:account:1"), client.lock("lock:account:2"));
/// let both = MultiLock::of([&from, &to])?;
/// both.run(|_| {
///     // … move money …
/// })?;
/// assert!(!from.is_locked()?);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Debug)]
pub struct MultiLock(());

impl MultiLock {
    /// Makes one lock of several. No I/O.
    ///
    /// Its name is made of theirs. The lease is the shortest of their clients' watchdog time-outs, or what
    /// [`Lock::with_lease_time`] says of the whole; a fixed lease of a single one does not count here.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if there are none, or if one is named twice. If one server is reached by two addresses that
    /// cannot be seen before it is asked: then locking says so.
    pub fn of<'a>(locks: impl IntoIterator<Item = &'a Lock>) -> Result<Lock> {
        let entrances: Vec<_> = locks.into_iter().map(Lock::entrance).collect();
        let invalid = |reason: String| {
            Err(Error::InvalidConfig {
                setting: "the locks of a MultiLock",
                reason,
            })
        };
        let Some(first) = entrances.first() else {
            return invalid("there are none".to_owned());
        };
        let mut times = first.core.times;
        let mut members = Vec::with_capacity(entrances.len());
        for entrance in &entrances {
            let (core, key) = (&entrance.core, &entrance.key);
            let member = Member {
                store: Arc::clone(&core.store),
                kind: key.kind,
                name: Arc::clone(&key.name),
                _keep: Arc::clone(core) as Arc<dyn Any + Send + Sync>,
            };
            let identity = member.identity();
            if members
                .iter()
                .any(|other: &Member| other.identity() == identity)
            {
                return invalid(format!("{:?} is named twice", key.name));
            }
            members.push(member);
            times = Times {
                watchdog_timeout: times.watchdog_timeout.min(core.times.watchdog_timeout),
                command_timeout: times.command_timeout.max(core.times.command_timeout),
                outage_timeout: times.outage_timeout.max(core.times.outage_timeout),
            };
        }
        let names: Vec<&str> = entrances
            .iter()
            .map(|entrance| &*entrance.key.name)
            .collect();
        let name = names.join(" + ").into();
        let flaw = entrances.iter().find_map(|entrance| entrance.flaw.clone());
        let parts = entrances.iter().map(|entrance| entrance.key.clone());
        let parts = parts.collect();
        let store: Arc<dyn Store> = Arc::new(All::new(members));
        let core = Core::new(crate::client::new_id(), store, times, String::new(), None);
        Ok(Lock::made_of(
            parts,
            Lock::new(Arc::new(core), Kind::Reentrant, name, flaw),
        ))
    }
}
