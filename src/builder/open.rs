//! Creates clients: of one server, sentinels, replicas, a cluster, a database, or an in-memory server.

use std::sync::Arc;

use crate::builder::{Builder, new_id};
use crate::client::{Backend, Client};
use crate::engine::client_inner::{ClientInner, Timeouts};
use crate::ground::error::{Error, Result};
use crate::ground::process_name;
use crate::store::{ConnectionCounter, Store};
#[cfg(feature = "mysql")]
use crate::stores::mysql::MySql;
#[cfg(feature = "in-memory")]
use crate::stores::redis::in_memory::World;
use crate::stores::redis::{Redis, Settings};

const REDIS: &str = "Redis servers";

impl Client {
    /// Creates a client of the server at `url`, with the default settings.
    ///
    /// The URL is `redis://[user:password@]host[:port][/database]` or `redis+unix:///path?db=1&user=…&pass=…`. The feature
    /// `tls` adds `rediss://…`, which checks the certificate and its host. The feature `mysql` adds
    /// `mysql://user:password@host[:port]/database`, and `mysqls://…` for TLS. Connections are opened when they are
    /// needed, so the server may start after the client.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if the URL is invalid or needs a feature that is not enabled, or if this process was forked
    /// from a process that had a client.
    pub fn open(url: &str) -> Result<Client> {
        Client::builder().open(url)
    }

    /// Returns the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Creates a client of a new server in this process, for examples and for the tests of a program that uses locks.
    ///
    /// Each call creates a separate server, which runs the scripts that a real server runs. Clones of the client share its
    /// server. [`Client::another`] creates a second client of that server, as if in another process. The feature `in-memory`
    /// needs a C compiler.
    #[cfg(feature = "in-memory")]
    #[cfg_attr(docsrs, doc(cfg(feature = "in-memory")))]
    pub fn in_memory() -> Client {
        Client::builder().of_world(&Arc::default())
    }

    /// Creates a second client of the same in-memory server.
    ///
    /// The second client has the same key prefix, [`Builder::on_lost`] hook, observer, lock classes,
    /// [`Builder::warn_after`] durations, and watchdog, command and outage timeouts. Its other settings are the defaults.
    /// Returns `None` for a client of any other server, and in a forked child. This method needs the feature `in-memory`.
    #[cfg(feature = "in-memory")]
    #[cfg_attr(docsrs, doc(cfg(feature = "in-memory")))]
    pub fn another(&self) -> Option<Client> {
        let world = self.world()?;
        Some(Builder::like(&self.inner).of_world(world))
    }
}

impl Builder {
    /// Creates a client of the server at `url`; see [`Client::open`] for the forms of the URL.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting or the URL is invalid or needs a feature that is not enabled, or if this process
    /// was forked from a process that had a client.
    pub fn open(self, url: &str) -> Result<Client> {
        let schemes = ["mysql:", "mysqls:", "mariadb:"];
        if schemes.iter().any(|it| url.starts_with(it)) {
            self.validate()?;
            self.refuse_settings_but(&[])?;
            return self.open_database(url);
        }
        self.on_redis(REDIS, |settings| Redis::open(url, settings))
    }

    /// Creates a client of a Redis master with replicas, at fixed addresses in any order.
    ///
    /// The client uses the server whose `ROLE` is master. If two servers are masters, the client uses the master with
    /// replicas. Only [`sentinel`](Builder::sentinel) can tell which of two masters was replaced. After a manual failover,
    /// the client searches for the new master when a server replies `READONLY` or a connection breaks. A request that
    /// was not executed is repeated within its time limit.
    ///
    /// A failover loses locks that the master had granted but not replicated. Other clients can acquire these locks, and the
    /// holders notice the loss at their next renewal. See [`wait_replicas`](Builder::wait_replicas).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting or a URL is invalid, or in a forked child as for [`open`](Builder::open).
    pub fn master_replicas(
        self,
        urls: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Client> {
        self.on_redis(REDIS, |settings| Redis::replicas(&owned(urls), settings))
    }

    /// Creates a client of the Redis master that the sentinels at `urls` call `master_name`.
    ///
    /// Before each connection to the master, the client queries a sentinel for the address. The `ROLE` of the server at
    /// this address must be master. A thread of the client listens for `+switch-master`, so that the client stops using
    /// a replaced master. The same thread queries all sentinels after each third of `watchdog_timeout`, at the latest
    /// after 10 s. The client switches to another master if two sentinels report that master with a later epoch. One
    /// sentinel is enough if fewer than three are configured. Without a later epoch, a majority of the sentinels must
    /// report that master. If the known master fails, the report of one sentinel may be enough; `docs/configuration.md`
    /// lists these cases. While no sentinel answers, the client uses the last known master.
    ///
    /// The user and the password in `urls` are for the sentinels. For the master, set
    /// [`credentials`](Builder::credentials) and [`database`](Builder::database).
    ///
    /// A failover loses locks that the master had granted but not replicated. Other clients can acquire these locks, and the
    /// holders notice the loss at their next renewal. See [`wait_replicas`](Builder::wait_replicas).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting or a URL is invalid, or in a forked child as for [`open`](Builder::open).
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
        self.on_redis("sentinel()", |settings| {
            Redis::sentinel(master_name, &owned(urls), settings)
        })
    }

