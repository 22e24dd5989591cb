//! The texts of errors.

use std::fmt;

use super::{Error, IoSource};
use crate::ground::claim::LARGEST_COUNT;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::InvalidName { name, reason } => {
                write!(f, "lock name {name:?} cannot be used: {reason}")
            }
            Error::InvalidPermits { name, permits } => write!(
                f,
                "lock {name:?}: {permits} cannot be used as a number of permits or a count: it has to be 1 ..= {LARGEST_COUNT}, and so has their sum; permits with ids are at most 1000 at once"
            ),
            Error::InvalidLease {
                lock,
                lease,
                longest,
            } => write!(
                f,
                "lock {lock:?}: a lease time of {lease:?} is outside 10 ms ..= {longest:?}"
            ),
            Error::InvalidWait { lock, wait } => write!(
                f,
                "lock {lock:?}: a wait of {wait:?} has no end that can be expressed; use lock() to wait for ever"
            ),
            Error::InvalidConfig { setting, reason } => {
                write!(f, "{setting} cannot be used: {reason}")
            }
            Error::Unreachable {
                lock,
                node,
                reason,
                source,
            } => write!(
                f,
                "lock {lock:?}: {node} cannot be reached{}",
                Words(reason, source)
            ),
            Error::Exhausted {
                lock,
                node,
                connections,
            } => write!(
                f,
                "lock {lock:?}: all {connections} connections to {node} were in use for the whole time; allow more with pool_size(), or let fewer threads ask at once (one that waits for a lock has no connection, but a row lock has one while it waits and holds, and a transaction while it is open)"
            ),
            Error::Unknown {
                lock,
                node,
                operation,
                visitor,
                reason,
                source,
            } => write!(
                f,
                "lock {lock:?}: the outcome of the {operation}{} at {node} is unknown{}",
                visitor
                    .as_ref()
                    .map_or(String::new(), |it| format!(" of {it}")),
                Words(reason, source)
            ),
            Error::Unavailable { lock, node, reason } => write!(
                f,
                "lock {lock:?}: {node} cannot serve the request now: {reason}"
            ),
            Error::NotReplicated {
                lock,
                node,
                acknowledged,
                wanted,
            } => write!(
                f,
                "lock {lock:?}: {acknowledged} of the {wanted} replicas wanted have acknowledged it to {node}; look at its replicas, or ask for fewer"
            ),
            Error::NoQuorum {
                lock,
                granted,
                refused,
                unreachable,
                needed,
                nodes,
            } => write!(
                f,
                "lock {lock:?}: it takes {needed} of {}, but {granted} granted it, {refused} refused it and {unreachable} gave no usable answer: {}",
                Nodes(nodes.len()),
                nodes
                    .iter()
                    .map(|it| format!("{}: {}", it.node, it.answer))
                    .collect::<Vec<_>>()
                    .join("; ")
            ),
            Error::Permission {
                lock,
                node,
                reason,
                missing,
            } => {
                write!(f, "lock {lock:?}: {node} does not permit it: {reason}")?;
                match &**missing {
                    [] => Ok(()),
                    missing => write!(f, " (missing: {})", missing.join(" ")),
                }
            }
            Error::Untrusted {
                lock,
                node,
                reason,
                source,
            } => write!(
                f,
                "lock {lock:?}: no trusted connection to {node}{}",
                Words(reason, source)
            ),
            Error::WrongType { lock, node, reason } => write!(
                f,
                "lock {lock:?}: {node} has something else under this name, which was left as it is: {reason}"
            ),
            Error::CorruptCount {
                lock,
                node,
                visitor,
            } => write!(
                f,
                "lock {lock:?}: the hold count of {visitor} on {node} is not a number, something else writes to this key"
            ),
            Error::FenceRegressed {
                lock,
                node,
                seen,
                drawn,
            } => write!(
                f,
                "lock {lock:?}: {node} drew the fencing token {drawn} after {seen}, below what it was asked for, so the lock was not taken; look at what stands between the client and the server, or runs its scripts"
            ),
            Error::NoTtl { lock } => write!(
                f,
                "lock {lock:?} is held by a key without a time to live, which no lock of ours leaves; look at what wrote it, and delete it if it is a lock whose holder is gone"
            ),
            Error::Unexpected { lock, node, reason } => {
                write!(f, "lock {lock:?}: unexpected answer from {node}: {reason}")
            }
            Error::NotHeld {
                lock,
                client,
                thread,
            } => write!(
                f,
                "lock {lock:?} is not held by the current thread ({client}:{thread}): a try may have returned false, another thread may have taken it, or an unlock or a guard has given it back before"
            ),
            Error::NotReentrant { lock } => write!(
                f,
                "lock {lock:?} is held by the current thread already, and a token lock is not reentrant: waiting for it would never end"
            ),
            Error::Upgrade { lock } => write!(
                f,
                "lock {lock:?}: the current thread holds its read side, and waiting for its write side would never end; unlock the read side first, or take the write side first and read inside it"
            ),
            Error::Nested { lock } => write!(
                f,
                "lock {lock:?}: a wait on a condition gives back all levels of the hold, and a guard would still count on one; wait with levels that were taken by lock() alone, or with the only guard"
            ),
            Error::Overlap { lock, held } => write!(
                f,
                "lock {lock:?} has a part in common with {held:?}, which the current thread holds: waiting for it would never end; unlock that first, or take all in one MultiLock"
            ),
            Error::Lost {
                lock,
                visitor,
                cause,
            } => write!(f, "lock {lock:?}: the hold of {visitor} was lost: {cause}"),
            Error::Interrupted { lock } => write!(f, "lock {lock:?}: the wait was interrupted"),
            Error::Closed { lock } => write!(f, "lock {lock:?}: the client was shut down"),
            Error::Forked { lock } => write!(
                f,
                "lock {lock:?}: the client was made before fork(); make a new one in the child process"
            ),
            Error::Unsupported { lock, reason } => write!(f, "lock {lock:?}: {reason}"),
            Error::CrossSlot { lock, key } => write!(
                f,
                "lock {lock:?}: the key {key:?} is in another slot of the cluster; give both the same part in braces, such as {{orders}}:lock and {{orders}}:stock"
            ),
            Error::CommandFailed {
                lock,
                node,
                index,
                reason,
                ..
            } => write!(
                f,
                "lock {lock:?}: command {index} of the guarded write failed on {node}, and those before it were carried out: {reason}"
            ),
            Error::Stale {
                resource,
                fence,
                newer,
            } => write!(
                f,
                "resource {resource:?}: the write with fence {fence} is stale, one with {newer} came before it: its holder has lost the lock to a later one"
            ),
            Error::Ran { error } => write!(f, "the work under the lock was done, but {error}"),
            #[cfg(feature = "mysql")]
            Error::Database(error) => error.fmt(f),
            Error::WatchdogDied { lock, reason } => write!(
                f,
                "lock {lock:?}: the renewal thread is not running: {reason}"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unreachable { source, .. }
            | Error::Unknown { source, .. }
            | Error::Untrusted { source, .. } => Some(&**source.as_ref()?),
            // The source of the error whose text this one contains.
            Error::Ran { error } => error.source(),
            #[cfg(feature = "mysql")]
            Error::Database(error) => error.source(),
            _ => None,
        }
    }
}

