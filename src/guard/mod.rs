//! The guard: a lock that is held, and unlocked when it goes out of scope.

mod held_level;
mod owned;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::hold::{Hold, LevelId};
use crate::engine::wait_loop::WaitLimit;
use crate::ground::claim::VisitorId;
use crate::ground::error::{Error, Result, RunError};
use crate::ground::events;
use crate::ground::interrupt::Interrupt;
pub(crate) use crate::guard::held_level::HeldLevel;
pub use crate::guard::owned::OwnedGuard;
use crate::lock::Lock;
use crate::losses::Losses;

/// A lock that is held by the current thread until the guard is dropped.
///
/// The thread is the owner, so a guard stays on its thread and is not `Send` ([`Lock::owned`] gives one that is). Dropping it unlocks within one
/// [`command_timeout`](crate::Builder::command_timeout) and only logs an error (feature `tracing`); [`Guard::unlock`]
/// returns the error. The hold of a guard that was forgotten (`mem::forget`) is renewed until its thread ends or the
/// client is shut down.
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
#[derive(Debug)]
pub struct Guard {
    held: HeldLevel,
    released: bool,
    /// Ownership is the thread's.
    not_send: PhantomData<*const ()>,
}

impl Guard {
    pub(crate) fn new(lock: Lock, hold: Arc<Hold>, level: LevelId) -> Guard {
        Guard {
            held: HeldLevel::new(lock, hold, level),
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
        self.held.is_valid()
    }

    /// Returns how long the hold stays valid if no further renewal is confirmed; zero if it is not valid. No I/O.
    pub fn remaining_validity(&self) -> Duration {
        self.held.remaining_validity()
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
        self.held.lost()
    }

    /// Returns the id of this hold in the store.
    pub fn visitor(&self) -> &VisitorId {
        &self.held.hold.visitor
    }

    /// Returns the fencing token of this hold, a number larger than that of every earlier hold of this lock.
    ///
    /// A resource that keeps the largest number it has seen can refuse a holder that has lost its lock and has not noticed
    /// yet. Re-entries keep the number of the hold. Holds of a [`fenced_lock`](crate::Client::fenced_lock) have one, and
    /// those of every lock in a database; `None` for all others.
    pub fn fencing_token(&self) -> Option<u64> {
        self.held.hold.fence
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
            return Err(Error::in_its_transaction(&self.held.hold.name));
        }
        self.give_back()
    }

    /// The level that it holds.
    pub(crate) fn held(&self) -> &HeldLevel {
        &self.held
    }

    /// Ends without an unlock: its hold was given back by a wait.
    pub(crate) fn forget(mut self) {
        self.released = true;
    }

    /// Leaves its level to the transaction that has the hold, if one has.
    fn is_put_off(&self) -> bool {
        self.held.raw_lock().ready().is_ok() && self.held.hold.put_off(self.held.level)
    }

    fn give_back(&self) -> Result<()> {
        let raw_lock = self.held.raw_lock();
        raw_lock.ready()?;
        raw_lock.release(&self.held.hold, self.held.level)
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
            Err(error) => events::unlock_failed(&self.held.hold.name, &error),
        }
    }
}

impl Lock {
    /// Takes the lock as [`Lock::lock`] does, and returns a guard that unlocks it when dropped.
    ///
    /// The guard needs a name: `let guard = lock.guard()?;` or `let _guard = …`. With `let _ = lock.guard()?;` it is dropped,
    /// and the lock unlocked, on that very line.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`].
    pub fn guard(&self) -> Result<Guard> {
        WaitLimit::without_end(None, |limit| self.guarded(limit))
    }

