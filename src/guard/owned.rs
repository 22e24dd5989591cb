use std::fmt;
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

/// A lock that is held until the guard is dropped. The hold belongs to the guard instead of a thread.
///
/// Any thread may check the guard, call [`OwnedGuard::write`], pass the guard on and unlock it. The guard suits thread
/// pools, rayon and tokio's `spawn_blocking`. `docs/worlds.md` of the repository has a table of these uses, and an example.
///
/// * **The guard is the owner.** The server, Redisson and [`Lock::is_held_by_thread`] treat the guard as a thread with
///   the number [`OwnedGuard::owner`]. The thread that created the guard does not hold the lock: its [`Lock::unlock`]
///   returns [`Error::NotHeld`](crate::Error::NotHeld).
/// * **The guard is not reentrant.** If the thread that has the guard calls [`Lock::owned`] or [`Lock::lock`] for the same
///   lock, the thread waits for itself. Share the guard instead (`&guard` or an `Arc`).
/// * **The hold is renewed until the guard is dropped**, even after the thread that created the guard has ended. The hold of
///   a forgotten guard (`mem::forget`) is renewed until [`Client::shutdown`](crate::Client::shutdown) or the end of the
///   process. A fixed lease is never extended.
/// * **The guard has no conditions.** A [`Condition`](crate::Condition) needs a [`Guard`](crate::Guard) or [`Lock::lock`].
///
/// Dropping the guard unlocks the lock within one [`command_timeout`](crate::Builder::command_timeout). An error of this
/// unlock is only logged (feature `tracing`). [`OwnedGuard::unlock`] returns the error instead.
/// [`OwnedGuard::unlock_in_background`] does not wait for the server.
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
#[must_use = "a guard that is not bound unlocks at once; bind it, as in `let guard = lock.owned()?`"]
pub struct OwnedGuard {
    held: HeldLevel,
    /// The watchdog renews the hold until the last `Arc` of this owner is dropped.
    owner: Arc<Owner>,
    released: bool,
}

impl fmt::Debug for OwnedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut guard = f.debug_struct("OwnedGuard");
        let guard = guard.field("owner", &self.owner.id);
        guard.field("held", &self.held).finish()
    }
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

    /// Returns the number of this guard. No thread and no other guard has the same number.
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

    /// Returns whether the lock is certainly held at this moment, without I/O; see
    /// [`Guard::is_valid`](crate::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// Returns how long the hold stays valid without a further renewal; zero if the hold is not valid. No I/O.
    pub fn remaining_validity(&self) -> Duration {
        self.held.remaining_validity()
    }

    /// Returns the [`Losses`] of this hold; see [`Guard::lost`](crate::Guard::lost).
    pub fn lost(&self) -> Losses {
        self.held.lost()
    }

    /// Returns the id of this hold in the store.
    pub fn visitor(&self) -> &VisitorId {
        &self.held.hold.visitor
    }

    /// Returns the fencing token of this hold; see [`Guard::fencing_token`](crate::Guard::fencing_token).
    pub fn fencing_token(&self) -> Option<u64> {
        self.held.hold.fence()
    }

    /// Unlocks the lock, and returns the error that a drop would only log.
    ///
    /// After an error other than [`Error::Forked`](crate::Error::Forked), the hold has ended and is no longer renewed.
    /// If the store still has the hold, a background thread releases it.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::unlock`](crate::Lock::unlock) except [`Error::NotHeld`](crate::Error::NotHeld).
    pub fn unlock(mut self) -> Result<()> {
        self.released = true;
        self.give_back()
    }

    /// Unlocks without waiting for the server.
    ///
    /// For this process, the hold has ended when the call returns. A background thread sends a release request, and repeats
    /// the request until the server confirms the release or the lease ends. A client sends at most 16 such requests to one
    /// server at the same time. Errors are only logged (feature `tracing`).
    ///
    /// [`Client::shutdown`](crate::Client::shutdown) still sends the remaining requests, for at most one
    /// [`command_timeout`](crate::Builder::command_timeout). After a shutdown this call waits for the server. **If the
    /// process ends before the release is sent, the lock stays taken until its lease ends.**
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

    pub(crate) fn held(&self) -> &HeldLevel {
        &self.held
    }

    /// Consumes a semaphore's guard without a release, so its permits stay acquired.
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
    /// Acquires the lock, waits for it without a limit, and returns a guard that any thread may use.
    ///
    /// The guard is not reentrant. If the calling thread holds the lock or has such a guard, the call waits for its own
    /// thread to unlock.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`] except [`Error::NotReentrant`](crate::Error::NotReentrant),
    /// [`Error::Upgrade`](crate::Error::Upgrade) and [`Error::Overlap`](crate::Error::Overlap).
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

    /// Acquires the lock, waits for it until `interrupt` is raised, and returns a guard that any thread may use.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`](crate::Error::Interrupted) once `interrupt` is raised, and those of [`Lock::owned`].
    pub fn owned_interruptibly(&self, interrupt: &Interrupt) -> Result<OwnedGuard> {
        WaitLimit::without_end(Some(interrupt), |limit| self.owned_within(limit))
    }

    /// Acquires the lock if it is free now, and returns a guard that any thread may use; `None` if it is not free.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::owned`]. Each error is returned after one attempt.
    #[must_use = "the guard is dropped, which unlocks at once; bind it to a name"]
    pub fn try_owned(&self) -> Result<Option<OwnedGuard>> {
        self.owned_within(WaitLimit::once())
    }

    /// Acquires the lock, waits for it at most `wait`, and returns a guard that any thread may use; `None` if the lock was
    /// not acquired.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`](crate::Error::InvalidWait) if the end of the wait cannot be represented as an `Instant`. Other
    /// errors are those of [`Lock::owned`]. Errors of an outage are returned after `wait` instead of the outage timeout.
    #[must_use = "the guard is dropped, which unlocks at once; bind it to a name"]
    pub fn try_owned_for(&self, wait: Duration) -> Result<Option<OwnedGuard>> {
        self.owned_within(self.raw_lock().limit(wait, None)?)
    }

    fn owned_within(&self, limit: WaitLimit<'_>) -> Result<Option<OwnedGuard>> {
        let entered = self.raw_lock().acquire_owned(limit)?;
        Ok(entered.map(|entry| OwnedGuard::new(self.clone(), entry)))
    }
}
