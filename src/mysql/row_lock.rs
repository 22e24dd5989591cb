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

/// A set of rows that can be locked: the rows of a table by its primary key, or named rows.
#[derive(Clone, Debug)]
pub struct RowTarget {
    keyed: Option<KeyedTable>,
}

impl RowTarget {
    /// Returns the rows of `table`, whose primary key is the one column `key`.
    ///
    /// The first lock refuses any other column ([`DatabaseError::Schema`]): without an index the server would lock
    /// every row that it reads.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] if a name is not a letter or `_`, followed by letters, digits, `_` and `$`, at most 64 in all.
    pub fn table(table: &str, key: &str) -> Result<RowTarget> {
        Ok(RowTarget {
            keyed: Some(KeyedTable::new(table, key)?),
        })
    }

    /// Returns the named rows: rows of a table of this library that have only a name, of at most 255 bytes.
    ///
    /// The first lock of a row inserts it, and the row stays. [`Client::create_tables`] creates the table.
    pub fn named() -> RowTarget {
        RowTarget { keyed: None }
    }
}

/// The longest wait for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// No limit.
    Forever,
    /// At most this long.
    For(Duration),
    /// No wait: the row is free at once, or the call fails.
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
    /// Each statement sees all commits before it, and locks only the rows that it finds. The default here.
    ReadCommitted,
    /// All reads see one snapshot, and gaps between rows are locked, too. Needed with `binlog_format=STATEMENT`.
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

/// A lock on one row of a database, made by [`Client::row_lock`].
///
/// The guard is an open transaction: the row is locked until the transaction is committed, rolled back or dropped. There is
/// no lease. The row of a holder that dies is free as soon as the server notices that the connection is gone. The server
/// ends the transaction of a holder that hangs after the [idle limit](RowLock::with_idle_limit). The queue for a row is the
/// server's, which is fair across processes; a waiter joins it again once a second, to notice interrupts and the shutdown
/// of the client. Each holder and each waiter uses a connection, so row locks are for low contention and short work.
///
/// On Galera and with group replication, rows are locked on one node only: let all writers use the same node.
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

    /// Returns the same lock with another limit of the time for which its transaction may be idle, in whole seconds.
    ///
    /// After the limit the server ends the transaction, and the holder gets [`DatabaseError::TransactionLost`]. `None`
    /// means the limit of the server, by default eight hours. Defaults to 60 s.
    #[must_use = "this returns the configured lock; the original is unchanged"]
    pub fn with_idle_limit(&self, limit: Option<Duration>) -> RowLock {
        let mut lock = self.clone();
        lock.rows.idle_limit = limit;
        lock
    }

    /// Locks the row; waits for it at most as long as `wait` allows.
    ///
    /// # Errors
    ///
    /// After an error nothing is locked:
    ///
    /// - [`DatabaseError::WaitTimeout`]: another transaction had the row locked for the whole wait;
    /// - [`Error::Exhausted`]: no connection became free during the wait, which includes the wait for a connection;
    /// - [`DatabaseError::RowNotFound`]: there is no row with this key;
    /// - [`DatabaseError::Deadlock`]: the server rolled the transaction back so that another one can go on;
    /// - [`DatabaseError::Schema`]: the table is not as [`RowTarget::table`] said, or cannot lock rows;
    /// - [`Error::Unsupported`]: the key is of another kind than the primary key, such as text for a number, or the client
    ///   has no database;
    /// - [`Error::InvalidName`], [`Error::InvalidWait`]: the name of a named row is not text of at most 255 bytes, or the end
    ///   of the wait cannot be expressed;
    /// - [`Error::Unreachable`], [`Error::Unavailable`], [`DatabaseError::TransactionLost`]: the server cannot be
    ///   reached, cannot serve now, or closed the connection; these errors end the wait;
    /// - [`Error::Permission`], [`DatabaseError::Sql`], [`Error::Unexpected`]: the user lacks a right, or the server
    ///   gave an error without a variant of its own, or an unexpected answer;
    /// - [`Error::Closed`]: the client was shut down, at most about a second before;
    /// - [`Error::Forked`]: the client was made before this process was forked.
    pub fn lock(&self, wait: Wait) -> Result<RowGuard> {
        self.lock_until(wait, None)
    }

    /// Locks the row, unless `interrupt` ends the wait; an interrupt takes effect within about a second.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] once `interrupt` is raised, and those of [`RowLock::lock`].
    pub fn lock_interruptibly(&self, wait: Wait, interrupt: &Interrupt) -> Result<RowGuard> {
        self.lock_until(wait, Some(interrupt))
    }

    fn lock_until(&self, wait: Wait, interrupt: Option<&Interrupt>) -> Result<RowGuard> {
        let LockedRows { target, keys, .. } = &self.rows;
        let table = target
            .as_ref()
            .map_or("name", |target| target.table.as_str());
        let subject = subject(table, keys);
        let store = store(&self.client, &subject)?;
        Ok(RowGuard {
            session: store.lock_rows(&self.rows, wait.limit(), interrupt, &subject)?,
            _client: self.client.clone(),
        })
    }

    /// Locks the row if it is free; returns `None` if another transaction has locked it.
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
    /// Returns the lock of the row with this key; there is no I/O.
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

    /// Locks several rows in one transaction, in one order for all callers, so that two callers never deadlock.
    ///
    /// Either all rows are locked or none. The transaction has the isolation level [`Isolation::ReadCommitted`] and an idle
    /// limit of 60 s.
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

/// Returns a table and keys of it as messages have them.
pub(crate) fn subject(table: &str, keys: &[Value]) -> Arc<str> {
    let keys: Vec<String> = keys.iter().map(literal).collect();
    let keys: String = keys.join(", ").chars().take(64).collect();
    format!("{table}[{keys}]").into()
}

/// Returns the database of a client; fails if it has none, or was made before a fork.
pub(crate) fn store<'a>(client: &'a Client, subject: &Arc<str>) -> Result<&'a MySql> {
    client.inner.not_forked(subject)?;
    client.database().map(Arc::as_ref).ok_or_else(|| {
        let reason = "it needs a database; open the client with a mysql:// URL";
        Error::unsupported(subject, reason)
    })
}

/// An open transaction that has locked one or more rows; drop rolls it back.
///
/// The guard is not bound to a thread: it may be sent to another one.
#[must_use = "the rows are unlocked, and what was written is rolled back, as soon as the guard is dropped"]
#[derive(Debug)]
pub struct RowGuard {
    session: Session,
    /// The pool of the connection ends with the client.
    _client: Client,
}

impl RowGuard {
    /// Returns the transaction, in which statements can run.
    pub fn tx(&mut self) -> Tx<'_> {
        Tx {
            session: &mut self.session,
        }
    }

    /// Commits the transaction, and unlocks the rows.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if the commit got no answer. After every other error nothing was written:
    /// [`DatabaseError::TransactionLost`] if the transaction was lost, the error of the statement that ended it, or the
    /// refusal by the server ([`DatabaseError::Deadlock`], [`DatabaseError::WaitTimeout`], [`Error::Unavailable`],
    /// [`DatabaseError::Sql`]); [`Error::Forked`] in a forked child.
    pub fn commit(self) -> Result<()> {
        self.session.commit()
    }

    /// Rolls the transaction back, and unlocks the rows, as drop does.
    ///
    /// # Errors
    ///
    /// [`DatabaseError::TransactionLost`] if the transaction was lost before; in any case the server rolls it back.
    pub fn rollback(mut self) -> Result<()> {
        self.session.rollback()
    }
}
