use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::activity::Activity;
use crate::builder::{
    LEAST_TIMEOUT, check_lease, check_timeout, check_warnings, check_within, new_id, setters,
};
use crate::client::Client;
use crate::engine::client_inner::{ClientInner, Timeouts};
use crate::engine::counters::{ClassOf, CountSettings};
use crate::engine::loss_notice::OnLost;
use crate::ground::claim::Kind;
use crate::ground::clock::SHORTEST_LEASE;
use crate::ground::error::{Error, Result};
use crate::ground::loss::Loss;
use crate::ground::observer::{Observed, Observer};
use crate::ground::{events, time};
use crate::lock::Lock;
use crate::stores::quorum::{MOST_NODES, Quorum, Settings};

/// Locks on several independent Redis masters. A lock is held while a majority of the masters grants it.
///
/// A lock on a single server is lost if the server fails. After a failover the lock may be granted twice, because
/// replication is asynchronous. Redlock sends each attempt to `n` independent masters. The attempt acquires the lock if
/// at least `n/2 + 1` masters grant the lock in time. So the lock survives the failure of a minority. The algorithm is
/// that of the [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/),
/// including clock drift, delayed restarts, and renewal at a majority.
///
/// [`Redlock::lock`] returns a [`Lock`] with the methods of every other lock.
///
/// # What is promised
///
/// Two holds of one name are never valid at the same time, provided that
///
/// * no node loses a granted key, except in a restart after which it has no *vote* (its grants do not count),
/// * during a lease, no node's clock gains more than 1 % of the lease plus 2 ms (the drift), and
/// * no program calls [`Lock::force_unlock`].
///
/// A node that loses a granted key by eviction, `FLUSHALL` or `DEL` keeps its vote. One such node may break the
/// promise, because two majorities may have only this node in common.
///
/// The following nodes may have lost granted locks. So they have no vote for one
/// [`max_lease`](RedlockBuilder::max_lease):
///
/// * a server that restarted or was replaced after this `Redlock` first connected to it. It keeps its vote if it had
///   `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no` before and after the restart;
/// * a server that started less than one `max_lease` before this `Redlock` first connected to it;
/// * a server whose replication ids show that it may have been a replica;
/// * a server whose client was opened with sentinels or replicas, after the first connection and after each restart.
///
/// Use masters without replicas. Nodes of a cluster are refused. [`Redlock::check`] reports problems. All Redlocks of
/// the same nodes must have the same `max_lease`.
///
/// A Redlock is only a lease: a thread that pauses after a check of its hold does not notice that the hold ends during
/// the pause. A Redlock has **no fencing token**. A resource that must never see two holders needs another number to
/// reject late writes, such as the version of the written row.
///
/// # Examples
///
/// ```
/// use redlatch::{Client, Redlock};
///
/// // In production: Client::open("redis://one:6379")?, …, each another server.
/// let redlock = Redlock::new([Client::in_memory(), Client::in_memory(), Client::in_memory()])?;
/// let lock = redlock.lock("lock:orders:42");
/// let guard = lock.guard()?;
/// assert!(guard.is_valid());
/// guard.unlock()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Redlock {
    pub(crate) inner: Arc<ClientInner>,
    pub(crate) kind: Kind,
}

impl Redlock {
    /// Creates a `Redlock` with the default settings. Each client must belong to a different server.
    ///
    /// # Errors
    ///
    /// Those of [`RedlockBuilder::build`].
    pub fn new(nodes: impl IntoIterator<Item = Client>) -> Result<Redlock> {
        Redlock::builder().nodes(nodes).build()
    }

    /// Returns the default settings.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::default()
    }

    /// Returns the lock of this name, without I/O; see [`Client::lock`] for names.
    pub fn lock(&self, name: &str) -> Lock {
        Lock::named(&self.inner, self.kind, name)
    }

    /// Returns the oldest holds, the oldest waits and the connections of this `Redlock`, without I/O. The result is
    /// empty in a forked child.
    pub fn activity(&self) -> Activity {
        self.inner.activity()
    }

    /// Ends every wait with [`Error::Closed`], stops renewals, and joins the threads; see [`Client::shutdown`].
    ///
    /// The clients of the nodes remain open.
    pub fn shutdown(&self) {
        self.inner.shut_down();
    }
}

