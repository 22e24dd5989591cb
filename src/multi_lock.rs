//! Several locks taken as one.

use std::any::Any;
use std::sync::Arc;

use crate::builder::new_id;
use crate::engine::client_inner::{ClientInner, KeyPrefix, Timeouts};
use crate::engine::counters::CountSettings;
use crate::ground::claim::Kind;
use crate::ground::error::{Error, Result};
use crate::lock::Lock;
use crate::stores::multi::{Member, MultiStore};

/// Several locks that are taken all together or not at all.
///
/// The parts may be locks of any clients and kinds: two names on one server, names on several servers, a
/// [`Redlock`](crate::Redlock) and a row of a lock table. [`MultiLock::of`] returns a [`Lock`] like any other.
///
/// The lock never waits while it holds a part: an attempt that one part refuses gives the others back, waits until
/// something changes there, and starts over. So two such locks can never wait for each other. A wait time is for all parts
/// together. The hold is valid as long as every part is, and lost with the first part that is lost.
///
/// The hold is one of its own: a thread that holds a part by itself cannot take the parts together, nor the other way
/// round. Both would wait for themselves, so both are [`Error::Overlap`]. One that is dropped without an unlock keeps its
/// parts until its lease ends, and its thread waits for them like any other. (Redisson's `RedissonMultiLock` enters the
/// single locks again instead.)
///
/// It asks for each part once in a round, so a part has no place among those who wait for that lock alone: a side of a
/// [`ReadWriteLock`](crate::ReadWriteLock) that is a part comes in beside others whoever waits to write, and may have to wait
/// for a moment in which it is free.
///
/// | part | as a part |
/// |---|---|
/// | [`lock`](crate::Client::lock), [`token_lock`](crate::Client::token_lock), a [`Redlock`](crate::Redlock), a lock in a database | as by itself; a token is not entered twice, and the whole counts instead |
/// | [`fenced_lock`](crate::Client::fenced_lock) | draws its token, which the whole does not tell: the tokens of several locks have no order |
/// | [`spin_lock`](crate::Client::spin_lock) | is listened to, as [`lock`](crate::Client::lock) is |
/// | [`fair_lock`](crate::Client::fair_lock) | without a place in its queue, as above |
/// | [`read`](crate::ReadWriteLock::read), [`write`](crate::ReadWriteLock::write) | without a place among those who wait, as above |
/// | another `MultiLock` | as by itself |
///
/// The whole has no fencing token, guards no write ([`Guard::write`](crate::Guard::write)) and has no
/// [`Condition`](crate::Condition), whatever its parts have: that is `None`, or
/// [`Error::Unsupported`] with the reason. Semaphores and latches are no locks, and cannot be parts.
///
/// # Examples
///
/// ```
/// use redlatch::{Client, MultiLock};
///
/// let client = Client::in_memory();
/// let (from, to) = (client.lock("lock:account:1"), client.lock("lock:account:2"));
/// let both = MultiLock::of([&from, &to])?; // once, to be kept
/// both.run(|_| {
///     // … move money …
/// })?;
/// assert!(!from.is_locked()?);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Debug)]
pub struct MultiLock(());

impl MultiLock {
    /// Makes one lock of several, without I/O.
    ///
    /// It is renewed by threads of its own, which start with its first lock and end with its last clone. So it is made once
    /// and kept, as a [`Client`](crate::Client) is: one that is made for each use costs some milliseconds each time.
    ///
    /// Its name is made of theirs. Its lease is the shortest `watchdog_timeout` of their clients, or the fixed lease that
    /// [`Lock::with_lease_time`] gives the whole; a fixed lease of a single part does not count.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if there are no locks, or if one is named twice. Two addresses of one server are noticed
    /// only by asking it, so then the first [`Lock::lock`] returns that error.
    pub fn of<'a>(locks: impl IntoIterator<Item = &'a Lock>) -> Result<Lock> {
        let entrances: Vec<_> = locks.into_iter().map(Lock::raw_lock).collect();
        let invalid = |reason: String| Err(Error::config("the locks of a MultiLock", reason));
        let Some(first) = entrances.first() else {
            return invalid("there are none".to_owned());
        };
        let mut timeouts = first.inner.timeouts;
        let mut members = Vec::with_capacity(entrances.len());
        for raw_lock in &entrances {
            let (inner, key) = (&raw_lock.inner, &raw_lock.key);
            let member = Member {
                store: Arc::clone(&inner.store),
                lock: key.lock.clone(),
                place: 0,
                _keep: Arc::clone(inner) as Arc<dyn Any + Send + Sync>,
            };
            let identity = member.identity();
            let is_it = |other: &Member| other.identity() == identity;
            if members.iter().any(is_it) {
                return invalid(format!("{:?} is named twice", key.lock.name));
            }
            members.push(member);
            let its = &inner.timeouts;
            timeouts = Timeouts {
                watchdog_timeout: timeouts.watchdog_timeout.min(its.watchdog_timeout),
                command_timeout: timeouts.command_timeout.max(its.command_timeout),
                outage_timeout: timeouts.outage_timeout.max(its.outage_timeout),
            };
        }
        let names = entrances.iter().map(|it| it.key.lock.name.as_ref());
        let name = names.collect::<Vec<&str>>().join(" + ").into();
        let flaw = entrances.iter().find_map(|raw_lock| raw_lock.flaw.clone());
        let parts = entrances.iter().map(|raw_lock| raw_lock.key.clone());
        let (store, prefix) = (Arc::new(MultiStore::new(members)), KeyPrefix::default());
        let counted = CountSettings::default();
        let inner = ClientInner::new(new_id(), store, timeouts, prefix, None, counted);
        let lock = Lock::new(Arc::new(inner), Kind::Reentrant, name, flaw);
        Ok(lock.with(|raw_lock| raw_lock.parts = Some(parts.collect())))
    }
}
