//! Locks that a database does not have, and names that it has no room for.

use std::sync::Arc;

use crate::ground::claim::Kind;
use crate::ground::error::Error;

/// The longest name of a lock in bytes, prefix included.
pub(super) const LONGEST_NAME: usize = 255;

/// Returns the error for a lock that only a database refuses.
pub(super) fn refuses(kind: Kind, name: &Arc<str>) -> Option<Error> {
    let reason = match kind {
        Kind::Reentrant => None,
        Kind::Token => Some(
            "a token lock is a key in Redis that other programs share; a database has lock(name)",
        ),
        Kind::Read | Kind::Write => Some(
            "a read-write lock is a key in Redis; a database has lock(name), and SELECT … FOR SHARE for its rows",
        ),
        Kind::Permits | Kind::PermitIds => {
            Some("a semaphore is a key in Redis; a database has lock(name)")
        }
        Kind::Latch => Some("a latch is a key in Redis; a database has lock(name)"),
        _ => Some("such a lock is a key in Redis; a database has lock(name)"),
    };
    if let Some(reason) = reason {
        return Some(Error::Unsupported {
            lock: Arc::clone(name),
            reason: reason.to_owned(),
        });
    }
    (name.len() > LONGEST_NAME).then(|| Error::InvalidName {
        name: format!("{}…", name.chars().take(64).collect::<String>()),
        reason: "it is longer than 255 bytes, prefix included, which is all that the lock table has room for",
    })
}
