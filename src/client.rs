//! The client: hands out locks, and owns what they share.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::client_inner::{ClientInner, Timeouts};
use crate::engine::watchdog::OnLost;
use crate::ground::claim::Kind;
use crate::ground::clock::SHORTEST_LEASE;
use crate::ground::error::{Error, Result};
use crate::ground::loss::Loss;
use crate::lock::Lock;
use crate::store::{HealthWarning, LONGEST_LEASE, Store};
use crate::stores::memory::{Memory, World};
#[cfg(feature = "mysql")]
use crate::stores::mysql::MySql;
use crate::stores::redis::{Credentials, Redis, Replication, Settings, TlsConfig};

/// A connection to the place of the locks, shared by all its clones, locks and guards.
///
/// A client has a random uuid, a pool of connections, threads that watch over holds and renew them, and a thread that
/// listens for unlock messages; all start when they are first needed. [`Builder`] also makes clients of sentinels, of a
/// cluster, and of a master with its replicas. Dropping the last clone, lock and guard does what [`Client::shutdown`]
/// does.
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
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
    home: Backend,
}

/// Where a client keeps its locks, to make another one of the same place.
#[derive(Clone)]
enum Backend {
    Memory(Arc<World>),
    Redis,
    #[cfg(feature = "mysql")]
    Mysql,
}

impl Client {
    /// Makes a client of the server at `url`, with the default settings.
    ///
    /// The URL is `redis://[user:password@]host[:port][/database]` or `redis+unix:///path?db=1&user=…&pass=…`; with the
    /// feature `tls` also `rediss://…`, where the certificate of the server and its host are always checked; with the
    /// feature `mysql` also `mysql://user:password@host[:port]/database`. Connections are made when they are needed, so the
    /// server need not be up yet.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if the URL cannot be used, or needs a feature that is not built in.
    pub fn open(url: &str) -> Result<Client> {
        Client::builder().open(url)
    }

    /// Returns the default settings, to be changed before a client is made.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Makes a client whose locks live in this process alone: for a first look, for examples, for unit tests.
    ///
    /// Each call makes a world of its own. Clones share that world, and [`Client::another`] makes a second client of it, as
    /// if it were another process. The locks obey the same laws as those in Redis. No other method falls back to memory.
    pub fn in_memory() -> Client {
        Client::builder().in_memory_unchecked()
    }

    /// Makes a second client of the same in-memory world, with the same settings and the same [`Builder::on_lost`] hook.
    ///
    /// `None` for a client of a server, where [`Client::open`] makes a second one.
    pub fn another(&self) -> Option<Client> {
        let Backend::Memory(world) = &self.home else {
            return None;
        };
        let settings = Builder {
            watchdog_timeout: self.inner.timeouts.watchdog_timeout,
            command_timeout: self.inner.timeouts.command_timeout,
            outage_timeout: self.inner.timeouts.outage_timeout,
            key_prefix: self.inner.key_prefix.clone(),
            on_lost: self.inner.watchdog.on_lost(),
            ..Builder::default()
        };
        Some(settings.of_world(Arc::clone(world)))
    }

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

    fn lock_of(&self, kind: Kind, name: &str) -> Lock {
        let full: Arc<str> = if self.inner.key_prefix.is_empty() {
            name.into()
        } else {
            format!("{}{name}", self.inner.key_prefix).into()
        };
        let flaw = crate::stores::redis::flaw(name, &full);
        #[cfg(feature = "mysql")]
        let flaw = flaw.or_else(|| match self.home {
            Backend::Mysql => crate::stores::mysql::flaw(kind, &full),
            _ => None,
        });
        let flaw = flaw.map(Box::new);
        Lock::new(Arc::clone(&self.inner), kind, full, flaw)
    }

