use std::sync::Arc;
use std::time::Duration;

use crate::engine::raw_lock::RawLock;
use crate::engine::wait_loop::WaitLimit;
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::guard::Guard;
use crate::lock::Lock;

const LONGEST_NAME: usize = 128;

/// A condition of a lock. Threads of many processes wait on a condition until another thread signals a change.
///
/// It corresponds to `java.util.concurrent.locks.Condition`. Redisson has no conditions. A wait releases all levels of
/// the thread's hold, and sleeps until the thread is signalled. Then the wait acquires the lock again, with the same
/// number of levels. A thread that holds the lock signals one waiter or all waiters.
///
/// * **Test in a loop.** A wait may return without a signal: after a failover, a loss of the server's data, a process pause
///   of more than 10 seconds, or a lost reply. If a signalled waiter cannot reacquire the lock, the next waiter is woken
///   instead.
/// * **A signal without a waiter has no effect.** Change what the lock protects before you signal.
/// * **A guard needs [`Condition::wait_with`]** or [`Condition::wait_with_for`]. The other waits need a hold without
///   guards. If a guard's level is not the only level, every wait returns [`Error::Nested`].
/// * **After the wait the thread has a new hold**, with a new validity, new [`Losses`](crate::Losses) and, for a
///   [`fenced_lock`](crate::Client::fenced_lock), a new token. A fixed lease starts again.
/// * **After an error the lock may be held or not.** [`Lock::is_valid`] returns whether it is held. [`Condition::wait`]
///   lists the errors.
///
/// Waiters are woken in the order of arrival. A message wakes a signalled waiter. In case the message is lost, each waiter
/// also queries the server once a second. If a signalled waiter dies before it confirms the signal to the server, another
/// waiter is woken about 10 seconds later. If the waiter dies later, the signal is lost.
///
/// [`Lock::condition`] returns a condition without I/O. Conditions need one Redis server, which may be behind sentinels
/// or in a cluster. The lock must be a [`lock`](crate::Client::lock), a [`fenced_lock`](crate::Client::fenced_lock), a
/// [`fair_lock`](crate::Client::fair_lock) or the write side of a [`ReadWriteLock`](crate::ReadWriteLock).
///
/// # Examples
///
/// ```
/// use redlatch::Client;
/// use std::sync::Mutex;
///
/// let client = Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
/// let lock = client.lock("lock:basket");
/// let filled = lock.condition("filled");
/// let basket = Mutex::new(Vec::new()); // in production: on the server
/// std::thread::scope(|scope| {
///     let takes = scope.spawn(|| {
///         let mut guard = lock.guard()?;
///         while basket.lock().unwrap().is_empty() {
///             guard = filled.wait_with(guard)?;
///         }
///         let taken = basket.lock().unwrap().pop();
///         guard.unlock()?;
///         Ok::<_, redlatch::Error>(taken)
///     });
///     let guard = lock.guard()?;
///     basket.lock().unwrap().push("an apple");
///     filled.signal()?;
///     guard.unlock()?;
///     assert_eq!(takes.join().unwrap()?, Some("an apple"));
///     Ok::<(), redlatch::Error>(())
/// })?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    lock: Lock,
    raw_lock: RawLock,
    name: Arc<str>,
}

