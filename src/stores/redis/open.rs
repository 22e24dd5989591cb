//! The settings of a store on Redis, and its constructors.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::error::{Error, Result};
use crate::ground::metrics;
use crate::ground::notify::Notifier;
use crate::ground::sync::Mutex;
use crate::store::{ConnectionCounter, Facts};
use crate::stores::connection_pool::PoolSettings;
use crate::stores::redis::Redis;
#[cfg(feature = "in-memory")]
use crate::stores::redis::in_memory::World;
use crate::stores::redis::kinds::Layout;
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::{Cluster, Replicas, Sentinels, Single, Topology};
use crate::stores::redis::transport::{
    Address, Connector, Credentials, CredentialsProvider, Mapper, TlsConfig, asks_for_tls,
};
use crate::stores::redis::wait_replicas::Replication;

#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) connection_name: Arc<str>,
    pub(crate) traffic: Arc<ConnectionCounter>,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) pool_size: u32,
    pub(crate) pool_settings: PoolSettings,
    pub(crate) check_idle_after: Duration,
    pub(crate) access: Access,
    /// The access to the sentinels, if it differs from `access`.
    pub(crate) sentinel_access: Option<Access>,
    /// Whether the master behind sentinels uses TLS. With `None`, the master uses TLS if the sentinels do.
    pub(crate) master_tls: Option<bool>,
    /// The lease of locks that the watchdog renews.
    pub(crate) lease: Duration,
    /// The credentials for the master behind sentinels.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: Option<i64>,
    /// A function of the application that maps the addresses which servers announce.
    pub(crate) mapper: Option<Mapper>,
    /// Whether unlock messages in a Cluster are sharded. `None` to detect this.
    pub(crate) sharded: Option<bool>,
    pub(crate) replication: Option<Replication>,
    /// Each waiter in the queue of a fair lock counts as alive for this much longer than the waiter before it.
    pub(crate) patience: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connection_name: "redlatch".into(),
            traffic: Arc::default(),
            command_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            pool_size: 32,
            pool_settings: PoolSettings::default(),
            check_idle_after: Duration::from_secs(30),
            access: Access::default(),
            sentinel_access: None,
            master_tls: None,
            lease: Duration::from_secs(30),
            credentials: None,
            database: None,
            mapper: None,
            sharded: None,
            replication: None,
            patience: Duration::from_secs(300),
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) tls_config: TlsConfig,
    pub(crate) provider: Option<Arc<CredentialsProvider>>,
}

impl Redis {
    #[cfg(feature = "in-memory")]
    pub(crate) fn in_memory(world: &Arc<World>, settings: &Settings) -> Redis {
        let address = Address::in_memory(world, settings.connect_timeout);
        let address = address.for_client(&settings.connection_name, &settings.traffic);
        let mut redis = Redis::on(Arc::new(Single::new(address)), 0, settings);
        redis.facts.area = format!("world {:p}", Arc::as_ptr(world));
        redis.facts.timeline = world.timeline.clone();
        redis.world = Some(Arc::clone(world));
        redis
    }

    pub(crate) fn open(url: &str, settings: &Settings) -> Result<Redis> {
        let address = address(url, settings, &settings.access)?;
        let database = address.database();
        let connector = Single::new(address);
        Ok(Redis::on(Arc::new(connector), database, settings))
    }

    pub(crate) fn replicas(urls: &[String], settings: &Settings) -> Result<Redis> {
        let setting = "the addresses of a master and its replicas";
        let (_, addresses) = addresses(urls, setting, settings, &settings.access)?;
        let database = only_database(&addresses, setting)?;
        let connector = Replicas::new(addresses);
        Ok(Redis::on(Arc::new(connector), database, settings))
    }

