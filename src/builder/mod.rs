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
use crate::ground::{process, random};
use crate::store::LONGEST_LEASE;
use crate::stores::redis::{Mapper, Replication, Settings};

/// The settings of a client.
///
/// Timeouts are 1 ms ..= 1 day unless a method says otherwise. If a setting is out of its range, the method that creates the
/// client returns [`Error::InvalidConfig`].
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
    /// Sets the lease of locks that have no fixed lease. The client renews a hold when a third of the lease has passed.
    ///
    /// If the holder of a lock dies, the lock stays held until the lease ends. The server must reply to a renewal
    /// within a quarter of the lease and within one `command_timeout`. A renewal may need a new connection, which takes
    /// several round trips. So the lease should be at least fifty round-trip times.
    ///
    /// Allowed: 10 ms ..= 365 days. Defaults to 30 s, as in Redisson.
    watchdog_timeout(timeout: Duration) => settings.lease = timeout;

    /// Sets the time limit of one request, including connecting and authenticating. Defaults to 2 s.
    command_timeout(timeout: Duration) => settings.command_timeout = timeout;

    /// Sets the time limit of connecting and authenticating. This time counts toward the
    /// [`command_timeout`](Builder::command_timeout) of the request that needs the connection. Defaults to 1 s.
    connect_timeout(timeout: Duration) => settings.connect_timeout = timeout;

    /// Sets how long a wait without a deadline continues without a usable reply. A usable reply grants or refuses the
    /// lock. Defaults to 30 s.
    outage_timeout(timeout: Duration) => outage_timeout = timeout;

    /// Sets the largest number of simultaneous requests to one server. Further requests queue.
    ///
    /// Connections are opened when they are needed. A thread that waits for a lock uses no connection. In a database, row
    /// locks and transactions share a second pool of the same size. A row lock occupies a connection while a thread
    /// waits for it or holds it. A transaction occupies a connection until it ends.
    ///
    /// Allowed: 1 ..= 5000. Defaults to 32.
    pool_size(connections: u32) => settings.pool_size = connections;

    /// Sets the idle time after which the client closes a connection, at most 30 s late. Defaults to 5 minutes.
    idle_timeout(timeout: Duration) => settings.pool_settings.idle_timeout = timeout;

    /// Sets the age at which the client closes an idle connection, at most 30 s late. Use this setting for servers whose
    /// address or certificate changes. Defaults to no limit.
    max_lifetime(lifetime: Duration) => settings.pool_settings.max_lifetime = Some(lifetime);

    /// Sets the idle time after which a connection is checked before its next request.
    ///
    /// A load balancer or firewall may silently drop a connection after an idle time. This setting should be shorter than
    /// that time. The check takes one round trip, and at most a quarter of the time limit of the request. A connection that
    /// fails the check is replaced. Allowed: 1 ms ..= 1 day. Defaults to 30 s.
    check_idle_after(idle: Duration) => settings.check_idle_after = idle;

    /// Sets the database number on the master that the sentinels name.
    ///
    /// Only [`sentinel`](Builder::sentinel) accepts this setting. For other servers the URL contains the number.
    /// Defaults to 0.
    database(number: u32) => settings.database = Some(i64::from(number));

    /// Sets whether unlock messages in a cluster are sharded (`SPUBLISH`, `SSUBSCRIBE`).
    ///
    /// All clients of a cluster should have the same setting. Clients with different settings exclude each other, but
    /// their waiters notice each other's unlocks up to about a second late. Defaults to true if the server supports
    /// `PUBSUB SHARDNUMSUB` (Redis 7 and later), as in Redisson. Only [`cluster`](Builder::cluster) accepts this
    /// setting.
    sharded_pubsub(sharded: bool) => settings.sharded = Some(sharded);

    /// Sets how long Redisson keeps a waiter of a [`fair_lock`](crate::Client::fair_lock) in the queue, like Redisson's
    /// `fairLockWaitTimeout`.
    ///
    /// Waiters of this library renew their queue entry every few seconds. Redisson removes the first waiter if its entry was
    /// not renewed for this time. If the removed waiter uses this library, it rejoins the queue at the front. Allowed: 10 s
    /// to 1 day. Defaults to 5 minutes, as in Redisson.
    fair_lock_wait_timeout(timeout: Duration) => settings.patience = timeout;

    /// Sets the name of the lock table in a database. The table for `RowTarget::named` has this name, followed by `_rows`.
    ///
    /// The name is an ASCII letter or `_`, followed by at most 58 ASCII letters, digits, `_` and `$`. Defaults to
    /// `redlatch`.
    #[cfg(feature = "mysql")]
    lock_table(table: impl Into<String>) => lock_table = table.into();

    /// Sets the name of the client's connections in `CLIENT LIST` of a Redis server.
    ///
    /// With the default name, [`Client::locks`](crate::Client::locks) and [`Lock::describe`](crate::Lock::describe) return
    /// which process holds a lock. Set another name, such as `redlatch`, to hide the process and the host. A name has 1 to
    /// 256 visible ASCII characters. This setting does not apply to a database. Defaults to `redlatch:UUID:PID@HOST`, where
    /// UUID is the [`id`](crate::Client::id) of the client.
    connection_name(name: impl Into<String>) => connection_name = Some(name.into());

    /// Sets the hook that is called when a hold of this client is lost.
    ///
    /// The hook runs on a separate thread that holds no internal lock of this library. A panic in the hook is caught. A slow
    /// call of the hook delays only later calls. The hook is not called after
    /// [`Client::shutdown`](crate::Client::shutdown). Defaults to none.
    on_lost(hook: impl Fn(&Loss) + Send + Sync + 'static) => on_lost = Some(Arc::new(hook));

    /// Sets the function that maps the name of a lock to its class. Classes label metrics (feature `metrics`) and the events
    /// for an [`Observer`].
    ///
    /// The client calls the function whenever it creates a lock. The argument is the name without the key prefix, and
    /// the result is a part of the name or a static text. A client has at most 64 classes. Further classes, and classes
    /// longer than 64 bytes, count as `other`. Defaults to the name up to the last `:`, `/`, `{` or `}`, such as
    /// `lock:orders` for `lock:orders:42`. A leading `{`, trailing `}` and separators at the end are ignored.
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

    /// Sets the [`Observer`] that receives the events of this client's locks.
    ///
    /// A client has at most one observer. Defaults to none.
    observer(observer: impl Observer) => count_settings.observer = Observed::by(Arc::new(observer));
}

