//! The errors of a lock, each with its fields, its name in logs, the lock and the server concerned, and its text.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "mysql")]
use super::database::DatabaseError;
use super::define::errors;
use super::display::{Missing, Words};
use super::{IoSource, NodeAnswer};
use crate::ground::claim::{LARGEST_COUNT, VisitorId};
use crate::ground::loss::LossCause;
use crate::ground::reply::Reply;

errors! {
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
    Error also #[cfg(feature = "mysql")] Database(DatabaseError): " A request about a row, a table or a transaction failed." {
    /// The name cannot be a lock name.
    InvalidName {
        /// The name as it was given, shortened if it is very long.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    } "invalid_name" (Some(name), None), "lock name {name:?} cannot be used: {reason}";
    /// The number of permits, or the count of a latch, cannot be used: it has to be 1 ..= 2147483647, and so has the sum of
    /// all permits; with ids at most 1000 are taken at once. Nothing was changed.
    InvalidPermits {
        /// The semaphore or the latch.
        name: Arc<str>,
        /// The number asked for.
        permits: i64,
    } "invalid_permits" (Some(name), None), "lock {name:?}: {permits} is not a valid number of permits or count: it and the sum have to be 1 ..= {LARGEST_COUNT}; at most 1000 permits with ids are acquired at once";
    /// The lease time is shorter than 10 ms or longer than is allowed: 365 days, in a quorum its `max_lease`.
    InvalidLease {
        /// The lock.
        lock: Arc<str>,
        /// The lease time asked for.
        lease: Duration,
        /// The longest one allowed.
        longest: Duration,
    } "invalid_lease" (Some(lock), None), "lock {lock:?}: a lease time of {lease:?} is outside 10 ms ..= {longest:?}";
    /// The wait time is so long that its end cannot be expressed; `lock()` waits for ever.
    InvalidWait {
        /// The lock.
        lock: Arc<str>,
        /// The wait time asked for.
        wait: Duration,
    } "invalid_wait" (Some(lock), None), "lock {lock:?}: a wait of {wait:?} is too long to be represented; use lock() to wait forever";
    /// A setting or a URL cannot be used; or the server behind a URL turned out to be a node of a cluster, and nothing was taken.
    InvalidConfig {
        /// The name of the setting.
        setting: &'static str,
        /// The reason; never a secret.
        reason: String,
    } "invalid_config" (None, None), "{setting} cannot be used: {reason}";
    /// The server could not be reached, or gave no answer before the request was sent. Nothing was changed.
    Unreachable {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reason.
        reason: String,
        /// The error of the operating system behind it, which `source()` returns.
        source: Option<IoSource>,
    } "unreachable" (Some(lock), Some(node)), "lock {lock:?}: {node} cannot be reached{}", Words(reason, source);
    /// All connections that the client may make to the server were in use for the whole time. Nothing was sent.
    Exhausted {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// How many there may be.
        connections: u32,
    } "exhausted" (Some(lock), Some(node)), "lock {lock:?}: all {connections} connections to {node} were in use until the deadline; raise pool_size() (a waiter needs no connection, but each row lock and each open transaction does)";
    /// A request was sent and no answer came: whether it took effect is not known. Or the master has carried out an
    /// `unlock` that too few replicas acknowledged: whether it outlasts a failover is not known.
    ///
    /// The documentation of each operation says what this means for the hold. A hold that the request may have left
    /// behind is released in the background, and ends with its lease at the latest.
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
    } "unknown" (Some(lock), Some(node)), "lock {lock:?}: the outcome of the {operation}{} at {node} is unknown{}", visitor .as_ref() .map_or(String::new(), |it| format!(" of {it}")), Words(reason, source);
    /// The server answered that it cannot do it now: loading, busy, read-only, out of memory, too many clients, …; or it refused
    /// what [`Builder::credentials_with`](crate::Builder::credentials_with) gave.
    Unavailable {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's words.
        reason: String,
    } "unavailable" (Some(lock), Some(node)), "lock {lock:?}: {node} cannot serve the request now: {reason}";
    /// Too few replicas acknowledged in time. The request was undone.
    ///
    /// Only with [`Builder::wait_replicas`](crate::Builder::wait_replicas). If the undoing got no answer, the hold is
    /// released in the background, and ends with its lease at the latest.
    NotReplicated {
        /// The lock.
        lock: Arc<str>,
        /// The master.
        node: Arc<str>,
        /// How many replicas acknowledged it in time.
        acknowledged: u32,
        /// How many were asked for.
        wanted: u32,
    } "not_replicated" (Some(lock), Some(node)), "lock {lock:?}: {acknowledged} of {wanted} replicas acknowledged it to {node}; check its replicas, or lower wait_replicas";
    /// Fewer nodes of a quorum than needed could be asked, so the lock was neither granted nor refused. Nothing is held.
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
    } "no_quorum" (Some(lock), None), "lock {lock:?}: {needed} of {} nodes are needed, but {granted} granted it, {refused} refused it and {unreachable} gave no usable answer: {}", nodes.len(), nodes .iter() .map(|it| format!("{}: {}", it.node, it.answer)) .collect::<Vec<_>>() .join("; ");
    /// The server does not let this user in, or refuses a command that the lock needs.
    Permission {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's words.
        reason: String,
        /// The commands and channels that the user was found to lack, in the form of ACL rules.
        missing: Vec<String>,
    } "permission" (Some(lock), Some(node)), "lock {lock:?}: {node} denied permission: {reason}{}", Missing(missing);
    /// TLS refuses the connection: a certificate is missing or not trusted, on either side, or the server speaks no TLS.
    /// Nothing was sent.
    Untrusted {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reason, and what to do; never a secret.
        reason: String,
        /// The error of the operating system behind it, which `source()` returns.
        source: Option<IoSource>,
    } "untrusted" (Some(lock), Some(node)), "lock {lock:?}: no trusted connection to {node}{}", Words(reason, source);
    /// The name is used by something that is not a lock of this kind; it was left as it is.
    WrongType {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// A description of what is there.
        reason: String,
    } "wrong_type" (Some(lock), Some(node)), "lock {lock:?}: {node} has another value under this name, which was not changed: {reason}";
    /// The hold in the store has a count that this library did not write.
    CorruptCount {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The visitor whose count it is.
        visitor: VisitorId,
    } "corrupt_count" (Some(lock), Some(node)), "lock {lock:?}: the hold count of {visitor} on {node} is not a number; another program writes to this key";
    /// The server drew a fencing token that is not above those that this client has seen of the lock, so nothing was taken.
    ///
    /// Each request names the token above which it wants one, so this server does not do what it is told.
    FenceRegressed {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The largest fencing token that this client has seen.
        seen: u64,
        /// The one that was drawn.
        drawn: u64,
    } "fence_regressed" (Some(lock), Some(node)), "lock {lock:?}: {node} returned the fencing token {drawn} after {seen}, so the lock was not acquired; check for a proxy or a script engine that changes replies";
    /// The lock is held by a key that never expires, so waiting for it may never end.
    NoTtl {
        /// The lock.
        lock: Arc<str>,
    } "no_ttl" (Some(lock), None), "lock {lock:?} is held by a key without a TTL. redlatch never creates one; find out which program wrote it, and delete it if its holder is gone";
    /// The server answered something that this library does not expect.
    Unexpected {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The answer, shortened.
        reason: String,
    } "unexpected" (Some(lock), Some(node)), "lock {lock:?}: unexpected reply from {node}: {reason}";
    /// The calling thread does not hold the lock; the `IllegalMonitorStateException` of Java.
    NotHeld {
        /// The lock.
        lock: Arc<str>,
        /// The client's uuid.
        client: Arc<str>,
        /// The number of the calling thread.
        thread: u64,
    } "not_held" (Some(lock), None), "lock {lock:?} is not held by the current thread ({client}:{thread}): it was never acquired, belongs to another thread, or was already released";
    /// The calling thread holds the lock already, and the lock is not reentrant.
    NotReentrant {
        /// The lock.
        lock: Arc<str>,
    } "not_reentrant" (Some(lock), None), "lock {lock:?} is already held by the current thread, and a token lock is not reentrant: the thread would wait forever";
    /// The calling thread reads, and wants to write: it would wait for itself. Nothing was changed.
    ///
    /// Unlock the read side first, or take the write side first and read inside it; see
    /// [`ReadWriteLock`](crate::ReadWriteLock).
    Upgrade {
        /// The lock.
        lock: Arc<str>,
    } "upgrade" (Some(lock), None), "lock {lock:?}: the current thread holds the read side, so it would wait forever for the write side; unlock the read side first, or acquire the write side before it";
    /// The calling thread holds the lock as the call cannot give it back: [`Condition::wait`](crate::Condition::wait) gives back
    /// no level of a guard, and [`Condition::wait_with`](crate::Condition::wait_with) none beside that of its guard. Nothing was
    /// changed, but that `wait_with` has unlocked its guard.
    Nested {
        /// The lock.
        lock: Arc<str>,
    } "nested" (Some(lock), None), "lock {lock:?}: a wait on a condition releases all levels of the hold, but another guard still relies on one; wait with the only guard, or with levels acquired by lock()";
    /// The calling thread holds another lock that has a part in common with this one; see
    /// [`MultiLock`](crate::MultiLock).
    Overlap {
        /// The lock.
        lock: Arc<str>,
        /// The lock that the thread holds.
        held: Arc<str>,
    } "overlap" (Some(lock), None), "lock {lock:?} shares a lock with {held:?}, which the current thread holds, so it would wait forever; unlock that first, or acquire all in one MultiLock";
    /// The calling thread held the lock and lost it.
    Lost {
        /// The lock.
        lock: Arc<str>,
        /// The visitor that held it.
        visitor: VisitorId,
        /// The reason.
        cause: LossCause,
    } "lost" (Some(lock), None), "lock {lock:?}: the hold of {visitor} was lost: {cause}";
    /// The wait was ended by its [`Interrupt`](crate::Interrupt); nothing is held.
    Interrupted {
        /// The lock.
        lock: Arc<str>,
    } "interrupted" (Some(lock), None), "lock {lock:?}: the wait was interrupted";
    /// The client was shut down.
    Closed {
        /// The lock.
        lock: Arc<str>,
    } "closed" (Some(lock), None), "lock {lock:?}: the client was shut down";
    /// This process was forked from the one that made the client. Make a new client in the child.
    Forked {
        /// The lock.
        lock: Arc<str>,
    } "forked" (Some(lock), None), "lock {lock:?}: the client was created before fork(); create a new client in the child process";
    /// The operation cannot be done here.
    Unsupported {
        /// The lock, or the table and the key.
        lock: Arc<str>,
        /// The operation, and what can be done instead.
        reason: String,
    } "unsupported" (Some(lock), None), "lock {lock:?}: {reason}";
    /// A key of a guarded write is in another slot of the cluster than its lock. Nothing was sent.
    CrossSlot {
        /// The lock, or the resource of a fenced write.
        lock: Arc<str>,
        /// The key.
        key: String,
    } "cross_slot" (Some(lock), None), "lock {lock:?}: the key {key:?} is in another slot of the cluster; give both the same hash tag, such as {{orders}}:lock and {{orders}}:stock";
    /// The server refused a command of a guarded write. Those before it were carried out, and nothing undoes them.
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
    } "command_failed" (Some(lock), Some(node)), "lock {lock:?}: command {index} of the guarded write failed on {node}; the commands before it took effect: {reason}";
    /// A write came with an older fence than one before it. Nothing was written.
    Stale {
        /// The resource.
        resource: Arc<str>,
        /// The fence of the write.
        fence: u64,
        /// The largest fence seen.
        newer: u64,
    } "stale" (Some(resource), None), "resource {resource:?}: the write with fencing token {fence} is stale: a write with token {newer} came first, so another holder has acquired the lock since";
    /// The work under the lock was done, but the hold was lost meanwhile or its release is in doubt: others may have
    /// worked beside it.
    ///
    /// `?` turns a [`RunError::Ran`](crate::RunError::Ran) of [`Lock::run`](crate::Lock::run) into this error if the closure returns nothing.
    Ran {
        /// The error of the unlock.
        error: Box<Error>,
    } "ran" error.place(), "the closure under the lock ran to its end, but {error}";
    /// The renewal thread could not be started or has died: no lock can be kept, so none is taken.
    WatchdogDied {
        /// The lock.
        lock: Arc<str>,
        /// The reason, as far as known.
        reason: String,
    } "watchdog_died" (Some(lock), None), "lock {lock:?}: the renewal thread is not running: {reason}";
    }
}
