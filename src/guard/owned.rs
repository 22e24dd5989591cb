//! The guard that belongs to no thread.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::owner::Owner;
use crate::engine::raw_lock::Entry;
use crate::engine::wait_loop::WaitLimit;
use crate::ground::claim::VisitorId;
use crate::ground::error::Result;
use crate::ground::events;
use crate::ground::interrupt::Interrupt;
use crate::guard::HeldLevel;
use crate::lock::Lock;
use crate::losses::Losses;

/// A lock that is held by the guard itself and by no thread, until the guard is dropped.
///
/// Any thread may check it, write under it, pass it on and unlock it, so it fits where work moves from thread to thread:
/// thread pools, rayon, tokio's `spawn_blocking`. The page `docs/worlds.md` of the repository has a recipe for each.
///
/// * **It is an owner of its own.** To the server, to Redisson and to [`Lock::is_held_by_thread`] it is one more thread,
///   whose number is [`OwnedGuard::owner`]. The thread that made it does not hold the lock: its `unlock()` is
///   [`Error::NotHeld`](crate::Error::NotHeld).
/// * **It is not reentrant.** A thread that waits for a lock whose owned guard it keeps waits for itself, whether it calls
///   [`Lock::owned`] or [`Lock::lock`]. Nothing notices that; share the guard instead (`&guard`, or an `Arc` of it).
/// * It is renewed as long as the guard lives, whatever becomes of the thread that made it. One that was forgotten
///   (`mem::forget`) is a handle of its client that is never dropped: it is renewed until
///   [`Client::shutdown`](crate::Client::shutdown) or the end of the process.
/// * Conditions need a thread that holds the lock: see [`Guard`](crate::Guard).
///
/// Dropping it unlocks within one [`command_timeout`](crate::Builder::command_timeout) and only logs an error (feature
/// `tracing`); [`OwnedGuard::unlock`] returns the error, and [`OwnedGuard::unlock_in_background`] waits for nothing.
///
/// # Examples
///
/// ```
/// # let client = redlatch::Client::in_memory();
/// let lock = client.lock("lock:orders:42");
/// let guard = lock.owned()?;
/// let worker = std::thread::spawn(move || {
///     assert!(guard.is_valid());
///     guard.unlock()
/// });
/// worker.join().expect("it does not panic")?;
/// assert!(!lock.is_locked()?);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[must_use = "the lock is unlocked as soon as the guard is dropped"]
#[derive(Debug)]
pub struct OwnedGuard {
    held: HeldLevel,
    /// Its hold is renewed as long as this lives.
    owner: Arc<Owner>,
    released: bool,
}

impl OwnedGuard {
    pub(crate) fn new(lock: Lock, entry: Entry) -> OwnedGuard {
        OwnedGuard {
            owner: entry.owner,
            held: HeldLevel::new(lock, entry.hold, entry.level),
            released: false,
        }
    }

    /// Returns the name of the lock, key prefix included.
    pub fn name(&self) -> &str {
        self.held.lock.name()
    }

