//! The settings of a client.

mod access;
mod open;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::client_inner::KeyPrefix;
use crate::engine::counters::{ClassOf, CountSettings};
use crate::engine::loss_notice::OnLost;
use crate::ground::clock::SHORTEST_LEASE;
use crate::ground::error::{Error, Result};
use crate::ground::loss::Loss;
use crate::ground::observer::{Observed, Observer};
use crate::ground::random;
use crate::store::LONGEST_LEASE;
use crate::stores::redis::{Mapper, Replication, Settings};

/// The settings of a client.
///
/// Timeouts are 1 ms ..= 1 day unless a method says otherwise. A setting out of its range is [`Error::InvalidConfig`]
/// when the client is created.
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
    /// The connection name and the traffic counters in these settings are set when a client is created.
    settings: Settings,
    outage_timeout: Duration,
    key_prefix: KeyPrefix,
    #[cfg(feature = "mysql")]
    lock_table: String,
    connection_name: Option<String>,
    on_lost: Option<OnLost>,
    pub(crate) count_settings: CountSettings,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            settings: Settings::default(),
            outage_timeout: Duration::from_secs(30),
            key_prefix: KeyPrefix::default(),
            #[cfg(feature = "mysql")]
            lock_table: "redlatch".to_owned(),
            connection_name: None,
            on_lost: None,
            count_settings: CountSettings::default(),
        }
    }
}