/// The settings of a [`Redlock`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use redlatch::{Client, Redlock};
///
/// let redlock = Redlock::builder()
///     .nodes((0..5).map(|_| Client::in_memory()))
///     .max_lease(Duration::from_secs(10))
///     .watchdog_timeout(Duration::from_secs(10))
///     .node_timeout(Duration::from_millis(30))
///     .build()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[must_use]
pub struct RedlockBuilder {
    nodes: Vec<Client>,
    kind: Kind,
    watchdog_timeout: Option<Duration>,
    outage_timeout: Duration,
    node_timeout: Option<Duration>,
    max_lease: Duration,
    max_extensions: Option<u32>,
    trusts_new_nodes: bool,
    on_lost: Option<OnLost>,
    pub(crate) count_settings: CountSettings,
}

impl Default for RedlockBuilder {
    fn default() -> RedlockBuilder {
        RedlockBuilder {
            nodes: Vec::new(),
            kind: Kind::Reentrant,
            watchdog_timeout: None,
            outage_timeout: Duration::from_secs(30),
            node_timeout: None,
            max_lease: Duration::from_secs(30),
            max_extensions: None,
            trusts_new_nodes: false,
            on_lost: None,
            count_settings: CountSettings::default(),
        }
    }
}

setters! {
    RedlockBuilder:
    /// Sets the lease of locks that have no fixed lease. Their holds are renewed when a third of the lease has passed.
    ///
    /// 10 ms ..= `max_lease`. Defaults to `max_lease`.
    watchdog_timeout(timeout: Duration) => watchdog_timeout = Some(timeout);

    /// Sets how long a wait without a deadline continues while no majority of the nodes sends a usable reply.
    ///
    /// 1 ms ..= 1 day. Defaults to 30 s.
    outage_timeout(timeout: Duration) => outage_timeout = timeout;

    /// Sets how long a request waits for the reply of one node. After this time the node counts as silent.
    ///
    /// The timeout should be well above a round trip. It should be small compared with the lease, because the wait for
    /// a silent node shortens the validity of a hold. The time to connect to a node does not count, because connections
    /// are opened in the background. 1 ms ..= 1 day. Defaults to 1/200 of the lease, at least 5 ms and at most 150 ms.
    node_timeout(timeout: Duration) => node_timeout = Some(timeout);

    /// Sets the longest lease that any client requests from these nodes. A node regains a lost vote after this time.
    ///
    /// A lock with a longer lease returns [`Error::InvalidLease`]. All clients of the same nodes must have the same value.
    /// 10 ms ..= 365 days. Defaults to 30 s.
    max_lease(lease: Duration) => max_lease = lease;

    /// Sets how many times the watchdog renews a hold.
    ///
    /// After the last renewal the hold ends with its lease. Without an unlock, the hold is then reported as lost.
    /// Defaults to no limit.
    max_extensions(extensions: u32) => max_extensions = Some(extensions);

    /// Sets the hook for lost holds of the `Redlock`; see [`Builder::on_lost`](crate::Builder::on_lost).
    ///
    /// Defaults to no hook.
    on_lost(hook: impl Fn(&Loss) + Send + Sync + 'static) => on_lost = Some(Arc::new(hook));

    /// Sets the class of a lock in metrics and events; see [`Builder::lock_class`](crate::Builder::lock_class).
    lock_class(class_of: impl for<'a> Fn(&'a str) -> &'a str + Send + Sync + 'static) => count_settings.class_of = Some(ClassOf(Arc::new(class_of)));

    /// Sets the observer of the locks of this `Redlock`; see [`Observer`].
    observer(observer: impl Observer) => count_settings.observer = Observed::by(Arc::new(observer));
}

impl RedlockBuilder {
    /// Sets when a wait or a hold is reported as long; see [`Builder::warn_after`](crate::Builder::warn_after).
    pub fn warn_after(mut self, wait: Duration, hold: Duration) -> RedlockBuilder {
        (self.count_settings.long_wait, self.count_settings.long_hold) = (wait, hold);
        self
    }

