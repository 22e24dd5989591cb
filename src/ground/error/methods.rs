//! The questions that a caller asks an error.

use std::sync::Arc;

#[cfg(feature = "mysql")]
use super::database::DatabaseError;
use super::{Error, Reason};
use crate::ground::claim::VisitorId;

impl Error {
    /// Makes the error of a call on a lock in its own transaction.
    pub(crate) fn in_its_transaction(lock: &Arc<str>) -> Error {
        let reason = "a transaction of this thread has locked its row, so the call would wait for itself; lock and \
            unlock before or after Guard::transaction, not inside";
        Error::unsupported(lock, reason)
    }

    /// Makes the error of what the server or the place of the call does not allow.
    pub(crate) fn unsupported(lock: &Arc<str>, reason: impl Into<String>) -> Error {
        Error::Unsupported {
            lock: Arc::clone(lock),
            reason: reason.into(),
        }
    }

    /// Makes the error of a setting that cannot be used; the reason must have no secret in it.
    pub(crate) fn config(setting: &'static str, reason: impl Into<String>) -> Error {
        Error::InvalidConfig {
            setting,
            reason: reason.into(),
        }
    }

    /// Makes the error of a request whose outcome is not known.
    pub(crate) fn unknown(
        lock: &Arc<str>,
        node: impl Into<Arc<str>>,
        operation: &'static str,
        visitor: Option<&VisitorId>,
        reason: impl Into<Reason>,
    ) -> Error {
        let (reason, source) = reason.into().into_parts();
        Error::Unknown {
            lock: Arc::clone(lock),
            node: node.into(),
            operation,
            visitor: visitor.cloned(),
            reason,
            source,
        }
    }

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
        self.name()
    }

    /// Returns the name of the lock concerned, prefix included; `None` for settings.
    pub fn lock_name(&self) -> Option<&str> {
        self.place().0
    }

    /// Returns the name of the server concerned, without a password; `None` if it is none or not a single one.
    ///
    /// [`Error::NoQuorum`] names several: see its `nodes`.
    pub fn node(&self) -> Option<&str> {
        self.place().1
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
            Error::Lost { .. } => true,
            #[cfg(feature = "mysql")]
            Error::Database(DatabaseError::TransactionLost { .. }) => true,
            Error::Ran { error, .. } => error.is_lost(),
            _ => false,
        }
    }

    /// Whether a wait goes on in spite of it: the server may be well in a moment. Unlike `is_retryable`, which tells users
    /// that nothing was done, and `CallError::is_passing`, which tells a topology to try another server. A waiter may ask again even if the
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
