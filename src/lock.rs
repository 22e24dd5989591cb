//! The lock.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Kind, VisitorId};
use crate::core::Core;
use crate::entrance::Entrance;
use crate::error::{Error, Result, RunError};
use crate::guard::Guard;
use crate::hold::Lease;
use crate::loss::{LossCause, Losses};
use crate::store::Holding;
use crate::thread::{StackKey, ThreadToken};
use crate::wait::{Interrupt, Patience};

/// A reentrant lock that threads of many processes share by its name.
///
/// It keeps the contract of `java.util.concurrent.locks.Lock`: it belongs to the thread that took it, that thread may
/// take it again, and must unlock it as often. It is a **lease, not a mutex**: if the server cannot be reached for
/// long enough, or loses its data, the hold is lost, and the holder is told so ([`Lock::is_valid`], [`Lock::lost`],
/// [`Guard`]).
///
/// Making one costs no I/O; clones and locks of the same client and name are the same lock.
///
/// The threads of one client that wait for it get it in the order in which they came, and hand it on in one request; a
/// re-entry and a [`try_lock`](Lock::try_lock) pass the line by. Among processes there is no order.
///
/// # The methods beside those of Java
///
/// | `j.u.c.Lock` / Redisson `RLock` | here | what differs |
/// |---|---|---|
/// | `lock()` | [`lock`](Lock::lock), [`guard`](Lock::guard) | returns an error after [`outage_timeout`](crate::Builder::outage_timeout) without a usable answer |
/// | `lock(lease, unit)` | `with_lease_time(lease)` then `lock()` | the lease never shortens an outer hold of the same thread |
/// | `lockInterruptibly()` | [`lock_interruptibly`](Lock::lock_interruptibly), [`guard_interruptibly`](Lock::guard_interruptibly) | the [`Interrupt`] is a value, not a property of the thread |
/// | `tryLock()` | [`try_lock`](Lock::try_lock), [`try_guard`](Lock::try_guard) | |
/// | `tryLock(wait, unit)` | [`try_lock_for`](Lock::try_lock_for), [`try_guard_for`](Lock::try_guard_for), [`try_lock_for_interruptibly`](Lock::try_lock_for_interruptibly), [`try_guard_for_interruptibly`](Lock::try_guard_for_interruptibly) | |
/// | `tryLock(wait, lease, unit)` | `with_lease_time(lease)` then `try_lock_for(wait)` | |
/// | `unlock()` | [`unlock`](Lock::unlock), [`Guard::unlock`] | `IllegalMonitorStateException` is [`Error::NotHeld`], or [`Error::Lost`] with the cause if it was held and lost |
/// | `forceUnlock()` | [`force_unlock`](Lock::force_unlock) | |
/// | `isLocked()` | [`is_locked`](Lock::is_locked) | asks the master |
/// | `isHeldByCurrentThread()` | [`is_held_by_current_thread`](Lock::is_held_by_current_thread) | [`is_valid`](Lock::is_valid) answers without I/O |
/// | `isHeldByThread(id)` | [`is_held_by_thread`](Lock::is_held_by_thread) | ids are those of [`current_thread_id`](crate::current_thread_id) |
/// | `getHoldCount()` | [`hold_count`](Lock::hold_count) | |
/// | `remainTimeToLive()` | [`remaining_lease`](Lock::remaining_lease) | `None` for -2, [`Error::NoTtl`] for -1 |
/// | `getName()` | [`name`](Lock::name) | |
/// | `newCondition()` | – | wait for a state, not for a signal: put the state into the store, and check it under the lock after each [`try_lock_for`](Lock::try_lock_for); or use a queue (`BLPOP`) for hand-overs |
/// | the `…Async` twins | – | it is a blocking library: spawn a thread |
/// | `addListener` (expired) | [`lost`](Lock::lost), [`on_lost`](crate::Builder::on_lost) | the holder is told, with the cause |
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
#[derive(Clone)]
pub struct Lock {
    entrance: Entrance,
}

