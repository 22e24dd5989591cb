//! The lock.

mod describe;
mod queries;

use std::sync::Arc;
use std::time::Duration;

use crate::engine::client_inner::ClientInner;
use crate::engine::counters::class::ClassId;
use crate::engine::hold::Lease;
use crate::engine::owner::LockKey;
use crate::engine::raw_lock::RawLock;
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
/// It keeps the contract of `java.util.concurrent.locks.Lock`: the lock belongs to the thread that acquired it, which
/// may acquire it again and must unlock it as often. A lock is a **lease, not a mutex**: if the server cannot be
/// reached for long enough or loses its data, the hold is lost. [`Guard`](crate::Guard), [`Lock::is_valid`] and
/// [`Lock::lost`] report that.
///
/// [`Client::lock`](crate::Client::lock) and its siblings create a lock without I/O. Clones, and locks of the same
/// client and name, are the same lock.
///
/// The waiting threads of one client form a queue. They acquire the lock in the order of arrival, and a holder hands it off
/// to the next waiter in one request. A re-entry and a [`try_lock`](Lock::try_lock) bypass the queue. There is no order
/// among processes.
///
/// [`Lock::guard`] and [`Lock::run`] unlock by themselves. [`Lock::lock`] and [`Lock::unlock`] are the methods of
/// Java; `docs/migrate/redisson.md` of the repository lists all of them.
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
    /// The store if the lock is in a database.
    #[cfg(feature = "mysql")]
    pub(crate) database: Option<Arc<MySql>>,
}