    /// Returns the uuid of this client, with which the ids of its holds in the store begin.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Looks at the server for settings that endanger locks, and returns a warning for each.
    ///
    /// In Redis these are eviction, replication without `min-replicas-to-write`, a missing right, a server that is not the
    /// master, and an old version; in a cluster at each master. In a database they are those of the lock table. The check
    /// changes nothing on the server and wakes no waiter. With the feature `tracing` it runs once by itself, and the
    /// warnings are logged.
    ///
    /// # Errors
    ///
    /// After [`command_timeout`](Builder::command_timeout) at the latest, if the server cannot be asked:
    /// [`Error::Unreachable`], [`Error::Exhausted`], [`Error::Unavailable`], [`Error::Permission`], [`Error::Untrusted`],
    /// [`Error::Unexpected`] or [`Error::Sql`]; [`Error::Forked`] in a forked child.
    pub fn check(&self) -> Result<Vec<HealthWarning>> {
        self.inner.check()
    }

    /// Ends every wait with [`Error::Closed`], stops renewing, and joins the threads.
    ///
    /// The call returns within one [`command_timeout`](Builder::command_timeout) and 250 ms, whatever the server or a hook
    /// does. A hook that hangs is abandoned; the [`on_lost`](Builder::on_lost) hook gets no further losses, and releases in
    /// doubt are no longer sent. The drop of the last handle does the same.
    ///
    /// Threads that hold locks may go on working: `unlock` still works, and a hold that is not unlocked ends with its lease.
    /// Every [`Losses`](crate::Losses) reports [`LossCause::Closed`](crate::LossCause::Closed), now and later.
    pub fn shutdown(&self) {
        self.inner.shut_down();
    }

    pub(crate) fn inner(&self) -> &Arc<ClientInner> {
        &self.inner
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn world(&self) -> Option<&World> {
        match &self.home {
            Backend::Memory(world) => Some(world),
            _ => None,
        }
    }
}

// A panic of the caller leaves nothing half done: no code of the caller runs under a mutex of this library.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.inner.id)
            .field("store", &self.inner.store)
            .finish_non_exhaustive()
    }
}

/// The settings of a client, each with its default until it is set.
///
/// Timeouts are 1 ms ..= 1 day unless a method says otherwise. A setting out of its range is
/// [`Error::InvalidConfig`] when the client is made.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlatch::Client;
///
/// let client = Client::builder()
///     .watchdog_timeout(Duration::from_secs(10))
///     .on_lost(|loss| eprintln!("stop working: {loss}"))
///     .open("redis://127.0.0.1:6379")?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[must_use]
pub struct Builder {
    watchdog_timeout: Duration,
    command_timeout: Duration,
    connect_timeout: Duration,
    outage_timeout: Duration,
    pool_size: u32,
    key_prefix: String,
    tls_config: TlsConfig,
    credentials: Option<Credentials>,
    database: Option<i64>,
    sharded_pubsub: Option<bool>,
    wait_replicas: Option<Replication>,
    #[cfg(feature = "mysql")]
    lock_table: String,
    on_lost: Option<OnLost>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            watchdog_timeout: Duration::from_secs(30),
            command_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            outage_timeout: Duration::from_secs(30),
            pool_size: 32,
            key_prefix: String::new(),
            tls_config: TlsConfig::default(),
            credentials: None,
            database: None,
            sharded_pubsub: None,
            wait_replicas: None,
            #[cfg(feature = "mysql")]
            lock_table: "redlatch".to_owned(),
            on_lost: None,
        }
    }
}

impl Builder {
    /// Sets the lease time of locks without a fixed one; they are renewed at a third of it.
    ///
    /// It is also how long a lock stays taken after its holder died. A renewal has to be answered within a quarter of it,
    /// so it should be at least ten round trips to the server. 10 ms ..= 365 days. Defaults to 30 s, as in Redisson.
    pub fn watchdog_timeout(mut self, timeout: Duration) -> Builder {
        self.watchdog_timeout = timeout;
        self
    }

    /// Sets how long one request may take in all, connecting and authenticating included.
    ///
    /// 1 ms ..= 1 day. Defaults to 2 s.
    pub fn command_timeout(mut self, timeout: Duration) -> Builder {
        self.command_timeout = timeout;
        self
    }

