//! The client, which creates locks and owns the connections and threads of its locks.

use std::sync::Arc;

use crate::activity::Activity;
use crate::engine::client_inner::ClientInner;
use crate::ground::backoff::Backoff;
use crate::ground::claim::Kind;
#[cfg(feature = "mysql")]
use crate::ground::error::Error;
use crate::ground::error::Result;
use crate::latch::Latch;
use crate::lock::Lock;
use crate::permit_semaphore::PermitSemaphore;
use crate::read_write_lock::ReadWriteLock;
use crate::semaphore::Semaphore;
#[cfg(feature = "mysql")]
use crate::stores::mysql::MySql;
use crate::stores::redis::Redis;
#[cfg(feature = "in-memory")]
use crate::stores::redis::in_memory::World;
use crate::stores::redis::node::RedisNode;

/// A client of one Redis server, cluster or database. All clones, locks and guards of a client share it.
///
/// A client has a random uuid and a pool of connections. Its threads renew holds and listen for unlock messages. Connections
/// and threads start when they are first needed. [`Builder`](crate::Builder) also creates clients for sentinels, for a
/// cluster, and for a master with replicas. When the last clone, lock and guard of a client is dropped, the client is shut
/// down as by [`Client::shutdown`].
///
/// # Examples
///
/// ```no_run
/// use redlatch::Client;
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// client.lock("lock:orders:42").run(|_| println!("alone"))?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<ClientInner>,
    pub(crate) backend: Backend,
}

/// The store with its concrete type, for operations that the trait [`Store`](crate::store::Store) lacks.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Redis(Arc<Redis>),
    #[cfg(feature = "mysql")]
    Mysql(Arc<MySql>),
}