impl Lock {
    pub(crate) fn new(
        core: Arc<Core>,
        kind: Kind,
        name: Arc<str>,
        flaw: Option<Box<Error>>,
    ) -> Lock {
        Lock {
            entrance: Entrance {
                key: StackKey {
                    client: core.number,
                    kind,
                    name,
                },
                lease: Lease::Watchdog(core.times.watchdog_timeout),
                core,
                flaw,
                parts: None,
            },
        }
    }

    /// Says which other locks this one is made of.
    pub(crate) fn made_of(parts: Arc<[StackKey]>, mut lock: Lock) -> Lock {
        lock.entrance.parts = Some(parts);
        lock
    }

    pub(crate) fn entrance(&self) -> &Entrance {
        &self.entrance
    }

    /// Returns the same lock with a fixed lease time for the acquisitions made through it.
    ///
    /// A hold with a fixed lease is not renewed: it ends after `lease`, unlocked or not. 10 ms ..= 365 days; anything
    /// else is an error at the first acquisition. In a nested acquisition the latest end that any of them counts on is
    /// kept. Defaults to no fixed lease: the watchdog renews the hold.
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
    #[must_use = "the lock itself is left as it is"]
    pub fn with_lease_time(&self, lease: Duration) -> Lock {
        let mut lock = self.clone();
        lock.entrance.lease = Lease::Fixed(lease);
        lock
    }

    /// Returns the name, prefix included.
    pub fn name(&self) -> &str {
        &self.entrance.key.name
    }

    /// Takes the lock, waiting for it as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Unknown`] or [`Error::Unavailable`] if no usable answer came for the
    /// [`outage_timeout`](crate::Builder::outage_timeout); [`Error::NoTtl`] if the lock is held for that long by a key
    /// that never expires; at once for what waiting cannot mend: [`Error::InvalidName`], [`Error::InvalidLease`],
    /// [`Error::Permission`], [`Error::WrongType`], [`Error::Closed`], … In all cases nothing is held.
    pub fn lock(&self) -> Result<()> {
        self.entrance.enter(Patience::forever(None))?;
        Ok(())
    }

    /// Takes the lock, waiting until it has it or `interrupt` is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], and as [`Lock::lock`].
    pub fn lock_interruptibly(&self, interrupt: &Interrupt) -> Result<()> {
        self.entrance.enter(Patience::forever(Some(interrupt)))?;
        Ok(())
    }

    /// Takes the lock if it is free now. Returns whether it did.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`], each at once.
    pub fn try_lock(&self) -> Result<bool> {
        Ok(self.entrance.enter(Patience::once())?.is_some())
    }

    /// Takes the lock, waiting for it at most `wait`. Returns whether it did.
    ///
    /// The call may take up to 250 ms more than `wait` if the server is slow. With a `wait` of zero it tries once. In the
    /// end the server need not be asked again if others of this client stand before it and were refused a moment ago.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`], with the end of the wait in place of the outage time-out; [`Error::InvalidWait`] if the end
    /// of the wait cannot be expressed.
    pub fn try_lock_for(&self, wait: Duration) -> Result<bool> {
        Ok(self.entrance.enter(self.patience(wait, None)?)?.is_some())
    }

    /// Takes the lock, waiting for it at most `wait` or until `interrupt` is raised. Returns whether it did.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], and as [`Lock::try_lock_for`].
    pub fn try_lock_for_interruptibly(
        &self,
        wait: Duration,
        interrupt: &Interrupt,
    ) -> Result<bool> {
        Ok(self
            .entrance
            .enter(self.patience(wait, Some(interrupt))?)?
            .is_some())
    }

    /// Takes the lock as [`Lock::lock`] does, and returns a guard that unlocks it when dropped.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`].
    pub fn guard(&self) -> Result<Guard> {
        self.guarded_forever(None)
    }

