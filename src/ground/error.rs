//! The errors, worded for the person who reads the log at night: the lock, the node, what to do.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::ground::claim::VisitorId;
use crate::ground::loss::LossCause;

/// The result of a lock operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a lock operation, with the lock and the server concerned.
///
/// *Refused* (somebody else holds the lock) is no error but `Ok(false)` or `Ok(None)`. *Lost*, *unknown* and
/// *unreachable* are different errors, and none is ever turned into another.
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
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name cannot be a lock name.
    #[error("lock name {name:?} cannot be used: {reason}")]
    #[non_exhaustive]
    InvalidName {
        /// The name as it was given, shortened if it is very long.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The lease time is shorter than 10 ms or longer than is allowed: 365 days, in a quorum its `max_lease`.
    #[error("lock {lock:?}: a lease time of {lease:?} is outside 10 ms ..= {longest:?}")]
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
    #[error(
        "lock {lock:?}: a wait of {wait:?} has no end that can be expressed; use lock() to wait for ever"
    )]
    #[non_exhaustive]
    InvalidWait {
        /// The lock.
        lock: Arc<str>,
        /// The wait time asked for.
        wait: Duration,
    },
    /// A setting or a URL cannot be used.
    #[error("{setting} cannot be used: {reason}")]
    #[non_exhaustive]
    InvalidConfig {
        /// The name of the setting.
        setting: &'static str,
        /// The reason; never a secret.
        reason: String,
    },
    /// The server could not be reached, or gave no answer before the request was sent. Nothing was changed.
    #[error("lock {lock:?}: {node} cannot be reached: {reason}")]
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
    #[error(
        "lock {lock:?}: all {connections} connections to {node} were in use for the whole time; allow more with pool_size(), or let fewer threads ask at once (one that waits for a lock has no connection, but a row lock has one while it waits and holds, and a transaction while it is open)"
    )]
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
    #[error(
        "lock {lock:?}: {node} did not answer the {operation}{}, its outcome is unknown: {reason}",
        Of(visitor)
    )]
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
    /// The server answered that it cannot do it now: loading, busy, read-only, out of memory, too many clients, …
    #[error("lock {lock:?}: {node} cannot serve the request now: {reason}")]
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
    #[error(
        "lock {lock:?}: {acknowledged} of the {wanted} replicas wanted have acknowledged it to {node}; look at its replicas, or ask for fewer"
    )]
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
    #[error(
        "lock {lock:?}: it takes {needed} of {}, but {granted} granted it, {refused} refused it and {unreachable} gave no usable answer: {}",
        Nodes(nodes.len()),
        Each(nodes)
    )]
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
    #[error(
        "lock {lock:?}: {node} does not permit it: {reason}{}",
        Missing(missing)
    )]
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
    #[error("lock {lock:?}: no trusted connection to {node}: {reason}")]
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
    #[error(
        "lock {lock:?}: {node} has something else under this name, which was left as it is: {reason}"
    )]
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
    #[error(
        "lock {lock:?}: the hold count of {visitor} on {node} is not a number, something else writes to this key"
    )]
    #[non_exhaustive]
    CorruptCount {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The visitor whose count it is.
        visitor: VisitorId,
    },
    /// The lock is held by a key that never expires, so waiting for it may never end.
    #[error(
        "lock {lock:?} is held by a key without a time to live, which no lock of ours leaves; look at what wrote it, and delete it if it is a lock whose holder is gone"
    )]
    #[non_exhaustive]
    NoTtl {
        /// The lock.
        lock: Arc<str>,
    },
    /// The server answered something that this library does not expect.
    #[error("lock {lock:?}: unexpected answer from {node}: {reason}")]
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
    #[error("lock {lock:?} is not held by the current thread ({client}:{thread})")]
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
    #[error(
        "lock {lock:?} is held by the current thread already, and a token lock is not reentrant: waiting for it would never end"
    )]
    #[non_exhaustive]
    NotReentrant {
        /// The lock.
        lock: Arc<str>,
    },
    /// The calling thread holds another lock that has a part in common with this one; see
    /// [`MultiLock`](crate::MultiLock).
    #[error(
        "lock {lock:?} has a part in common with {held:?}, which the current thread holds: waiting for it would never end; unlock that first, or take all in one MultiLock"
    )]
    #[non_exhaustive]
    Overlap {
        /// The lock.
        lock: Arc<str>,
        /// The lock that the thread holds.
        held: Arc<str>,
    },
    /// The calling thread held the lock and lost it.
    #[error("lock {lock:?}: the hold of {visitor} was lost: {cause}")]
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
    #[error("lock {lock:?}: the wait was interrupted")]
    #[non_exhaustive]
    Interrupted {
        /// The lock.
        lock: Arc<str>,
    },
    /// The client was shut down.
    #[error("lock {lock:?}: the client was shut down")]
    #[non_exhaustive]
    Closed {
        /// The lock.
        lock: Arc<str>,
    },
    /// This process was forked from the one that made the client. Make a new client in the child.
    #[error(
        "lock {lock:?}: the client was made before fork(); make a new one in the child process"
    )]
    #[non_exhaustive]
    Forked {
        /// The lock.
        lock: Arc<str>,
    },
    /// Somebody else had the row locked until the wait was over.
    #[error(
        "row {lock:?}: {node} has it locked for somebody else ({reason}); wait longer, or look for a transaction that was left open"
    )]
    #[non_exhaustive]
    WaitTimeout {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's words.
        reason: String,
    },
    /// Two transactions waited for each other, and the server has rolled this one back; it may be run again from its start.
    #[error(
        "row {lock:?}: {node} undid the transaction because of a deadlock ({reason}); run it again, and lock rows in one order or with lock_many()"
    )]
    #[non_exhaustive]
    Deadlock {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's words.
        reason: String,
    },
    /// There is no row with this key.
    #[error(
        "row {lock:?}: {node} has no row with the key {key}; insert it before it is locked or changed"
    )]
    #[non_exhaustive]
    RowNotFound {
        /// The table.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The key as SQL.
        key: String,
    },
    /// Others changed the row again and again between reading and writing; nothing was changed.
    #[error(
        "row {lock:?} on {node}: others changed it during each of {attempts} attempts; try again later, allow more attempts, or use one relative UPDATE or a row lock"
    )]
    #[non_exhaustive]
    Conflict {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The number of attempts.
        attempts: u32,
    },
    /// A table is missing, or lacks what a lock relies on.
    #[error("lock {lock:?}: {node} lacks what it needs: {reason}")]
    #[non_exhaustive]
    Schema {
        /// The lock or the table.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The part that is missing, and how to get it.
        reason: String,
    },
    /// The transaction is over; nothing of it was written.
    ///
    /// The lock on its rows is gone with it once the server has rolled it back: at once if the server has ended it, else
    /// when the server notices that the connection is gone. Until then the rows stay locked.
    #[error(
        "lock {lock:?}: {node} has rolled the transaction back or will do so, nothing of it is written: {reason}"
    )]
    #[non_exhaustive]
    TransactionLost {
        /// The lock, or the table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reason.
        reason: String,
        /// The error of the operating system behind it, which `source()` returns.
        source: Option<IoSource>,
    },
    /// The operation cannot be done here.
    #[error("lock {lock:?}: {reason}")]
    #[non_exhaustive]
    Unsupported {
        /// The lock, or the table and the key.
        lock: Arc<str>,
        /// The operation, and what can be done instead.
        reason: String,
    },
    /// The server answered a statement with an error that this library has no name for.
    #[error("lock {lock:?}: {node} answered with error {code}: {reason}")]
    #[non_exhaustive]
    Sql {
        /// The lock, or the table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's number of the error.
        code: u16,
        /// The server's words.
        reason: String,
    },
    /// The work under the lock was done, but the hold was lost meanwhile or its release is in doubt: others may have
    /// worked beside it.
    ///
    /// `?` turns a [`RunError::Ran`] of [`Lock::run`](crate::Lock::run) into this error if the closure returns nothing.
    #[error("the work under the lock was done, but {error}")]
    #[non_exhaustive]
    Ran {
        /// The error of the unlock.
        error: Box<Error>,
    },
    /// The renewal thread could not be started or has died: no lock can be kept, so none is taken.
    #[error("lock {lock:?}: the renewal thread is not running: {reason}")]
    #[non_exhaustive]
    WatchdogDied {
        /// The lock.
        lock: Arc<str>,
        /// The reason, as far as known.
        reason: String,
    },
}

