//! The errors of rows, tables and transactions.

use std::fmt;
use std::sync::Arc;

use super::display::Words;
use super::{Error, IoSource};

/// The error of a row, a table or a transaction of a database, as [`Error::Database`] has it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DatabaseError {
    /// Somebody else had the row locked until the wait was over.
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
    /// The server answered a statement with an error that this library has no name for.
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
}

impl DatabaseError {
    /// Returns the table with the key, or the lock.
    pub fn subject(&self) -> &str {
        self.place().0
    }

    /// Returns the server, without a password.
    pub fn node(&self) -> &str {
        self.place().1
    }

    fn place(&self) -> (&str, &str) {
        let (DatabaseError::WaitTimeout { lock, node, .. }
        | DatabaseError::Deadlock { lock, node, .. }
        | DatabaseError::RowNotFound { lock, node, .. }
        | DatabaseError::Conflict { lock, node, .. }
        | DatabaseError::Schema { lock, node, .. }
        | DatabaseError::TransactionLost { lock, node, .. }
        | DatabaseError::Sql { lock, node, .. }) = self;
        (lock, node)
    }
}

impl From<DatabaseError> for Error {
    fn from(error: DatabaseError) -> Error {
        Error::Database(error)
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseError::WaitTimeout { lock, node, reason } => write!(
                f,
                "row {lock:?}: {node} has it locked for somebody else ({reason}); wait longer, or look for a transaction that was left open"
            ),
            DatabaseError::Deadlock { lock, node, reason } => write!(
                f,
                "row {lock:?}: {node} undid the transaction because of a deadlock ({reason}); run it again, and lock rows in one order or with lock_many()"
            ),
            DatabaseError::RowNotFound { lock, node, key } => write!(
                f,
                "row {lock:?}: {node} has no row with the key {key}; insert it before it is locked or changed"
            ),
            DatabaseError::Conflict {
                lock,
                node,
                attempts,
            } => write!(
                f,
                "row {lock:?} on {node}: others changed it during each of {attempts} attempts; try again later, allow more attempts, or use one relative UPDATE or a row lock"
            ),
            DatabaseError::Schema { lock, node, reason } => {
                write!(f, "lock {lock:?}: {node} lacks what it needs: {reason}")
            }
            DatabaseError::TransactionLost {
                lock,
                node,
                reason,
                source,
            } => write!(
                f,
                "lock {lock:?}: {node} has rolled the transaction back or will do so, nothing of it is written{}",
                Words(reason, source)
            ),
            DatabaseError::Sql {
                lock,
                node,
                code,
                reason,
            } => write!(
                f,
                "lock {lock:?}: {node} answered with error {code}: {reason}"
            ),
        }
    }
}

impl std::error::Error for DatabaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DatabaseError::TransactionLost { source, .. } => Some(&**source.as_ref()?),
            _ => None,
        }
    }
}
