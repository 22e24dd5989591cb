//! Pessimistic locks on rows of a user's tables: `SELECT … FOR UPDATE` by primary key.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::ground::error::database::DatabaseError;
use crate::ground::error::{Error, Result};
use crate::ground::interrupt::Interrupt;
use crate::mysql::transaction::{IDLE_LIMIT, Tx};
use crate::stores::mysql::values::{Value, literal};
use crate::stores::mysql::{KeyedTable, LockedRows, MySql, Session};

/// A set of rows that can be locked: the rows of a table, found by primary key, or rows that this library creates by name.
#[derive(Clone, Debug)]
pub struct RowTarget {
    keyed: Option<KeyedTable>,
}

impl RowTarget {
    /// Returns the rows of `table`. The column `key` must be the whole primary key of `table`.
    ///
    /// If `key` is not the primary key, the first lock of a row returns [`DatabaseError::Schema`]: without an index the
    /// server would lock every row that it reads. The key must be an integer, text, bytes, a date or a date with time.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a name is invalid. A valid name is an ASCII letter or `_`, followed by ASCII
    /// letters, digits, `_` and `$`, and has at most 64 characters.
    pub fn table(table: &str, key: &str) -> Result<RowTarget> {
        let keyed = Some(KeyedTable::new(table, key)?);
        Ok(RowTarget { keyed })
    }

    /// Returns the rows of a table that this library owns. Each row has a name of at most 255 bytes.
    ///
    /// The first lock of a name inserts its row. The row then stays. [`Client::create_tables`] creates the table.
    pub fn named() -> RowTarget {
        RowTarget { keyed: None }
    }
}

/// How long to wait for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Waits without a limit.
    Forever,
    /// Waits at most this long.
    For(Duration),
    /// Does not wait: the call fails if the row is locked.
    Never,
}

impl Wait {
    fn limit(self) -> Option<Duration> {
        match self {
            Wait::Forever => None,
            Wait::For(wait) => Some(wait),
            Wait::Never => Some(Duration::ZERO),
        }
    }
}

/// The isolation level of the transaction that holds a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// The default. Each statement sees all earlier commits, and locks only the rows that it finds.
    ReadCommitted,
    /// Plain reads see one snapshot, and locks include the gaps between rows. Use this level with
    /// `binlog_format=STATEMENT`, which does not permit [`Isolation::ReadCommitted`].
    RepeatableRead,
    /// Reads lock the rows that they read.
    Serializable,
}

impl Isolation {
    fn as_sql(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }
}

/// A lock on one row of a database, created by [`Client::row_lock`].
///
/// A [`RowGuard`] is an open transaction: the row is locked until the guard is committed, rolled back or dropped. There is
/// no lease. After the holder died, the row is free when the server notices the closed connection. If the holder hangs, the
/// server ends its transaction after the [idle limit](RowLock::with_idle_limit).
///
/// Waiters of all processes share one queue on the server. Once a second each waiter leaves the queue and joins it at the end,
/// to notice interrupts and a shutdown. Each holder and waiter uses a connection, so use row locks for low contention and short
/// work. With Galera and group replication all writers must use one node, because only this node locks the rows.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use redlatch::Client;
/// use redlatch::mysql::{RowTarget, Wait};
///
/// let client = Client::open("mysql://app:secret@127.0.0.1/shop")?;
/// let accounts = RowTarget::table("accounts", "id")?;
/// let mut guard = client.row_lock(&accounts, 42).lock(Wait::For(Duration::from_secs(5)))?;
/// guard.tx().exec("UPDATE accounts SET balance = balance - 10 WHERE id = ?", (42,))?;
/// guard.commit()?;
/// # Ok::<(), redlatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RowLock {
    client: Client,
    rows: LockedRows,
}

