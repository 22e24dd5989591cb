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
/// It keeps the contract of `java.util.concurrent.locks.Lock`: it belongs to the thread that took it, and that thread may
/// take it again and must unlock it as often. It is a **lease, not a mutex**: if the server cannot be reached for long
/// enough, or loses its data, the hold is lost, which [`Lock::is_valid`], [`Lock::lost`] and
/// [`Guard`](crate::Guard) tell the holder.
///
/// [`Client::lock`](crate::Client::lock) and its siblings make a lock without I/O; clones, and locks of the same client
/// and name, are the same lock.
///
/// The threads of one client that wait for the lock queue up, get it in the order in which they came, and hand it off in
/// one request. A re-entry and a [`try_lock`](Lock::try_lock) bypass the queue. Among processes there is no order.
///
/// The methods are those of Java in snake case; `docs/migrate/redisson.md` of the repository puts them side by side.
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
/// lock.lock()?; // waits; it is renewed until unlock
/// assert!(lock.is_held_by_current_thread()?);
/// assert_eq!(lock.hold_count()?, 1);
/// lock.unlock()?;
///
/// if lock.try_lock_for(Duration::from_millis(500))? {
///     // …
///     lock.unlock()?;
/// }
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    pub(crate) raw_lock: RawLock,
    /// The store of the lock, if it is a database.
    #[cfg(feature = "mysql")]
    pub(crate) database: Option<Arc<MySql>>,
}

