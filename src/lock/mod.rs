mod describe;
mod queries;

use std::sync::Arc;
use std::time::Duration;

use crate::engine::client_inner::ClientInner;
use crate::engine::counters::class::ClassId;
use crate::engine::owner::LockKey;
use crate::engine::raw_lock::{RareSettings, RawLock};
use crate::engine::wait_loop::{Polling, WaitLimit};
use crate::ground::claim::{Kind, LockId};
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::ground::loss::LossCause;
#[cfg(feature = "mysql")]
use crate::stores::mysql::MySql;
use crate::stores::redis::flaw;

/// A reentrant lock that threads of many processes share by its name.
///
/// A `Lock` keeps the contract of `java.util.concurrent.locks.Lock`. An acquisition begins a *hold* of the acquiring
/// thread. The thread may acquire the lock again, except for a `token_lock`. Each acquisition is a level of the hold,
/// and needs an unlock. A lock is a **lease, not a mutex**: the hold is lost if the server loses its data, or is
/// unreachable until the lease ends. [`Guard`](crate::Guard), [`Lock::is_valid`] and [`Lock::lost`] report the loss.
///
/// [`Client::lock`](crate::Client::lock) and similar methods create a lock without I/O. Clones of a `Lock` are the same
/// lock. Two `Lock` values of one client with the same kind and name are also the same lock.
///
/// The waiting threads of one client acquire the lock in the order of arrival, except for the read side of a read-write
/// lock. A re-entry and a [`try_lock`](Lock::try_lock) do not wait for earlier threads. Among processes, only a
/// `fair_lock` and the writers of a read-write lock have an order.
///
/// [`Lock::guard`] and [`Lock::run`] unlock automatically. [`Lock::lock`] and [`Lock::unlock`] work like the Java methods of
/// these names. `docs/migrate/redisson.md` of the repository compares the methods with those of Redisson.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlatch::Client;
///
/// let client = Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
/// let lock = client.lock("lock:orders:42");
///
/// let guard = lock.guard()?; // waits; the lock is renewed until the guard is dropped
/// assert!(guard.is_valid());
/// guard.unlock()?; // or drop it
///
/// if let Some(guard) = lock.try_guard_for(Duration::from_millis(500))? {
///     // …
///     guard.unlock()?;
/// }
///
/// let sum = lock.run(|_| 40 + 2)?; // unlocks when the closure returns or panics
/// assert_eq!(sum, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    pub(crate) raw_lock: RawLock,
    #[cfg(feature = "mysql")]
    pub(crate) database: Option<Arc<MySql>>,
}