/// The text of the error and of those behind it, in one line, as `main` prints what it returns.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// A reason behind a colon, without the text of the error behind it, which `source()` returns.
pub(super) struct Words<'a>(pub(super) &'a str, pub(super) &'a Option<IoSource>);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words(reason, source) = self;
        let mut words = (*reason).to_owned();
        let text = source.as_ref().map(|source| source.to_string());
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            for form in [format!(": {text}"), format!(" ({text})"), text] {
                words = words.replace(&form, "");
            }
        }
        match words.trim() {
            "" => Ok(()),
            words => write!(f, ": {words}"),
        }
    }
}

/// So many nodes.
pub(crate) struct Nodes(pub(crate) usize);

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Nodes(count) = self;
        write!(f, "{count} node{}", if *count == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;
    use crate::ground::error::Reason;

    fn of(words: &str) -> [Error; 3] {
        let (lock, node): (Arc<str>, Arc<str>) = ("orders".into(), "here".into());
        let cause = io::Error::other("no way");
        let (reason, source) = Reason::of_io(words, cause).into_parts();
        [
            Error::Unreachable {
                lock: Arc::clone(&lock),
                node: Arc::clone(&node),
                reason: reason.clone(),
                source: source.clone(),
            },
            Error::Unknown {
                lock: Arc::clone(&lock),
                node: Arc::clone(&node),
                operation: "acquire",
                visitor: None,
                reason: reason.clone(),
                source: source.clone(),
            },
            Error::Untrusted {
                lock,
                node,
                reason,
                source,
            },
        ]
    }

    #[test]
    fn an_error_leaves_to_its_source_what_that_says() {
        for (words, ends) in [
            ("no way", ""),
            ("connecting failed: no way", ": connecting failed"),
            ("it is old (no way); renew it", ": it is old; renew it"),
            ("connecting, no way", ": connecting,"),
            ("closed", ": closed"),
        ] {
            for error in of(words) {
                let text = error.to_string();
                assert!(text.ends_with(ends) && !text.contains("no way"), "{text}");
                assert!(!text.ends_with(':'), "{text}");
                assert_eq!(format!("{error:?}"), format!("{text}: no way"));
                let ran = Error::Ran {
                    error: Box::new(error),
                };
                assert_eq!(format!("{ran:?}"), format!("{ran}: no way"));
                #[cfg(feature = "mysql")]
                let (_, source) = Reason::of_io("", io::Error::other("no way")).into_parts();
                #[cfg(feature = "mysql")]
                let lost = super::super::database::DatabaseError::TransactionLost {
                    lock: "orders".into(),
                    node: "here".into(),
                    reason: words.to_owned(),
                    source,
                };
                #[cfg(feature = "mysql")]
                assert!(lost.to_string().ends_with(ends), "{lost}");
            }
        }
    }
}
