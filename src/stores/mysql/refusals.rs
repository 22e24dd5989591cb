//! Locks that a database does not have, and names that it has no room for.

use std::sync::Arc;

use crate::ground::claim::Kind;
use crate::ground::error::Error;

/// The longest name of a lock in bytes, prefix included.
pub(super) const LONGEST_NAME: usize = 255;

/// Returns the error for a lock that only a database refuses.
pub(super) fn refuses(kind: Kind, name: &Arc<str>) -> Option<Error> {
    let reason = match kind {
        Kind::Reentrant => "",
        Kind::Token => "a token lock is a key in Redis that other programs share",
        Kind::Read | Kind::Write => {
            "a read-write lock is a key in Redis; for rows use SELECT … FOR SHARE"
        }
        Kind::Permits | Kind::PermitIds => "a semaphore is a key in Redis",
        Kind::Latch => "a latch is a key in Redis",
        _ => "such a lock is a key in Redis",
    };
    if !reason.is_empty() {
        let reason = format!("{reason}; in a database use lock(name)");
        return Some(Error::unsupported(name, reason));
    }
    (name.len() > LONGEST_NAME).then(|| Error::InvalidName {
        name: format!("{}…", name.chars().take(64).collect::<String>()),
        reason: "it is longer than 255 bytes, prefix included, which is the width of the column in the lock table",
    })
}
