//! The guard: a lock that is held, and unlocked when it goes out of scope.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::hold::{Hold, LevelId};
use crate::engine::raw_lock::RawLock;
use crate::ground::claim::VisitorId;
use crate::ground::error::{Error, Result};
use crate::ground::events;
use crate::losses::Losses;

/// A lock that is held by the current thread until the guard is dropped.
///
/// The thread is the owner, so a guard stays on its thread and is not `Send`. Dropping it unlocks within one
/// [`command_timeout`](crate::Builder::command_timeout) and only logs an error (feature `tracing`); [`Guard::unlock`]
/// returns the error. The hold of a guard that was forgotten (`mem::forget`) is renewed until its thread or its client
/// ends.
///
/// # Examples
///
/// ```
/// # let client = redlatch::Client::in_memory();
/// let lock = client.lock("lock:orders:42");
/// {
///     let guard = lock.guard()?;
///     assert!(guard.is_valid());
/// }
/// assert!(!lock.is_locked()?);
/// # Ok::<(), redlatch::Error>(())
/// ```
///
/// A guard cannot be sent to another thread:
///
/// ```compile_fail
/// # let client = redlatch::Client::in_memory();
/// let guard = client.lock("lock:orders:42").guard().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[must_use = "the lock is unlocked as soon as the guard is dropped"]
pub struct Guard {
    raw_lock: RawLock,
    hold: Arc<Hold>,
    level: LevelId,
    released: bool,
    /// Ownership is the thread's.
    not_send: PhantomData<*const ()>,
}

impl Guard {
    pub(crate) fn new(raw_lock: RawLock, hold: Arc<Hold>, level: LevelId) -> Guard {
        hold.guard(level);
        Guard {
            raw_lock,
            hold,
            level,
            released: false,
            not_send: PhantomData,
        }
    }

    /// Returns whether the hold is certain at this moment, by local knowledge alone and without I/O.
    ///
    /// The result turns false for good when the store has said that the hold is gone, or when the validity has ended: the
    /// lease time since *before* the last confirmed request was sent, minus 1 % and 2 ms for clocks that differ. Time
    /// passes between this check and the next step, because a lock is a lease. (In `Guard::transaction` of the feature
    /// `mysql` the result may turn true again with the commit.)
    pub fn is_valid(&self) -> bool {
        // First the fork: in the child the mutex of the hold may be locked by a thread that is not there.
        !self.raw_lock.inner.is_forked() && self.hold.is_valid()
    }

    /// Returns how long the hold stays valid if no further renewal is confirmed; zero if it is not valid. No I/O.
    pub fn remaining_validity(&self) -> Duration {
        if self.raw_lock.inner.is_forked() {
            return Duration::ZERO;
        }
        self.hold.remaining_validity()
    }

    /// Returns the [`Losses`] of this hold, on which its loss arrives, to wait for or to select on.
    ///
    /// If the hold ends well instead, [`Losses`] says so from then on.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use redlatch::NoLoss;
    ///
    /// # let client = redlatch::Client::in_memory();
    /// let guard = client.lock("lock:orders:42").guard()?;
    /// let losses = guard.lost();
    /// let tick = Duration::from_millis(10);
    /// assert_eq!(losses.recv_timeout(tick), Err(NoLoss::NotYet)); // go on
    /// guard.unlock()?;
    /// assert_eq!(losses.recv_timeout(tick), Err(NoLoss::Ended)); // it ended well
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn lost(&self) -> Losses {
        Losses::of(Arc::clone(&self.hold), self.raw_lock.inner.pid())
    }

    /// Returns the id of this hold in the store.
    pub fn visitor(&self) -> &VisitorId {
        &self.hold.visitor
    }

    /// Returns the fencing token of this hold, a number larger than that of every earlier hold of this lock.
    ///
    /// A resource that keeps the largest number it has seen can refuse a holder that has lost its lock and has not noticed
    /// yet. `None` where the store draws none: in this version only databases do.
    pub fn fencing_token(&self) -> Option<u64> {
        self.hold.fence
    }

    #[cfg(feature = "mysql")]
    pub(crate) fn parts(&self) -> (&RawLock, &Arc<Hold>) {
        (&self.raw_lock, &self.hold)
    }

    /// Unlocks, and returns the error that a drop would only log.
    ///
    /// The guard is gone in any case; see [`Lock::unlock`](crate::Lock::unlock) for the state of the hold after an error.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::unlock`](crate::Lock::unlock); [`Error::NotHeld`] if that has given back the level of this guard
    /// before. After [`Error::Unsupported`] inside a transaction of this lock the end of the transaction gives it back.
    pub fn unlock(mut self) -> Result<()> {
        self.released = true;
        if self.is_put_off() {
            return Err(Error::in_its_transaction(&self.hold.name));
        }
        self.give_back()
    }

    /// Leaves its level to the transaction that has the hold, if one has.
    fn is_put_off(&self) -> bool {
        self.raw_lock.ready().is_ok() && self.hold.put_off(self.level)
    }

    fn give_back(&self) -> Result<()> {
        self.raw_lock.ready()?;
        self.raw_lock.release(&self.hold, self.level)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.released || self.is_put_off() {
            return;
        }
        match self.give_back() {
            // `Lock::unlock` has given it back before.
            Ok(()) | Err(Error::NotHeld { .. }) => {}
            Err(error) => events::unlock_failed(&self.hold.name, &error),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("lock", &self.hold.name)
            .field("visitor", &self.hold.visitor)
            .field("is_valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
