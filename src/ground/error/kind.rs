//! The names of the errors, for logs and for programs in other languages.

use super::Error;
#[cfg(feature = "mysql")]
use super::database::DatabaseError;

impl Error {
    /// Returns the name of the error in snake case, such as `unreachable` or `not_held`, which stays the same in later
    /// versions.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = redlatch::Client::in_memory();
    /// let error = client.lock("orders:42").unlock().unwrap_err();
    /// assert_eq!(error.kind(), "not_held");
    /// ```
    pub fn kind(&self) -> &'static str {
        match self {
            Error::InvalidName { .. } => "invalid_name",
            Error::InvalidPermits { .. } => "invalid_permits",
            Error::InvalidLease { .. } => "invalid_lease",
            Error::InvalidWait { .. } => "invalid_wait",
            Error::InvalidConfig { .. } => "invalid_config",
            Error::Unreachable { .. } => "unreachable",
            Error::Exhausted { .. } => "exhausted",
            Error::Unknown { .. } => "unknown",
            Error::Unavailable { .. } => "unavailable",
            Error::NotReplicated { .. } => "not_replicated",
            Error::NoQuorum { .. } => "no_quorum",
            Error::Permission { .. } => "permission",
            Error::Untrusted { .. } => "untrusted",
            Error::WrongType { .. } => "wrong_type",
            Error::CorruptCount { .. } => "corrupt_count",
            Error::FenceRegressed { .. } => "fence_regressed",
            Error::NoTtl { .. } => "no_ttl",
            Error::Unexpected { .. } => "unexpected",
            Error::NotHeld { .. } => "not_held",
            Error::NotReentrant { .. } => "not_reentrant",
            Error::Upgrade { .. } => "upgrade",
            Error::Nested { .. } => "nested",
            Error::Overlap { .. } => "overlap",
            Error::Lost { .. } => "lost",
            Error::Interrupted { .. } => "interrupted",
            Error::Closed { .. } => "closed",
            Error::Forked { .. } => "forked",
            Error::Unsupported { .. } => "unsupported",
            Error::CrossSlot { .. } => "cross_slot",
            Error::CommandFailed { .. } => "command_failed",
            Error::Stale { .. } => "stale",
            Error::Ran { .. } => "ran",
            Error::WatchdogDied { .. } => "watchdog_died",
            #[cfg(feature = "mysql")]
            Error::Database(error) => of_database(error),
        }
    }
}

#[cfg(feature = "mysql")]
fn of_database(error: &DatabaseError) -> &'static str {
    match error {
        DatabaseError::WaitTimeout { .. } => "wait_timeout",
        DatabaseError::Deadlock { .. } => "deadlock",
        DatabaseError::RowNotFound { .. } => "row_not_found",
        DatabaseError::Conflict { .. } => "conflict",
        DatabaseError::Schema { .. } => "schema",
        DatabaseError::TransactionLost { .. } => "transaction_lost",
        DatabaseError::Sql { .. } => "sql",
    }
}