impl RowLock {
    /// Returns the same lock with another isolation level for its transactions.
    ///
    /// Defaults to [`Isolation::ReadCommitted`].
    #[must_use = "this returns the configured lock; the original is unchanged"]
    pub fn with_isolation(&self, isolation: Isolation) -> RowLock {
        let mut lock = self.clone();
        lock.rows.isolation = isolation.as_sql();
        lock
    }

    /// Returns the same lock with another idle limit for its transactions, in whole seconds, at least 1.
    ///
    /// If no statement runs for this time, the server ends the transaction, and the holder gets
    /// [`DatabaseError::TransactionLost`]. With `None` the limit of the server applies, by default eight hours. Defaults to
    /// 60 s.
    #[must_use = "this returns the configured lock; the original is unchanged"]
    pub fn with_idle_limit(&self, limit: Option<Duration>) -> RowLock {
        let mut lock = self.clone();
        lock.rows.idle_limit = limit;
        lock
    }

    /// Locks the row, and waits for it as long as `wait` allows.
    ///
    /// # Errors
    ///
    /// After any of these errors nothing is locked:
    ///
    /// - [`DatabaseError::WaitTimeout`]: another transaction had the row locked for the whole wait;
    /// - [`Error::Exhausted`]: no connection became free during the wait;
    /// - [`DatabaseError::RowNotFound`]: there is no row with this key;
    /// - [`DatabaseError::Deadlock`]: the server rolled the transaction back to resolve a deadlock;
    /// - [`DatabaseError::Schema`]: the table does not match [`RowTarget::table`], or cannot lock rows;
    /// - [`Error::Unsupported`]: the key does not fit the type of the primary key (such as text for a number), or the client
    ///   is not for a database;
    /// - [`Error::InvalidName`], [`Error::InvalidWait`]: the name of a named row is longer than 255 bytes, or the end of the
    ///   wait cannot be represented;
    /// - [`Error::Unreachable`], [`Error::Untrusted`], [`Error::Unavailable`], [`DatabaseError::TransactionLost`]: the
    ///   server was not reached, TLS failed, the server cannot serve now, or it closed the connection;
    /// - [`Error::Permission`], [`DatabaseError::Sql`], [`Error::Unexpected`]: the user lacks a right, the server
    ///   reports an error without a variant of its own, or sent an unexpected reply;
    /// - [`Error::Closed`]: the client was shut down;
    /// - [`Error::Forked`]: the client was created before this process was forked.
    pub fn lock(&self, wait: Wait) -> Result<RowGuard> {
        self.lock_until(wait, None)
    }

    /// Locks the row, and waits for it as long as `wait` allows or until `interrupt` is raised. The wait notices `interrupt`
    /// within about a second.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`RowLock::lock`].
    pub fn lock_interruptibly(&self, wait: Wait, interrupt: &Interrupt) -> Result<RowGuard> {
        self.lock_until(wait, Some(interrupt))
    }

    fn lock_until(&self, wait: Wait, interrupt: Option<&Interrupt>) -> Result<RowGuard> {
        let LockedRows { target, keys, .. } = &self.rows;
        let table = target.as_ref().map_or("name", |it| it.table.as_str());
        let subject = subject(table, keys);
        let store = store(&self.client, &subject)?;
        Ok(RowGuard {
            session: store.lock_rows(&self.rows, wait.limit(), interrupt, &subject)?,
            _client: self.client.clone(),
        })
    }