const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Lock {
    pub(crate) fn named(inner: &Arc<ClientInner>, kind: Kind, name: &str) -> Lock {
        let full = inner.key_prefix.before(name);
        let refuses = inner.store.facts().refuses;
        let invalid = flaw(kind, name, &full).or_else(|| refuses(kind, &full));
        Lock::new(Arc::clone(inner), kind, full, invalid)
    }

    pub(crate) fn new(
        inner: Arc<ClientInner>,
        kind: Kind,
        name: Arc<str>,
        flaw: Option<Error>,
    ) -> Lock {
        let class = match &flaw {
            None => inner.counters.class_of(inner.without_prefix(&name)),
            Some(_) => ClassId::default(),
        };
        let rare = flaw.map(|flaw| RareSettings {
            flaw: Some(flaw),
            ..RareSettings::default()
        });
        Lock {
            raw_lock: RawLock {
                key: LockKey {
                    client: inner.number,
                    lock: LockId { kind, name },
                },
                fixed_lease: None,
                inner,
                class,
                permits: None,
                prefers_readers: false,
                rare: rare.map(Box::new),
            },
            #[cfg(feature = "mysql")]
            database: None,
        }
    }

    pub(crate) fn raw_lock(&self) -> &RawLock {
        &self.raw_lock
    }

    /// Returns a new value for the same lock. Acquisitions through this value have the fixed lease `lease`.
    ///
    /// A hold with a fixed lease is not renewed, and ends after `lease` even without an unlock. A re-entry never
    /// shortens the hold: the hold lasts until the leases of all its levels have ended. `lease` is 10 ms ..= 365 days.
    /// For a [`Redlock`](crate::Redlock) the upper bound is [`max_lease`](crate::RedlockBuilder::max_lease). With other
    /// values, an acquisition returns [`Error::InvalidLease`]. Without this method the watchdog renews the hold.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let client = redlatch::Client::in_memory();
    /// let five = client.lock("lock:report").with_lease_time(Duration::from_secs(5));
    /// let guard = five.guard()?;
    /// assert!(five.remaining_lease()?.unwrap() <= Duration::from_secs(5));
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use = "this returns the configured lock; the original is unchanged"]
    pub fn with_lease_time(&self, lease: Duration) -> Lock {
        self.with(|raw_lock| raw_lock.fixed_lease = Some(lease))
    }

    /// Returns a new value for the same lock. Threads that wait through this value poll instead of listening for unlock
    /// messages. The first pause is about `first`. Each further pause is twice as long, up to about `longest`.
    ///
    /// Each pause is random, from 0.5 to 1.5 times its nominal length. Of the waiters in a client's queue, only the
    /// first one polls. All clients should use the same pauses for a lock, because clients with longer pauses acquire
    /// it less often. In a Redis Cluster without sharded pub/sub an unlock through the new value sends no message.
    /// Clients that listen for messages may notice such an unlock up to about one second late.
    ///
    /// Both pauses are 100 µs ..= 1 s, and `first` is at most `longest`. With other values, operations return
    /// [`Error::InvalidConfig`]. A [`spin_lock`](crate::Client::spin_lock) has pauses of 1 ms and 128 ms by default.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let client = redlatch::Client::in_memory();
    /// let calm = client
    ///     .spin_lock("lock:report")
    ///     .with_backoff(Duration::from_millis(20), Duration::from_millis(500));
    /// let guard = calm.try_guard_for(Duration::from_secs(1))?;
    /// assert!(guard.is_some());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use = "this returns the configured lock; the original is unchanged"]
    pub fn with_backoff(&self, first: Duration, longest: Duration) -> Lock {
        let mut lock = self.clone();
        let rare = lock.raw_lock.rare();
        rare.polling = Some(Polling { first, longest });
        if !(SHORTEST_PAUSE..=longest).contains(&first) || longest > LONGEST_PAUSE {
            let reason = format!("{first:?} up to {longest:?} is outside 100 µs ..= 1 s, or falls");
            let flaw = || Error::config("the backoff of a lock", reason);
            rare.flaw.get_or_insert_with(flaw);
        }
        lock
    }

    pub(crate) fn with(&self, set: impl FnOnce(&mut RawLock)) -> Lock {
        let mut lock = self.clone();
        set(&mut lock.raw_lock);
        lock
    }

    /// Returns the name of the lock, key prefix included.
    pub fn name(&self) -> &str {
        self.full_name()
    }

    pub(crate) fn full_name(&self) -> &Arc<str> {
        &self.raw_lock.key.lock.name
    }

    /// Acquires the lock, and waits for it without a limit.
    ///
    /// Each call needs an [`unlock`](Lock::unlock); [`Lock::guard`] and [`Lock::run`] unlock automatically. **`lock` returns
    /// no guard**: `let _guard = lock.lock()?` binds `()`, and the lock stays held.
    ///
    /// # Errors
    ///
    /// After an error the caller has acquired nothing. A failed re-entry leaves the outer levels of the hold unchanged.
    ///
    /// After [`outage_timeout`](crate::Builder::outage_timeout) without a usable reply the call returns one of these errors:
    ///
    /// - [`Error::Unreachable`]: the server was not reached, and nothing was sent;
    /// - [`Error::Exhausted`]: the client had no free connection, and nothing was sent;
    /// - [`Error::Unavailable`]: the server replied that it cannot serve now;
    /// - [`Error::Unknown`]: a request got no reply. If it acquired a hold, a background thread releases the hold;
    /// - [`Error::NotReplicated`]: too few replicas acknowledged the hold, so the hold was released (only with
    ///   [`wait_replicas`](crate::Builder::wait_replicas));
    /// - [`Error::NoQuorum`]: too few nodes replied (only a [`Redlock`](crate::Redlock));
    /// - [`Error::NoTtl`]: the key of the lock exists and never expires.
    ///
    /// The following errors end the wait at once:
    ///
    /// - [`Error::InvalidName`], [`Error::InvalidLease`]: the name or the fixed lease is invalid;
    /// - [`Error::NotReentrant`]: the thread already holds this [`token_lock`](crate::Client::token_lock);
    /// - [`Error::Upgrade`]: this is the write side, and the thread holds the read side (only a
    ///   [`ReadWriteLock`](crate::ReadWriteLock));
    /// - [`Error::Overlap`]: the thread holds another lock that has a part in common with this lock (only with a
    ///   [`MultiLock`](crate::MultiLock));
    /// - [`Error::InvalidConfig`]: the pauses of [`Lock::with_backoff`] are invalid, two parts of a `MultiLock` are the
    ///   same lock, or the server of [`Client::open`](crate::Client::open) is a node of a cluster;
    /// - [`Error::WrongType`], [`Error::CorruptCount`]: the key has other data, or a hold count that is not a number;
    /// - [`Error::FenceRegressed`]: the new token is not larger than an earlier one (only a
    ///   [`fenced_lock`](crate::Client::fenced_lock));
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or a TLS certificate is not trusted;
    /// - [`Error::Unsupported`]: the store has no locks of this kind, the server lacks a command, the thread is ending,
    ///   or the call is inside a transaction of this lock;
    /// - [`Error::Unexpected`], `Error::Database`: the server sent an unexpected reply, the lock table is missing or
    ///   wrong, or the database reports another error;
    /// - [`Error::Closed`], [`Error::WatchdogDied`]: the client was shut down, or its renewal thread is not running;
    /// - [`Error::Forked`]: the client was created before this process was forked.
    pub fn lock(&self) -> Result<()> {
        self.raw_lock.acquire(WaitLimit::forever(None))?;
        Ok(())
    }

    /// Acquires the lock, and waits for it until `interrupt` is raised.
    ///
    /// An interrupt does not cancel a request in flight, which takes up to
    /// [`command_timeout`](crate::Builder::command_timeout).
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`Lock::lock`].
    pub fn lock_interruptibly(&self, interrupt: &Interrupt) -> Result<()> {
        self.raw_lock.acquire(WaitLimit::forever(Some(interrupt)))?;
        Ok(())
    }

    /// Acquires the lock if it is free now, and returns whether it was acquired.
    ///
    /// The call makes one attempt, within [`command_timeout`](crate::Builder::command_timeout), and bypasses the queue of
    /// this client's waiters. Check the result: after the statement `lock.try_lock()?;` the code continues even without the
    /// lock.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`]. The call does not retry an attempt that fails with an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # let lock = redlatch::Client::in_memory().lock("lock:orders:42");
    /// if lock.try_lock()? {
    ///     println!("alone with the order");
    ///     lock.unlock()?;
    /// } else {
    ///     println!("another thread holds it");
    /// }
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn try_lock(&self) -> Result<bool> {
        Ok(self.raw_lock.acquire(WaitLimit::once())?.is_some())
    }

    /// Acquires the lock, waits for it at most `wait`, and returns whether it was acquired.
    ///
    /// If the server is slow, the call takes up to 250 ms more than `wait`. With a `wait` of zero the call makes one
    /// attempt. With a longer `wait`, the result is also false if the client has no free connection until the end of
    /// `wait`. If another thread of this client got a reply about the lock shortly before the end of `wait`, this call
    /// returns false without a last attempt.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`] if the end of the wait cannot be represented as an `Instant`. Other errors are those of
    /// [`Lock::lock`]. During an outage the error is returned after `wait`.
    pub fn try_lock_for(&self, wait: Duration) -> Result<bool> {
        let limit = self.raw_lock.limit(wait, None)?;
        Ok(self.raw_lock.acquire(limit)?.is_some())
    }

    /// Acquires the lock, waits for it at most `wait` or until `interrupt` is raised, and returns whether it was acquired.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`Lock::try_lock_for`].
    pub fn try_lock_for_interruptibly(
        &self,
        wait: Duration,
        interrupt: &Interrupt,
    ) -> Result<bool> {
        let limit = self.raw_lock.limit(wait, Some(interrupt))?;
        Ok(self.raw_lock.acquire(limit)?.is_some())
    }

    /// Releases one level of the current thread's hold. The release of the last level frees the lock.
    ///
    /// Call this method once for each acquisition. If the hold has a level that [`Lock::lock`] acquired, the call
    /// releases this level. Otherwise it releases the level of a guard, and this guard then has nothing to unlock.
    ///
    /// The call ends within one [`command_timeout`](crate::Builder::command_timeout). If the client refuses the call before
    /// it sends a request ([`Error::Unsupported`], [`Error::InvalidConfig`], [`Error::Forked`]), nothing has changed.
    /// After any other error, the thread no longer has the level: do not repeat the unlock. If it was the last level, the
    /// client stops the renewals, and releases the hold in the background.
    ///
    /// If an unlock gets no reply, the client may send it once more. The second request succeeds even if the hold no
    /// longer exists. So `Ok` is also possible if the hold was lost, unnoticed, just before the unlock.
    ///
    /// # Errors
    ///
    /// - [`Error::NotHeld`]: this thread does not hold the lock;
    /// - [`Error::Lost`]: this thread has lost its hold. The error contains the cause. After the thread has begun 256
    ///   later holds, the error may be [`Error::NotHeld`] instead;
    /// - [`Error::Unreachable`], [`Error::Exhausted`]: the request was not sent;
    /// - [`Error::Unknown`]: the request got no reply, or too few replicas acknowledged the unlock of an inner level (only
    ///   with [`wait_replicas`](crate::Builder::wait_replicas));
    /// - [`Error::Unavailable`]: the server replied that it cannot serve now;
    /// - [`Error::NoQuorum`]: too few nodes replied (only a [`Redlock`](crate::Redlock));
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or a TLS certificate is not trusted;
    /// - [`Error::WrongType`], [`Error::CorruptCount`], [`Error::Unexpected`]: another program wrote to the key, or the
    ///   server sent an unexpected reply;
    /// - [`Error::FenceRegressed`]: the lock was handed to a waiter of this client, and the waiter's token is not larger
    ///   than an earlier one;
    /// - `Error::Database`: the lock table was changed, or the database reports another error;
    /// - [`Error::Unsupported`]: the kind is unsupported, the thread is ending, or a transaction of this lock is open;
    /// - [`Error::InvalidName`], [`Error::InvalidConfig`]: the name or the backoff is invalid;
    /// - [`Error::Forked`]: the client was created before this process was forked.
    pub fn unlock(&self) -> Result<()> {
        let me = self.me()?;
        let current = me.held.current(&self.raw_lock.key);
        match current.and_then(|hold| Some((hold.top_level()?, hold))) {
            Some((_, hold)) if hold.is_pinned() => Err(Error::in_its_transaction(&hold.name)),
            Some((level, hold)) => self.raw_lock.release(&hold, level),
            None => match me.held.take_lapsed(&self.raw_lock.key) {
                Some(lost) => Err(lost.lost_error(lost.loss_cause().unwrap_or(LossCause::Gone))),
                None => Err(self.raw_lock.not_held()),
            },
        }
    }

    /// Frees the lock, even if another thread or process holds it, and returns whether it was held.
    ///
    /// Holders of this client are notified at once. A holder of another client notices the loss at its next renewal or
    /// unlock. If the key is not a lock, the call changes nothing and returns [`Error::WrongType`]. For a token lock, a key
    /// with any string counts as a lock, so the call deletes the key.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if a request got no reply. After any error, some parts of a [`MultiLock`](crate::MultiLock)
    /// may have been freed. Other errors are those of [`Lock::is_locked`].
    pub fn force_unlock(&self) -> Result<bool> {
        self.raw_lock.ready()?;
        let RawLock { inner, key, .. } = &self.raw_lock;
        let freed = inner.ask("force_unlock", |store, by| {
            store.force_release(&key.lock, by)
        })?;
        self.was_freed();
        Ok(freed)
    }

    fn was_freed(&self) {
        let RawLock { inner, key, .. } = &self.raw_lock;
        inner.watchdog.check_now(&key.lock.name);
        inner.wait_queues.freed(&key.lock, None, None);
    }
}