    /// Returns the number of this owner, which is that of no thread and of no other guard.
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// let lock = client.lock("lock:orders:42");
    /// let guard = lock.owned()?;
    /// assert!(lock.is_held_by_thread(guard.owner())?);
    /// assert!(!lock.is_held_by_current_thread()?);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn owner(&self) -> u64 {
        self.owner.id
    }

    /// Returns whether the hold is certain at this moment, without I/O; see [`Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// Returns how long the hold stays valid if no further renewal is confirmed; zero if it is not valid. No I/O.
    pub fn remaining_validity(&self) -> Duration {
        self.held.remaining_validity()
    }

    /// Returns the [`Losses`] of this hold, on which its loss arrives; see [`Guard::lost`](crate::Guard::lost).
    pub fn lost(&self) -> Losses {
        self.held.lost()
    }

    /// Returns the id of this hold in the store.
    pub fn visitor(&self) -> &VisitorId {
        &self.held.hold.visitor
    }

    /// Returns the fencing token of this hold; see [`Guard::fencing_token`](crate::Guard::fencing_token).
    pub fn fencing_token(&self) -> Option<u64> {
        self.held.hold.fence
    }

    /// Unlocks, and returns the error that a drop would only log.
    ///
    /// The guard is gone in any case. After an error the hold is over and no longer renewed; if it is still in the store,
    /// it is released in the background.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::unlock`](crate::Lock::unlock), but for [`Error::NotHeld`](crate::Error::NotHeld).
    pub fn unlock(mut self) -> Result<()> {
        self.released = true;
        self.give_back()
    }

    /// Unlocks without waiting for the server: a thread of the client does it, and repeats it until it is done or the lease
    /// is over.
    ///
    /// From here on the hold is over and not renewed. The lock is free a moment later: within one
    /// [`command_timeout`](crate::Builder::command_timeout) if the server answers, within the lease if it does not. Nobody
    /// is told of an error (feature `tracing` logs it), nor of a loss that the unlock would have found.
    ///
    /// The end of the client, by [`Client::shutdown`](crate::Client::shutdown) or with its last handle, sends what was not sent
    /// yet, as far as the server answers within one `command_timeout`: the first unlock goes to each server alone, and the
    /// others behind its answer, so a server that is silent for longer keeps them until their leases are over. If this guard
    /// is the last handle, the client ends on a thread of its own, for which the call does not wait. **If the process ends
    /// before that is done, the lock is free only when its lease is over.** After a shutdown there is no such thread, and the
    /// call waits as [`OwnedGuard::unlock`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let client = redlatch::Client::in_memory();
    /// let lock = client.lock("lock:orders:42");
    /// lock.owned()?.unlock_in_background();
    /// assert!(lock.try_lock_for(Duration::from_secs(10))?);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn unlock_in_background(mut self) {
        self.released = true;
        match self.held.raw_lock().ready() {
            Ok(()) => {
                let HeldLevel { hold, level, .. } = &self.held;
                let raw_lock = self.held.raw_lock();
                raw_lock.release_in_background(&self.owner, hold, *level);
            }
            Err(error) => events::unlock_failed(&self.held.hold.name, &error),
        }
        let client = Arc::clone(&self.held.raw_lock().inner);
        drop(self);
        client.let_go();
    }

    /// The level that it holds.
    pub(crate) fn held(&self) -> &HeldLevel {
        &self.held
    }

    /// Gives up the ownership, and leaves what it holds taken.
    pub(crate) fn forget(mut self) -> Result<()> {
        self.released = true;
        let raw_lock = self.held.raw_lock();
        raw_lock.ready()?;
        raw_lock.forget(&self.held.hold)
    }

    fn give_back(&self) -> Result<()> {
        let HeldLevel { hold, level, .. } = &self.held;
        let raw_lock = self.held.raw_lock();
        raw_lock.ready()?;
        raw_lock.release_of(Some(&self.owner), hold, *level)
    }
}

impl Drop for OwnedGuard {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        if let Err(error) = self.give_back() {
            events::unlock_failed(&self.held.hold.name, &error);
        }
    }
}

impl Lock {
    /// Takes the lock as [`Lock::lock`] does, and returns a guard that any thread may keep, and that unlocks it when dropped.
    ///
    /// Nobody re-enters it, the calling thread neither: while it keeps the guard, or holds the lock itself, it waits for
    /// itself.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`], but for [`Error::NotReentrant`](crate::Error::NotReentrant) and
    /// [`Error::Upgrade`](crate::Error::Upgrade).
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// let lock = client.lock("lock:orders:42");
    /// let guard = lock.owned()?;
    /// assert!(lock.try_owned()?.is_none());
    /// assert!(!lock.try_lock()?);
    /// std::thread::spawn(move || drop(guard)).join().expect("it does not panic");
    /// assert!(lock.try_owned()?.is_some());
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn owned(&self) -> Result<OwnedGuard> {
        WaitLimit::without_end(None, |limit| self.owned_within(limit))
    }

    /// Takes the lock as [`Lock::owned`] does, and waits until it has the lock or `interrupt` is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`](crate::Error::Interrupted) once `interrupt` is raised, and those of [`Lock::owned`].
    pub fn owned_interruptibly(&self, interrupt: &Interrupt) -> Result<OwnedGuard> {
        WaitLimit::without_end(Some(interrupt), |limit| self.owned_within(limit))
    }

    /// Takes the lock if it is free now, and returns a guard that any thread may keep; `None` if it is not free.
    ///
    /// `lock.try_owned()?;` as a statement, or bound to `_`, unlocks at once and does not say whether the lock was free.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::owned`], each after one attempt.
    pub fn try_owned(&self) -> Result<Option<OwnedGuard>> {
        self.owned_within(WaitLimit::once())
    }

    /// Takes the lock, waits for it at most `wait`, and returns a guard that any thread may keep; `None` if the wait is over.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`](crate::Error::InvalidWait) if the end of the wait cannot be expressed as an instant, and those of
    /// [`Lock::owned`], with the end of the wait in place of the outage timeout.
    pub fn try_owned_for(&self, wait: Duration) -> Result<Option<OwnedGuard>> {
        self.owned_within(self.raw_lock().limit(wait, None)?)
    }

    fn owned_within(&self, limit: WaitLimit<'_>) -> Result<Option<OwnedGuard>> {
        let entered = self.raw_lock().acquire_owned(limit)?;
        Ok(entered.map(|entry| OwnedGuard::new(self.clone(), entry)))
    }
}