impl Error {
    /// What is wrong with a call on a lock in its own transaction.
    pub(crate) fn in_its_transaction(lock: &Arc<str>) -> Error {
        Error::Unsupported {
            lock: Arc::clone(lock),
            reason: "a transaction of this thread has its row, and the call would wait for it: lock and unlock before or \
                     behind Guard::transaction, not in it"
                .to_owned(),
        }
    }

    /// Returns the name of the lock concerned, prefix included; `None` for settings.
    pub fn lock_name(&self) -> Option<&str> {
        match self {
            Error::InvalidName { name, .. } => Some(name),
            Error::InvalidConfig { .. } => None,
            Error::Ran { error, .. } => error.lock_name(),
            Error::InvalidLease { lock, .. }
            | Error::InvalidWait { lock, .. }
            | Error::Unreachable { lock, .. }
            | Error::Exhausted { lock, .. }
            | Error::Unknown { lock, .. }
            | Error::Unavailable { lock, .. }
            | Error::NotReplicated { lock, .. }
            | Error::NoQuorum { lock, .. }
            | Error::Permission { lock, .. }
            | Error::Untrusted { lock, .. }
            | Error::WrongType { lock, .. }
            | Error::CorruptCount { lock, .. }
            | Error::NoTtl { lock }
            | Error::Unexpected { lock, .. }
            | Error::NotHeld { lock, .. }
            | Error::NotReentrant { lock }
            | Error::Overlap { lock, .. }
            | Error::Lost { lock, .. }
            | Error::Interrupted { lock }
            | Error::Closed { lock }
            | Error::Forked { lock }
            | Error::WaitTimeout { lock, .. }
            | Error::Deadlock { lock, .. }
            | Error::RowNotFound { lock, .. }
            | Error::Conflict { lock, .. }
            | Error::Schema { lock, .. }
            | Error::TransactionLost { lock, .. }
            | Error::Unsupported { lock, .. }
            | Error::Sql { lock, .. }
            | Error::WatchdogDied { lock, .. } => Some(lock),
        }
    }