    /// Locks the row if it is free. Returns `None` if another transaction has locked the row.
    ///
    /// # Errors
    ///
    /// Those of [`RowLock::lock`], except for [`DatabaseError::WaitTimeout`].
    pub fn try_lock(&self) -> Result<Option<RowGuard>> {
        match self.lock(Wait::Never) {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Database(DatabaseError::WaitTimeout { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Client {
    /// Returns the lock of the row with this key, without I/O.
    pub fn row_lock(&self, target: &RowTarget, key: impl Into<Value>) -> RowLock {
        self.row_locks(target, [key])
    }

    fn row_locks<K: Into<Value>>(
        &self,
        target: &RowTarget,
        keys: impl IntoIterator<Item = K>,
    ) -> RowLock {
        RowLock {
            client: self.clone(),
            rows: LockedRows {
                target: target.keyed.clone(),
                keys: keys.into_iter().map(Into::into).collect(),
                isolation: Isolation::ReadCommitted.as_sql(),
                idle_limit: Some(IDLE_LIMIT),
            },
        }
    }

    /// Locks several rows in one transaction. Each call locks its rows in key order, so two such calls never deadlock.
    ///
    /// The call locks all rows or none. The isolation level is [`Isolation::ReadCommitted`] and the idle limit 60 s.
    ///
    /// # Errors
    ///
    /// Those of [`RowLock::lock`]; [`Error::Unsupported`] if `keys` is empty.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use redlatch::Client;
    /// # use redlatch::mysql::{RowTarget, Wait};
    /// # let client = Client::open("mysql://app:secret@127.0.0.1/shop")?;
    /// let accounts = RowTarget::table("accounts", "id")?;
    /// let mut guard = client.lock_many(&accounts, [7, 3], Wait::Forever)?;
    /// guard.tx().exec("UPDATE accounts SET balance = balance - 10 WHERE id = ?", (7,))?;
    /// guard.tx().exec("UPDATE accounts SET balance = balance + 10 WHERE id = ?", (3,))?;
    /// guard.commit()?;
    /// # Ok::<(), redlatch::Error>(())
    /// ```
    pub fn lock_many<K: Into<Value>>(
        &self,
        target: &RowTarget,
        keys: impl IntoIterator<Item = K>,
        wait: Wait,
    ) -> Result<RowGuard> {
        self.row_locks(target, keys).lock(wait)
    }
}

pub(crate) fn subject(table: &str, keys: &[Value]) -> Arc<str> {
    let keys: Vec<String> = keys.iter().map(literal).collect();
    let keys: String = keys.join(", ").chars().take(64).collect();
    format!("{table}[{keys}]").into()
}

pub(crate) fn store<'a>(client: &'a Client, subject: &Arc<str>) -> Result<&'a MySql> {
    client.inner.not_forked(subject)?;
    client.database().map(Arc::as_ref).ok_or_else(|| {
        let reason = "it needs a database; open the client with a mysql:// URL";
        Error::unsupported(subject, reason)
    })
}

/// An open transaction that has locked one or more rows. A drop rolls the transaction back.
///
/// The guard may be sent to another thread.
#[must_use = "the rows are unlocked, and what was written is rolled back, as soon as the guard is dropped"]
#[derive(Debug)]
pub struct RowGuard {
    session: Session,
    /// Keeps the connection pool of the session open.
    _client: Client,
}

impl RowGuard {
    /// Returns the transaction, to run statements in it.
    pub fn tx(&mut self) -> Tx<'_> {
        let session = &mut self.session;
        Tx { session }
    }

    /// Commits the transaction, and unlocks the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if the commit got no reply. Every other error means that nothing was written.
    /// [`DatabaseError::TransactionLost`] if the transaction was lost. If an earlier statement ended the transaction,
    /// the error of that statement. [`DatabaseError::Deadlock`], [`DatabaseError::WaitTimeout`], [`Error::Unavailable`]
    /// or [`DatabaseError::Sql`] if the server refused the commit. [`Error::Forked`] in a forked child.
    pub fn commit(self) -> Result<()> {
        self.session.commit()
    }

    /// Rolls the transaction back, and unlocks the rows, as a drop does.
    ///
    /// # Errors
    ///
    /// [`DatabaseError::TransactionLost`] if the connection was lost; the server then rolls the transaction back.
    /// [`Error::Forked`] in a forked child.
    pub fn rollback(mut self) -> Result<()> {
        self.session.rollback()
    }
}