impl Client {
    /// Returns the lock of this name, without I/O.
    ///
    /// All clients of this library and of Redisson share the lock if they use the same server, database and prefixed
    /// name. A name is 1 ..= 512 bytes of UTF-8 without control characters, key prefix included. Braces must enclose a
    /// hash tag, as in `{shop}:orders`. In a database a name has at most 255 bytes. With an invalid name, operations
    /// return [`Error::InvalidName`].
    ///
    /// In Redis the name is a key, so no data may use it: lock the data `orders:42` with `lock:orders:42`. If the key
    /// contains data, an operation changes nothing and returns [`Error::WrongType`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let guard = client.lock("lock:orders:42").guard()?;
    /// // … alone …
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Reentrant, name)
    }

    /// Returns the token lock of this name, without I/O: the single-instance lock of the [Redis
    /// documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
    ///
    /// The string key `name` contains a random token of 20 bytes and has the lease as its TTL, as after `SET name token NX
    /// PX lease`. This lock and programs in other languages that use that pattern (redis-py's `Lock`, redsync, …) exclude
    /// each other. The watchdog renews a token lock like any other [`Lock`]. Differences from a [`lock`](Client::lock):
    ///
    /// * A token lock is **not reentrant**: a second acquisition by its holder returns [`Error::NotReentrant`].
    /// * Unlocks send no messages, so a waiter polls about every 5 to 100 ms.
    ///
    /// Use each name for one kind of lock only. Any string at the key counts as a token. With another type of value,
    /// operations return [`Error::WrongType`]. In a database the operations of a token lock return
    /// [`Error::Unsupported`].
    ///
    /// Programs in other languages must also set a lease; redis-py's `Lock` sets a lease only with `timeout=…`. If the key
    /// has no TTL, a wait ends with [`Error::NoTtl`].
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::{Client, Error};
    ///
    /// let client = Client::in_memory();
    /// let lock = client.token_lock("lock:report");
    /// let guard = lock.guard()?;
    /// assert!(matches!(lock.try_guard(), Err(Error::NotReentrant { .. })));
    /// guard.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn token_lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Token, name)
    }

    /// Returns the fenced lock of this name, without I/O: a [`lock`](Client::lock) whose holds have a [fencing
    /// token](crate::Guard::fencing_token). Each token is a number larger than the tokens of all earlier holds of the name.
    ///
    /// Store the token with the data and refuse smaller tokens, as in `UPDATE t SET …, fence = :f WHERE id = :id AND fence
    /// <= :f`. Then a holder that was paused for longer than its lease cannot overwrite the work of the next holder.
    ///
    /// The token is the server's time in microseconds. If that time is not above the last token, the token is the last token
    /// plus one. Even if the server loses its data, later tokens are larger, unless its clock was set back. Redis keeps the
    /// last token in the key `redisson_lock_token:{name}`, which has no TTL.
    ///
    /// The fenced lock is Redisson's `RFencedLock`. A fenced lock and a [`lock`](Client::lock) of the same name exclude each
    /// other, but are not reentrant with each other. In a database this method returns a [`lock`](Client::lock), because
    /// every hold in a database has a token. A [`Redlock`](crate::Redlock) and a [`MultiLock`](crate::MultiLock) have no
    /// tokens, because tokens of different servers cannot be compared.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// let client = Client::in_memory();
    /// let lock = client.fenced_lock("lock:orders:42");
    /// let (mut stock, mut newest) = (10, 0); // in production: two columns of one row
    /// let mut sell = |token| {
    ///     // Refuses a holder whose lock was lost.
    ///     if token < newest {
    ///         return false;
    ///     }
    ///     (stock, newest) = (stock - 1, token);
    ///     true
    /// };
    /// let late = lock.guard()?.fencing_token().expect("it is fenced");
    /// let token = lock.guard()?.fencing_token().expect("it is fenced");
    /// assert!(sell(token));
    /// assert!(!sell(late));
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn fenced_lock(&self, name: &str) -> Lock {
        #[cfg(feature = "mysql")]
        if self.database().is_some() {
            return self.lock(name);
        }
        self.lock_of(Kind::Fenced, name)
    }

    /// Returns the fair lock of this name, without I/O: a [`lock`](Client::lock) that all threads of all processes acquire
    /// in the order of arrival. The fair lock is Redisson's `RFairLock`.
    ///
    /// A [`try_guard`](Lock::try_guard) acquires a fair lock only if no thread waits. A re-entry bypasses the queue. A
    /// waiter whose process has ended delays the waiters behind it by about 1.5 s, or by up to 10 s in a cluster
    /// without sharded Pub/Sub. A waiter in a stopped process delays the waiters behind it by up to 10 s. If a waiter
    /// gets no reply to its request, it may move to the end of the queue.
    ///
    /// Redis keeps the waiters in the list `redisson_lock_queue:{name}`. The sorted set `redisson_lock_timeout:{name}`
    /// contains the time from which each waiter counts as dead. A fair lock and a [`lock`](Client::lock) of the same name
    /// exclude each other, but the [`lock`](Client::lock) ignores the queue. Waiters for a fair lock notice an unlock of the
    /// [`lock`](Client::lock) up to about a second late, and vice versa. A [`MultiLock`](crate::MultiLock) acquires a fair
    /// lock only if no thread waits for that fair lock. In a database the operations of a fair lock return
    /// [`Error::Unsupported`](crate::Error::Unsupported). A [`Redlock`](crate::Redlock) has no fair locks.
    ///
    /// A fair lock is slower than a [`lock`](Client::lock): after an unlock, the fair lock is free until the next waiter has
    /// received a message and acquired the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let lock = client.fair_lock("lock:tickets");
    /// lock.run(|_| println!("after all earlier waiters"))?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn fair_lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Fair, name)
    }

    /// Returns the [`lock`](Client::lock) of this name, without I/O. Its waiters poll instead of listening for unlock
    /// messages.
    ///
    /// A spin lock needs no subscription, so it suits Redis users without rights to channels. It also suits clusters without
    /// sharded Pub/Sub, where every message is sent to every node. The first pause of a waiter is about 1 ms. Each further
    /// pause is twice as long, up to about 128 ms. [`Lock::with_backoff`] sets other pauses. A spin lock and a
    /// [`lock`](Client::lock) of one name are the same lock, and are reentrant with each other. An unlock of a spin lock
    /// notifies listening waiters, except in a cluster without sharded Pub/Sub.
    ///
    /// The spin lock is Redisson's `RSpinLock`. An unlock by Redisson's `RSpinLock` notifies no waiters.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory();
    /// let lock = client.spin_lock("lock:orders:42");
    /// lock.run(|_| println!("alone"))?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn spin_lock(&self, name: &str) -> Lock {
        let (first, longest) = Backoff::SPIN;
        self.lock(name).with_backoff(first, longest)
    }

    /// Returns the semaphore of this name, without I/O: Redisson's `RSemaphore`.
    ///
    /// Names are as for [`Client::lock`]. In Redis the string key `name` contains the number of free permits. The sorted set
    /// `redlatch_sc:{name}` contains the holds of this library's clients, not those of Redisson. **Acquisitions wait until
    /// the number of permits has been set**; see [`Semaphore`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let semaphore = client.semaphore("semaphore:mail");
    /// semaphore.try_set(10)?; // once
    /// let permits = semaphore.acquire(2)?;
    /// // … at most ten at a time, in all processes …
    /// permits.release()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn semaphore(&self, name: &str) -> Semaphore {
        let lock = self.lock_of(Kind::Permits, name);
        Semaphore { lock }
    }

    /// Returns the permit semaphore of this name, without I/O: Redisson's `RPermitExpirableSemaphore`. Its permits have ids.
    ///
    /// Names are as for [`Client::lock`]. In Redis the string key `name` contains the number of free permits. The sorted set
    /// `{name}:timeout` contains the ids of the acquired permits, each with its end time. **Acquisitions wait until the
    /// number of permits has been set**; see [`PermitSemaphore`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let semaphore = client.permit_semaphore("permits:mail");
    /// semaphore.try_set(10)?; // once
    /// let permits = semaphore.acquire(2)?; // renewed until they are dropped
    /// assert_eq!(permits.ids().len(), 2);
    /// let id = semaphore.acquire_id(None)?; // taken until it is released by its id
    /// permits.release()?;
    /// assert!(semaphore.release_id(&id)?);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn permit_semaphore(&self, name: &str) -> PermitSemaphore {
        let lock = self.lock_of(Kind::PermitIds, name);
        PermitSemaphore { lock }
    }

    /// Returns the count-down latch of this name, without I/O: Redisson's `RCountDownLatch`.
    ///
    /// Names are as for [`Client::lock`], but must not contain braces. In Redis the string key `name` contains the count.
    /// **A latch that was never set is open**; see [`Latch`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let latch = client.latch("latch:import");
    /// assert!(latch.try_set(2)?);
    /// std::thread::scope(|scope| {
    ///     for _ in 0..2 {
    ///         scope.spawn(|| latch.count_down());
    ///     }
    ///     latch.wait()
    /// })?;
    /// assert_eq!(latch.count()?, 0);
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn latch(&self, name: &str) -> Latch {
        let lock = self.lock_of(Kind::Latch, name);
        Latch { lock }
    }

    /// Returns the read-write lock of this name, without I/O: Redisson's `RReadWriteLock`.
    ///
    /// Names are as for [`Client::lock`]. In Redis the hash key `name` contains the mode, `read` or `write`, and the holds.
    /// The key `{name}:…:rwlock_timeout:1` of a read hold expires when the hold ends. **A thread that holds the read side
    /// must not acquire the write side**, and **new readers queue behind a waiting writer**; see [`ReadWriteLock`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let prices = client.read_write_lock("lock:prices");
    /// prices.write().run(|_| println!("alone"))?;
    /// prices.read().run(|_| println!("with other readers"))?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        let [read, write] = [Kind::Read, Kind::Write].map(|kind| self.lock_of(kind, name));
        ReadWriteLock { read, write }
    }

    fn lock_of(&self, kind: Kind, name: &str) -> Lock {
        let lock = Lock::named(&self.inner, kind, name);
        #[cfg(feature = "mysql")]
        let lock = Lock {
            database: self.database().cloned(),
            ..lock
        };
        lock
    }

    /// Returns the uuid of this client. The ids of its holds contain this uuid, except for token locks and permits with ids.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Returns the oldest holds and waits of this client, and counts of its connections, without I/O. In a forked child
    /// the result is empty.
    pub fn activity(&self) -> Activity {
        self.inner.activity()
    }

    /// Ends every wait with [`Error::Closed`], stops renewals, and joins the threads of the client.
    ///
    /// If the server replies in time, the call also removes the queue entries of the client's waiters from the server, and
    /// sends the remaining releases of [`OwnedGuard::unlock_in_background`](crate::OwnedGuard::unlock_in_background). If a
    /// request without a reply has acquired a hold, the client no longer releases this hold, which ends with its lease. The
    /// call returns within one [`command_timeout`](crate::Builder::command_timeout) plus 250 ms, even if a hook hangs.
    /// Dropping the last clone, lock and guard has the same effect.
    ///
    /// A second call returns at once, even if the first call is in progress.
    ///
    /// Threads that hold locks can unlock after the shutdown. A hold that is not unlocked ends with its lease. The
    /// [`Losses`](crate::Losses) of the current holds report [`LossCause::Closed`](crate::LossCause::Closed).
    ///
    /// A [`MultiLock`](crate::MultiLock) with locks of this client uses an internal client. So does a
    /// [`Redlock`](crate::Redlock) with this client as a node. This call also ends the waits of internal clients, but
    /// internal clients continue to renew holds.
    pub fn shutdown(&self) {
        self.inner.shut_down();
    }

    #[cfg(feature = "mysql")]
    pub(crate) fn database(&self) -> Option<&Arc<MySql>> {
        match &self.backend {
            Backend::Mysql(store) => Some(store),
            _ => None,
        }
    }

    pub(crate) fn as_node(&self) -> Result<Arc<RedisNode>> {
        match &self.backend {
            Backend::Redis(store) => Ok(Arc::new(store.as_node()?)),
            #[cfg(feature = "mysql")]
            Backend::Mysql(store) => {
                let node = store.node();
                let reason = format!(
                    "{node} is a database; the nodes of a Redlock have to be Redis servers"
                );
                Err(Error::config("the nodes of a Redlock", reason))
            }
        }
    }

    pub(crate) fn redis(&self) -> Option<&Arc<Redis>> {
        match &self.backend {
            Backend::Redis(store) => Some(store),
            #[cfg(feature = "mysql")]
            Backend::Mysql(_) => None,
        }
    }

    #[cfg(feature = "in-memory")]
    pub(crate) fn world(&self) -> Option<&Arc<World>> {
        // In a forked child, the server's mutex stays locked forever if a thread of the parent had locked it.
        (self.redis()?.world.as_ref()).filter(|_| !self.inner.is_forked())
    }
}