impl Condition {
    /// Returns the name of the condition, without the name of its lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Releases the lock, waits for a signal without a limit, and acquires the lock again.
    ///
    /// The current thread must hold the lock through [`Lock::lock`] or a similar method. With a guard use
    /// [`Condition::wait_with`]. Call this method in a loop that tests the awaited state.
    ///
    /// # Errors
    ///
    /// After these errors the lock is held, because the call did not release it or has acquired it again:
    ///
    /// - [`Error::Nested`]: a level of the hold belongs to a guard;
    /// - [`Error::Upgrade`]: the lock is the write side of a [`ReadWriteLock`](crate::ReadWriteLock), and the thread
    ///   also holds the read side;
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`], [`Error::Unknown`]: the server did not
    ///   confirm within [`command_timeout`](crate::Builder::command_timeout) that this thread waits for signals;
    /// - [`Error::Permission`], [`Error::Untrusted`], [`Error::WrongType`], [`Error::Unexpected`]: the user lacks a right, a
    ///   TLS certificate is not trusted, or the key of the waiters has other data;
    /// - [`Error::InvalidName`], [`Error::Unsupported`]: the name is invalid, or this lock has no conditions.
    ///
    /// After these errors the lock is not held:
    ///
    /// - [`Error::NotHeld`]: the current thread does not hold the lock;
    /// - [`Error::Lost`]: the lock was lost before the wait could release it. Unlock each level nevertheless;
    /// - [`Error::Closed`], [`Error::Forked`]: the client was shut down, or was created before this process was forked;
    /// - any error of [`Lock::lock`], even one listed above, if the wait released the lock and could not reacquire it.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(WaitLimit::forever(None)).map(drop)
    }

    /// Waits like [`Condition::wait`], but at most until `interrupt` is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised; the lock is then held. Other errors are those of
    /// [`Condition::wait`].
    pub fn wait_interruptibly(&self, interrupt: &Interrupt) -> Result<()> {
        let limit = WaitLimit::forever(Some(interrupt));
        self.wait_until(limit).map(drop)
    }

    /// Waits like [`Condition::wait`], at most for `time`, and returns whether the thread was woken within `time`.
    ///
    /// With either result the lock is held again. To acquire it, the call may take longer than `time`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`] if the end of the wait cannot be represented as an `Instant`, and those of
    /// [`Condition::wait`].
    pub fn wait_for(&self, time: Duration) -> Result<bool> {
        self.wait_until(self.raw_lock.limit(time, None)?)
    }

    /// Waits like [`Condition::wait_for`], but at most until `interrupt` is raised.
    ///
    /// # Errors
    ///
    /// Those of [`Condition::wait_interruptibly`] and [`Condition::wait_for`].
    pub fn wait_for_interruptibly(&self, time: Duration, interrupt: &Interrupt) -> Result<bool> {
        self.wait_until(self.raw_lock.limit(time, Some(interrupt))?)
    }

    /// Waits like [`Condition::wait`], but consumes a guard and returns a new guard.
    ///
    /// The hold must consist of one level, the level of the guard.
    ///
    /// # Errors
    ///
    /// Those of [`Condition::wait`], and [`Error::Unsupported`] for a guard of another lock. After an error the guard is
    /// unlocked.
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// # let tasks = std::sync::atomic::AtomicU32::new(1);
    /// # use std::sync::atomic::Ordering;
    /// let lock = client.lock("lock:tasks");
    /// let mut guard = lock.guard()?;
    /// while tasks.load(Ordering::SeqCst) == 0 {
    ///     guard = lock.condition("added").wait_with(guard)?;
    /// }
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn wait_with(&self, guard: Guard) -> Result<Guard> {
        let (guard, _) = self.wait_within(guard, WaitLimit::forever(None))?;
        Ok(guard)
    }

    /// Waits like [`Condition::wait_with`], at most for `time`. Also returns whether the thread was woken within `time`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`] if the end of the wait cannot be represented as an `Instant`, and those of
    /// [`Condition::wait_with`].
    pub fn wait_with_for(&self, guard: Guard, time: Duration) -> Result<(Guard, bool)> {
        self.wait_within(guard, self.raw_lock.limit(time, None)?)
    }

    fn wait_until(&self, limit: WaitLimit<'_>) -> Result<bool> {
        let waited = self.raw_lock.wait_on(&self.name, limit, None)?;
        Ok(waited.was_woken)
    }

    fn wait_within(&self, guard: Guard, limit: WaitLimit<'_>) -> Result<(Guard, bool)> {
        let key = &self.raw_lock.key;
        if guard.held().raw_lock().key != *key {
            let reason = "the guard belongs to another lock or to another client";
            return Err(Error::unsupported(&key.lock.name, reason));
        }
        // After an error the drop of `guard` unlocks its level.
        let (raw_lock, hold) = (&self.raw_lock, &guard.held().hold);
        let waited = raw_lock.wait_on(&self.name, limit, Some(hold))?;
        let entry = waited.entry;
        let woken = Guard::new(self.lock.clone(), entry.hold, entry.level);
        guard.forget();
        Ok((woken, waited.was_woken))
    }

    /// Wakes the thread that has waited longest, and returns whether a thread was waiting.
    ///
    /// The current thread must hold the lock. The woken thread has to acquire the lock, so its wait returns only after the
    /// current thread has unlocked.
    ///
    /// # Errors
    ///
    /// After these errors the lock is held as before:
    ///
    /// - [`Error::Unknown`]: a reply was lost, so the signal may have been sent or not;
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`]: no signal was sent;
    /// - [`Error::Permission`], [`Error::Untrusted`], [`Error::WrongType`], [`Error::Unexpected`], [`Error::InvalidName`],
    ///   [`Error::Unsupported`]: as for [`Condition::wait`].
    ///
    /// After these errors the lock is not held: [`Error::NotHeld`], [`Error::Lost`] and [`Error::Forked`].
    pub fn signal(&self) -> Result<bool> {
        Ok(self.raw_lock.signal(&self.name, 1)? > 0)
    }

    /// Wakes all waiting threads, and returns the number of woken threads.
    ///
    /// # Errors
    ///
    /// Those of [`Condition::signal`].
    pub fn signal_all(&self) -> Result<u32> {
        self.raw_lock.signal(&self.name, u32::MAX)
    }
}

impl Lock {
    /// Returns the condition of this name, without I/O, like the `newCondition` of Java. All clients that use the same lock
    /// name and condition name share the condition.
    ///
    /// The name has 1 ..= 128 bytes, no control character and no `:`. With any other name, operations return
    /// [`Error::InvalidName`]. Redis keeps the waiters of a condition `name` in the keys
    /// `redlatch_condition:{lock}:name:waiting` and `…:due`. These keys expire 100 s after the last query of a waiter.
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// let lock = client.lock("lock:orders");
    /// let guard = lock.guard()?;
    /// assert!(!lock.condition("paid").signal()?, "no thread waits");
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn condition(&self, name: &str) -> Condition {
        let mut raw_lock = self.raw_lock().clone();
        if let Some(flaw) = flaw(name) {
            raw_lock.rare().flaw.get_or_insert(flaw);
        }
        Condition {
            lock: self.clone(),
            raw_lock,
            name: name.into(),
        }
    }
}

fn flaw(name: &str) -> Option<Error> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > LONGEST_NAME {
        "it is longer than 128 bytes"
    } else if name.contains(|sign: char| sign.is_control() || sign == ':') {
        "the name of a condition contains a colon or a control character"
    } else {
        return None;
    };
    let name = name.chars().take(64).collect();
    Some(Error::InvalidName { name, reason })
}
