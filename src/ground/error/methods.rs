//! The methods of `Error`, such as `is_retryable`, and its constructors.

use std::sync::Arc;

#[cfg(feature = "mysql")]
use super::database::DatabaseError;
use super::{Error, Reason};
use crate::ground::claim::VisitorId;

impl Error {
    pub(crate) fn in_its_transaction(lock: &Arc<str>) -> Error {
        let reason = "a transaction of this thread has locked its row, so the call would wait for itself; lock and \
            unlock before or after Guard::transaction, not inside";
        Error::unsupported(lock, reason)
    }

    pub(crate) fn unsupported(lock: &Arc<str>, reason: impl Into<String>) -> Error {
        let (lock, reason) = (Arc::clone(lock), reason.into());
        Error::Unsupported { lock, reason }
    }

    /// `reason` must not contain a secret.
    pub(crate) fn config(setting: &'static str, reason: impl Into<String>) -> Error {
        let reason = reason.into();
        Error::InvalidConfig { setting, reason }
    }

    pub(crate) fn unreachable(lock: Arc<str>, node: Arc<str>, reason: Reason) -> Error {
        let (reason, source) = reason.into_parts();
        Error::Unreachable {
            lock,
            node,
            reason,
            source,
        }
    }

    pub(crate) fn untrusted(lock: Arc<str>, node: Arc<str>, reason: Reason) -> Error {
        let (reason, source) = reason.into_parts();
        Error::Untrusted {
            lock,
            node,
            reason,
            source,
        }
    }

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

    /// Returns the name of the error in snake case, such as `unreachable` or `not_held`. Later versions keep the names.
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

    /// Returns the name of what the error concerns: a lock with its key prefix, a resource, a table or a row.
    /// `None` if the error concerns a setting.
    pub fn lock_name(&self) -> Option<&str> {
        self.place().0
    }

    /// Returns the name of the server concerned, without a password; `None` if the error concerns no server or several
    /// servers.
    ///
    /// [`Error::NoQuorum`] lists the servers in `nodes`.
    pub fn node(&self) -> Option<&str> {
        self.place().1
    }

    /// Returns whether the same call may succeed later, when the server has recovered.
    ///
    /// The result is false for an unknown outcome ([`Error::is_ambiguous`]), and if the work under the lock was done
    /// ([`Error::Ran`]). Use this method for calls that acquire a lock. Do not repeat an `unlock` after an error, because
    /// the failed call has already given up its level of the hold.
    ///
    /// Waiting calls retry by themselves until their deadline.
    pub fn is_retryable(&self) -> bool {
        self.may_pass() && !self.is_ambiguous()
    }

    /// Returns whether the outcome of the request is unknown.
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

    /// Whether a wait continues after this error, because the server may recover. A wait also continues after an unknown
    /// outcome, because a background thread releases the hold that the request may have acquired.
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
