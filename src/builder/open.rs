//! The places that a client can be made of: one server, several of one master, a cluster, a database, memory.

use std::sync::Arc;

use crate::builder::{Builder, new_id};
use crate::client::{Backend, Client};
use crate::engine::client_inner::{ClientInner, Timeouts};
use crate::ground::error::{Error, Result};
use crate::ground::process_name;
use crate::store::{Store, Traffic};
#[cfg(feature = "mysql")]
use crate::stores::mysql::MySql;
#[cfg(feature = "in-memory")]
use crate::stores::redis::in_memory::World;
use crate::stores::redis::{Redis, Settings};

/// The servers that a setting of every Redis is for.
const REDIS: &str = "Redis servers";

impl Client {
    /// Makes a client of the server at `url`, with the default settings.
    ///
    /// The URL is `redis://[user:password@]host[:port][/database]` or `redis+unix:///path?db=1&user=…&pass=…`; with the
    /// feature `tls` also `rediss://…`, where the certificate of the server and its host are always checked; with the
    /// feature `mysql` also `mysql://user:password@host[:port]/database`, and `mysqls://…` with TLS. Connections are made when they are needed, so the
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

    /// Makes a client of a server in this process: for examples, and for the tests of a program that uses locks.
    ///
    /// Each call makes a server of its own, which runs the scripts that a client of a real one sends. Clones share that
    /// server, and [`Client::another`] makes a second client of it, as if it were another process. No other method falls back
    /// to memory. Feature `in-memory`, which needs a C compiler.
    #[cfg(feature = "in-memory")]
    #[cfg_attr(docsrs, doc(cfg(feature = "in-memory")))]
    pub fn in_memory() -> Client {
        Client::builder().of_world(&Arc::default())
    }

    /// Makes a second client of the same server in memory, with the same settings and the same [`Builder::on_lost`] hook.
    ///
    /// `None` for a client of any other server, where [`Client::open`] makes a second one, and in a forked child. Feature
    /// `in-memory`.
    #[cfg(feature = "in-memory")]
    #[cfg_attr(docsrs, doc(cfg(feature = "in-memory")))]
    pub fn another(&self) -> Option<Client> {
        let world = self.world()?;
        Some(Builder::like(&self.inner).of_world(world))
    }
}

impl Builder {
    /// Makes a client of the server at `url`; see [`Client::open`] for its forms.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting or the URL cannot be used, or needs a feature that is not built in.
    pub fn open(self, url: &str) -> Result<Client> {
        let schemes = ["mysql:", "mysqls:", "mariadb:"];
        if schemes.iter().any(|it| url.starts_with(it)) {
            self.validate()?;
            self.refuse_settings_but(&[])?;
            return self.open_database(url);
        }
        self.on_redis(REDIS, |settings| Redis::open(url, settings))
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
        self.on_redis(REDIS, |settings| Redis::replicas(&owned(urls), settings))
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
        self.on_redis("sentinel()", |settings| {
            Redis::sentinel(master_name, &owned(urls), settings)
        })
    }

    /// Makes a client of the Redis Cluster that the servers at `urls` belong to; one that answers is enough.
    ///
    /// Every request goes to the master of the slot of its name. Redirections, a slot on the move and a failover are followed
    /// within the time of the request. Renewals go to all masters at the same time, so a silent shard delays those of no
    /// other. All keys and the channel of a name are in one slot. Nodes that are not in `urls` get the user and the password
    /// of the first URL; [`map_address`](Builder::map_address) leads to those that announce an address which cannot be reached.
    /// All URLs name the same database. Another one than 0 needs Valkey 9 or later with `cluster-databases`; other servers
    /// refuse it at the first contact.
    ///
    /// With TLS the certificate of every node has to be for the host that the cluster announces. Where that is an IP address,
    /// it may be for the host of one of the URLs instead, or for `tls_server_name`.
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
        self.on_redis("cluster()", |settings| {
            Redis::cluster(&owned(urls), settings)
        })
    }

    /// Makes a client of the store that `open` opens, at a place with settings of its own.
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

    /// Fills in what each client has of its own, and returns its id.
    fn identify(&mut self) -> Arc<str> {
        let id = new_id();
        let name = self.connection_name.take();
        let name = name.unwrap_or_else(|| process_name::of_client(&id));
        self.settings.connection_name = name.into();
        let traffic = Traffic::told_to(self.count_settings.observer.clone());
        self.settings.traffic = Arc::new(traffic);
        id
    }

    /// Refuses settings that only another kind of place has a use for, rather than to leave them unused.
    fn refuse_settings_but(&self, places: &[&str]) -> Result<()> {
        let (set, here) = (
            &self.settings,
            "sentinel(); for other servers the URL names the database",
        );
        for (is_set, setting, of) in [
            (set.access.provider.is_some(), "credentials_with", REDIS),
            (set.replication.is_some(), "wait_replicas", REDIS),
            (set.credentials.is_some(), "credentials", here),
            (set.sentinel_access.is_some(), "sentinel_settings", here),
            (set.master_tls.is_some(), "master_tls", here),
            (set.database.is_some(), "database", here),
            (set.sharded.is_some(), "sharded_pubsub", "cluster()"),
            (
                set.mapper.is_some(),
                "map_address",
                "sentinel() and cluster()",
            ),
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

    /// Makes a client of a server in this process; see [`Client::in_memory`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting cannot be used.
    #[cfg(feature = "in-memory")]
    #[cfg_attr(docsrs, doc(cfg(feature = "in-memory")))]
    pub fn in_memory(self) -> Result<Client> {
        self.validate()?;
        self.refuse_settings_but(&[])?;
        self.settings.access.tls_config.check_is_unused()?;
        Ok(self.of_world(&Arc::default()))
    }

    /// The settings that `inner` was made with, as far as they do not concern a server.
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
            count_settings: inner.counters.settings().clone(),
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
        Client {
            inner: Arc::new(inner),
            backend,
        }
    }
}

fn owned(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    urls.into_iter()
        .map(|url| url.as_ref().to_owned())
        .collect()
}