    /// Takes the lock as [`Lock::lock_interruptibly`] does, and returns a guard that unlocks it when dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], and as [`Lock::lock`].
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
        self.guarded_forever(Some(interrupt))
    }

    /// Takes the lock if it is free now, and returns a guard; `None` if it is not free.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock`].
    pub fn try_guard(&self) -> Result<Option<Guard>> {
        self.guarded(Patience::once())
    }

    /// Takes the lock, waiting for it at most `wait`, and returns a guard; `None` if the wait is over.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock_for`].
    pub fn try_guard_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.guarded(self.patience(wait, None)?)
    }

    /// Takes the lock, waiting for it at most `wait` or until `interrupt` is raised, and returns a guard; `None` if the
    /// wait is over.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], and as [`Lock::try_lock_for`].
    pub fn try_guard_for_interruptibly(
        &self,
        wait: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Guard>> {
        self.guarded(self.patience(wait, Some(interrupt))?)
    }

    /// Runs `work` under the lock, which is unlocked when it returns, with an error or not, or panics.
    ///
    /// What `work` returns comes back in any case: beside the error if there is one. `?` turns a [`RunError`] into an
    /// [`Error`] only where `work` returns nothing.
    ///
    /// # Errors
    ///
    /// [`RunError::NotRun`] if the lock was not obtained, as [`Lock::lock`]; [`RunError::Ran`] with the value of `work`
    /// if the hold was lost meanwhile or its release is in doubt.
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

    /// Runs `work` under the lock if it can be had within `wait`; `Ok(None)` if it cannot.
    ///
    /// The lock is free as soon as `work` is done, and the next one that comes runs it again. So `work` has to find out
    /// under the lock whether there is something to do. (A job that several machines start at about the same time, and
    /// one of them is to run, needs a lock that lasts longer than their clocks are apart, as in the example `nightly`.)
    ///
    /// # Errors
    ///
    /// As [`Lock::run`].
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

    /// Unlocks: the last of as many calls as there were acquisitions frees the lock.
    ///
    /// What a [`Guard`] has is left to the guard, as long as there is something else; then the guard has nothing to give
    /// back any more.
    ///
    /// It ends within one [`command_timeout`](crate::Builder::command_timeout). After any error of the last unlock the
    /// hold is over here and no longer renewed; what may be left of it in the store is released in the background.
    ///
    /// If the answer does not come, it asks once more, and takes it for done if the hold is no longer there then. So a
    /// hold that was lost unnoticed just before such an unlock is not told of: the unlock returns `Ok`.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if this thread does not hold the lock; [`Error::Lost`] with the cause if it was lost (a thread
    /// that loses one lock after the other and unlocks none remembers the last 256);
    /// [`Error::Unknown`], [`Error::Unreachable`] or [`Error::Unavailable`] if the store could not be told.
    pub fn unlock(&self) -> Result<()> {
        self.entrance.ready()?;
        let me = self.entrance.core.thread(&self.entrance.key.name)?;
        let current = me.held.current(&self.entrance.key);
        match current.and_then(|hold| Some((hold.top_level()?, hold))) {
            Some((level, hold)) => self.entrance.leave(&hold, level),
            None => match me.held.take_lapsed(&self.entrance.key) {
                Some(lost) => Err(lost.lost_error(lost.loss_cause().unwrap_or(LossCause::Gone))),
                None => Err(Error::NotHeld {
                    lock: Arc::clone(&self.entrance.key.name),
                    client: Arc::clone(&self.entrance.core.id),
                    thread: me.id,
                }),
            },
        }
    }

    /// Frees the lock whoever holds it. Returns whether somebody did.
    ///
    /// The holder is told at its next renewal, or when it unlocks; holders of this client at once. What cannot be a lock is
    /// left alone ([`Error::WrongType`]). A token may be any text, so a token lock is freed whatever string is its key.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    pub fn force_unlock(&self) -> Result<bool> {
        self.entrance.ready()?;
        let Entrance { core, key, .. } = &self.entrance;
        let freed = core
            .store
            .force_release(key.kind, &key.name, core.until())?;
        core.watchdog.check_now(&key.name);
        core.lines.freed(&key.name, None);
        Ok(freed)
    }

    /// Asks the store whether anybody holds the lock.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Unavailable`], [`Error::Permission`], [`Error::WrongType`], …
    pub fn is_locked(&self) -> Result<bool> {
        Ok(self.inspect(None)?.is_locked)
    }

    /// Asks the store whether the current thread holds the lock.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    pub fn is_held_by_current_thread(&self) -> Result<bool> {
        Ok(self.hold_count()? > 0)
    }

    /// Asks the store whether the thread with this number holds the lock; a thread of this process, through this client.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    pub fn is_held_by_thread(&self, thread: u64) -> Result<bool> {
        self.entrance.ready()?;
        Ok(self.count_of(self.entrance.core.thread_of(thread))? > 0)
    }

    /// Asks the store how often the current thread holds the lock; 0 if it does not.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    pub fn hold_count(&self) -> Result<u32> {
        self.entrance.ready()?;
        let me = self.entrance.core.thread(&self.entrance.key.name)?;
        self.count_of(Some(me))
    }

    /// Asks the store how long the present hold, whoever's it is, lasts if it is not renewed; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::NoTtl`] if it has no end, and as [`Lock::is_locked`].
    pub fn remaining_lease(&self) -> Result<Option<Duration>> {
        let holding = self.inspect(None)?;
        if holding.is_locked && holding.remaining.is_none() {
            return Err(Error::NoTtl {
                lock: Arc::clone(&self.entrance.key.name),
            });
        }
        Ok(holding.remaining)
    }

    /// Returns whether the current thread certainly holds the lock at this moment, without I/O. See [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        let Entrance { core, key, .. } = &self.entrance;
        if core.is_forked() {
            return false;
        }
        let me = core.thread(&key.name).ok();
        let held = me.and_then(|me| me.held.current(key));
        held.is_some_and(|hold| hold.is_valid())
    }

    /// Returns where the loss of the current thread's hold is told. See [`Guard::lost`].
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the current thread does not hold the lock.
    pub fn lost(&self) -> Result<Losses> {
        self.entrance.ready()?;
        let me = self.entrance.core.thread(&self.entrance.key.name)?;
        match me.held.current(&self.entrance.key) {
            Some(hold) => Ok(Losses::of(hold, self.entrance.core.pid())),
            None => Err(Error::NotHeld {
                lock: Arc::clone(&self.entrance.key.name),
                client: Arc::clone(&self.entrance.core.id),
                thread: me.id,
            }),
        }
    }

    fn patience<'a>(
        &'a self,
        wait: Duration,
        interrupt: Option<&'a Interrupt>,
    ) -> Result<Patience<'a>> {
        let timeline = self.entrance.core.store.timeline();
        Patience::lasting(wait, timeline, interrupt).ok_or_else(|| Error::InvalidWait {
            lock: Arc::clone(&self.entrance.key.name),
            wait,
        })
    }

    fn guarded_forever(&self, interrupt: Option<&Interrupt>) -> Result<Guard> {
        loop {
            if let Some(guard) = self.guarded(Patience::forever(interrupt))? {
                return Ok(guard);
            }
        }
    }

    fn guarded(&self, patience: Patience<'_>) -> Result<Option<Guard>> {
        let entered = self.entrance.enter(patience)?;
        Ok(entered.map(|entry| Guard::new(self.entrance.clone(), entry.hold, entry.level)))
    }

    fn inspect(&self, visitor: Option<&VisitorId>) -> Result<Holding> {
        self.entrance.ready()?;
        let Entrance { core, key, .. } = &self.entrance;
        core.store
            .inspect(key.kind, &key.name, visitor, core.until())
    }

    fn count_of(&self, thread: Option<Arc<ThreadToken>>) -> Result<u32> {
        // A thread without a hold here has no visitor id that could stand in the store.
        match thread.and_then(|thread| thread.held.current(&self.entrance.key)) {
            Some(hold) => Ok(self.inspect(Some(&hold.visitor))?.count),
            None => Ok(0),
        }
    }
}

fn run<T>(guard: Guard, work: impl FnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
    let value = work(&guard);
    match guard.unlock() {
        Ok(()) => Ok(value),
        Err(error) => Err(RunError::Ran { value, error }),
    }
}

// As for `Client`.
impl UnwindSafe for Lock {}
impl RefUnwindSafe for Lock {}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.entrance.key.name)
            .field("lease", &self.entrance.lease)
            .finish_non_exhaustive()
    }
}