    /// Returns whether the same call may succeed later, once the server is well again.
    ///
    /// True only if nothing was done, so that a retry does nothing twice: an unknown outcome ([`Error::is_ambiguous`]) is
    /// not retryable, and neither is an error after the work under the lock was done ([`Error::Ran`]). The result is meant
    /// for calls that take a lock. An `unlock` is not to be repeated after any error: the level is given back.
    ///
    /// Waiting calls retry by themselves until their deadline.
    pub fn is_retryable(&self) -> bool {
        self.may_pass() && !self.is_ambiguous()
    }

    /// Returns whether it is unknown if the request was executed.
    pub fn is_ambiguous(&self) -> bool {
        match self {
            Error::Unknown { .. } => true,
            Error::Ran { error, .. } => error.is_ambiguous(),
            _ => false,
        }
    }

    /// Returns whether a hold was lost.
    pub fn is_lost(&self) -> bool {
        match self {
            Error::Lost { .. } | Error::TransactionLost { .. } => true,
            Error::Ran { error, .. } => error.is_lost(),
            _ => false,
        }
    }

    /// Whether a wait goes on in spite of it: the server may be well in a moment. A waiter may ask again even if the
    /// outcome of its last attempt is unknown, because what that may have left is settled in the background.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Error::Unreachable { .. }
                | Error::Exhausted { .. }
                | Error::Unknown { .. }
                | Error::Unavailable { .. }
                | Error::NotReplicated { .. }
                | Error::NoQuorum { .. }
        )
    }
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

/// The error of the operating system behind an [`Error`], shared by the clones of that error.
///
/// [`std::error::Error::source`] returns the [`io::Error`] itself. Its text is part of the text of the [`Error`].
///
/// # Examples
///
/// ```
/// use std::error::Error;
/// use std::io;
/// use redlatch::Client;
///
/// // Nobody listens there.
/// let client = Client::open("redis://127.0.0.1:1")?;
/// let error = client.lock("orders:42").try_lock().unwrap_err();
/// let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
/// assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct IoSource(Arc<io::Error>);

impl Deref for IoSource {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

/// Why there is no answer: in words, with the error of the operating system behind it if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Reason {
    words: Box<str>,
    source: Option<IoSource>,
}

impl Reason {
    pub(crate) fn of_io(words: impl Into<String>, error: io::Error) -> Reason {
        Reason {
            words: words.into().into(),
            source: Some(IoSource(Arc::new(error))),
        }
    }

    /// A copy of an error that somebody else keeps.
    pub(crate) fn of_shared_io(words: impl Into<String>, error: &io::Error) -> Reason {
        let copy = match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        Reason::of_io(words, copy)
    }

    /// Says the same in other words.
    pub(crate) fn reworded(self, reword: impl FnOnce(&str) -> String) -> Reason {
        Reason {
            words: reword(&self.words).into(),
            source: self.source,
        }
    }

    /// Leaves out a secret that somebody else's words may have in them.
    #[cfg(feature = "mysql")]
    pub(crate) fn without(self, secret: &str) -> Reason {
        let shows_it = |source: &IoSource| source.to_string().contains(secret);
        Reason {
            words: self.words.replace(secret, "…").into(),
            source: self.source.filter(|source| !shows_it(source)),
        }
    }

