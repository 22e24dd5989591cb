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

/// A lock that the current thread holds until the guard is dropped.
///
/// Dropping the guard unlocks the lock within one [`command_timeout`](crate::Builder::command_timeout). An error of this
/// unlock is only logged (feature `tracing`). [`Guard::unlock`] returns the error instead.
///
/// The guard belongs to its thread and is not `Send`. **For a guard that another thread may use or drop, call
/// [`Lock::owned`]**, which returns an [`OwnedGuard`]. The hold of a forgotten guard (`mem::forget`) is renewed until its
/// thread ends or the client is shut down. A fixed lease is never extended: when the lease ends, the hold is reported
/// as lost.
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
/// The compiler refuses to send a guard to another thread, because a `Guard` is not `Send`:
///
/// ```compile_fail
/// # let client = redlatch::Client::in_memory();
/// let guard = client.lock("lock:orders:42").guard().unwrap();
/// std::thread::spawn(move || drop(guard)); // `guard()` returns a guard of this thread
/// ```
///
/// [`Lock::owned`] returns a guard that can be sent:
///
/// ```
/// # let client = redlatch::Client::in_memory();
/// let guard = client.lock("lock:orders:42").owned()?;
/// std::thread::spawn(move || drop(guard)).join().expect("it does not panic");
/// # Ok::<(), redlatch::Error>(())
/// ```
#[must_use = "a guard that is not bound unlocks at once; bind it, as in `let guard = lock.guard()?`"]
#[derive(Debug)]
pub struct Guard {
    held: HeldLevel,
    released: bool,
    _not_send: UseOwnedForOtherThreads,
}

/// Makes a guard not `Send`, because its thread owns the hold. If a guard is sent, the compiler names this type.
#[derive(Debug, Default)]
struct UseOwnedForOtherThreads(PhantomData<*const ()>);

impl Guard {
    pub(crate) fn new(lock: Lock, hold: Arc<Hold>, level: LevelId) -> Guard {
        Guard {
            held: HeldLevel::new(lock, hold, level),
            released: false,
            _not_send: UseOwnedForOtherThreads::default(),
        }
    }

    /// Returns whether the lock is certainly held at this moment, without I/O.
    ///
    /// A hold is valid for its lease minus 1 % and 2 ms, because clocks differ. The validity begins just *before* the
    /// client sent the last confirmed acquisition or renewal. When the validity ends or a loss is reported, the result
    /// becomes false and stays false. The exception: after `Guard::transaction` (feature `mysql`) has committed,
    /// the result may be true again. The lock may be lost between this check and the caller's next step.
    pub fn is_valid(&self) -> bool {
        self.held.is_valid()
    }

    /// Returns how long the hold stays valid without a further renewal; zero if the hold is not valid. No I/O.
    pub fn remaining_validity(&self) -> Duration {
        self.held.remaining_validity()
    }

    /// Returns the [`Losses`] of this hold: a receiver that reports the loss of the hold.
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
    /// assert_eq!(losses.recv_timeout(tick), Err(NoLoss::NotYet)); // still held
    /// guard.unlock()?;
    /// assert_eq!(losses.recv_timeout(tick), Err(NoLoss::Ended)); // it was unlocked
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn lost(&self) -> Losses {
        self.held.lost()
    }

    /// Returns the id of this hold in the store.
    pub fn visitor(&self) -> &VisitorId {
        &self.held.hold.visitor
    }

    /// Returns the fencing token of this hold. It is larger than the token of every earlier hold of this lock.
    ///
    /// A resource can store the largest token that it has received, and refuse smaller tokens. Then the resource also
    /// refuses a holder that does not know yet that the lock is lost. A re-entry keeps the token of the hold. Holds of a
    /// [`fenced_lock`](crate::Client::fenced_lock) and holds in a database have a token. For all other locks the result is
    /// `None`.
    pub fn fencing_token(&self) -> Option<u64> {
        self.held.hold.fence()
    }

