use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "mysql")]
use super::database::DatabaseError;
use super::errors_macro::errors;
use super::source::{Missing, ReasonText};
use super::{IoSource, NodeAnswer};
use crate::ground::claim::{LARGEST_COUNT, VisitorId};
use crate::ground::loss::LossCause;
use crate::ground::reply::Reply;

errors! {
    /// The error of a lock operation, with the lock and the server concerned.
    ///
    /// If another holder has the lock, a call returns `Ok(false)` or `Ok(None)`, not an error.
    ///
    /// The text of an error does not contain the text of its `source()`. `Debug` prints the texts of both in one line.
    ///
    /// A later version may have more variants and fields, so patterns must not be exhaustive:
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
    /// The name of a lock, a condition or a row is not valid.
    InvalidName {
        /// The name, shortened if it is very long.
        name: String,
        /// The rule that the name breaks.
        reason: &'static str,
    } "invalid_name" (Some(name), None), "lock name {name:?} cannot be used: {reason}";
    /// The number of permits or the count of a latch is out of range. The documentation of each method states the range,
    /// which never exceeds 2147483647. One call acquires at most 1000 permits with ids. Nothing was changed.
    InvalidPermits {
        /// The semaphore or the latch.
        name: Arc<str>,
        /// The requested number.
        permits: i64,
    } "invalid_permits" (Some(name), None), "lock {name:?}: {permits} is not allowed: numbers of permits, counts and their sums are 1 ..= {LARGEST_COUNT}, and at most 1000 permits with ids are acquired at once";
    /// The lease time is shorter than 10 ms, longer than 365 days, or longer than the `max_lease` of a quorum. Or the
    /// life of a semaphore is shorter than 1 ms or longer than 365 days.
    InvalidLease {
        /// The lock.
        lock: Arc<str>,
        /// The requested lease time.
        lease: Duration,
        /// The shortest lease time allowed.
        shortest: Duration,
        /// The longest lease time allowed.
        longest: Duration,
    } "invalid_lease" (Some(lock), None),
        "lock {lock:?}: a lease time of {lease:?} is outside {shortest:?} ..= {longest:?}";
    /// The wait time is too long to be represented. To wait forever, use `lock()`.
    InvalidWait {
        /// The lock.
        lock: Arc<str>,
        /// The requested wait time.
        wait: Duration,
    } "invalid_wait" (Some(lock), None), "lock {lock:?}: a wait of {wait:?} is too long to be represented; use lock() to wait forever";
    /// A setting or a URL cannot be used, or the server is not of the kind that the settings require. Nothing was acquired.
    InvalidConfig {
        /// The name of the setting.
        setting: &'static str,
        /// The reason, without a secret.
        reason: String,
    } "invalid_config" (None, None), "{setting} cannot be used: {reason}";
    /// The server could not be reached. Or it did not reply to a query, or to a step before the request, such as the
    /// handshake. Nothing was changed.
    Unreachable {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reason.
        reason: String,
        /// The I/O error, which `source()` returns.
        source: Option<IoSource>,
    } "unreachable" (Some(lock), Some(node)), "lock {lock:?}: {node} cannot be reached{}", ReasonText(reason, source);
    /// All connections that [`Builder::pool_size`](crate::Builder::pool_size) allows were in use until the deadline.
    /// Nothing was sent to this server. A Redlock may have sent requests to other nodes, but acquired nothing.
    Exhausted {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The limit of connections.
        connections: u32,
    } "exhausted" (Some(lock), Some(node)), "lock {lock:?}: all {connections} connections to {node} were in use until the deadline; raise pool_size() (a waiter needs no connection, but each row lock and each open transaction does)";
    /// A request was sent and no usable reply came in time, so its outcome is unknown. Or too few replicas acknowledged a
    /// guarded write or the `unlock` of an inner level, so a failover may lose what the master executed.
    ///
    /// The documentation of each operation says what this error means for the hold. A hold that the request may have
    /// acquired is released in the background, and ends with its lease at the latest.
    Unknown {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The operation: `acquire`, `release`, …
        operation: &'static str,
        /// The id of the hold. `None` for a forced release, and for other operations that do not name a hold.
        visitor: Option<VisitorId>,
        /// The reason.
        reason: String,
        /// The I/O error, which `source()` returns.
        source: Option<IoSource>,
    } "unknown" (Some(lock), Some(node)), "lock {lock:?}: the outcome of the {operation}{} at {node} is unknown{}", visitor .as_ref() .map_or(String::new(), |it| format!(" of {it}")), ReasonText(reason, source);
    /// The server cannot execute the request now, for example because it is loading data, busy, read-only, out of memory, or
    /// at its limit of clients. Or the server refused the credentials that
    /// [`Builder::credentials_with`](crate::Builder::credentials_with) returned.
    Unavailable {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's message.
        reason: String,
    } "unavailable" (Some(lock), Some(node)), "lock {lock:?}: {node} cannot serve the request now: {reason}";
    /// Too few replicas acknowledged the request in time. The client undoes the request.
    ///
    /// This error occurs only with [`Builder::wait_replicas`](crate::Builder::wait_replicas). If the client cannot
    /// release a new hold at once, a background thread releases it. The hold ends with its lease at the latest.
    NotReplicated {
        /// The lock.
        lock: Arc<str>,
        /// The master.
        node: Arc<str>,
        /// The number of replicas that acknowledged in time; 0 if the server did not report a number.
        acknowledged: u32,
        /// The required number of replicas.
        wanted: u32,
    } "not_replicated" (Some(lock), Some(node)), "lock {lock:?}: {acknowledged} of {wanted} replicas acknowledged it to {node}; check its replicas, or lower wait_replicas";
    /// Too few nodes of a quorum gave a usable reply, so the request was neither granted nor refused.
    NoQuorum {
        /// The lock.
        lock: Arc<str>,
        /// The number of nodes that granted the request.
        granted: usize,
        /// The number of nodes that refused the request, or lacked the hold.
        refused: usize,
        /// The number of nodes without a usable reply.
        unreachable: usize,
        /// The required number of nodes.
        needed: usize,
        /// The reply of each node.
        nodes: Vec<NodeAnswer>,
    } "no_quorum" (Some(lock), None), "lock {lock:?}: {needed} of {} nodes are needed, but {granted} granted it, {refused} refused it and {unreachable} gave no usable answer: {}", nodes.len(), nodes .iter() .map(|it| format!("{}: {}", it.node, it.answer)) .collect::<Vec<_>>() .join("; ");
    /// The server refuses the login of this user. Or the user lacks the right to a command, key or channel.
    Permission {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's message.
        reason: String,
        /// The missing rights as ACL rules; empty if unknown.
        missing: Vec<String>,
    } "permission" (Some(lock), Some(node)), "lock {lock:?}: {node} denied permission: {reason}{}", Missing(missing);
    /// TLS failed: the certificate of the client or the server is missing or not trusted, or the server does not use TLS.
    /// Nothing was sent.
    Untrusted {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reason, and what to do, without a secret.
        reason: String,
        /// The I/O error, which `source()` returns.
        source: Option<IoSource>,
    } "untrusted" (Some(lock), Some(node)), "lock {lock:?}: no trusted connection to {node}{}", ReasonText(reason, source);
    /// The name is used for a value that is not a lock of this kind. The value was not changed.
    WrongType {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// A description of the value.
        reason: String,
    } "wrong_type" (Some(lock), Some(node)), "lock {lock:?}: {node} has other data under this name, which was not changed; use another name: {reason}";
    /// The count of the hold in the store is not a number.
    CorruptCount {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The id of the hold.
        visitor: VisitorId,
    } "corrupt_count" (Some(lock), Some(node)), "lock {lock:?}: the hold count of {visitor} on {node} is not a number; another program writes to this key";
    /// The server issued a fencing token that is not larger than an earlier token of this lock. Nothing was acquired.
    ///
    /// The library's script issues only larger tokens, so a proxy or the server's script engine must have changed the reply.
    FenceRegressed {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The largest fencing token that this client has seen.
        seen: u64,
        /// The token that the server issued.
        drawn: u64,
    } "fence_regressed" (Some(lock), Some(node)), "lock {lock:?}: {node} returned the fencing token {drawn} after {seen}, so the lock was not acquired; check for a proxy or a script engine that changes replies";
    /// The key of the held lock never expires, so a wait for the lock may never end.
    NoTtl {
        /// The lock.
        lock: Arc<str>,
    } "no_ttl" (Some(lock), None), "lock {lock:?} is held by a key without a TTL. redlatch never creates one; find out which program wrote it, and delete it if its holder is gone";
    /// The server sent an unexpected reply.
    Unexpected {
        /// The lock.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reply, shortened.
        reason: String,
    } "unexpected" (Some(lock), Some(node)), "lock {lock:?}: unexpected reply from {node}: {reason}";
    /// The calling thread does not hold the lock. In Java this is an `IllegalMonitorStateException`.
    NotHeld {
        /// The lock.
        lock: Arc<str>,
        /// The client's uuid.
        client: Arc<str>,
        /// The number of the calling thread, or of the [`OwnedGuard`](crate::OwnedGuard).
        thread: u64,
    } "not_held" (Some(lock), None), "lock {lock:?} is not held by the current thread ({client}:{thread}): it was never acquired, belongs to another thread, or was already released";
    /// The calling thread already holds the lock, which is not reentrant.
    NotReentrant {
        /// The lock.
        lock: Arc<str>,
    } "not_reentrant" (Some(lock), None), "lock {lock:?} is already held by the current thread, and a token lock is not reentrant: the thread would wait forever";
    /// The calling thread holds the read side and requests the write side, so it would wait for itself. Nothing was changed.
    ///
    /// Unlock the read side before you acquire the write side, or acquire the write side first; see
    /// [`ReadWriteLock`](crate::ReadWriteLock).
    Upgrade {
        /// The lock.
        lock: Arc<str>,
    } "upgrade" (Some(lock), None), "lock {lock:?}: the current thread holds the read side, so it would wait forever for the write side; unlock the read side first, or acquire the write side before it";
    /// A wait on a condition could not release all levels of the reentrant hold.
    /// [`Condition::wait`](crate::Condition::wait) cannot release the level of a guard.
    /// [`Condition::wait_with`](crate::Condition::wait_with) can release only the level of its guard. Nothing was
    /// changed, except that `wait_with` has unlocked its guard.
    Nested {
        /// The lock.
        lock: Arc<str>,
    } "nested" (Some(lock), None), "lock {lock:?}: a wait on a condition releases all levels of the hold, but another guard still holds a level; wait while the thread has one guard only, or only levels acquired by lock()";
    /// The calling thread holds another lock that shares a member with this lock; see [`MultiLock`](crate::MultiLock).
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
        /// The id of the hold.
        visitor: VisitorId,
        /// The reason.
        cause: LossCause,
    } "lost" (Some(lock), None), "lock {lock:?}: the hold of {visitor} was lost: {cause}";
    /// An [`Interrupt`](crate::Interrupt) ended the wait. After a wait on a condition, the thread holds the lock again.
    Interrupted {
        /// The lock.
        lock: Arc<str>,
    } "interrupted" (Some(lock), None), "lock {lock:?}: the wait was interrupted";
    /// The client was shut down.
    Closed {
        /// The lock.
        lock: Arc<str>,
    } "closed" (Some(lock), None), "lock {lock:?}: the client was shut down";
    /// This process is a fork of the process that created the client. The child cannot create a client, either: fork before
    /// the first client, or run another program in the child.
    Forked {
        /// The lock.
        lock: Arc<str>,
    } "forked" (Some(lock), None), "lock {lock:?}: the client was created before fork(); fork before the first client, or run another program in the child";
    /// This lock, store or thread does not support the operation.
    Unsupported {
        /// The lock, the resource of a fenced write, or the table and the key.
        lock: Arc<str>,
        /// Why the operation is not supported, and the alternative.
        reason: String,
    } "unsupported" (Some(lock), None), "lock {lock:?}: {reason}";
    /// A key of a guarded or fenced write is in another cluster slot than the lock or the resource. Nothing was written.
    CrossSlot {
        /// The lock, or the resource of a fenced write.
        lock: Arc<str>,
        /// The key.
        key: String,
    } "cross_slot" (Some(lock), None), "lock {lock:?}: the key {key:?} is in another slot of the cluster; give both the same hash tag, such as {{orders}}:lock and {{orders}}:stock";
    /// The server refused a command of a guarded write. The earlier commands were executed, and are not undone.
    CommandFailed {
        /// The lock, or the resource of a fenced write.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The index of the refused command, beginning with 0. For a script the index is 0.
        index: usize,
        /// The server's message, or a note that the command was executed but its reply is unusable.
        reason: String,
        /// The replies to the commands before the failed command.
        done: Vec<Reply>,
    } "command_failed" (Some(lock), Some(node)), "lock {lock:?}: command {index} of the guarded write (the first is 0) failed on {node}; only earlier commands took effect: {reason}";
    /// A write had a smaller fencing token than an earlier write. Nothing was written.
    Stale {
        /// The resource.
        resource: Arc<str>,
        /// The fencing token of the write.
        fence: u64,
        /// The largest fencing token of the earlier writes to the resource.
        newer: u64,
    } "stale" (Some(resource), None), "resource {resource:?}: the write with fencing token {fence} is stale: a write with token {newer} came first, so another holder has acquired the lock since";
    /// The work under the lock was done, but the unlock failed. If the hold was lost before the end of the work, another
    /// holder may have worked at the same time.
    ///
    /// If the closure of [`Lock::run`](crate::Lock::run) returns nothing, `?` converts
    /// [`RunError::Ran`](crate::RunError::Ran) into this error.
    Ran {
        /// The error of the unlock.
        error: Box<Error>,
    } "ran" error.place(), "the closure under the lock ran to its end, but {error}";
    /// A renewal thread died or did not start, or the `on_lost` thread did not start. Nothing was acquired.
    WatchdogDied {
        /// The lock.
        lock: Arc<str>,
        /// The reason, if known.
        reason: String,
    } "watchdog_died" (Some(lock), None), "lock {lock:?}: the renewal thread is not running: {reason}";
    }
}
