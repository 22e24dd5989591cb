//! The condition.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::raw_lock::RawLock;
use crate::engine::wait_loop::WaitLimit;
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::guard::Guard;
use crate::lock::Lock;

/// The longest name of a condition, in bytes.
const LONGEST_NAME: usize = 128;

/// A condition of a lock, on which threads of many processes wait for others to change what the lock protects.
///
/// It has the meaning of `java.util.concurrent.locks.Condition`, and Redisson has none. A thread that holds the lock waits: it
/// gives the lock back with all levels, sleeps until it is signalled, and holds the lock again, as often as before, when the call
/// returns. A thread that holds the lock and has changed something signals one that waits, or all.
///
/// * **Test in a loop.** A wait may return although nobody has signalled: after a failover, after the loss of the server's
///   data, after a pause of more than 10 seconds, and where an answer of the server was lost. No signal is lost in exchange: one
///   that reaches a thread which cannot come back goes to the next.
/// * **A signal is for those who wait.** If nobody does, nothing is kept of it. So change what the lock protects first, and let
///   those who come later see it.
/// * **The levels are the thread's own**, taken by [`Lock::lock`] and its siblings, or the hold is that of the only
///   [`Guard`], which [`Condition::wait_with`] takes and gives back. Anything else is [`Error::Nested`].
/// * **The hold after the wait is a new one**, with a new validity, new [`Losses`](crate::Losses) and, of a
///   [`fenced_lock`](crate::Client::fenced_lock), a new token; fixed leases begin anew.
/// * **After an error the lock may be held or not**, which [`Lock::is_valid`] tells. It is held again after
///   [`Error::Interrupted`]. It is not where the server was away for too long.
///
/// Those who wait are woken in the order in which they came. A thread that waits sends a request each second, and a message wakes
/// it. One that has died is passed over: a signal that it got just before goes to another one 10 seconds later; one that dies
/// after it has heard of its signal takes that along.
///
/// [`Lock::condition`] makes one without I/O. Conditions of the same lock and name are the same condition. They exist on one
/// Redis server (also behind sentinels or in a cluster) and in memory, for a [`lock`](crate::Client::lock), a
/// [`fenced_lock`](crate::Client::fenced_lock), a [`fair_lock`](crate::Client::fair_lock) and the write side of a
/// [`ReadWriteLock`](crate::ReadWriteLock).
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
/// let basket = Mutex::new(Vec::new()); // kept on the server, in real life
/// std::thread::scope(|scope| {
///     let takes = scope.spawn(|| {
///         lock.lock()?;
///         while basket.lock().unwrap().is_empty() {
///             filled.wait()?;
///         }
///         let taken = basket.lock().unwrap().pop();
///         lock.unlock()?;
///         Ok::<_, redlatch::Error>(taken)
///     });
///     lock.lock()?;
///     basket.lock().unwrap().push("an apple");
///     filled.signal()?;
///     lock.unlock()?;
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
    /// Returns the name of the condition, without that of its lock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the lock back, waits to be signalled, as long as it takes, and holds the lock again.
    ///
    /// The current thread holds the lock, by [`Lock::lock`] or a sibling of it. Test in a loop what was waited for.
    ///
    /// # Errors
    ///
    /// With the lock held as before, and nothing changed:
    ///
    /// - [`Error::Nested`]: a guard has a level of the hold; see [`Condition::wait_with`];
    /// - [`Error::Upgrade`]: the thread also reads, so it could not come back (only of the write side of a
    ///   [`ReadWriteLock`](crate::ReadWriteLock));
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`], [`Error::Unknown`]: the server could not be told
    ///   of the wait within [`command_timeout`](crate::Builder::command_timeout);
    /// - [`Error::Permission`], [`Error::Untrusted`], [`Error::WrongType`], [`Error::Unexpected`]: the user lacks a right, TLS
    ///   does not trust the other side, or something else is kept where those stand who wait;
    /// - [`Error::InvalidName`], [`Error::Unsupported`]: the name cannot be used, or this lock has no conditions, as its text
    ///   says.
    ///
    /// Without the lock:
    ///
    /// - [`Error::NotHeld`]: the current thread does not hold it;
    /// - [`Error::Lost`]: it was lost before it could be given back; the levels are still to be unlocked, unless
    ///   the unlock of the wait has found the loss;
    /// - [`Error::Closed`], [`Error::Forked`]: the client was shut down, or was made before this process was forked;
    /// - those of [`Lock::lock`]: the lock could not be taken again within
    ///   [`outage_timeout`](crate::Builder::outage_timeout), which counts once more after a wait that an outage has ended.
    ///
    /// Any other error of the wait itself comes with the lock held again.
    pub fn wait(&self) -> Result<()> {
        self.wait_until(WaitLimit::forever(None)).map(drop)
    }

    /// As [`Condition::wait`], until `interrupt` is raised.
    ///
    /// One that is signalled first returns `Ok`.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`], with the lock held again, once `interrupt` is raised; at once, with nothing changed, if it was
    /// raised before. And those of [`Condition::wait`].
    pub fn wait_interruptibly(&self, interrupt: &Interrupt) -> Result<()> {
        let limit = WaitLimit::forever(Some(interrupt));
        self.wait_until(limit).map(drop)
    }

    /// As [`Condition::wait`], for `time` at most, and returns whether it was woken before that.
    ///
    /// The lock is held again in either case; to take it again may take longer.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`] if the end of the wait cannot be expressed as an instant, and those of [`Condition::wait`].
    pub fn wait_for(&self, time: Duration) -> Result<bool> {
        self.wait_until(self.raw_lock.limit(time, None)?)
    }

    /// As [`Condition::wait_for`], until `interrupt` is raised.
    ///
    /// # Errors
    ///
    /// Those of [`Condition::wait_interruptibly`] and [`Condition::wait_for`].
    pub fn wait_for_interruptibly(&self, time: Duration, interrupt: &Interrupt) -> Result<bool> {
        self.wait_until(self.raw_lock.limit(time, Some(interrupt))?)
    }

    /// As [`Condition::wait`], with the hold of a guard, which is the only one of the thread, and returns a new guard.
    ///
    /// # Errors
    ///
    /// Those of [`Condition::wait`], and [`Error::Unsupported`] for the guard of another lock. After an error nothing is held by
    /// the guard.
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

    /// As [`Condition::wait_with`], for `time` at most, and returns also whether it was woken before that.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidWait`] if the end of the wait cannot be expressed as an instant, and those of
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
        // After an error the drop of the guard unlocks what it has yet.
        let (raw_lock, hold) = (&self.raw_lock, &guard.held().hold);
        let waited = raw_lock.wait_on(&self.name, limit, Some(hold))?;
        let entry = waited.entry;
        let woken = Guard::new(self.lock.clone(), entry.hold, entry.level);
        guard.forget();
        Ok((woken, waited.was_woken))
    }

    /// Wakes the thread that has waited for longest, and returns whether one was waiting.
    ///
    /// The current thread holds the lock; the other one holds it when its wait returns, so at the earliest after the unlock. To
    /// signal once too often does no harm.
    ///
    /// # Errors
    ///
    /// With the lock held as before:
    ///
    /// - [`Error::Unknown`]: an answer was lost. If the text does not say that it is done, the signal was given or not;
    /// - [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`]: nobody was signalled;
    /// - [`Error::Permission`], [`Error::Untrusted`], [`Error::WrongType`], [`Error::Unexpected`], [`Error::InvalidName`],
    ///   [`Error::Unsupported`]: as with [`Condition::wait`].
    ///
    /// Without the lock: [`Error::NotHeld`], [`Error::Lost`] and [`Error::Forked`].
    pub fn signal(&self) -> Result<bool> {
        Ok(self.raw_lock.signal(&self.name, 1)? > 0)
    }

    /// Wakes all threads that wait, and returns how many there were.
    ///
    /// # Errors
    ///
    /// Those of [`Condition::signal`].
    pub fn signal_all(&self) -> Result<u32> {
        self.raw_lock.signal(&self.name, u32::MAX)
    }
}

impl Lock {
    /// Returns the condition of this name, without I/O; `newCondition` of Java, and shared by all that use the same names.
    ///
    /// The name is 1 ..= 128 bytes without control characters and without `:`; another one is [`Error::InvalidName`] at the first
    /// operation. A lock has any number of conditions. Those who wait stand in
    /// `redlatch_condition:{lock}:name:waiting` and `…:due`, which end 100 s after the last of them has looked.
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = redlatch::Client::in_memory();
    /// let lock = client.lock("lock:orders");
    /// lock.lock()?;
    /// assert!(!lock.condition("paid").signal()?, "nobody waits");
    /// lock.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn condition(&self, name: &str) -> Condition {
        let mut raw_lock = self.raw_lock().clone();
        if let Some(flaw) = flaw(name) {
            raw_lock.flaw.get_or_insert_with(|| Box::new(flaw));
        }
        Condition {
            lock: self.clone(),
            raw_lock,
            name: name.into(),
        }
    }
}

/// The flaw of the name of a condition.
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
    Some(Error::InvalidName {
        name: name.chars().take(64).collect(),
        reason,
    })
}
