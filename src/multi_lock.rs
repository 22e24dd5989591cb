use std::any::Any;
use std::sync::Arc;

use crate::builder::new_id;
use crate::engine::client_inner::{ClientInner, KeyPrefix, Timeouts};
use crate::engine::counters::{ClassOf, CountSettings};
use crate::ground::claim::Kind;
use crate::ground::error::{Error, Result};
use crate::lock::Lock;
use crate::stores::multi::{Member, MultiStore};

/// Several locks that are acquired all together or not at all.
///
/// The parts may be locks of any clients and kinds: two names on one server, names on several servers, a lock of a
/// [`Redlock`](crate::Redlock), a lock in a database. [`MultiLock::of`] returns a [`Lock`] like any other.
///
/// A multi-lock never waits while it holds a part. If another thread or process holds a part, the multi-lock releases
/// the acquired parts, waits for an unlock, and starts again. So two multi-locks cannot deadlock. The hold is valid
/// while every part is valid. The wait time of a call is for all parts together.
///
/// A thread that holds a part separately cannot acquire the multi-lock. A thread that holds the multi-lock cannot
/// acquire a part separately. Both calls return [`Error::Overlap`]. Redisson re-enters the part instead.
///
/// A multi-lock does not queue in the store. Some kinds of locks behave differently as parts:
///
/// | part | difference from the same lock alone |
/// |---|---|
/// | [`lock`](crate::Client::lock), a [`Redlock`](crate::Redlock), a lock in a database, another `MultiLock` | none |
/// | [`token_lock`](crate::Client::token_lock) | the multi-lock is not reentrant ([`Error::NotReentrant`]) |
/// | [`fenced_lock`](crate::Client::fenced_lock) | its token is not returned, because tokens of several locks have no order |
/// | [`spin_lock`](crate::Client::spin_lock) | the multi-lock waits for unlock messages as for a [`lock`](crate::Client::lock) |
/// | [`fair_lock`](crate::Client::fair_lock) | the multi-lock acquires it only if no thread waits for it |
/// | a side of a [`ReadWriteLock`](crate::ReadWriteLock) | the multi-lock ignores waiting writers, and new readers ignore a waiting multi-lock |
///
/// A multi-lock has no fencing token (`None`), no guarded writes ([`Guard::write`](crate::Guard::write)) and no
/// [`Condition`](crate::Condition) ([`Error::Unsupported`]). Semaphores and latches cannot be parts.
///
/// # Examples
///
/// ```
/// use redlatch::{Client, MultiLock};
///
/// let client = Client::in_memory();
/// let (from, to) = (client.lock("lock:account:1"), client.lock("lock:account:2"));
/// let both = MultiLock::of([&from, &to])?; // create it once, and keep it
/// both.run(|_| {
///     // … move money …
/// })?;
/// assert!(!from.is_locked()?);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Debug)]
pub struct MultiLock(());

impl MultiLock {
    /// Creates one lock that consists of several locks, without I/O.
    ///
    /// Create a multi-lock once and keep it, like a [`Client`](crate::Client): it has renewal threads of its own, which
    /// start with its first acquisition and end when its last clone and guard are dropped.
    ///
    /// The name consists of the names of the parts. The lease is the shortest `watchdog_timeout` of the parts' clients,
    /// or the fixed lease that [`Lock::with_lease_time`] sets on the multi-lock. Fixed leases of the parts are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if there are no locks, or if two locks have one name on one server and database. If the
    /// clients of the two locks use different addresses of the server, acquisitions return this error instead.
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
                index: 0,
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
        let flaw = entrances
            .iter()
            .find_map(|raw_lock| raw_lock.flaw().cloned());
        let parts = entrances.iter().map(|raw_lock| raw_lock.key.clone());
        let (store, prefix) = (Arc::new(MultiStore::new(members)), KeyPrefix::default());
        let counted = CountSettings {
            // The multi-lock's name would make a new metric label for each combination of parts.
            class_of: Some(ClassOf(Arc::new(|_| "multi_lock"))),
            ..CountSettings::default()
        };
        let inner = ClientInner::new(new_id(), store, timeouts, prefix, None, counted);
        let lock = Lock::new(Arc::new(inner), Kind::Reentrant, name, flaw);
        Ok(lock.with(|raw_lock| raw_lock.rare().parts = Some(parts.collect())))
    }
}