    /// Takes the lock as [`Lock::lock_interruptibly`] does, and returns a guard that unlocks it when dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`Lock::lock`].
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::{Error, Interrupt};
    ///
    /// # let client = redlatch::Client::in_memory();
    /// let lock = client.lock("lock:orders:42");
    /// let interrupt = Interrupt::new();
    /// let guard = lock.guard_interruptibly(&interrupt)?;
    /// guard.unlock()?;
    /// interrupt.raise();
    /// assert!(matches!(lock.guard_interruptibly(&interrupt), Err(Error::Interrupted { .. })));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn guard_interruptibly(&self, interrupt: &Interrupt) -> Result<Guard> {
        WaitLimit::without_end(Some(interrupt), |limit| self.guarded(limit))
    }

    /// Takes the lock if it is free now, and returns a guard; `None` if it is not free.
    ///
    /// `lock.try_guard()?;` as a statement, or bound to `_`, unlocks at once and does not say whether the lock was free.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock`].
    pub fn try_guard(&self) -> Result<Option<Guard>> {
        self.guarded(WaitLimit::once())
    }

    /// Takes the lock, waits for it at most `wait`, and returns a guard; `None` if the wait is over.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock_for`].
    pub fn try_guard_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.guarded(self.raw_lock().limit(wait, None)?)
    }

    /// Takes the lock, waits for it at most `wait` or until `interrupt` is raised, and returns a guard; `None` if the wait
    /// is over.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`Lock::try_lock_for`].
    pub fn try_guard_for_interruptibly(
        &self,
        wait: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Guard>> {
        self.guarded(self.raw_lock().limit(wait, Some(interrupt))?)
    }

    /// Runs `work` under the lock, and unlocks when `work` returns or panics.
    ///
    /// The value of `work` comes back in any case, beside the error if there is one. `?` turns a [`RunError`] into an
    /// [`Error`] only where `work` returns nothing.
    ///
    /// # Errors
    ///
    /// [`RunError::NotRun`] with an error of [`Lock::lock`] if the lock was not obtained; [`RunError::Ran`] with the value
    /// of `work` and an error of [`Lock::unlock`] if the hold was lost meanwhile or its release is in doubt.
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// let sum = client.lock("lock:ledger").run(|guard| {
    ///     assert!(guard.is_valid());
    ///     40 + 2
    /// })?;
    /// assert_eq!(sum, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
        let guard = self.guard().map_err(RunError::NotRun)?;
        run(guard, work)
    }

    /// Runs `work` under the lock if the lock can be had within `wait`; `Ok(None)` if it cannot.
    ///
    /// The lock is free as soon as `work` is done, and the next caller runs its work again. So `work` has to find out
    /// under the lock whether there is something to do. (A job that several machines start at about the same time, and
    /// one of them is to run, needs a lock that lasts longer than their clocks are apart, as in the example `nightly`.)
    ///
    /// # Errors
    ///
    /// [`RunError::NotRun`] with an error of [`Lock::try_lock_for`]; [`RunError::Ran`] as for [`Lock::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # let client = redlatch::Client::in_memory();
    /// # let unpaid = AtomicU32::new(3); // in a database, in real life
    /// let collect = || {
    ///     let open = unpaid.load(Ordering::SeqCst);
    ///     unpaid.store(0, Ordering::SeqCst);
    ///     open
    /// };
    /// let lock = client.lock("lock:collect");
    /// let wait = Duration::from_millis(500);
    /// assert_eq!(lock.try_run_for(wait, |_| collect())?, Some(3));
    /// // Somebody who comes later finds nothing to do.
    /// assert_eq!(lock.try_run_for(wait, |_| collect())?, Some(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<Option<T>, RunError<T>> {
        match self.try_guard_for(wait).map_err(RunError::NotRun)? {
            Some(guard) => run(guard, work).map(Some),
            None => Ok(None),
        }
    }

    fn guarded(&self, limit: WaitLimit<'_>) -> Result<Option<Guard>> {
        let entered = self.raw_lock().acquire(limit)?;
        Ok(entered.map(|entry| Guard::new(self.clone(), entry.hold, entry.level)))
    }
}

fn run<T>(guard: Guard, work: impl FnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
    let value = work(&guard);
    match guard.unlock() {
        Ok(()) => Ok(value),
        Err(error) => Err(RunError::Ran { value, error }),
    }
}