    pub(crate) fn into_words(self) -> String {
        self.words.into()
    }

    /// The words, and what is behind them, as they stand in an [`Error`].
    pub(crate) fn into_parts(self) -> (String, Option<IoSource>) {
        (self.words.into(), self.source)
    }
}

impl From<String> for Reason {
    fn from(words: String) -> Reason {
        Reason {
            words: words.into(),
            source: None,
        }
    }
}

impl From<&str> for Reason {
    fn from(words: &str) -> Reason {
        words.to_owned().into()
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.words
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// Two reasons are the same if they are in the same words.
impl PartialEq for Reason {
    fn eq(&self, other: &Reason) -> bool {
        self.words == other.words
    }
}

impl Eq for Reason {}

/// So many nodes.
pub(crate) struct Nodes(pub(crate) usize);

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nodes(count) = self;
        write!(f, "{count} node{}", if *count == 1 { "" } else { "s" })
    }
}

struct Each<'a>(&'a [NodeAnswer]);

impl fmt::Display for Each<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, NodeAnswer { node, answer }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "; " };
            write!(f, "{comma}{node}: {answer}")?;
        }
        Ok(())
    }
}

struct Of<'a>(&'a Option<VisitorId>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(visitor) => write!(f, " of {visitor}"),
            None => Ok(()),
        }
    }
}

struct Missing<'a>(&'a [String]);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            missing => write!(f, " (missing: {})", missing.join(" ")),
        }
    }
}

/// The error of [`Lock::run`](crate::Lock::run), which keeps the value of the closure if the closure ran.
///
/// Its text contains that of its [`Error`], which is not its `source()` as well, so that a printed chain says it once.
///
/// In a function that returns [`Error`], `?` works for a closure that returns nothing: [`RunError::Ran`] becomes
/// [`Error::Ran`]. No conversion drops the value of a closure that returns one.
///
/// # Examples
///
/// ```
/// use redlatch::{Client, Lock, RunError};
///
/// fn charge(lock: &Lock) -> redlatch::Result<u64> {
///     match lock.run(|_| 42) {
///         Ok(receipt) => Ok(receipt),
///         // It was charged, whatever became of the lock.
///         Err(RunError::Ran { value, error, .. }) => {
///             eprintln!("look whether {value} was charged twice: {error}");
///             Ok(value)
///         }
///         Err(error) => Err(error.into_parts().1),
///     }
/// }
///
/// assert_eq!(charge(&Client::in_memory().lock("orders:42"))?, 42);
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum RunError<T> {
    /// The lock was not obtained and the closure did not run.
    NotRun(Error),
    /// The closure ran, but the hold was lost meanwhile or its release is in doubt: others may have run beside it.
    #[non_exhaustive]
    Ran {
        /// The value that the closure returned.
        value: T,
        /// The error of the unlock.
        error: Error,
    },
}

impl<T> RunError<T> {
    /// Returns the error.
    pub fn error(&self) -> &Error {
        match self {
            RunError::NotRun(error) | RunError::Ran { error, .. } => error,
        }
    }

    /// Returns the closure's value if it ran.
    pub fn into_value(self) -> Option<T> {
        self.into_parts().0
    }

    /// Returns the closure's value if it ran, and the error.
    pub fn into_parts(self) -> (Option<T>, Error) {
        match self {
            RunError::NotRun(error) => (None, error),
            RunError::Ran { value, error } => (Some(value), error),
        }
    }

    /// Returns whether the same call may succeed later, as [`Error::is_retryable`]; never if the closure ran.
    pub fn is_retryable(&self) -> bool {
        match self {
            RunError::NotRun(error) => error.is_retryable(),
            RunError::Ran { .. } => false,
        }
    }
}

impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NotRun(error) => f.debug_tuple("NotRun").field(error).finish(),
            RunError::Ran { error, .. } => f
                .debug_struct("Ran")
                .field("error", error)
                .finish_non_exhaustive(),
        }
    }
}

impl<T> fmt::Display for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NotRun(error) => write!(f, "{error}"),
            RunError::Ran { error, .. } => write!(f, "the closure ran, but {error}"),
        }
    }
}

impl<T> std::error::Error for RunError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // What stands behind the error whose words these are.
        self.error().source()
    }
}

impl From<RunError<()>> for Error {
    fn from(error: RunError<()>) -> Error {
        match error {
            RunError::NotRun(error) => error,
            RunError::Ran { error, .. } => Error::Ran {
                error: Box::new(error),
            },
        }
    }
}
