//! The read-write lock.

use crate::lock::Lock;

/// A lock that many threads of many processes may have to read, or one to write: Redisson's `RReadWriteLock`.
///
/// [`ReadWriteLock::read`] and [`ReadWriteLock::write`] are its two sides. Each is a [`Lock`] with all that a lock has:
/// waiting, re-entry, leases, renewal, the loss of a hold. For the two of them together:
///
/// - **Readers share, a writer is alone.** Each thread has a hold of its own, which ends by itself: by its unlock, or with its
///   own lease, whatever leases others have.
/// - **A writer may read.** The thread that has the write side may take the read side, too. If it then unlocks the write side
///   first, it goes on reading, and other readers come in at once: a downgrade.
/// - **A reader may not write.** A thread that has the read side alone and takes the write side would wait for itself, so that
///   is [`Error::Upgrade`](crate::Error::Upgrade) at once, from every form of it, and nothing is changed.
/// - **Nobody starves**: a reader that comes while a writer waits stands behind it, and after a writer the readers that waited go
///   first. So a thread that reads and waits for another thread that wants to read waits for a writer,
///   too: use [`ReadWriteLock::prefer_readers`] there, which is how Redisson's readers behave. Redisson's own readers come in
///   beside others in any case, as do the parts of a [`MultiLock`](crate::MultiLock). A process that died while it waited
///   holds others up for 3 seconds. A [`Lock::try_lock`] without a wait is refused while a writer waits, though
///   the lock may be free.
///
/// The hold of each side is one of its own: with its own levels, its own validity and its own [`Losses`](crate::Losses). If a
/// writer that reads loses the write side, it still has the read side.
///
/// Redisson of the same name and prefix has the same lock. Its renewal sets the life of all that is kept under the name to
/// *its* `lockWatchdogTimeout`, and before version 4.4 also that of the holds of other readers. Holds here are looked after,
/// those with fixed leases, too, every third of [`watchdog_timeout`](crate::Builder::watchdog_timeout). So where both read under
/// one name, `watchdog_timeout` must not be above Redisson's `lockWatchdogTimeout`; both are 30 s by default.
///
/// [`Client::read_write_lock`](crate::Client::read_write_lock) makes one without I/O. A [`lock`](crate::Client::lock) of the same
/// name is another kind: where the one is held, the other is [`Error::WrongType`](crate::Error::WrongType). In a database this is
/// [`Error::Unsupported`](crate::Error::Unsupported), and a [`Redlock`](crate::Redlock) has none.
///
/// # Examples
///
/// ```
/// use redlatch::{Client, Error};
///
/// let client = Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
/// let prices = client.read_write_lock("lock:prices");
/// prices.read().run(|_| println!("others read, too"))?;
/// let writing = prices.write().guard()?;
/// // … change …
/// let reading = prices.read().guard()?;
/// writing.unlock()?; // a downgrade
/// // … use what was written; others read, and nobody writes …
/// assert!(matches!(prices.write().try_lock(), Err(Error::Upgrade { .. })));
/// reading.unlock()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    pub(crate) read: Lock,
    pub(crate) write: Lock,
}

impl ReadWriteLock {
    /// Returns the side that many may have at a time, without I/O.
    ///
    /// [`Lock::is_locked`] tells whether anybody reads, and [`Lock::force_unlock`] frees it of all who read, unless somebody
    /// writes.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory();
    /// let prices = client.read_write_lock("lock:prices");
    /// let [one, other] = [prices.read(), prices.read()];
    /// let reading = one.guard()?;
    /// let too = std::thread::spawn(move || other.try_lock().and_then(|_| other.unlock()));
    /// too.join().unwrap()?;
    /// reading.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// Returns the side that one thread has alone, without I/O.
    ///
    /// Every call that takes it is [`Error::Upgrade`](crate::Error::Upgrade) in a thread that has the read side alone.
    /// [`Lock::is_locked`] tells whether anybody writes, and [`Lock::force_unlock`] frees it of whoever writes.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory();
    /// let prices = client.read_write_lock("lock:prices");
    /// prices.write().run(|_| println!("alone"))?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn write(&self) -> Lock {
        self.write.clone()
    }

    /// Returns the same lock whose readers come in beside others though a writer waits, as Redisson's do, and whose writers wait
    /// for a moment without readers.
    ///
    /// It is for programs in which a reader waits for another thread that wants to read. Use it on all sides that share the
    /// lock: readers of others go on to wait behind their writers.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory();
    /// let prices = client.read_write_lock("lock:prices").prefer_readers();
    /// prices.read().run(|_| println!("whoever waits to write"))?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use]
    pub fn prefer_readers(&self) -> ReadWriteLock {
        let prefers = |side: &Lock| side.with(|raw_lock| raw_lock.prefers_readers = true);
        ReadWriteLock {
            read: prefers(&self.read),
            write: prefers(&self.write),
        }
    }

    /// Returns the name, key prefix included.
    pub fn name(&self) -> &str {
        self.read.name()
    }
}
