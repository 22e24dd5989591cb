use crate::lock::Lock;

/// A lock with two sides: many threads of many processes may read, or one may write. Redisson's `RReadWriteLock`.
///
/// [`ReadWriteLock::read`] and [`ReadWriteLock::write`] return the sides. Each side is a [`Lock`] with leases, renewal,
/// re-entry and losses. These rules concern both sides:
///
/// - **Readers share, a writer is alone.** Each thread has a separate hold with a separate lease.
/// - **A writer may read.** A thread that holds the write side may acquire the read side. If the thread then unlocks
///   the write side, it keeps the read side, and other threads may acquire the read side. This is called a downgrade.
/// - **A reader may not write.** A thread that holds only the read side would wait for itself on the write side. So the
///   write side returns [`Error::Upgrade`](crate::Error::Upgrade) at once.
/// - **No side starves.** While a writer waits, a new reader queues behind this writer. When a writer unlocks, the
///   waiting readers are next. A [`Lock::try_guard`] of the read side returns `None` while a writer waits. Redisson's
///   readers and the parts of a [`MultiLock`](crate::MultiLock) do not queue. A waiter whose process died delays later
///   waiters by 3 seconds.
///
/// If a thread that holds the read side waits for another reader, use [`ReadWriteLock::prefer_readers`]. Otherwise a
/// deadlock is possible: the other reader queues behind a waiting writer, and the writer waits for the first reader.
///
/// Redisson's read-write lock of the same name and prefix is the same lock. A renewal by Redisson sets the TTL of the key to
/// Redisson's `lockWatchdogTimeout`. So [`watchdog_timeout`](crate::Builder::watchdog_timeout) must not be longer than
/// `lockWatchdogTimeout`. Both are 30 s by default.
///
/// [`Client::read_write_lock`](crate::Client::read_write_lock) returns a read-write lock without I/O. A
/// [`lock`](crate::Client::lock) of the same name is a lock of another kind: while either is held, an acquisition of
/// the other one returns [`Error::WrongType`](crate::Error::WrongType). A read-write lock of a database client returns
/// [`Error::Unsupported`](crate::Error::Unsupported). A [`Redlock`](crate::Redlock) has no read-write locks.
///
/// # Examples
///
/// ```
/// use redlatch::{Client, Error};
///
/// let client = Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
/// let prices = client.read_write_lock("lock:prices");
/// prices.read().run(|_| println!("other readers run at the same time"))?;
/// let writing = prices.write().guard()?;
/// // … change …
/// let reading = prices.read().guard()?;
/// writing.unlock()?; // a downgrade
/// // … use what was written; other threads may read, none may write …
/// assert!(matches!(prices.write().try_guard(), Err(Error::Upgrade { .. })));
/// reading.unlock()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    pub(crate) read: Lock,
    pub(crate) write: Lock,
}

impl ReadWriteLock {
    /// Returns the side that many threads may hold at a time, without I/O.
    ///
    /// [`Lock::is_locked`] of this side returns whether any thread holds the read side. [`Lock::force_unlock`] ends all
    /// holds of the read side. While a thread holds the write side, the call changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory();
    /// let prices = client.read_write_lock("lock:prices");
    /// let [one, other] = [prices.read(), prices.read()];
    /// let reading = one.guard()?;
    /// let both = std::thread::spawn(move || other.try_guard().map(|guard| guard.is_some()));
    /// assert!(both.join().unwrap()?);
    /// reading.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// Returns the side that one thread holds alone, without I/O.
    ///
    /// A thread that holds only the read side gets [`Error::Upgrade`](crate::Error::Upgrade). [`Lock::is_locked`] of
    /// this side returns whether there is a writer. [`Lock::force_unlock`] ends the writer's holds of both sides.
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

    /// Returns the same lock, but its readers do not queue behind waiting writers. Redisson's readers do not queue either. A
    /// writer waits until no thread reads.
    ///
    /// If a thread that holds the read side waits for another reader, use this variant for all readers and writers.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory();
    /// let prices = client.read_write_lock("lock:prices").prefer_readers();
    /// prices.read().run(|_| println!("even while a writer waits"))?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    #[must_use]
    pub fn prefer_readers(&self) -> ReadWriteLock {
        let prefers = |side: &Lock| side.with(|raw_lock| raw_lock.prefers_readers = true);
        let [read, write] = [&self.read, &self.write].map(prefers);
        ReadWriteLock { read, write }
    }

    /// Returns the name, key prefix included.
    pub fn name(&self) -> &str {
        self.read.name()
    }
}
