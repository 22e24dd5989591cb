//! The errors, worded for the person who reads the log at night: the lock, the node, what to do.

#[cfg(feature = "mysql")]
pub(crate) mod database;
mod display;
mod kind;
mod methods;
mod reason;
mod run_error;

use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::VisitorId;
use crate::ground::loss::LossCause;
use crate::ground::reply::Reply;
#[cfg(feature = "mysql")]
use database::DatabaseError;
pub(crate) use display::Nodes;
pub use reason::IoSource;
pub(crate) use reason::Reason;
pub use run_error::RunError;

/// The result of a lock operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a lock operation, with the lock and the server concerned.
///
/// *Refused* (somebody else holds the lock) is no error but `Ok(false)` or `Ok(None)`. *Lost*, *unknown* and
/// *unreachable* are different errors, and none is ever turned into another.
///
/// Its text does not contain that of its `source()`; `Debug` prints both in one line, as does `{:#}` of crates that print chains.
///
/// A later version may have more variants and more fields, so a pattern has to leave room for them:
///
/// ```
/// # use redlatch::Error;
/// fn is_taken_away(error: &Error) -> bool {
///     matches!(error, Error::Lost { cause, .. } if cause.to_string().contains("force-unlocked"))
/// }
/// ```
///
/// ```compile_fail,E0638
/// # use redlatch::Error;
/// fn is_over(error: &Error) -> bool {
///     matches!(error, Error::Closed { lock: _ })
/// }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be a lock name.
    #[non_exhaustive]
    InvalidName {
        /// The name as it was given, shortened if it is very long.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The number of permits, or the count of a latch, cannot be used: it has to be 1 ..= 2147483647, and so has the sum of
    /// all permits; with ids at most 1000 are taken at once. Nothing was changed.
    #[non_exhaustive]
    InvalidPermits {
        /// The semaphore or the latch.
        name: Arc<str>,
        /// The number asked for.
        permits: i64,
    },
    /// The lease time is shorter than 10 ms or longer than is allowed: 365 days, in a quorum its `max_lease`.
    #[non_exhaustive]
    InvalidLease {
        /// The lock.
        lock: Arc<str>,
        /// The lease time asked for.
        lease: Duration,
        /// The longest one allowed.
        longest: Duration,
    },
    /// The wait time is so long that its end cannot be expressed; `lock()` waits for ever.
    #[non_exhaustive]
    InvalidWait {
        /// The lock.
        lock: Arc<str>,
        /// The wait time asked for.
        wait: Duration,
    },
    /// A setting or a URL cannot be used; or the server behind a URL turned out to be a node of a cluster, and nothing was taken.
    #[non_exhaustive]
    InvalidConfig {
        /// The name of the setting.
        setting: &'static str,
        /// The reason; never a secret.
        reason: String,
    },
    /// The server could not be reached, or gave no answer before the request was sent. Nothing was changed.
    #[non_exhaustive]
    Unreachable {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reason.
        reason: String,
        /// The error of the operating system behind it, which `source()` returns.
        source: Option<IoSource>,
    },
    /// All connections that the client may make to the server were in use for the whole time. Nothing was sent.
    #[non_exhaustive]
    Exhausted {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// How many there may be.
        connections: u32,
    },
    /// A request was sent and no answer came: whether it took effect is not known. Or the master has carried out an
    /// `unlock` that too few replicas acknowledged: whether it outlasts a failover is not known.
    ///
    /// The documentation of each operation says what this means for the hold. A hold that the request may have left
    /// behind is released in the background, and ends with its lease at the latest.
    #[non_exhaustive]
    Unknown {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// `acquire`, `release`, …
        operation: &'static str,
        /// The visitor the request was for; `None` for a forced release.
        visitor: Option<VisitorId>,
        /// The reason.
        reason: String,
        /// The error of the operating system behind it, which `source()` returns.
        source: Option<IoSource>,
    },
    /// The server answered that it cannot do it now: loading, busy, read-only, out of memory, too many clients, …; or it refused
    /// what [`Builder::credentials_with`](crate::Builder::credentials_with) gave.
    #[non_exhaustive]
    Unavailable {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's words.
        reason: String,
    },
    /// Too few replicas acknowledged in time. The request was undone.
    ///
    /// Only with [`Builder::wait_replicas`](crate::Builder::wait_replicas). If the undoing got no answer, the hold is
    /// released in the background, and ends with its lease at the latest.
    #[non_exhaustive]
    NotReplicated {
        /// The lock.
        lock: Arc<str>,
        /// The master.
        node: Arc<str>,
        /// How many replicas acknowledged it in time.
        acknowledged: u32,
        /// How many were asked for.
        wanted: u32,
    },
    /// Fewer nodes of a quorum than needed could be asked, so the lock was neither granted nor refused. Nothing is held.
    #[non_exhaustive]
    NoQuorum {
        /// The lock.
        lock: Arc<str>,
        /// How many nodes granted it, or did what they were asked.
        granted: usize,
        /// How many nodes refused it, or had no such hold.
        refused: usize,
        /// How many nodes gave no usable answer.
        unreachable: usize,
        /// How many nodes have to grant it.
        needed: usize,
        /// The answer of each node.
        nodes: Vec<NodeAnswer>,
    },
    /// The server does not let this user in, or refuses a command that the lock needs.
    #[non_exhaustive]
    Permission {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's words.
        reason: String,
        /// The commands and channels that the user was found to lack, in the form of ACL rules.
        missing: Vec<String>,
    },
    /// TLS refuses the connection: a certificate is missing or not trusted, on either side, or the server speaks no TLS.
    /// Nothing was sent.
    #[non_exhaustive]
    Untrusted {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reason, and what to do; never a secret.
        reason: String,
        /// The error of the operating system behind it, which `source()` returns.
        source: Option<IoSource>,
    },
    /// The name is used by something that is not a lock of this kind; it was left as it is.
    #[non_exhaustive]
    WrongType {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// A description of what is there.
        reason: String,
    },
    /// The hold in the store has a count that this library did not write.
    #[non_exhaustive]
    CorruptCount {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The visitor whose count it is.
        visitor: VisitorId,
    },
    /// The server drew a fencing token that is not above those that this client has seen of the lock, so nothing was taken.
    ///
    /// Each request names the token above which it wants one, so this server does not do what it is told.
    #[non_exhaustive]
    FenceRegressed {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The largest fencing token that this client has seen.
        seen: u64,
        /// The one that was drawn.
        drawn: u64,
    },
    /// The lock is held by a key that never expires, so waiting for it may never end.
    #[non_exhaustive]
    NoTtl {
        /// The lock.
        lock: Arc<str>,
    },
    /// The server answered something that this library does not expect.
    #[non_exhaustive]
    Unexpected {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The answer, shortened.
        reason: String,
    },
    /// The calling thread does not hold the lock; the `IllegalMonitorStateException` of Java.
    #[non_exhaustive]
    NotHeld {
        /// The lock.
        lock: Arc<str>,
        /// The client's uuid.
        client: Arc<str>,
        /// The number of the calling thread.
        thread: u64,
    },
    /// The calling thread holds the lock already, and the lock is not reentrant.
    #[non_exhaustive]
    NotReentrant {
        /// The lock.
        lock: Arc<str>,
    },
    /// The calling thread reads, and wants to write: it would wait for itself. Nothing was changed.
    ///
    /// Unlock the read side first, or take the write side first and read inside it; see
    /// [`ReadWriteLock`](crate::ReadWriteLock).
    #[non_exhaustive]
    Upgrade {
        /// The lock.
        lock: Arc<str>,
    },
    /// The calling thread holds the lock as the call cannot give it back: [`Condition::wait`](crate::Condition::wait) gives back
    /// no level of a guard, and [`Condition::wait_with`](crate::Condition::wait_with) none beside that of its guard. Nothing was
    /// changed, but that `wait_with` has unlocked its guard.
    #[non_exhaustive]
    Nested {
        /// The lock.
        lock: Arc<str>,
    },
    /// The calling thread holds another lock that has a part in common with this one; see
    /// [`MultiLock`](crate::MultiLock).
    #[non_exhaustive]
    Overlap {
        /// The lock.
        lock: Arc<str>,
        /// The lock that the thread holds.
        held: Arc<str>,
    },
    /// The calling thread held the lock and lost it.
    #[non_exhaustive]
    Lost {
        /// The lock.
        lock: Arc<str>,
        /// The visitor that held it.
        visitor: VisitorId,
        /// The reason.
        cause: LossCause,
    },
    /// The wait was ended by its [`Interrupt`](crate::Interrupt); nothing is held.
    #[non_exhaustive]
    Interrupted {
        /// The lock.
        lock: Arc<str>,
    },
    /// The client was shut down.
    #[non_exhaustive]
    Closed {
        /// The lock.
        lock: Arc<str>,
    },
    /// This process was forked from the one that made the client. Make a new client in the child.
    #[non_exhaustive]
    Forked {
        /// The lock.
        lock: Arc<str>,
    },
    /// The operation cannot be done here.
    #[non_exhaustive]
    Unsupported {
        /// The lock, or the table and the key.
        lock: Arc<str>,
        /// The operation, and what can be done instead.
        reason: String,
    },
    /// A key of a guarded write is in another slot of the cluster than its lock. Nothing was sent.
    #[non_exhaustive]
    CrossSlot {
        /// The lock, or the resource of a fenced write.
        lock: Arc<str>,
        /// The key.
        key: String,
    },
    /// The server refused a command of a guarded write. Those before it were carried out, and nothing undoes them.
    #[non_exhaustive]
    CommandFailed {
        /// The lock, or the resource of a fenced write.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The index of the command, from 0 on; of a script 0.
        index: usize,
        /// The server's words, or that the command was carried out and its reply does not fit.
        reason: String,
        /// The replies to the commands before it.
        done: Vec<Reply>,
    },
    /// A write came with an older fence than one before it. Nothing was written.
    #[non_exhaustive]
    Stale {
        /// The resource.
        resource: Arc<str>,
        /// The fence of the write.
        fence: u64,
        /// The largest fence seen.
        newer: u64,
    },
    /// The work under the lock was done, but the hold was lost meanwhile or its release is in doubt: others may have
    /// worked beside it.
    ///
    /// `?` turns a [`RunError::Ran`] of [`Lock::run`](crate::Lock::run) into this error if the closure returns nothing.
    #[non_exhaustive]
    Ran {
        /// The error of the unlock.
        error: Box<Error>,
    },
    /// A row, a table or a transaction is not as it was asked for.
    #[cfg(feature = "mysql")]
    Database(DatabaseError),
    /// The renewal thread could not be started or has died: no lock can be kept, so none is taken.
    #[non_exhaustive]
    WatchdogDied {
        /// The lock.
        lock: Arc<str>,
        /// The reason, as far as known.
        reason: String,
    },
}

/// The answer of one node of a quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeAnswer {
    /// The server.
    pub node: Arc<str>,
    /// `granted`, `refused`, or why it gave no usable answer.
    pub answer: String,
}