    /// Creates a client of the Redis Cluster to which the servers at `urls` belong. At least one of these servers must
    /// answer.
    ///
    /// Every request is sent to the master of the lock's slot, and follows redirections and failovers within its time limit.
    /// Renewals are sent to all masters in parallel, so a silent shard does not delay the renewals in other shards. All keys
    /// and the channel of a lock are in one slot.
    ///
    /// For nodes that are not in `urls`, the client uses the user and the password of the first URL. For announced
    /// addresses that cannot be reached, set [`map_address`](Builder::map_address). All URLs must have the same
    /// database number. Numbers other than 0 need Valkey 9 with `cluster-databases`. With TLS, the certificate of each
    /// node must be valid for `tls_server_name` if it is set, otherwise for the announced host. For an announced IP
    /// address, a certificate for the host of one of the URLs is also accepted.
    ///
    /// A failover loses locks that the master had granted but not replicated. Other clients can acquire these locks, and the
    /// holders notice the loss at their next renewal. [`wait_replicas`](Builder::wait_replicas) counts the replicas of the
    /// lock's shard.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting or a URL is invalid, or in a forked child as for [`open`](Builder::open).
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
        self.on_redis("cluster()", |settings| {
            Redis::cluster(&owned(urls), settings)
        })
    }

    fn on_redis(
        mut self,
        place: &str,
        open: impl FnOnce(&Settings) -> Result<Redis>,
    ) -> Result<Client> {
        self.validate()?;
        self.refuse_settings_but(&[REDIS, place])?;
        let id = self.identify();
        let store = Arc::new(open(&self.settings)?);
        let backend = Backend::Redis(Arc::clone(&store));
        Ok(self.of_store(id, store, backend))
    }

    fn identify(&mut self) -> Arc<str> {
        let id = new_id();
        let name = self.connection_name.take();
        let name = name.unwrap_or_else(|| process_name::of_client(&id));
        self.settings.connection_name = name.into();
        let traffic = ConnectionCounter::with_observer(self.count_settings.observer.clone());
        self.settings.traffic = Arc::new(traffic);
        id
    }

    fn refuse_settings_but(&self, places: &[&str]) -> Result<()> {
        let set = &self.settings;
        let here = "sentinel(); for other servers the URL names the database";
        let several = "sentinel() and cluster()";
        for (is_set, setting, of) in [
            (set.access.provider.is_some(), "credentials_with", REDIS),
            (set.replication.is_some(), "wait_replicas", REDIS),
            (set.credentials.is_some(), "credentials", here),
            (set.sentinel_access.is_some(), "sentinel_settings", here),
            (set.master_tls.is_some(), "master_tls", here),
            (set.database.is_some(), "database", here),
            (set.sharded.is_some(), "sharded_pubsub", "cluster()"),
            (set.mapper.is_some(), "map_address", several),
        ] {
            if is_set && !places.iter().any(|place| of.contains(place)) {
                let reason = format!("it applies only to {of}");
                return Err(Error::config(setting, reason));
            }
        }
        Ok(())
    }

    #[cfg(feature = "mysql")]
    fn open_database(mut self, url: &str) -> Result<Client> {
        let id = self.identify();
        let store = Arc::new(MySql::open(url, &self.lock_table, self.settings.clone())?);
        let backend = Backend::Mysql(Arc::clone(&store));
        Ok(self.of_store(id, store, backend))
    }

    #[cfg(not(feature = "mysql"))]
    fn open_database(self, _: &str) -> Result<Client> {
        let reason = "locks in a database need the Cargo feature `mysql`: redlatch = { features = [\"mysql\"], … }";
        Err(Error::config("the URL", reason))
    }

    /// Creates a client of a new server in this process; see [`Client::in_memory`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting is invalid.
    #[cfg(feature = "in-memory")]
    #[cfg_attr(docsrs, doc(cfg(feature = "in-memory")))]
    pub fn in_memory(self) -> Result<Client> {
        self.validate()?;
        self.refuse_settings_but(&[])?;
        self.settings.access.tls_config.check_is_unused()?;
        Ok(self.of_world(&Arc::default()))
    }

    #[cfg(feature = "in-memory")]
    fn like(inner: &ClientInner) -> Builder {
        let settings = Settings {
            lease: inner.timeouts.watchdog_timeout,
            command_timeout: inner.timeouts.command_timeout,
            ..Settings::default()
        };
        Builder {
            settings,
            outage_timeout: inner.timeouts.outage_timeout,
            key_prefix: inner.key_prefix.clone(),
            on_lost: inner.watchdog.on_lost(),
            count_settings: inner.counters.settings.clone(),
            ..Builder::default()
        }
    }

    #[cfg(feature = "in-memory")]
    fn of_world(mut self, world: &Arc<World>) -> Client {
        let id = self.identify();
        let store = Arc::new(Redis::in_memory(world, &self.settings));
        let backend = Backend::Redis(Arc::clone(&store));
        self.of_store(id, store, backend)
    }

    fn of_store(self, id: Arc<str>, store: Arc<dyn Store>, backend: Backend) -> Client {
        let timeouts = Timeouts {
            watchdog_timeout: self.settings.lease,
            command_timeout: self.settings.command_timeout,
            outage_timeout: self.outage_timeout,
        };
        let (prefix, counted) = (self.key_prefix, self.count_settings);
        let inner = ClientInner::new(id, store, timeouts, prefix, self.on_lost, counted);
        let inner = Arc::new(inner);
        Client { inner, backend }
    }
}

fn owned(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let urls = urls.into_iter();
    urls.map(|url| url.as_ref().to_owned()).collect()
}
