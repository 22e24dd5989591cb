use std::sync::Arc;
use std::time::Duration;

use crate::engine::hold::Hold;
use crate::engine::owner::Owner;
use crate::engine::raw_lock::RawLock;
use crate::ground::claim::VisitorId;
use crate::ground::error::{Error, Result};
use crate::lock::Lock;
use crate::losses::Losses;
use crate::store::{CountStep, Holding};

impl Lock {
    /// Returns whether any thread of any process holds the lock.
    ///
    /// # Errors
    ///
    /// These errors are returned after [`command_timeout`](crate::Builder::command_timeout) at the latest:
    ///
    /// - [`Error::Unreachable`], [`Error::Exhausted`]: the server did not reply, or the client had no free connection;
    /// - [`Error::Unavailable`], [`Error::NoQuorum`]: the server, or a majority of the nodes, cannot serve now;
    /// - [`Error::Permission`], [`Error::Untrusted`]: the user lacks a right, or a TLS certificate is not trusted;
    /// - [`Error::WrongType`], [`Error::CorruptCount`], [`Error::Unexpected`]: the key is no lock of this kind, its
    ///   hold count is not a number, or the server sent an unexpected reply;
    /// - `Error::Database`: the lock table is missing or wrong, or the database reports another error;
    /// - [`Error::InvalidName`], [`Error::InvalidConfig`], [`Error::Unsupported`]: the name, the address or another
    ///   setting is invalid, or the store has no locks of this kind;
    /// - [`Error::Forked`]: the client was created before this process was forked.
    pub fn is_locked(&self) -> Result<bool> {
        Ok(self.inspect(None)?.is_locked)
    }

    /// Returns whether the current thread holds the lock.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`].
    pub fn is_held_by_current_thread(&self) -> Result<bool> {
        Ok(self.hold_count()? > 0)
    }

    /// Returns whether the thread `thread` of this process holds the lock through this client.
    ///
    /// `thread` is the result of [`current_thread_id`](crate::current_thread_id) or of
    /// [`OwnedGuard::owner`](crate::OwnedGuard::owner).
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`].
    pub fn is_held_by_thread(&self, thread: u64) -> Result<bool> {
        self.raw_lock.ready()?;
        let owner = Owner::find(self.raw_lock.inner.pid, thread);
        Ok(self.count_of(owner)? > 0)
    }

    /// Queries the store for the number of levels of the current thread's hold; 0 if the thread does not hold the lock.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::is_locked`].
    pub fn hold_count(&self) -> Result<u32> {
        self.count_of(Some(self.me()?))
    }

    /// Returns how many threads of all processes wait for a [`fair_lock`](crate::Client::fair_lock). In Java this
    /// is `getQueueLength`.
    ///
    /// The count includes waiters of Redisson, and dead waiters that were not removed yet. Use the count for monitoring
    /// only, because it may be outdated when it arrives.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the lock is not a `fair_lock`. Only for a `fair_lock` does the store record all
    /// waiters. Other errors are those of [`Lock::is_locked`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// let tickets = client.fair_lock("lock:tickets");
    /// let guard = tickets.guard()?;
    /// assert_eq!(tickets.waiters()?, 0); // the holder is no waiter
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn waiters(&self) -> Result<u32> {
        self.raw_lock.ready()?;
        let lock = &self.raw_lock.key.lock;
        if let Some(reason) = lock.kind.rules().no_waiters {
            return Err(Error::unsupported(&lock.name, reason));
        }
        let waiters = self.raw_lock.count(CountStep::Waiters)?;
        Ok(u32::try_from(waiters).unwrap_or(u32::MAX))
    }

    /// Queries the store for the remaining lease of the lock, which a renewal may extend; `None` if the lock is free.
    ///
    /// # Errors
    ///
    /// [`Error::NoTtl`] if the key of the lock never expires, and those of [`Lock::is_locked`].
    pub fn remaining_lease(&self) -> Result<Option<Duration>> {
        let holding = self.inspect(None)?;
        if holding.is_locked && holding.remaining.is_none() {
            let lock = Arc::clone(self.full_name());
            return Err(Error::NoTtl { lock });
        }
        Ok(holding.remaining)
    }

    /// Returns whether the current thread certainly holds the lock at this moment, without I/O; see
    /// [`Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        let RawLock { inner, key, .. } = &self.raw_lock;
        if inner.is_forked() {
            return false;
        }
        let me = inner.thread(&key.lock.name).ok();
        let held = me.and_then(|me| me.held.current(key));
        held.is_some_and(|hold| hold.is_valid())
    }

    /// Returns the [`Losses`] of the current thread's hold; see [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the current thread does not hold the lock. [`Error::InvalidName`],
    /// [`Error::InvalidConfig`], [`Error::Unsupported`] or [`Error::Forked`] as for [`Lock::unlock`].
    pub fn lost(&self) -> Result<Losses> {
        let hold = self.current_hold()?;
        Ok(Losses::of(hold, self.raw_lock.inner.pid))
    }

    /// Returns the fencing token of the current thread's hold, without I/O; see
    /// [`Guard::fencing_token`](crate::Guard::fencing_token).
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lost`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// let lock = client.fenced_lock("lock:orders:42");
    /// lock.lock()?;
    /// let token = lock.fencing_token()?.expect("a fenced lock has one");
    /// lock.unlock()?;
    /// lock.lock()?;
    /// assert!(lock.fencing_token()? > Some(token));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn fencing_token(&self) -> Result<Option<u64>> {
        Ok(self.current_hold()?.fence())
    }

    pub(super) fn me(&self) -> Result<Arc<Owner>> {
        self.raw_lock.ready()?;
        self.raw_lock.inner.thread(self.full_name())
    }

    pub(crate) fn current_hold(&self) -> Result<Arc<Hold>> {
        let current = self.me()?.held.current(&self.raw_lock.key);
        current.ok_or_else(|| self.raw_lock.not_held())
    }

    fn inspect(&self, visitor: Option<&VisitorId>) -> Result<Holding> {
        self.raw_lock.ready()?;
        let RawLock { inner, key, .. } = &self.raw_lock;
        inner.ask("ask", |store, by| store.inspect(&key.lock, visitor, by))
    }

    fn count_of(&self, thread: Option<Arc<Owner>>) -> Result<u32> {
        match thread.and_then(|thread| thread.held.current(&self.raw_lock.key)) {
            // If a re-entry got no reply, the store's count may exceed the local count. The smaller count is returned.
            Some(hold) => Ok(self.inspect(Some(&hold.visitor))?.count.min(hold.count())),
            None => Ok(0),
        }
    }
}