impl Builder {
    /// Sets the durations from which a wait and a hold are reported as long.
    ///
    /// The reports go to the [`Observer`]. With the feature `tracing`, they are also logged as warnings. A report is
    /// repeated each time that the duration has doubled. A long wait is reported up to about 3 s late, with the id of the
    /// present hold if the waiter knows the id. A long hold is reported at a renewal, so most holds with a fixed lease
    /// are not reported. Both durations are at least 1 ms; [`Duration::MAX`] disables a report. Defaults to 30 s for
    /// waits and 10 min for holds.
    pub fn warn_after(mut self, wait: Duration, hold: Duration) -> Builder {
        (self.count_settings.long_wait, self.count_settings.long_hold) = (wait, hold);
        self
    }

    /// Sets a prefix that the client adds to each name of a lock, semaphore or latch, even if the name begins with it.
    ///
    /// Defaults to none.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Builder {
        let (text, is_once) = (prefix.into(), false);
        self.key_prefix = KeyPrefix { text, is_once };
        self
    }

    /// Sets a prefix like [`key_prefix`](Builder::key_prefix), but leaves a name that begins with the prefix
    /// unchanged. The `PrefixNameMapper` of Redisson 4.8 should do the same (not tested).
    ///
    /// Defaults to none.
    pub fn key_prefix_once(mut self, prefix: impl Into<String>) -> Builder {
        let (text, is_once) = (prefix.into(), true);
        self.key_prefix = KeyPrefix { text, is_once };
        self
    }

    /// Sets a function that replaces an announced host and port by the host and port to which the client connects. Use this
    /// setting for servers behind NAT or forwarded ports.
    ///
    /// The function applies to the addresses that sentinels and cluster nodes announce, and not to URLs. With TLS, the
    /// certificate must be valid for the returned host. If a different server than the announced one answers at the
    /// returned address, calls return [`Error::Unreachable`]. If the function blocks and has not mapped the address
    /// before, calls return the same error. If the function panics or returns an empty host or port 0, calls return
    /// [`Error::InvalidConfig`]. The function runs on a separate thread. Only [`sentinel`](Builder::sentinel) and
    /// [`cluster`](Builder::cluster) accept this setting. Defaults to none.
    pub fn map_address(
        mut self,
        map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Builder {
        self.settings.mapper = Some(Mapper::new(map));
        self
    }

    /// Sets how many replicas must acknowledge a hold, and how long `WAIT` waits for them.
    ///
    /// Redis replicates asynchronously. If a master fails before a lock is replicated, the next master may grant the lock
    /// again. With this setting, too few acknowledgements have these effects:
    ///
    /// - The client releases the new hold or the new level of a re-entry, and the call returns
    ///   [`Error::NotReplicated`]. A waiting call returns this error only at the end of the wait.
    /// - An `unlock` of an inner level returns [`Error::Unknown`], because a failover may bring the level back.
    /// - A renewal does not extend the validity and is tried again. The hold is lost when the last acknowledged lease ends.
    ///
    /// If all replicas have to acknowledge, a failover is **very unlikely to lose a lock**. A loss is possible: a
    /// replica may acknowledge and restart empty, or two servers may act as master for a while. Use fencing tokens for
    /// work that must never be done twice.
    ///
    /// Every acquisition takes an additional round trip to the replicas. `timeout` is at least 1 ms and shorter than
    /// [`command_timeout`](Builder::command_timeout). 0 replicas switch the setting off. A server without `WAIT` causes
    /// [`Error::Unsupported`]. Defaults to off.
    pub fn wait_replicas(mut self, replicas: u32, timeout: Duration) -> Builder {
        let replication = Replication { replicas, timeout };
        self.settings.replication = (replicas > 0).then_some(replication);
        self
    }

    fn validate(&self) -> Result<()> {
        if process::is_forked() {
            let reason = "it was forked from a process that had a client: fork before the first client, or run another \
                program in the child";
            return Err(Error::config("this process", reason));
        }
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
/// A waiter of a fair lock renews its queue entry every 1 to 3 s. An entry must also survive a late renewal.
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
