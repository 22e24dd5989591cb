//! Redlock: the lock on several independent servers.

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
use crate::ground::events;
use crate::ground::loss::Loss;
use crate::ground::observer::{Observed, Observer};
use crate::ground::time;
use crate::lock::Lock;
use crate::stores::quorum::{MOST_NODES, Quorum, Settings};

/// Locks on several independent Redis masters, of which a majority decides.
///
/// A lock on one server ends with that server, and may be granted twice after a failover to a replica, because
/// replication is asynchronous. Redlock asks `n` masters that know nothing of each other, and has the lock when at
/// least `n/2 + 1` of them have granted it in good time, so the lock survives the end of a minority. It is the algorithm
/// of the [Redis documentation](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), with its
/// drift, its delayed restarts and its extension by a majority.
///
/// [`Redlock::lock`] returns the same [`Lock`] as a client does, with every method, guard, interrupt and report of a loss.
///
/// # What is promised
///
/// Two holds of one name are never valid at the same time, as long as
///
/// * no node loses a key that it granted, other than by a restart, after which it has no vote,
/// * no node's clock runs ahead or is set ahead by more than the drift, 1 % of the lease and 2 ms, and
/// * nobody calls [`Lock::force_unlock`].
///
/// One node that loses a granted key by eviction, `FLUSHALL` or `DEL`, and keeps its vote, is enough to break this,
/// because two majorities may have no more than one node in common.
///
/// These have no vote for one [`max_lease`](RedlockBuilder::max_lease), because they may lack what was granted there:
///
/// * a server that was started again or in place of another one since the node was seen, unless it was and is run with
///   `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no`;
/// * a server that was started less than one `max_lease` before it is first seen, whatever its settings;
/// * a server that has followed another one, by its replication id, from when that is seen;
/// * a server behind sentinels, or among replicas, from when it is first seen.
///
/// Masters that nothing replaces are the better nodes; a cluster is refused. [`Redlock::check`] reports what it sees of all
/// this. All clients of the same nodes have to use the same `max_lease`.
///
/// It remains a lease, as on one server: a thread that is paused after a check does not know that time has passed. There
/// is **no fencing token**: no way is known for a quorum to draw numbers that rise with every grant. A resource that must
/// never see two holders needs a number from elsewhere, such as the version of the row that is written.
///
/// # Examples
///
/// ```
/// use redlatch::{Client, Redlock};
///
/// // In production: Client::open("redis://one:6379")?, …, each a server of its own.
/// let redlock = Redlock::new([Client::in_memory(), Client::in_memory(), Client::in_memory()])?;
/// let lock = redlock.lock("lock:orders:42");
/// lock.lock()?;
/// assert!(lock.is_held_by_current_thread()?);
/// lock.unlock()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Redlock {
    inner: Arc<ClientInner>,
    kind: Kind,
}

impl Redlock {
    /// Makes a quorum of these clients, each of another server, with the default settings.
    ///
    /// # Errors
    ///
    /// Those of [`RedlockBuilder::build`].
    pub fn new(nodes: impl IntoIterator<Item = Client>) -> Result<Redlock> {
        Redlock::builder().nodes(nodes).build()
    }

    /// Returns the default settings, to be changed before the quorum is made.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::default()
    }

    /// Returns the lock of this name, without I/O; see [`Client::lock`] for names.
    pub fn lock(&self, name: &str) -> Lock {
        Lock::named(&self.inner, self.kind, name)
    }

    pub(crate) fn inner(&self) -> &Arc<ClientInner> {
        &self.inner
    }

    /// Whether its locks are tokens.
    pub(crate) fn is_canonical(&self) -> bool {
        self.kind == Kind::Token
    }

    /// Returns the oldest holds and waits of its threads and its connections, without I/O. None in a forked child.
    pub fn activity(&self) -> Activity {
        self.inner.activity()
    }

    /// Ends every wait with [`Error::Closed`], stops renewing, and joins the threads; see [`Client::shutdown`].
    ///
    /// The clients of the nodes go on.
    pub fn shutdown(&self) {
        self.inner.shut_down();
    }
}