    pub(crate) fn sentinel(name: &str, urls: &[String], settings: &Settings) -> Result<Redis> {
        let invalid = |setting, reason: &str| Err(Error::config(setting, reason));
        if name.is_empty() {
            return invalid("the name of the master", "it is empty");
        }
        let setting = "the addresses of the sentinels";
        let tls = &settings.access.tls_config;
        // If only the master uses TLS, the TLS settings apply to the master only. The sentinels get no TLS settings.
        let is_shared = settings.master_tls != Some(true) || urls.iter().any(|it| asks_for_tls(it));
        let shared = is_shared.then(|| tls.clone());
        let shared = Access {
            tls_config: shared.unwrap_or_default(),
            provider: None,
        };
        let access = settings.sentinel_access.as_ref().unwrap_or(&shared);
        let (first, sentinels) = addresses(urls, setting, settings, access)?;
        if sentinels.iter().any(|it| it.database() != 0) {
            return invalid(setting, "a sentinel has no databases; use database()");
        }
        let database = settings.database.unwrap_or_default();
        let mut master = first
            .clone()
            .for_master(settings.credentials.as_ref(), database)
            .with_provider(settings.access.provider.as_ref())?;
        if settings.sentinel_access.is_some() || settings.master_tls.is_some() {
            let is_encrypted = settings.master_tls.unwrap_or(first.is_encrypted());
            master = master.with_tls_of(is_encrypted.then_some(tls), &sentinels)?;
            let is_used =
                is_encrypted || first.is_encrypted() && settings.sentinel_access.is_none();
            if !is_used {
                tls.check_is_unused()?;
            }
        }
        let connector = Sentinels::new(name, sentinels, master, settings);
        Ok(Redis::on(Arc::new(connector), database, settings))
    }

    pub(super) fn on(connector: Arc<dyn Connector>, database: i64, settings: &Settings) -> Redis {
        let notifier = Arc::new(Notifier::default());
        let node = Node::new(connector, settings, &notifier, None);
        Redis::of(Topology::One(Arc::new(node)), database, &notifier, settings)
    }

    fn of(
        topology: Topology,
        database: i64,
        notifier: &Arc<Notifier>,
        settings: &Settings,
    ) -> Redis {
        let facts = Facts {
            is_polled: |kind| Layout::of(kind).wakes.is_none(),
            // If too few replicas acknowledge a request, an acquisition can be undone, but a hand-off cannot.
            hands_off: settings.replication.is_none(),
            ..Facts::of(database.to_string(), notifier)
        };
        let takeover_hook = Arc::clone(&facts.takeover_hook);
        let announce = move || {
            metrics::master_changed();
            if let Some(hook) = takeover_hook.get() {
                hook();
            }
        };
        topology.on_takeover(Box::new(announce));
        Redis {
            topology,
            facts,
            traffic: Arc::clone(&settings.traffic),
            replication: settings.replication,
            fences: Mutex::default(),
            patience: settings.patience,
            #[cfg(feature = "in-memory")]
            world: None,
        }
    }

    pub(crate) fn cluster(urls: &[String], settings: &Settings) -> Result<Redis> {
        let setting = "the addresses of the cluster";
        let (template, seeds) = addresses(urls, setting, settings, &settings.access)?;
        let database = only_database(&seeds, setting)?;
        let notifier = Arc::new(Notifier::default());
        let seeds = seeds.into_iter().map(Address::for_cluster_node).collect();
        let cluster = Cluster::new(template.for_cluster_node(), seeds, settings, &notifier);
        let topology = Topology::Cluster(cluster);
        Ok(Redis::of(topology, database, &notifier, settings))
    }
}

fn only_database(addresses: &[Address], setting: &'static str) -> Result<i64> {
    let first = addresses.first().map_or(0, Address::database);
    if addresses.iter().any(|it| it.database() != first) {
        let reason = "they name several databases; locks are in one";
        return Err(Error::config(setting, reason));
    }
    Ok(first)
}

fn address(url: &str, settings: &Settings, access: &Access) -> Result<Address> {
    Address::parse(url, settings.connect_timeout, &access.tls_config)?
        .for_client(&settings.connection_name, &settings.traffic)
        .with_provider(access.provider.as_ref())
}

/// Returns the first address, and all distinct addresses.
fn addresses(
    urls: &[String],
    setting: &'static str,
    settings: &Settings,
    access: &Access,
) -> Result<(Address, Vec<Address>)> {
    let mut addresses: Vec<Address> = Vec::with_capacity(urls.len());
    for url in urls {
        let mut address = address(url, settings, access)?;
        if !addresses.iter().any(|it| it.node == address.node) {
            address.mapper = settings.mapper.clone();
            addresses.push(address);
        }
    }
    let invalid = |reason: &str| Err(Error::config(setting, reason));
    let Some(first) = addresses.first().cloned() else {
        return invalid("there is none");
    };
    let is_other = |it: &Address| it.is_encrypted() != first.is_encrypted();
    if addresses.iter().any(is_other) {
        return invalid(
            "some use TLS and some do not, which would send the password as plain text; use rediss:// for all or \
                for none",
        );
    }
    Ok((first, addresses))
}

#[cfg(test)]
mod tests;