    /// Sets how long connecting and authenticating may take, within the time of the request that needs the connection.
    ///
    /// 1 ms ..= 1 day. Defaults to 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long a wait without a deadline goes on while the server gives no usable answer.
    ///
    /// 1 ms ..= 1 day. Defaults to 30 s.
    pub fn outage_timeout(mut self, timeout: Duration) -> Builder {
        self.outage_timeout = timeout;
        self
    }

    /// Sets how many requests may be under way at once; further ones queue up.
    ///
    /// A connection is made when it is needed. A thread that waits for a lock uses none. In a database, row locks and
    /// transactions have a second pool of the same size: each keeps its connection until it is over, a row lock also while
    /// it waits. 1 ..= 5000. Defaults to 32.
    pub fn pool_size(mut self, connections: u32) -> Builder {
        self.pool_size = connections;
        self
    }

    /// Sets a prefix of every name, as Redisson's `nameMapper` does.
    ///
    /// Defaults to none.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.key_prefix = prefix.into();
        self
    }

    /// Sets the certificate authorities that are trusted, one or several in PEM form, and no others.
    ///
    /// Only for `rediss://`; other URLs are refused with this setting. Defaults to the authorities that the system trusts.
    #[cfg(feature = "tls")]
    pub fn ca_certificate(mut self, pem: impl AsRef<[u8]>) -> Builder {
        self.tls_config.set_authorities(pem.as_ref());
        self
    }

    /// Sets the certificate of the client, which may be followed by those of its authorities, and its private key, both in
    /// PEM form.
    ///
    /// Only for `rediss://`; other URLs are refused with this setting. A server with `tls-auth-clients yes`, which is its
    /// default, asks for a certificate. Defaults to none.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Builder {
        self.tls_config
            .set_identity(certificate_pem.as_ref(), key_pem.as_ref());
        self
    }

    /// Sets the user and the password at the master that the sentinels name; `""` is the default user.
    ///
    /// The user and the password in the URLs of sentinels are for the sentinels alone. Without sentinels the URLs have both,
    /// and this setting is refused. Defaults to none.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Builder {
        self.credentials = Some(Credentials {
            user: user.into(),
            password: password.into(),
        });
        self
    }

    /// Sets the number of the database on the master that the sentinels name.
    ///
    /// Without sentinels the URL has the number, and this setting is refused. Defaults to 0.
    pub fn database(mut self, number: u32) -> Builder {
        self.database = Some(i64::from(number));
        self
    }

    /// Sets whether unlock messages in a cluster are sharded (`SPUBLISH`, `SSUBSCRIBE`).
    ///
    /// All clients of a cluster have to agree. Otherwise they still exclude each other, but an unlock does not wake the
    /// other side, which looks again within about a second. Defaults to what Redisson does by default: sharded if the
    /// server answers `PUBSUB SHARDNUMSUB`, that is on Redis 7 and later.
    pub fn sharded_pubsub(mut self, sharded: bool) -> Builder {
        self.sharded_pubsub = Some(sharded);
        self
    }

    /// Sets how many replicas have to acknowledge a hold before it counts, and how long `WAIT` waits for them.
    ///
    /// Redis replicates afterwards: if a master fails before its replicas know a lock that it granted, the next master
    /// grants the lock again. With this setting
    ///
    /// - an acquisition that too few replicas acknowledge in time is undone and is [`Error::NotReplicated`]; waiting calls
    ///   try again until their deadline;
    /// - a re-entry is put back to the old count, with the same error;
    /// - an inner `unlock` is not undone: its level is given back, and it is [`Error::Unknown`], because a failover may
    ///   bring the level back at the server;
    /// - a renewal that they do not acknowledge is not undone, but it extends no validity: it is tried again, and the
    ///   hold is lost when the last acknowledged lease ends.
    ///
    /// With as many replicas as there are, a lock is **very unlikely to be lost** in a failover; with fewer, a replica
    /// without the lock may become the master. It is never safe: a replica may acknowledge and restart empty, `WAIT`
    /// says nothing of disks, and two servers may take themselves for the master for a while. Work that must never be done
    /// twice has to be fenced.
    ///
    /// Every acquisition takes a round trip to the replicas longer. `timeout` is at least 1 ms and shorter than
    /// [`command_timeout`](Builder::command_timeout); 0 replicas switch it off. A server that does not know `WAIT` is
    /// [`Error::Unsupported`]. Defaults to off.
    pub fn wait_replicas(mut self, replicas: u32, timeout: Duration) -> Builder {
        self.wait_replicas = (replicas > 0).then_some(Replication { replicas, timeout });
        self
    }

    /// Sets the name of the lock table in a database; the table of the named rows has the same name and `_rows` after it.
    ///
    /// A letter or `_`, then letters, digits, `_` and `$`. Defaults to `redlatch`.
    #[cfg(feature = "mysql")]
    pub fn lock_table(mut self, table: impl Into<String>) -> Builder {
        self.lock_table = table.into();
        self
    }

    /// Sets the hook that is called when a hold of this client is lost.
    ///
    /// The hook runs on a thread of its own, with no mutex of this library locked. A panic in it is contained, and a slow
    /// call delays only the next one. After the end of the client it is not called any more, see [`Client::shutdown`].
    /// Defaults to nothing.
    pub fn on_lost(mut self, hook: impl Fn(&Loss) + Send + Sync + 'static) -> Builder {
        self.on_lost = Some(Arc::new(hook));
        self
    }

    /// Makes a client of the server at `url`; see [`Client::open`] for its forms.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting or the URL cannot be used, or needs a feature that is not built in.
    pub fn open(self, url: &str) -> Result<Client> {
        self.validate()?;
        let id = new_id();
        if url.starts_with("mysql:") || url.starts_with("mariadb:") {
            self.refuse_replication()?;
            return self.open_database(id, url);
        }
        self.refuse_settings_of(None)?;
        let store = Redis::open(url, &self.settings())?;
        Ok(self.of_store(id, Arc::new(store), Backend::Redis))
    }

    /// Makes a client of a Redis master with replicas, at fixed addresses in any order.
    ///
    /// The server that calls itself master (`ROLE`) has the locks. Servers are asked on every new connection, so that the
    /// client finds the new master after a failover by hand or by a service: when a server answers `READONLY`, when a
    /// connection breaks, when the master turns into a replica. A request that was not executed is repeated within its time.
    /// Of two servers that both call themselves master the one with replicas is taken; only
    /// [`sentinel`](Builder::sentinel) knows which one is right, and abandons a master that was replaced and still answers.
    ///
    /// A failover loses locks that the master had granted and not yet replicated: they are granted again, and their holders
    /// learn of it at their next renewal. See [`wait_replicas`](Builder::wait_replicas).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting or a URL cannot be used.
    pub fn master_replicas(
        self,
        urls: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Client> {
        self.validate()?;
        self.refuse_settings_of(None)?;
        let store = Redis::replicas(&owned(urls), &self.settings())?;
        Ok(self.of_store(new_id(), Arc::new(store), Backend::Redis))
    }

    /// Makes a client of the Redis master that the sentinels at `urls` call `master_name`.
    ///
    /// A sentinel is asked before every connection, and the server that it names has to call itself master. The client
    /// keeps to the latest failover that it heard of: with three sentinels or more it takes two to announce a later one, and
    /// always a majority of those given here to go back to an earlier one. From its first use on, a thread of the client
    /// listens for `+switch-master` and checks the master three times per `watchdog_timeout`, so that a master that was
    /// replaced and still answers is abandoned. A sentinel that is dead, or names a server that is no master, costs a share
    /// of the time of one request and is asked last from then on. While no sentinel can be reached, the client goes on with
    /// the last known master as long as that calls itself master; a new client has none to go on with.
    ///
    /// The user and the password in these URLs are those of the sentinels; the master has
    /// [`credentials`](Builder::credentials) and [`database`](Builder::database) of its own.
    ///
    /// A failover loses locks that the master had granted and not yet replicated: they are granted again, and their holders
    /// learn of it at their next renewal. See [`wait_replicas`](Builder::wait_replicas).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting or a URL cannot be used.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// let client = Client::builder()
    ///     .credentials("locks", "secret")
    ///     .sentinel("mymaster", ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"])?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn sentinel(
        self,
        master_name: &str,
        urls: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Client> {
        self.validate()?;
        self.refuse_settings_of(Some("sentinel"))?;
        let store = Redis::sentinel(master_name, &owned(urls), &self.settings())?;
        Ok(self.of_store(new_id(), Arc::new(store), Backend::Redis))
    }

    /// Makes a client of the Redis Cluster that the servers at `urls` belong to; one that answers is enough.
    ///
    /// Every request goes to the master of the slot of its name. Redirections, a slot on the move and a failover are followed
    /// within the time of the request. Renewals go to all masters at the same time, so a silent shard delays those of no
    /// other. All keys and the channel of a name are in one slot. Nodes that are not in `urls` get the user and the password
    /// of the first URL.
    ///
    /// With TLS the certificate of every node has to be for the host that the cluster announces, which is an IP address
    /// unless each node has `cluster-announce-hostname` and `cluster-preferred-endpoint-type hostname` (Redis 7 or later).
    ///
    /// A failover loses locks that the master had granted and not yet replicated: they are granted again, and their holders
    /// learn of it at their next renewal. See [`wait_replicas`](Builder::wait_replicas), which counts the replicas of one
    /// shard.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting or a URL cannot be used.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// let client = Client::builder().cluster(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"])?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn cluster(self, urls: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Client> {
        self.validate()?;
        self.refuse_settings_of(Some("cluster"))?;
        let store = Redis::cluster(&owned(urls), &self.settings())?;
        Ok(self.of_store(new_id(), Arc::new(store), Backend::Redis))
    }

    fn settings(&self) -> Settings {
        Settings {
            command_timeout: self.command_timeout,
            connect_timeout: self.connect_timeout,
            pool_size: self.pool_size,
            tls_config: self.tls_config.clone(),
            lease: self.watchdog_timeout,
            credentials: self.credentials.clone(),
            database: self.database.unwrap_or_default(),
            sharded: self.sharded_pubsub,
            replication: self.wait_replicas,
        }
    }

    /// Refuses settings that only another kind of place has a use for, rather than to leave them unused.
    fn refuse_settings_of(&self, place: Option<&str>) -> Result<()> {
        let refuse = |setting, reason: &str| {
            Err(Error::InvalidConfig {
                setting,
                reason: reason.to_owned(),
            })
        };
        if place != Some("sentinel") && self.credentials.is_some() {
            return refuse(
                "credentials",
                "only sentinel() has them; put them into the URL",
            );
        }
        if place != Some("sentinel") && self.database.is_some() {
            return refuse("database", "only sentinel() has it; put it into the URL");
        }
        if place != Some("cluster") && self.sharded_pubsub.is_some() {
            return refuse("sharded_pubsub", "only cluster() has it");
        }
        Ok(())
    }

    fn refuse_replication(&self) -> Result<()> {
        if self.wait_replicas.is_some() {
            return Err(Error::InvalidConfig {
                setting: "wait_replicas",
                reason: "only Redis servers have it".to_owned(),
            });
        }
        self.refuse_settings_of(None)
    }

    #[cfg(feature = "mysql")]
    fn open_database(self, id: Arc<str>, url: &str) -> Result<Client> {
        self.tls_config.check_is_unused()?;
        let settings = crate::stores::mysql::Settings {
            command_timeout: self.command_timeout,
            connect_timeout: self.connect_timeout,
            pool_size: self.pool_size,
            table: self.lock_table.clone(),
        };
        let store = Arc::new(MySql::open(url, settings)?);
        let mut inner = self.inner(id, Arc::clone(&store) as Arc<dyn Store>);
        inner.database = Some(store);
        Ok(Client {
            inner: Arc::new(inner),
            home: Backend::Mysql,
        })
    }

    #[cfg(not(feature = "mysql"))]
    fn open_database(self, _: Arc<str>, _: &str) -> Result<Client> {
        Err(Error::InvalidConfig {
            setting: "the URL",
            reason: "locks in a database need the feature `mysql`: redlatch = { features = [\"mysql\"], … }"
                .to_owned(),
        })
    }

    /// Makes a client whose locks live in this process alone; see [`Client::in_memory`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting cannot be used.
    pub fn in_memory(self) -> Result<Client> {
        self.validate()?;
        self.refuse_replication()?;
        Ok(self.in_memory_unchecked())
    }

    fn in_memory_unchecked(self) -> Client {
        self.of_world(Arc::default())
    }

    fn of_world(self, world: Arc<World>) -> Client {
        let store = Arc::new(Memory::new(Arc::clone(&world)));
        self.of_store(new_id(), store, Backend::Memory(world))
    }

    fn of_store(self, id: Arc<str>, store: Arc<dyn Store>, home: Backend) -> Client {
        Client {
            inner: Arc::new(self.inner(id, store)),
            home,
        }
    }

    fn inner(self, id: Arc<str>, store: Arc<dyn Store>) -> ClientInner {
        let timeouts = Timeouts {
            watchdog_timeout: self.watchdog_timeout,
            command_timeout: self.command_timeout,
            outage_timeout: self.outage_timeout,
        };
        ClientInner::new(id, store, timeouts, self.key_prefix, self.on_lost)
    }

    fn validate(&self) -> Result<()> {
        let invalid = |setting, reason: String| Err(Error::InvalidConfig { setting, reason });
        if !(SHORTEST_LEASE..=LONGEST_LEASE).contains(&self.watchdog_timeout) {
            return invalid(
                "watchdog_timeout",
                format!("{:?} is outside 10 ms ..= 365 days", self.watchdog_timeout),
            );
        }
        for (setting, timeout) in [
            ("command_timeout", self.command_timeout),
            ("connect_timeout", self.connect_timeout),
            ("outage_timeout", self.outage_timeout),
        ] {
            if !(LEAST_TIMEOUT..=MOST_TIMEOUT).contains(&timeout) {
                return invalid(setting, format!("{timeout:?} is outside 1 ms ..= 1 day"));
            }
        }
        if let Some(Replication { timeout, .. }) = self.wait_replicas
            && !(LEAST_TIMEOUT..self.command_timeout).contains(&timeout)
        {
            let most = self.command_timeout;
            return invalid(
                "wait_replicas",
                format!("{timeout:?} is outside 1 ms .. {most:?}, the command time-out"),
            );
        }
        if !(1..=MOST_CONNECTIONS).contains(&self.pool_size) {
            return invalid(
                "pool_size",
                format!("{} is outside 1 ..= {MOST_CONNECTIONS}", self.pool_size),
            );
        }
        Ok(())
    }
}

pub(crate) const LEAST_TIMEOUT: Duration = Duration::from_millis(1);
pub(crate) const MOST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Half of what a Redis server takes by default (`maxclients` 10000), for all clients together.
const MOST_CONNECTIONS: u32 = 5000;

fn owned(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    urls.into_iter()
        .map(|url| url.as_ref().to_owned())
        .collect()
}

pub(crate) fn new_id() -> Arc<str> {
    uuid::Uuid::new_v4().hyphenated().to_string().into()
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("watchdog_timeout", &self.watchdog_timeout)
            .field("command_timeout", &self.command_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("outage_timeout", &self.outage_timeout)
            .field("pool_size", &self.pool_size)
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}