/// The settings of a quorum, each with its default until it is set.
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
    /// Sets the lease time of locks without a fixed one; they are extended at a third of it.
    ///
    /// 10 ms ..= `max_lease`. Defaults to `max_lease`.
    watchdog_timeout(timeout: Duration) => watchdog_timeout = Some(timeout);

    /// Sets how long a wait without a deadline goes on while no majority of the nodes answers.
    ///
    /// 1 ms ..= 1 day. Defaults to 30 s.
    outage_timeout(timeout: Duration) => outage_timeout = timeout;

    /// Sets how long one node may take for one request before it counts as silent.
    ///
    /// It should be well above a round trip and small against the lease, because the time that a silent node costs is taken
    /// off the validity. To connect to a node is no part of it: that is done in the background, within the time-outs of the
    /// client, and only calls that find too few other nodes wait longer for it. 1 ms ..= 1 day. Defaults to 1/200 of the lease, at least 5 ms and at most 150 ms.
    node_timeout(timeout: Duration) => node_timeout = Some(timeout);

    /// Sets the longest lease that any client asks of these nodes.
    ///
    /// Longer leases are [`Error::InvalidLease`]. It is also how long a node has no vote after a restart. All clients of the
    /// same nodes have to agree on it. 10 ms ..= 365 days. Defaults to 30 s.
    max_lease(lease: Duration) => max_lease = lease;

    /// Sets how often the watchdog extends a hold.
    ///
    /// After that the hold ends with its lease, and is lost unless it is unlocked before. Defaults to no limit.
    max_extensions(extensions: u32) => max_extensions = Some(extensions);

    /// Sets the hook that is called when a hold of the quorum is lost; see [`Builder::on_lost`](crate::Builder::on_lost).
    ///
    /// Defaults to nothing.
    on_lost(hook: impl Fn(&Loss) + Send + Sync + 'static) => on_lost = Some(Arc::new(hook));

    /// Sets which class a lock is counted in; see [`Builder::lock_class`].
    lock_class(class_of: impl for<'a> Fn(&'a str) -> &'a str + Send + Sync + 'static) => count_settings.class_of = Some(ClassOf(Arc::new(class_of)));

    /// Sets the observer that hears what happens to the locks of this quorum; see [`Observer`].
    observer(observer: impl Observer) => count_settings.observer = Observed::by(Arc::new(observer));
}

impl RedlockBuilder {
    /// Sets after which time a wait and a hold are told to last for long; see [`Builder::warn_after`].
    pub fn warn_after(mut self, wait: Duration, hold: Duration) -> RedlockBuilder {
        (self.count_settings.long_wait, self.count_settings.long_hold) = (wait, hold);
        self
    }

    /// Adds nodes, each the client of another server.
    ///
    /// The connections and timeouts of a client count for its node, and its key prefix, which has to be the same in all
    /// clients, for the names of the quorum. Its watchdog and its `on_lost` do not concern locks of the quorum. 1 ..= 64
    /// nodes; 3 or 5 are usual. Defaults to none.
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = Client>) -> RedlockBuilder {
        self.nodes.extend(nodes);
        self
    }

    /// Lets servers vote that were started less than one `max_lease` before they are first seen, or that may have replaced
    /// another one.
    ///
    /// Only for servers that are known to be new, as in tests and examples. A server that restarts or takes over later,
    /// or that has followed another one, still has no vote for one `max_lease`. Defaults to off.
    pub fn trust_new_nodes(mut self) -> RedlockBuilder {
        self.trusts_new_nodes = true;
        self
    }

    /// Uses the layout of the Redis documentation at the nodes: a string key with a random token.
    ///
    /// Redlock libraries of other languages (redlock-py, pottery, redsync, …) have this layout, so their programs and this
    /// lock exclude each other. Such a lock is not reentrant, and its waiters poll; see [`Client::token_lock`]. Defaults to
    /// the hash of Redisson, which is reentrant.
    pub fn canonical(mut self) -> RedlockBuilder {
        self.kind = Kind::Token;
        self
    }

    /// Makes the quorum.
    ///
    /// Each node is asked for its identity, so that no server has two votes; a node that cannot be reached is asked later.
    /// An even number of nodes, or fewer than three, is a warning (feature `tracing`, and [`Redlock::check`]).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a setting cannot be used, if there are no nodes or more than 64, if their clients have
    /// different key prefixes, if two of them are the same server, or if one is a database, a cluster or a server of one.
    pub fn build(self) -> Result<Redlock> {
        let (setting, range) = ("the nodes of a quorum", format!("1 ..= {MOST_NODES}"));
        check_within(setting, self.nodes.len(), 1..=MOST_NODES, &range)?;
        check_lease("max_lease", self.max_lease)?;
        let watchdog_timeout = self.watchdog_timeout.unwrap_or(self.max_lease);
        let range = format!("10 ms ..= {:?}, the max_lease", self.max_lease);
        let leases = SHORTEST_LEASE..=self.max_lease;
        check_within("watchdog_timeout", watchdog_timeout, leases, &range)?;
        check_timeout("outage_timeout", self.outage_timeout)?;
        check_warnings(&self.count_settings)?;
        check_timeout("node_timeout", self.node_timeout.unwrap_or(LEAST_TIMEOUT))?;
        let cores: Vec<&Arc<ClientInner>> = self.nodes.iter().map(Client::inner).collect();
        let key_prefix = cores.first().map(|inner| inner.key_prefix.clone());
        let key_prefix = key_prefix.unwrap_or_default();
        if cores.iter().any(|inner| inner.key_prefix != key_prefix) {
            let reason = "their clients have different key prefixes";
            return Err(Error::config(setting, reason));
        }
        let command_timeouts = cores.iter().map(|inner| inner.timeouts.command_timeout);
        let timeouts = Timeouts {
            watchdog_timeout,
            // Each node has its own; this bounds one request to all of them.
            command_timeout: command_timeouts.max().unwrap_or(LEAST_TIMEOUT),
            outage_timeout: self.outage_timeout,
        };
        let nodes = self.nodes.iter().map(|client| {
            // It keeps the thread that listens to the node.
            let keep: Arc<dyn Any + Send + Sync> = Arc::clone(client.inner()) as _;
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
        Ok(Redlock {
            inner: Arc::new(inner),
            kind: self.kind,
        })
    }
}

impl fmt::Debug for RedlockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockBuilder")
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
