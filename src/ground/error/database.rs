use std::sync::Arc;

use super::errors_macro::errors;
use super::source::ReasonText;
use super::{Error, IoSource};

errors! {
    /// An error of a row, a table or a transaction of a database. [`Error::Database`] contains it.
    #[derive(Debug, Clone)]
    DatabaseError {
    /// The wait ended before another transaction unlocked the row, or a statement exceeded the server's time limit.
    WaitTimeout {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's message.
        reason: String,
    } "wait_timeout" (Some(lock), Some(node)), "row {lock:?}: another transaction on {node} has locked it \
        ({reason}); wait longer, or find a transaction that was left open";
    /// Transactions waited for each other or conflicted, and the server rolled this transaction back. The caller can
    /// run the whole transaction again.
    Deadlock {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's message.
        reason: String,
    } "deadlock" (Some(lock), Some(node)), "row {lock:?}: {node} rolled the transaction back because of a deadlock \
        ({reason}); run it again, and lock rows in one order or with lock_many()";
    /// No row has this key.
    RowNotFound {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The key as SQL.
        key: String,
    } "row_not_found" (Some(lock), Some(node)), "row {lock:?}: {node} has no row with the key {key}; insert it \
        before you lock or update it";
    /// In each attempt of this call, another client changed the row between the read and the write. The call changed
    /// nothing.
    Conflict {
        /// The table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The number of attempts.
        attempts: u32,
    } "conflict" (Some(lock), Some(node)), "row {lock:?} on {node}: other clients changed it during each of \
        {attempts} attempts; retry later, allow more attempts, or use a relative UPDATE or a row lock";
    /// A database, table or column is missing, or the definition of a table does not fit.
    Schema {
        /// The lock or the table.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// What is missing or does not fit, and what to do.
        reason: String,
    } "schema" (Some(lock), Some(node)), "lock {lock:?}: the schema on {node} does not fit: {reason}";
    /// The server has rolled the transaction back, or will do so. Nothing was written.
    ///
    /// If the server ended the transaction, its row locks ended at once. Otherwise the row locks end when the server notices
    /// that the connection is closed.
    TransactionLost {
        /// The lock, or the table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The reason.
        reason: String,
        /// The I/O error, which `source()` returns.
        source: Option<IoSource>,
    } "transaction_lost" (Some(lock), Some(node)), "lock {lock:?}: {node} has rolled the transaction back or will \
        do so, and nothing of it is written{}", ReasonText(reason, source);
    /// The server replied to a statement with an error for which there is no other variant.
    Sql {
        /// The lock, or the table and the key.
        lock: Arc<str>,
        /// The server.
        node: Arc<str>,
        /// The server's error number.
        code: u16,
        /// The server's message.
        reason: String,
    } "sql" (Some(lock), Some(node)), "lock {lock:?}: {node} answered with error {code}: {reason}";
    }
}

impl DatabaseError {
    /// Returns the lock, the table, or the table and the key.
    pub fn subject(&self) -> &str {
        self.place().0.unwrap_or_default()
    }

    /// Returns the name of the server, without a password.
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