/// The range of the pauses between two questions for a lock.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Lock {
    /// The lock of this name, which the key prefix of the client comes before.
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

    /// Returns the same lock with a fixed lease time for the acquisitions made through it.
    ///
    /// A hold with a fixed lease is not renewed: it ends after `lease`, unlocked or not. The range is 10 ms ..= 365 days,
    /// for a [`Redlock`](crate::Redlock) up to its [`max_lease`](crate::RedlockBuilder::max_lease); anything else is
    /// [`Error::InvalidLease`] at the acquisition. A nested acquisition shortens nothing: the hold lasts until the latest
    /// end that any of its levels counts on. Defaults to no fixed lease: the watchdog renews the hold.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let client = redlatch::Client::in_memory();
    /// let five = client.lock("lock:report").with_lease_time(Duration::from_secs(5));
    /// five.lock()?;
    /// assert!(five.remaining_lease()?.unwrap() <= Duration::from_secs(5));
    /// five.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use = "this returns the configured lock; the original is unchanged"]
    pub fn with_lease_time(&self, lease: Duration) -> Lock {
        self.with(|raw_lock| raw_lock.lease = Lease::Fixed(lease))
    }

    /// Returns the same lock whose waiters ask again and again in place of listening for unlock messages: after about
    /// `first`, then after pauses twice as long each, up to about `longest`.
    ///
    /// Each pause is drawn between half and one and a half times its length. The threads of a client go on queueing, so
    /// one of them asks at a time, and hand the lock off among themselves; now and then it rests free for one and a half times
    /// `longest`, so that others find it: those with longer pauses find it by chance, so all clients of a lock should have the
    /// same. In a Redis Cluster whose messages are not
    /// sharded an unlock sends none, for it would go to every node; waiters that listen get the lock up to a second later.
    /// The range is 100 µs ..= 1 s, `first` not longer than `longest`; anything else is
    /// [`Error::InvalidConfig`] at the first operation. Defaults to messages; for a
    /// [`spin_lock`](crate::Client::spin_lock) to 1 ms and 128 ms.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let client = redlatch::Client::in_memory();
    /// let calm = client
    ///     .spin_lock("lock:report")
    ///     .with_backoff(Duration::from_millis(20), Duration::from_millis(500));
    /// assert!(calm.try_lock_for(Duration::from_secs(1))?);
    /// calm.unlock()?;
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

    /// Takes the lock, and waits for it as long as it takes.
    ///
    /// # Errors
    ///
    /// After every error nothing was taken: a first acquisition holds nothing, a re-entry leaves the outer levels as they
    /// are.
    ///
    /// After [`outage_timeout`](crate::Builder::outage_timeout) without a usable answer:
    ///
    /// - [`Error::Unreachable`]: the server was not reached, and nothing was sent;
    /// - [`Error::Exhausted`]: the client had no connection free, and nothing was sent;
    /// - [`Error::Unavailable`]: the server answered that it cannot serve now;
    /// - [`Error::Unknown`]: a request got no answer; if it was executed, its hold is released in the background;
    /// - [`Error::NotReplicated`]: too few replicas acknowledged the hold, which was undone (only with
    ///   [`wait_replicas`](crate::Builder::wait_replicas));
    /// - [`Error::NoQuorum`]: too few nodes could be asked (only of a [`Redlock`](crate::Redlock));
    /// - [`Error::NoTtl`]: the lock is held by a key that never expires.
    ///
    /// At once, because waiting cannot help:
    ///
    /// - [`Error::InvalidName`], [`Error::InvalidLease`]: the name or the fixed lease cannot be used;
    /// - [`Error::NotReentrant`]: the thread holds this [`token_lock`](crate::Client::token_lock) already;
    /// - [`Error::Upgrade`]: the thread has the read side, and this is the write side (only of a
    ///   [`ReadWriteLock`](crate::ReadWriteLock));
    /// - [`Error::Overlap`]: the thread holds another lock with a part in common (only with a
    ///   [`MultiLock`](crate::MultiLock));
    /// - [`Error::InvalidConfig`]: two parts of a [`MultiLock`](crate::MultiLock) turned out to be one lock, or a server
    ///   that was given alone turned out to be a node of a cluster;
    /// - [`Error::WrongType`], [`Error::CorruptCount`]: something else is kept under the name, or has written to the hold;
    /// - [`Error::FenceRegressed`]: the server drew too small a token (only of a [`fenced_lock`](crate::Client::fenced_lock));
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or TLS does not trust the other side;
    /// - [`Error::Unsupported`]: the server or the place of the call does not allow it, as its text says;
    /// - [`Error::Unexpected`], `Error::Database`: the server answered something unexpected; the latter only from a database,
    ///   for its lock table and for an error without a name here;
    /// - [`Error::Closed`], [`Error::WatchdogDied`]: the client was shut down, or its renewal thread is not running;
    /// - [`Error::Forked`]: the client was made before this process was forked.
    pub fn lock(&self) -> Result<()> {
        self.raw_lock.acquire(WaitLimit::forever(None))?;
        Ok(())
    }

    /// Takes the lock, and waits until it has the lock or `interrupt` is raised.
    ///
    /// A request that is under way then ends first, which may take up to
    /// [`command_timeout`](crate::Builder::command_timeout).
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`Lock::lock`].
    pub fn lock_interruptibly(&self, interrupt: &Interrupt) -> Result<()> {
        self.raw_lock.acquire(WaitLimit::forever(Some(interrupt)))?;
        Ok(())
    }

    /// Takes the lock if it is free now, and returns whether it did.
    ///
    /// It sends one attempt, which ends within [`command_timeout`](crate::Builder::command_timeout), and bypasses the queue
    /// of this client's waiters. The result decides: `lock.try_lock()?;` as a statement goes on without the lock.
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
    ///     println!("somebody else has it");
    /// }
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn try_lock(&self) -> Result<bool> {
        Ok(self.raw_lock.acquire(WaitLimit::once())?.is_some())
    }

    /// Takes the lock, waits for it at most `wait`, and returns whether it did.
    ///
    /// The call takes up to 250 ms more than `wait` if the server is slow. With a `wait` of zero it tries once. When the
    /// wait is over, the server is not asked again if earlier waiters of this client were refused a moment ago. A wait during
    /// which the client had no connection free is `false`, too.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`] if the end of the wait cannot be expressed as an instant, and those of [`Lock::lock`], with
    /// the end of the wait in place of the outage timeout.
    pub fn try_lock_for(&self, wait: Duration) -> Result<bool> {
        Ok(self
            .raw_lock
            .acquire(self.raw_lock.limit(wait, None)?)?
            .is_some())
    }

    /// Takes the lock, waits for it at most `wait` or until `interrupt` is raised, and returns whether it did.
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

    /// Unlocks: the last of as many calls as there were acquisitions frees the lock.
    ///
    /// The levels of guards are left to them as long as there is another one; after that the unlock takes the level of a
    /// guard, which then has nothing left to give back.
    ///
    /// The call ends within one [`command_timeout`](crate::Builder::command_timeout). After any error but
    /// [`Error::Unsupported`] and [`Error::Forked`], which change nothing, the level is given back, so an unlock is not to be
    /// repeated. After an error of the last unlock the hold is over for this thread and no longer renewed; if it is still in
    /// the store, it is released in the background.
    ///
    /// An unlock without an answer is sent once more, and counts as done if the hold is no longer there by then. So the
    /// unlock returns `Ok` even if the hold was lost, unnoticed, just before.
    ///
    /// # Errors
    ///
    /// - [`Error::NotHeld`]: this thread does not hold the lock;
    /// - [`Error::Lost`] with the cause: this thread held the lock and lost it (a thread that loses one lock after the
    ///   other and unlocks none remembers those of its last 256 holds);
    /// - [`Error::Unreachable`], [`Error::Exhausted`]: the request was not sent;
    /// - [`Error::Unknown`]: the request got no answer, or too few replicas acknowledged an inner unlock (only with
    ///   [`wait_replicas`](crate::Builder::wait_replicas));
    /// - [`Error::Unavailable`]: the server answered that it cannot serve now;
    /// - [`Error::NoQuorum`]: too few nodes could be told (only of a [`Redlock`](crate::Redlock));
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or TLS does not trust the other side;
    /// - [`Error::WrongType`], [`Error::CorruptCount`], [`Error::Unexpected`]: something else has written to the key, or the
    ///   server answered something unexpected;
    /// - [`Error::FenceRegressed`]: the hold went to a waiter of this client, for whom the server drew too small a token;
    /// - `Error::Database`: the lock table is not as it was, or the database has another error;
    /// - [`Error::Unsupported`]: inside a transaction of this lock in a database, or while the thread is ending;
    /// - [`Error::InvalidName`]: the name cannot be used, so nobody holds it;
    /// - [`Error::Forked`]: the client was made before this process was forked.
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
    /// A holder of another client learns of it at its next renewal, or when it unlocks; holders of this client learn of it
    /// at once. A key that cannot be a lock is left alone ([`Error::WrongType`]). A token may be any text, so a token lock
    /// is freed whatever string is under its name.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if a request got no answer, so that the lock may be freed or not, or if some locks of a
    /// [`MultiLock`](crate::MultiLock) are freed and others could not be; and those of [`Lock::is_locked`].
    pub fn force_unlock(&self) -> Result<bool> {
        self.raw_lock.ready()?;
        let RawLock { inner, key, .. } = &self.raw_lock;
        let freed = inner.ask("force_unlock", |store, by| {
            store.force_release(&key.lock, by)
        })?;
        self.was_freed();
        Ok(freed)
    }

    /// Has the holders and the waiters of this client find out that the lock may be free.
    fn was_freed(&self) {
        let RawLock { inner, key, .. } = &self.raw_lock;
        inner.watchdog.check_now(&key.lock.name);
        inner.wait_queues.freed(&key.lock, None, None);
    }
}