/// Defines setters that set one value each.
macro_rules! setters {
    ($builder:ident: $($(#[$meta:meta])* $name:ident($value:ident: $type:ty) => $($field:ident).+ = $set:expr;)*) => {
        impl $builder {
            $($(#[$meta])*
            pub fn $name(mut self, $value: $type) -> $builder {
                self.$($field).+ = $set;
                self
            })*
        }
    };
}
pub(crate) use setters;

setters! {
    Builder:
    /// Sets the lease of locks that have no fixed lease. Each is renewed when a third of the lease has passed.
    ///
    /// A lock stays taken for this time after its holder died. A renewal must be answered within a quarter of the lease, so
    /// the lease should be at least ten round trips to the server, twenty with TLS, fifty behind sentinels or in a cluster.
    /// 10 ms ..= 365 days. Defaults to 30 s, as in Redisson.
    watchdog_timeout(timeout: Duration) => settings.lease = timeout;

    /// Sets the time limit of one request, including connecting and authenticating.
    ///
    /// 1 ms ..= 1 day. Defaults to 2 s.
    command_timeout(timeout: Duration) => settings.command_timeout = timeout;

    /// Sets the time limit of connecting and authenticating, within the time of the request that needs the connection.
    ///
    /// 1 ms ..= 1 day. Defaults to 1 s.
    connect_timeout(timeout: Duration) => settings.connect_timeout = timeout;

    /// Sets how long a wait without a deadline continues while the server sends no usable reply.
    ///
    /// 1 ms ..= 1 day. Defaults to 30 s.
    outage_timeout(timeout: Duration) => outage_timeout = timeout;

    /// Sets the largest number of simultaneous requests; further requests queue.
    ///
    /// Connections are opened when they are needed. A thread that waits for a lock uses none. In a database, row
    /// locks and transactions have a second pool of the same size; each uses a connection until it ends, a row lock
    /// also while it waits. 1 ..= 5000. Defaults to 32.
    pool_size(connections: u32) => settings.pool_size = connections;

    /// Sets how long a connection may be without a request. After this time it is closed within 30 s.
    ///
    /// 1 ms ..= 1 day. Defaults to 5 minutes.
    idle_timeout(timeout: Duration) => settings.pool_settings.idle_timeout = timeout;

    /// Sets the age at which a connection that is not in use is closed, within 30 s.
    ///
    /// Use this setting for servers whose address or certificate changes. 1 ms ..= 1 day. Defaults to no limit.
    max_lifetime(lifetime: Duration) => settings.pool_settings.max_lifetime = Some(lifetime);

    /// Sets how long a connection may be without a request before it is checked ahead of the next request.
    ///
    /// A load balancer or firewall may drop an idle connection silently, so this should be shorter than its timeout.
    /// The check takes a round trip, and at most a quarter of the time of the request; a connection that fails it is
    /// replaced. 1 ms ..= 1 day. Defaults to 30 s.
    check_idle_after(idle: Duration) => settings.check_idle_after = idle;

    /// Sets the database number on the master that the sentinels name.
    ///
    /// Without sentinels this setting is refused: the URL has the number. Defaults to 0.
    database(number: u32) => settings.database = Some(i64::from(number));

    /// Sets whether unlock messages in a cluster are sharded (`SPUBLISH`, `SSUBSCRIBE`).
    ///
    /// All clients of a cluster need the same setting. Otherwise they still exclude each other, but waiters with
    /// another setting notice an unlock only within about a second. Defaults to the default of Redisson: sharded if
    /// the server answers `PUBSUB SHARDNUMSUB`, on Redis 7 and later.
    sharded_pubsub(sharded: bool) => settings.sharded = Some(sharded);

    /// Sets how long Redisson keeps a waiter of a [`fair_lock`](crate::Client::fair_lock) in the queue, as its
    /// `fairLockWaitTimeout`.
    ///
    /// Waiters of this library renew their queue entry every few seconds. Redisson removes a first waiter whose time is
    /// over; a waiter of this library then returns to the front. 10 s ..= 1 day. Defaults to 5 minutes, as in Redisson.
    fair_lock_wait_timeout(timeout: Duration) => settings.patience = timeout;

    /// Sets the name of the lock table in a database; the table of the named rows has the suffix `_rows`.
    ///
    /// A letter or `_`, then letters, digits, `_` and `$`. Defaults to `redlatch`.
    #[cfg(feature = "mysql")]
    lock_table(table: impl Into<String>) => lock_table = table.into();

    /// Sets the name of the connections in `CLIENT LIST` of a Redis server.
    ///
    /// With the default name, [`Client::locks`](crate::Client::locks) and [`Lock::describe`](crate::Lock::describe)
    /// return which process holds a lock. Set another name, such as `redlatch`, to hide the process and the host. 1
    /// ..= 256 visible ASCII characters. Does not apply to a database. Defaults to `redlatch:UUID:PID@HOST`, where
    /// UUID is the [`id`](crate::Client::id) of the client.
    connection_name(name: impl Into<String>) => connection_name = Some(name.into());

    /// Sets the hook that is called when a hold of this client is lost.
    ///
    /// The hook runs on a separate thread that holds no internal lock of this library. A panic in it is caught, and a slow
    /// call delays only the next one. It is not called after [`Client::shutdown`](crate::Client::shutdown). Defaults to
    /// none.
    on_lost(hook: impl Fn(&Loss) + Send + Sync + 'static) => on_lost = Some(Arc::new(hook));

    /// Sets the function that maps the name of a lock to its class, the label of metrics (feature `metrics`) and of
    /// events for an [`Observer`].
    ///
    /// The function is called once for each [`Lock`](crate::Lock) value. It gets the name without the key prefix, and
    /// returns a part of the name. The first 64 classes of a client count; further classes, and classes longer than 64
    /// bytes, count as `other`. Defaults to the name up to the last of `:`, `/`, `{` and `}`, ignoring braces at its start
    /// and end: `lock:orders` for `lock:orders:42`.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlatch::Client;
    ///
    /// // "eu.orders.42" counts as "eu.orders".
    /// let client = Client::builder()
    ///     .lock_class(|name| name.rsplit_once('.').map_or(name, |(class, _)| class))
    ///     .in_memory()?;
    /// client.lock("eu.orders.42").run(|_| ())?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    lock_class(class_of: impl for<'a> Fn(&'a str) -> &'a str + Send + Sync + 'static) => count_settings.class_of = Some(ClassOf(Arc::new(class_of)));

    /// Sets the observer of the locks of this client; see [`Observer`].
    ///
    /// A client has at most one observer. Defaults to none.
    observer(observer: impl Observer) => count_settings.observer = Observed::by(Arc::new(observer));
}

impl Builder {
    /// Sets after which time a wait and a hold are reported as long.
    ///
    /// They are reported to the [`Observer`] and as a warning of `tracing` (with that feature), and again each time that
    /// their duration has doubled. A wait is reported, with the last holder, when the waiter queries the lock, which it does
    /// every 1 to 3 s. A hold is reported at a renewal. Holds with a fixed lease are not reported. At least 1 ms;
    /// [`Duration::MAX`] disables a report. Defaults to 30 s and 10 min.
    pub fn warn_after(mut self, wait: Duration, hold: Duration) -> Builder {
        (self.count_settings.long_wait, self.count_settings.long_hold) = (wait, hold);
        self
    }

    /// Sets a prefix that is added to every name, even if the name already begins with it.
    ///
    /// Defaults to none.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Builder {
        let (text, is_once) = (prefix.into(), false);
        self.key_prefix = KeyPrefix { text, is_once };
        self
    }

    /// Sets a prefix that is added to every name that does not begin with it, as by the `PrefixNameMapper` of Redisson 4.8.
    ///
    /// Defaults to none.
    pub fn key_prefix_once(mut self, prefix: impl Into<String>) -> Builder {
        let (text, is_once) = (prefix.into(), true);
        self.key_prefix = KeyPrefix { text, is_once };
        self
    }

    /// Sets the function that maps an announced host and port to the host and port to connect to, for servers behind NAT or
    /// forwarded ports.
    ///
    /// The function applies to the addresses that sentinels and cluster nodes announce, and not to URLs. With TLS the
    /// certificate has to be valid for the returned host. If another server answers at the returned address, or the function
    /// blocks, calls that need the address return [`Error::Unreachable`]. If the function panics, or returns an empty host
    /// or port 0, they return [`Error::InvalidConfig`]. The function runs on a separate thread. Only for
    /// [`sentinel`](Builder::sentinel) and [`cluster`](Builder::cluster). Defaults to none.
    pub fn map_address(
        mut self,
        map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Builder {
        self.settings.mapper = Some(Mapper::new(map));
        self
    }

    /// Sets how many replicas must acknowledge a hold, and how long `WAIT` waits for them.
    ///
    /// Redis replicates asynchronously: if a master fails before a lock is replicated, the next master grants the
    /// lock again. With this setting
    ///
    /// - an acquisition without enough acknowledgements is released and is [`Error::NotReplicated`]; waiting calls
    ///   try again until their deadline;
    /// - a re-entry is undone, with the same error;
    /// - an inner `unlock` is not undone, and is [`Error::Unknown`], because a failover may bring the level back on
    ///   the server;
    /// - a renewal does not extend the validity: it is tried again, and the hold is lost when the last acknowledged
    ///   lease ends.
    ///
    /// With all replicas acknowledged, a lock is **very unlikely to be lost** in a failover. It is never safe: a
    /// replica may acknowledge and restart empty, and two servers may act as master for a while. Use fencing tokens
    /// for work that must never be done twice.
    ///
    /// Every acquisition takes an additional round trip to the replicas. `timeout` is at least 1 ms and shorter than
    /// [`command_timeout`](Builder::command_timeout); 0 replicas switch the setting off. A server without `WAIT` is
    /// [`Error::Unsupported`]. Defaults to off.
    pub fn wait_replicas(mut self, replicas: u32, timeout: Duration) -> Builder {
        let replication = Replication { replicas, timeout };
        self.settings.replication = (replicas > 0).then_some(replication);
        self
    }

    fn validate(&self) -> Result<()> {
        let settings = &self.settings;
        check_lease("watchdog_timeout", settings.lease)?;
        check_timeout("command_timeout", settings.command_timeout)?;
        check_timeout("connect_timeout", settings.connect_timeout)?;
        check_timeout("outage_timeout", self.outage_timeout)?;
        check_timeout("idle_timeout", settings.pool_settings.idle_timeout)?;
        let lifetime = settings.pool_settings.max_lifetime;
        check_timeout("max_lifetime", lifetime.unwrap_or(LEAST_TIMEOUT))?;
        check_timeout("check_idle_after", settings.check_idle_after)?;
        check_warnings(&self.count_settings)?;
        let (setting, range) = ("fair_lock_wait_timeout", LEAST_PATIENCE..=MOST_TIMEOUT);
        check_within(setting, settings.patience, range, "10 s ..= 1 day")?;
        if let Some(Replication { timeout, .. }) = settings.replication
            && !(LEAST_TIMEOUT..settings.command_timeout).contains(&timeout)
        {
            let most = settings.command_timeout;
            let reason = format!("{timeout:?} is outside 1 ms .. {most:?} (command_timeout)");
            return Err(Error::config("wait_replicas", reason));
        }
        if let Some(name) = &self.connection_name
            && !((1..=LONGEST_CONNECTION_NAME).contains(&name.len())
                && name.bytes().all(|sign| sign.is_ascii_graphic()))
        {
            let reason = "it has to be 1 to 256 visible ASCII characters without a space";
            return Err(Error::config("connection_name", reason));
        }
        let words = format!("1 ..= {MOST_CONNECTIONS}");
        let range = 1..=MOST_CONNECTIONS;
        check_within("pool_size", settings.pool_size, range, &words)
    }
}

/// Refuses a setting outside `range`, which `words` describe.
pub(crate) fn check_within<T: PartialOrd + fmt::Debug>(
    setting: &'static str,
    value: T,
    range: RangeInclusive<T>,
    words: &str,
) -> Result<()> {
    let outside = || Error::config(setting, format!("{value:?} is outside {words}"));
    range.contains(&value).then_some(()).ok_or_else(outside)
}

pub(crate) fn check_lease(setting: &'static str, lease: Duration) -> Result<()> {
    let range = SHORTEST_LEASE..=LONGEST_LEASE;
    check_within(setting, lease, range, "10 ms ..= 365 days")
}

pub(crate) fn check_warnings(settings: &CountSettings) -> Result<()> {
    let shorter = settings.long_wait.min(settings.long_hold);
    let range = LEAST_TIMEOUT..=Duration::MAX;
    check_within("warn_after", shorter, range, "1 ms ..= Duration::MAX")
}

pub(crate) fn check_timeout(setting: &'static str, timeout: Duration) -> Result<()> {
    let range = LEAST_TIMEOUT..=MOST_TIMEOUT;
    check_within(setting, timeout, range, "1 ms ..= 1 day")
}

pub(crate) const LEAST_TIMEOUT: Duration = Duration::from_millis(1);
/// A waiter renews its queue entry every 3 s. When other waiters leave, the entry stays for at least half of this time (5
/// s), so 2 s are left for a late renewal.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);
const MOST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Half of the default `maxclients` of a Redis server.
const MOST_CONNECTIONS: u32 = 5000;

const LONGEST_CONNECTION_NAME: usize = 256;

pub(crate) fn new_id() -> Arc<str> {
    random::uuid().hyphenated().to_string().into()
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}
