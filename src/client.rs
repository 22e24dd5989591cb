//! The client: hands out locks, and owns what they share.

use std::sync::Arc;
use std::time::Duration;

use crate::activity::Activity;
use crate::engine::client_inner::ClientInner;
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

/// A connection to the place of the locks, shared by all its clones, locks and guards.
///
/// A client has a random uuid, a pool of connections, threads that watch over holds and renew them, and a thread that
/// listens for unlock messages; all start when they are first needed. [`Builder`](crate::Builder) also makes clients of
/// sentinels, of a cluster, and of a master with its replicas. Dropping the last clone, lock and guard does what
/// [`Client::shutdown`] does.
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

/// Where a client keeps its locks: to make another one of the same place, or a node of a quorum.
#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Redis(Arc<Redis>),
    /// The store itself: it has transactions and row locks, which others have not.
    #[cfg(feature = "mysql")]
    Mysql(Arc<MySql>),
}

impl Client {
    /// Returns the lock of this name, without I/O.
    ///
    /// The name is 1 ..= 512 bytes of UTF-8 without control characters, key prefix included; in a database at most 255
    /// bytes. Every client and every Redisson that uses the same name and prefix on the same server and database has the
    /// same lock. A name that cannot be used is [`Error::InvalidName`] at the first operation.
    ///
    /// In Redis the name is a key. Give locks names of their own, such as `lock:orders:42`, beside the data under
    /// `orders:42`: a key that cannot be a lock is left as it is, and every operation on it is [`Error::WrongType`]. A hash
    /// can be a lock if it has one field, of the form `text:number`, whose value is a number.
    pub fn lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Reentrant, name)
    }

    /// Returns the plain token lock of this name, without I/O: the single-instance lock of the
    /// [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
    ///
    /// The string key `name` has a random token of 20 bytes as its value and the lease as its time to live, as
    /// `SET name token NX PX lease` makes it. Programs in other languages that do the same (redis-py's `Lock`, redsync, …)
    /// and this lock exclude each other. It has all that a [`Lock`] has, the watchdog and the loss of a hold included, with
    /// two differences. It is **not reentrant**: a second acquisition by the thread that holds the lock is
    /// [`Error::NotReentrant`]. And nobody sends messages, so a waiter asks every 5 to 100 ms. A name is one kind of lock or
    /// the other; the other kind, or other data under the name, is [`Error::WrongType`]. In a database a token lock is
    /// [`Error::Unsupported`].
    ///
    /// Let the other programs set a lease, too (redis-py's `Lock` does so only with `timeout=…`): a lock that is held
    /// without one is [`Error::NoTtl`] here once the wait is over, because nobody can tell whether its holder still lives.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::{Client, Error};
    ///
    /// let client = Client::in_memory();
    /// let lock = client.token_lock("lock:report");
    /// lock.lock()?;
    /// assert!(matches!(lock.lock(), Err(Error::NotReentrant { .. })));
    /// lock.unlock()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn token_lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Token, name)
    }

    /// Returns the fenced lock of this name, without I/O: a [`lock`](Client::lock) whose holds have a
    /// [fencing token](crate::Guard::fencing_token), a number that is larger than that of every earlier hold of the name.
    ///
    /// Write the token with the data and refuse a smaller one, as in `UPDATE t SET …, fence = :f WHERE id = :id AND
    /// fence <= :f`: then a holder that was paused for longer than its lease changes nothing behind the back of the next.
    ///
    /// The token is the server's time in microseconds, or one more than the last token where that is larger, so a token is
    /// not the number of tokens so far. Tokens also rise over a server that has lost its data, or was replaced by one that
    /// lacks them, as long as its clock is not behind; the tokens that one client gets rise in any case (it remembers the
    /// last token of the 5,000 to 10,000 names that it used last). The last token stays in `redisson_lock_token:{name}`,
    /// which has no time to live.
    ///
    /// It is Redisson's `RFencedLock`: each side sees the tokens of the other rise. Beside a [`lock`](Client::lock) of the
    /// same name they exclude each other, but a thread that holds the one waits for the other like any other. Threads of one client take
    /// turns at the one or at the other, not among both. In a database
    /// this is [`lock`](Client::lock), which has tokens there; a [`Redlock`](crate::Redlock) has none, because the tokens of
    /// several servers have no order, and a [`MultiLock`](crate::MultiLock) has a token of none of its parts.
    ///
    /// Beyond those of [`Lock`], every call that takes the lock may return [`Error::WrongType`](crate::Error::WrongType) if
    /// something else is kept under the key of the token, and
    /// [`Error::FenceRegressed`](crate::Error::FenceRegressed) if the server draws a token that it was told not to.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// let client = Client::in_memory();
    /// let lock = client.fenced_lock("lock:orders:42");
    /// let (mut stock, mut newest) = (10, 0); // kept together, in a database in real life
    /// let mut sell = |token| {
    ///     // A holder that comes late is refused.
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

    /// Returns the fair lock of this name, without I/O: a [`lock`](Client::lock) that those who wait get in the order in which
    /// they came, over all threads of all processes. It is Redisson's `RFairLock`.
    ///
    /// A [`try_lock`](Lock::try_lock) without a wait gets it only if nobody waits, and a re-entry goes before everybody. A waiter
    /// that dies keeps the others waiting for about 1.5 s, one whose process was stopped for 10 s, and those behind it who died or
    /// were stopped with it cost nothing more; if that one goes on, it is the first again. After a request without an answer a
    /// waiter goes to the end.
    ///
    /// In Redis those who wait stand in the list `redisson_lock_queue:{name}` and, with times, in the sorted set
    /// `redisson_lock_timeout:{name}`; each listens to a channel of its own. A [`lock`](Client::lock) of the same name is excluded
    /// by it, also in one thread, but goes before those who wait, and the unlock of the one wakes no waiter of the other, which
    /// looks again within about a second. A [`MultiLock`](crate::MultiLock) gets it only if nobody waits, and may starve. In a database this is
    /// [`Error::Unsupported`](crate::Error::Unsupported), and a [`Redlock`](crate::Redlock) has none.
    ///
    /// Order costs time: each hold begins with a message to the next waiter, also in the same process, where a
    /// [`lock`](Client::lock) is handed over.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let lock = client.fair_lock("lock:tickets");
    /// lock.run(|_| println!("behind all who came before"))?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn fair_lock(&self, name: &str) -> Lock {
        self.lock_of(Kind::Fair, name)
    }

    /// Returns the [`lock`](Client::lock) of this name, without I/O, whose waiters ask again and again in place of listening
    /// for unlock messages.
    ///
    /// It needs no subscription, so it suits users without a right to channels, and clusters whose messages are not sharded,
    /// where each message goes to every node. A waiter pauses for about 1 ms, then for twice as long each time, up to about
    /// 128 ms; [`Lock::with_backoff`] sets other pauses. All else is as with [`lock`](Client::lock), which is the same lock:
    /// the one enters the other again, and an unlock of either tells waiters that listen, except in such a cluster.
    ///
    /// It is Redisson's `RSpinLock`, whose unlock tells nobody.
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
        let lock = self.lock(name);
        lock.with_backoff(Duration::from_millis(1), Duration::from_millis(128))
    }

    /// Returns the semaphore of this name, without I/O: Redisson's `RSemaphore`.
    ///
    /// The name is as for [`Client::lock`]. In Redis the string key `name` has the number of free permits, and the sorted set
    /// `redlatch_sc:{name}` the owners of those that this library has taken. **A semaphore that nobody has set is waited
    /// for**: see [`Semaphore`].
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

    /// Returns the semaphore of this name whose permits have ids, without I/O: Redisson's `RPermitExpirableSemaphore`.
    ///
    /// The name is as for [`Client::lock`]. In Redis the string key `name` has the number of free permits, and the sorted set
    /// `{name}:timeout` the ids of the others, each with its end. **A semaphore that nobody has set is waited for**: see
    /// [`PermitSemaphore`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let semaphore = client.permit_semaphore("permits:mail");
    /// semaphore.try_set(10)?; // once
    /// let permits = semaphore.acquire(2)?; // renewed until they are dropped
    /// assert_eq!(permits.ids().len(), 2);
    /// let id = semaphore.acquire_id(None)?; // taken until somebody gives it back
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
    /// The name is as for [`Client::lock`], but without braces. In Redis the string key `name` has the count. **A latch that
    /// nobody has set is open**: see [`Latch`].
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
        let raw_lock = self.lock_of(Kind::Latch, name).raw_lock().clone();
        Latch { raw_lock }
    }

    /// Returns the read-write lock of this name, without I/O: Redisson's `RReadWriteLock`.
    ///
    /// The name is as for [`Client::lock`]. In Redis the hash key `name` has the mode and the holds, and a key
    /// `{name}:…:rwlock_timeout:1` the end of each hold that reads. **A thread that reads must not take the write side**, and
    /// **readers wait behind a writer that waits**: see [`ReadWriteLock`].
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory(); // or Client::open("redis://127.0.0.1:6379")?
    /// let prices = client.read_write_lock("lock:prices");
    /// prices.write().run(|_| println!("alone"))?;
    /// prices.read().run(|_| println!("with all who read"))?;
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

    /// Returns the uuid of this client, with which the ids of its holds in the store begin.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Returns the oldest holds and waits of its threads and its connections, without I/O. None in a forked child.
    pub fn activity(&self) -> Activity {
        self.inner.activity()
    }

    /// Ends every wait with [`Error::Closed`], stops renewing, and joins the threads.
    ///
    /// The places that waits had in queues on the server are given up before the call returns, if the server answers.
    ///
    /// The call returns within one [`command_timeout`](crate::Builder::command_timeout) and 250 ms, whatever the server or a
    /// hook does. A hook that hangs is abandoned; the [`on_lost`](crate::Builder::on_lost) hook gets no further losses, and
    /// releases in doubt are no longer sent. Unlocks that [`OwnedGuard::unlock_in_background`](crate::OwnedGuard::unlock_in_background)
    /// owes are sent as far as the server answers within that time. The drop of the last handle does the same.
    /// A call while another one is in progress returns at once.
    ///
    /// Threads that hold locks may go on working: `unlock` still works, and a hold that is not unlocked ends with its lease.
    /// Every [`Losses`](crate::Losses) reports [`LossCause::Closed`](crate::LossCause::Closed), now and later.
    ///
    /// A [`MultiLock`](crate::MultiLock) of locks of this client, and a [`Redlock`](crate::Redlock) over it, are clients of their
    /// own: their holds are still renewed.
    pub fn shutdown(&self) {
        self.inner.shut_down();
    }

    pub(crate) fn inner(&self) -> &Arc<ClientInner> {
        &self.inner
    }

    /// The store of a client of a database.
    #[cfg(feature = "mysql")]
    pub(crate) fn database(&self) -> Option<&Arc<MySql>> {
        match &self.backend {
            Backend::Mysql(store) => Some(store),
            _ => None,
        }
    }

    /// The server as a node of a quorum.
    pub(crate) fn as_node(&self) -> Result<Arc<RedisNode>> {
        match &self.backend {
            Backend::Redis(store) => Ok(Arc::new(store.as_node()?)),
            #[cfg(feature = "mysql")]
            Backend::Mysql(store) => {
                let node = store.node();
                let reason =
                    format!("{node} is a database; the nodes of a quorum have to be Redis servers");
                Err(Error::config("the nodes of a quorum", reason))
            }
        }
    }

    /// The store, if that is on Redis.
    pub(crate) fn redis(&self) -> Option<&Arc<Redis>> {
        match &self.backend {
            Backend::Redis(store) => Some(store),
            #[cfg(feature = "mysql")]
            Backend::Mysql(_) => None,
        }
    }

    /// The server in this process that it is a client of, if there is one.
    #[cfg(feature = "in-memory")]
    pub(crate) fn world(&self) -> Option<&Arc<World>> {
        // In a forked child nobody may ever unlock its mutex.
        (self.redis()?.world.as_ref()).filter(|_| !self.inner.is_forked())
    }
}