    /// Unlocks the lock, and returns the error that a drop would only log.
    ///
    /// [`Lock::unlock`](crate::Lock::unlock) describes the state of the hold after an error.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::unlock`](crate::Lock::unlock). [`Error::NotHeld`] can also mean that
    /// [`Lock::unlock`](crate::Lock::unlock) has released the level of this guard. Inside a transaction of this lock the
    /// result is [`Error::Unsupported`]. The guard's level is then released when the transaction ends.
    pub fn unlock(mut self) -> Result<()> {
        self.released = true;
        if self.is_put_off() {
            return Err(Error::in_its_transaction(&self.held.hold.name));
        }
        self.give_back()
    }

    pub(crate) fn held(&self) -> &HeldLevel {
        &self.held
    }

    /// Consumes the guard without an unlock, because a wait on a condition has already released its hold.
    pub(crate) fn forget(mut self) {
        self.released = true;
    }

    /// If a transaction of this hold is open, postpones the release until the transaction ends, and returns true.
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
            // `NotHeld` means that `Lock::unlock` has already released this level.
            Ok(()) | Err(Error::NotHeld { .. }) => {}
            Err(error) => events::unlock_failed(&self.held.hold.name, &error),
        }
    }
}

impl Lock {
    /// Acquires the lock, waits for it without a limit, and returns a guard that unlocks when dropped.
    ///
    /// Bind the guard to a name: `let guard = lock.guard()?;` or `let _guard = …`. The pattern `_` drops the guard at once:
    /// `let _ = lock.guard()?;` unlocks immediately. For a guard that other threads may use see [`Lock::owned`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::lock`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// let lock = client.lock("lock:orders:42");
    /// let guard = lock.guard()?;
    /// // … alone …
    /// guard.unlock()?; // or drop it
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn guard(&self) -> Result<Guard> {
        WaitLimit::without_end(None, |limit| self.guarded(limit))
    }

    /// Acquires the lock, waits for it until `interrupt` is raised, and returns a guard.
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

    /// Acquires the lock if it is free now, and returns a guard; `None` if it is not free.
    ///
    /// The call makes one attempt; see [`Lock::try_lock`].
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// if let Some(guard) = client.lock("lock:orders:42").try_guard()? {
    ///     // … alone …
    ///     guard.unlock()?;
    /// }
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use = "the guard is dropped, which unlocks at once; bind it to a name"]
    pub fn try_guard(&self) -> Result<Option<Guard>> {
        self.guarded(WaitLimit::once())
    }

    /// Acquires the lock, waits for it at most `wait`, and returns a guard; `None` if the lock was not acquired.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_lock_for`].
    #[must_use = "the guard is dropped, which unlocks at once; bind it to a name"]
    pub fn try_guard_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.guarded(self.raw_lock().limit(wait, None)?)
    }

    /// Acquires the lock, waits for it at most `wait` or until `interrupt` is raised, and returns a guard; `None` if the
    /// lock was not acquired.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`Lock::try_lock_for`].
    #[must_use = "the guard is dropped, which unlocks at once; bind it to a name"]
    pub fn try_guard_for_interruptibly(
        &self,
        wait: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Guard>> {
        self.guarded(self.raw_lock().limit(wait, Some(interrupt))?)
    }

    /// Acquires the lock, runs `work`, and unlocks when `work` returns or panics.
    ///
    /// If the unlock fails, the error contains the value of `work`. `?` converts a [`RunError`] into an [`Error`] if `work`
    /// returns `()`.
    ///
    /// # Errors
    ///
    /// [`RunError::NotRun`] with an error of [`Lock::lock`] if the lock was not acquired. [`RunError::Ran`] with the value
    /// of `work` and an error of [`Lock::unlock`] if the unlock failed, for example because the hold was lost.
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

    /// Acquires the lock, waits for it at most `wait`, and runs `work` under it; `Ok(None)` if the lock was not acquired.
    ///
    /// When `work` returns, the lock is freed, and the next caller runs its own `work`. So `work` must check, under the
    /// lock, whether something is left to do.
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
    /// // A later caller finds nothing to do.
    /// assert_eq!(lock.try_run_for(wait, |_| collect())?, Some(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "`None` means that the closure did not run"]
    pub fn try_run_for<T>(
        &self,
        wait: Duration,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<Option<T>, RunError<T>> {
        let guard = self.try_guard_for(wait).map_err(RunError::NotRun)?;
        guard.map(|guard| run(guard, work)).transpose()
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