/// The range of the pauses between two attempts of a waiter that polls.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Lock {
    /// Creates the lock of this name, to which the key prefix of the client is added.
    pub(crate) fn named(inner: &Arc<ClientInner>, kind: Kind, name: &str) -> Lock {
        let full = inner.key_prefix.before(name);
        let refuses = inner.store.facts().refuses;
        let invalid = flaw(kind, name, &full).or_else(|| refuses(kind, &full));
        Lock::new(Arc::clone(inner), kind, full, invalid.map(Box::new))
    }

    pub(crate) fn new(
        inner: Arc<ClientInner>,
        kind: Kind,
        name: Arc<str>,
        flaw: Option<Box<Error>>,
    ) -> Lock {
        let class = match &flaw {
            None => inner.counters.class_of(inner.without_prefix(&name)),
            Some(_) => ClassId::default(),
        };
        Lock {
            raw_lock: RawLock {
                key: LockKey {
                    client: inner.number,
                    lock: LockId { kind, name },
                },
                lease: Lease::Watchdog(inner.timeouts.watchdog_timeout),
                polling: None,
                inner,
                class,
                flaw,
                parts: None,
                permits: None,
                prefers_readers: false,
            },
            #[cfg(feature = "mysql")]
            database: None,
        }
    }

    pub(crate) fn raw_lock(&self) -> &RawLock {
        &self.raw_lock
    }

    /// Returns the same lock with a fixed lease for the acquisitions made through it.
    ///
    /// A hold with a fixed lease is not renewed and ends after `lease`, unlocked or not. A nested acquisition never
    /// shortens the hold: it lasts until the latest end of its levels. 10 ms ..= 365 days, for a
    /// [`Redlock`](crate::Redlock) up to its [`max_lease`](crate::RedlockBuilder::max_lease); other values are
    /// [`Error::InvalidLease`] at the acquisition. Defaults to no fixed lease: the watchdog renews the hold.
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
        self.with(|raw_lock| raw_lock.lease = Lease::Fixed(lease))
    }

    /// Returns the same lock with waiters that poll instead of listening for unlock messages. The first pause is about
    /// `first`, and each further pause is twice as long, up to about `longest`.
    ///
    /// Each pause is random between half and one and a half times its length. Only the first waiter of a client polls; the
    /// client's other waiters queue behind it. All clients of a lock should use the same pauses, because clients with longer
    /// pauses acquire it less often. In a Redis Cluster without sharded messages an unlock of such a lock sends no message,
    /// so listening waiters notice it up to a second later.
    ///
    /// 100 µs ..= 1 s, `first` not longer than `longest`; other values are [`Error::InvalidConfig`] at the first
    /// operation. Defaults to listening; for a [`spin_lock`](crate::Client::spin_lock) to 1 ms and 128 ms.
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
        lock.raw_lock.polling = Some(Box::new(Polling { first, longest }));
        if !(SHORTEST_PAUSE..=longest).contains(&first) || longest > LONGEST_PAUSE {
            let reason = format!("{first:?} up to {longest:?} is outside 100 µs ..= 1 s, or falls");
            let flaw = || Box::new(Error::config("the backoff of a lock", reason));
            lock.raw_lock.flaw.get_or_insert_with(flaw);
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
    /// Each call needs an [`unlock`](Lock::unlock); [`Lock::guard`] and [`Lock::run`] unlock by themselves. **`lock`
    /// returns no guard**: `let _guard = lock.lock()?` binds `()`, and the lock stays held.
    ///
    /// # Errors
    ///
    /// After an error nothing was acquired. A failed re-entry leaves the outer levels as they are.
    ///
    /// These errors are returned after [`outage_timeout`](crate::Builder::outage_timeout) without a usable reply:
    ///
    /// - [`Error::Unreachable`]: the server was not reached, and nothing was sent;
    /// - [`Error::Exhausted`]: the client had no connection free, and nothing was sent;
    /// - [`Error::Unavailable`]: the server answered that it cannot serve now;
    /// - [`Error::Unknown`]: a request got no reply; if it was executed, its hold is released in the background;
    /// - [`Error::NotReplicated`]: too few replicas acknowledged the hold, which was released (only with
    ///   [`wait_replicas`](crate::Builder::wait_replicas));
    /// - [`Error::NoQuorum`]: too few nodes answered (only a [`Redlock`](crate::Redlock));
    /// - [`Error::NoTtl`]: the lock is held by a key that never expires.
    ///
    /// These errors are returned at once:
    ///
    /// - [`Error::InvalidName`], [`Error::InvalidLease`]: the name or the fixed lease is invalid;
    /// - [`Error::NotReentrant`]: the thread already holds this [`token_lock`](crate::Client::token_lock);
    /// - [`Error::Upgrade`]: the thread holds the read side, and this is the write side (only a
    ///   [`ReadWriteLock`](crate::ReadWriteLock));
    /// - [`Error::Overlap`]: the thread holds another lock that shares a part (only with a
    ///   [`MultiLock`](crate::MultiLock));
    /// - [`Error::InvalidConfig`]: two parts of a [`MultiLock`](crate::MultiLock) are the same lock, or the server of
    ///   [`Client::open`](crate::Client::open) is a node of a cluster;
    /// - [`Error::WrongType`], [`Error::CorruptCount`]: the key has other data, or another program wrote to the hold;
    /// - [`Error::FenceRegressed`]: the server issued too small a token (only a
    ///   [`fenced_lock`](crate::Client::fenced_lock));
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or TLS does not trust the other side;
    /// - [`Error::Unsupported`]: the store has no locks of this kind, or the call is inside a transaction of this
    ///   lock;
    /// - [`Error::Unexpected`], `Error::Database`: the server sent an unexpected reply, or the lock table is missing
    ///   or wrong;
    /// - [`Error::Closed`], [`Error::WatchdogDied`]: the client was shut down, or its renewal thread is not running;
    /// - [`Error::Forked`]: the client was created before this process was forked.
    pub fn lock(&self) -> Result<()> {
        self.raw_lock.acquire(WaitLimit::forever(None))?;
        Ok(())
    }

    /// Acquires the lock, and waits for it until `interrupt` is raised.
    ///
    /// A request in flight ends first, which takes up to [`command_timeout`](crate::Builder::command_timeout).
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
    /// The call sends one attempt, ends within [`command_timeout`](crate::Builder::command_timeout), and bypasses the queue
    /// of this client's waiters. Check the result: the statement `lock.try_lock()?;` continues without the lock.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`], each after one attempt.
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
    /// The call takes up to 250 ms more than `wait` if the server is slow. With a `wait` of zero the call makes one attempt.
    /// The result is also false if the client had no connection free during the wait, or if an earlier waiter of this client
    /// was refused a moment before the end.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`] if the end of the wait cannot be represented as an `Instant`, and those of
    /// [`Lock::lock`], where `wait` replaces the outage timeout.
    pub fn try_lock_for(&self, wait: Duration) -> Result<bool> {
        let limit = self.raw_lock.limit(wait, None)?;
        Ok(self.raw_lock.acquire(limit)?.is_some())
    }

    /// Acquires the lock, waits for it at most `wait` or until `interrupt` is raised, and returns whether it did.
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

    /// Releases one level of the current thread's hold; the last release frees the lock.
    ///
    /// Call it as often as the thread acquired the lock. The level of a guard is released only when no level of
    /// [`Lock::lock`] is left; the guard then has nothing to unlock.
    ///
    /// The call ends within one [`command_timeout`](crate::Builder::command_timeout). Do not repeat a failed unlock: after
    /// any error except [`Error::Unsupported`] and [`Error::Forked`] the level is released for this thread. If it was the
    /// last level, the hold is no longer renewed, and a background thread releases what is left in the store.
    ///
    /// An unlock without a reply is sent once more, and succeeds if the hold is no longer there. So `Ok` is also
    /// possible if the hold was lost, unnoticed, just before.
    ///
    /// # Errors
    ///
    /// - [`Error::NotHeld`]: this thread does not hold the lock;
    /// - [`Error::Lost`] with the cause: this thread held the lock and lost it (known for the last 256 lost holds of
    ///   a thread);
    /// - [`Error::Unreachable`], [`Error::Exhausted`]: the request was not sent;
    /// - [`Error::Unknown`]: the request got no reply, or too few replicas acknowledged an inner unlock (only with
    ///   [`wait_replicas`](crate::Builder::wait_replicas));
    /// - [`Error::Unavailable`]: the server answered that it cannot serve now;
    /// - [`Error::NoQuorum`]: too few nodes answered (only a [`Redlock`](crate::Redlock));
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or TLS does not trust the other side;
    /// - [`Error::WrongType`], [`Error::CorruptCount`], [`Error::Unexpected`]: another program wrote to the key, or
    ///   the server sent an unexpected reply;
    /// - [`Error::FenceRegressed`]: the hold was handed to a waiter of this client, and the server issued too small a
    ///   token;
    /// - `Error::Database`: the lock table was changed, or the database reports another error;
    /// - [`Error::Unsupported`]: inside a transaction of this lock in a database, or while the thread is ending;
    /// - [`Error::InvalidName`]: the name is invalid, so no thread can hold the lock;
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

    /// Frees the lock, whichever thread of whichever process holds it, and returns whether it was held.
    ///
    /// Holders of this client are notified at once. A holder of another client notices the loss at its next renewal or
    /// unlock. A key that is not a lock is not changed ([`Error::WrongType`]). For a token lock every string under the name
    /// counts as a token.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if a request got no reply, or if some locks of a [`MultiLock`](crate::MultiLock) were freed
    /// and others were not. In addition those of [`Lock::is_locked`].
    pub fn force_unlock(&self) -> Result<bool> {
        self.raw_lock.ready()?;
        let RawLock { inner, key, .. } = &self.raw_lock;
        let freed = inner.ask("force_unlock", |store, by| {
            store.force_release(&key.lock, by)
        })?;
        self.was_freed();
        Ok(freed)
    }

    /// Makes the holders and the waiters of this client query the lock.
    fn was_freed(&self) {
        let RawLock { inner, key, .. } = &self.raw_lock;
        inner.watchdog.check_now(&key.lock.name);
        inner.wait_queues.freed(&key.lock, None, None);
    }
}
