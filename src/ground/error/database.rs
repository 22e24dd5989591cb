//! The errors of rows, tables and transactions.

use std::sync::Arc;

use super::define::errors;
use super::display::Words;
use super::{Error, IoSource};

errors! {
    /// The error of a row, a table or a transaction of a database, as [`Error::Database`] has it.
    #[derive(Debug, Clone)]
    DatabaseError {
    /// Somebody else had the row locked until the wait was over.
    WaitTimeout {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's words.
        reason: String,
    } "wait_timeout" (Some(lock), Some(node)), "row {lock:?}: another transaction on {node} has locked it \
        ({reason}); wait longer, or find a transaction that was left open";
    /// Two transactions waited for each other, and the server has rolled this one back; it may be run again from its start.
    Deadlock {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's words.
        reason: String,
    } "deadlock" (Some(lock), Some(node)), "row {lock:?}: {node} rolled the transaction back because of a deadlock \
        ({reason}); run it again, and lock rows in one order or with lock_many()";
    /// There is no row with this key.
    RowNotFound {
        /// The table.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The key as SQL.
        key: String,
    } "row_not_found" (Some(lock), Some(node)), "row {lock:?}: {node} has no row with the key {key}; insert it \
        before you lock or update it";
    /// Others changed the row again and again between reading and writing; nothing was changed.
    Conflict {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The number of attempts.
        attempts: u32,
    } "conflict" (Some(lock), Some(node)), "row {lock:?} on {node}: other clients changed it during each of \
        {attempts} attempts; retry later, allow more attempts, or use a relative UPDATE or a row lock";
    /// A table is missing, or lacks what a lock relies on.
    Schema {
        /// The lock or the table.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The part that is missing, and how to get it.
        reason: String,
    } "schema" (Some(lock), Some(node)), "lock {lock:?}: the schema on {node} does not fit: {reason}";
    /// The transaction is over; nothing of it was written.
    ///
    /// The lock on its rows is gone with it once the server has rolled it back: at once if the server has ended it, else
    /// when the server notices that the connection is gone. Until then the rows stay locked.
    TransactionLost {
        /// The lock, or the table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reason.
        reason: String,
        /// The error of the operating system behind it, which `source()` returns.
        source: Option<IoSource>,
    } "transaction_lost" (Some(lock), Some(node)), "lock {lock:?}: {node} has rolled the transaction back or will \
        do so, and nothing of it is written{}", Words(reason, source);
    /// The server answered a statement with an error that this library has no name for.
    Sql {
        /// The lock, or the table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's number of the error.
        code: u16,
        /// The server's words.
        reason: String,
    } "sql" (Some(lock), Some(node)), "lock {lock:?}: {node} answered with error {code}: {reason}";
    }
}

impl DatabaseError {
    /// Returns the table with the key, or the lock.
    pub fn subject(&self) -> &str {
        self.place().0.unwrap_or_default()
    }

    /// Returns the server, without a password.
    pub fn node(&self) -> &str {
        self.place().1.unwrap_or_default()
    }
}

impl From<DatabaseError> for Error {
    fn from(error: DatabaseError) -> Error {
        Error::Database(error)
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