    /// Adds nodes: clients of different servers.
    ///
    /// The `Redlock` uses the connections of the clients. All clients must have the same key prefix, which the
    /// `Redlock` adds to the names of its locks. The `watchdog_timeout`, `outage_timeout` and `on_lost` of the clients
    /// do not apply to the `Redlock`. 1 ..= 64 nodes; 3 or 5 are usual. Defaults to none.
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = Client>) -> RedlockBuilder {
        self.nodes.extend(nodes);
        self
    }

    /// Gives each server its vote at the first connection, even if the server started less than one `max_lease` before,
    /// or may have replaced another server.
    ///
    /// Use this setting only for servers known to be new, as in tests and examples. A former replica still has no vote
    /// for one `max_lease`. Servers that restart or fail over later lose their vote as usual. Defaults to off.
    pub fn trust_new_nodes(mut self) -> RedlockBuilder {
        self.trusts_new_nodes = true;
        self
    }

    /// Stores locks as the Redis documentation does: a string key with a random token.
    ///
    /// Redlock libraries of other languages (redlock-py, pottery, redsync, …) use this format. Their locks and the
    /// locks of this `Redlock` exclude each other. Locks in this format are not reentrant, and waiters poll; see
    /// [`Client::token_lock`]. Defaults to Redisson's hash, which is reentrant.
    pub fn canonical(mut self) -> RedlockBuilder {
        self.kind = Kind::Token;
        self
    }

    /// Creates the `Redlock`.
    ///
    /// This call queries the identity of each node, so that no server counts twice. An unreachable node is queried
    /// later. If the number of nodes is even or less than three, the call logs a warning (feature `tracing`).
    /// [`Redlock::check`] returns this warning.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting is invalid, if there are no nodes or more than 64, if their clients have
    /// different key prefixes, if two nodes are the same server, or if a node is a database or belongs to a cluster.
    pub fn build(self) -> Result<Redlock> {
        let (setting, range) = ("the nodes of a Redlock", format!("1 ..= {MOST_NODES}"));
        check_within(setting, self.nodes.len(), 1..=MOST_NODES, &range)?;
        check_lease("max_lease", self.max_lease)?;
        let watchdog_timeout = self.watchdog_timeout.unwrap_or(self.max_lease);
        let range = format!("10 ms ..= {:?}, the max_lease", self.max_lease);
        let leases = SHORTEST_LEASE..=self.max_lease;
        check_within("watchdog_timeout", watchdog_timeout, leases, &range)?;
        check_timeout("outage_timeout", self.outage_timeout)?;
        check_warnings(&self.count_settings)?;
        check_timeout("node_timeout", self.node_timeout.unwrap_or(LEAST_TIMEOUT))?;
        let cores: Vec<&Arc<ClientInner>> = self.nodes.iter().map(|it| &it.inner).collect();
        let key_prefix = cores.first().map(|inner| inner.key_prefix.clone());
        let key_prefix = key_prefix.unwrap_or_default();
        if cores.iter().any(|inner| inner.key_prefix != key_prefix) {
            let reason = "their clients have different key prefixes";
            return Err(Error::config(setting, reason));
        }
        let command_timeouts = cores.iter().map(|inner| inner.timeouts.command_timeout);
        let timeouts = Timeouts {
            watchdog_timeout,
            // Each request is sent to all nodes, so the longest timeout of a node applies.
            command_timeout: command_timeouts.max().unwrap_or(LEAST_TIMEOUT),
            outage_timeout: self.outage_timeout,
        };
        let nodes = self.nodes.iter().map(|client| {
            // Keeps the node's client open, because a thread of the client receives the messages of the node.
            let keep: Arc<dyn Any + Send + Sync> = Arc::clone(&client.inner) as _;
            Ok((client.as_node()?, keep))
        });
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let settings = Settings {
            node_timeout: self.node_timeout,
            max_lease: self.max_lease,
            max_extensions: self.max_extensions,
            trusts_new_nodes: self.trusts_new_nodes,
            connect_timeout: timeouts.command_timeout,
        };
        let quorum = Quorum::new(nodes, settings, time::now() + timeouts.command_timeout)?;
        if let Some(warning) = quorum.flaws() {
            events::preflight(&warning);
        }
        let (store, counted) = (Arc::new(quorum), self.count_settings);
        let inner = ClientInner::new(new_id(), store, timeouts, key_prefix, self.on_lost, counted);
        let (inner, kind) = (Arc::new(inner), self.kind);
        Ok(Redlock { inner, kind })
    }
}

impl fmt::Debug for RedlockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockBuilder")
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
