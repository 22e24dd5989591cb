//! Failures of a request to a server.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::ground::error::Reason;
use crate::stores::redis::transport::reply_text::plain;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The request had no effect: it was certainly not executed, or it was a query.
    NotSent(Reason),
    /// All connections of the pool were in use until the deadline. The value is the size of the pool.
    Exhausted(u32),
    /// The request was sent and may have been executed.
    NoReply { reason: Reason, timed_out: bool },
    /// An error reply of the server.
    Server(String),
    /// A TLS failure that a retry does not cure, such as an untrusted certificate. Nothing was sent.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "only TLS creates it"))]
    Untrusted(Reason),
    /// Nothing was sent, because the server has no vote in its quorum. The value is the reason.
    Unfit(String),
}

pub(crate) const EXHAUSTED: &str = "all connections of the pool were in use until the deadline";

/// The code of client-generated errors about wrong settings, such as a cluster node opened as a single server.
pub(crate) const WRONG_KIND: &str = "WRONGKIND ";

impl CallError {
    pub(crate) fn wrong_kind(reason: impl std::fmt::Display) -> CallError {
        CallError::Server(format!("{WRONG_KIND}{reason}"))
    }

    pub(crate) fn of_connecting(error: io::Error) -> CallError {
        let words = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => "connecting timed out".to_owned(),
            _ => format!("connecting failed: {error}"),
        };
        CallError::NotSent(Reason::of_io(words, error))
    }

    pub(crate) fn not_sent(error: io::Error) -> CallError {
        CallError::NotSent(Reason::of_io(error.to_string(), error))
    }

    /// Returns the error for a request that was sent, but whose reply will never arrive.
    pub(crate) fn cut(reason: impl Into<Reason>) -> CallError {
        CallError::NoReply {
            reason: reason.into(),
            timed_out: false,
        }
    }

    /// A query changes nothing, so its `NoReply` becomes `NotSent`.
    pub(crate) fn of_query(self) -> CallError {
        match self {
            CallError::NoReply { reason, .. } => CallError::NotSent(reason),
            fault => fault,
        }
    }

    /// Converts error replies of the proxy Envoy.
    pub(crate) fn of_a_proxy(self) -> CallError {
        match self {
            // Envoy got no reply from the server, which may have executed the request.
            CallError::Server(text) if text.starts_with("upstream ") => {
                CallError::cut(format!("a proxy answered: {text}"))
            }
            CallError::Server(text) if text.starts_with("no upstream host") => {
                CallError::NotSent(format!("a proxy answered: {text}").into())
            }
            fault => fault,
        }
    }

    /// Turns `NOSCRIPT` into a lost reply: `EVAL` never returns `NOSCRIPT`, so it belongs to an earlier `EVALSHA`.
    pub(crate) fn of_eval(self) -> CallError {
        match self {
            CallError::Server(text) if text.starts_with("NOSCRIPT") => {
                CallError::cut("the reply belongs to another request")
            }
            fault => fault,
        }
    }

    /// Whether the request was not executed, and a retry before its deadline may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, CallError::NotSent(_))
            || self.is_not_master()
            || self.has_code(&["CLUSTERDOWN", "TRYAGAIN"])
    }

    /// Whether the server is a replica, or is loading its data after a restart.
    pub(crate) fn is_not_master(&self) -> bool {
        self.has_code(&["READONLY", "MASTERDOWN", "LOADING"])
    }

    fn has_code(&self, codes: &[&str]) -> bool {
        matches!(self, CallError::Server(text) if codes.iter().any(|code| text.starts_with(code)))
    }

    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self, CallError::NotSent(_) | CallError::Exhausted(_)) || self.is_at_limit()
    }

    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, CallError::NoReply { timed_out, .. } if *timed_out)
    }

    pub(crate) fn is_at_limit(&self) -> bool {
        let limits = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        match self {
            CallError::NotSent(reason) => reason.os_error().is_some_and(|it| limits.contains(&it)),
            CallError::Server(text) => text.contains("max number of clients"),
            _ => false,
        }
    }

    pub(crate) fn is_of_a_server(&self) -> bool {
        matches!(self, CallError::Server(_)) || self.is_hang_up()
    }

    /// Whether a test dropped the reply. The test would also drop the reply to a retry, so a retry is useless.
    #[cfg(feature = "in-memory")]
    pub(crate) fn is_lost_by_a_test(&self) -> bool {
        matches!(self, CallError::NoReply { reason, .. } if reason.io_kind() == Some(io::ErrorKind::Other))
    }

    /// Whether the server closed the connection. At `maxclients`, it may send no error reply, and sends none over TLS.
    pub(crate) fn is_hang_up(&self) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        const KINDS: [ErrorKind; 4] = [
            UnexpectedEof,
            ConnectionReset,
            ConnectionAborted,
            BrokenPipe,
        ];
        matches!(self, CallError::NotSent(reason) if reason.io_kind().is_some_and(|it| KINDS.contains(&it)))
    }

    /// Returns the reason to show to users.
    pub(crate) fn into_reason(self) -> Reason {
        match self {
            CallError::NotSent(reason)
            | CallError::NoReply { reason, .. }
            | CallError::Untrusted(reason) => reason,
            CallError::Server(text) => plain(&text).into(),
            CallError::Unfit(text) => text.into(),
            CallError::Exhausted(_) => EXHAUSTED.to_owned().into(),
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            CallError::NotSent(reason)
            | CallError::NoReply { reason, .. }
            | CallError::Untrusted(reason) => reason,
            CallError::Exhausted(_) => EXHAUSTED,
            CallError::Server(text) | CallError::Unfit(text) => text,
        }
    }

    pub(crate) fn keep_in(self, kept: &mut Option<CallError>) {
        if kept.is_none() || matches!(self, CallError::Server(_) | CallError::Untrusted(_)) {
            *kept = Some(self);
        }
    }

    /// Puts the node's name before the text. `is_passing` tests the first word of an error reply, so the node's name
    /// would make it false. If it was true, the error reply becomes `NotSent`, for which `is_passing` is always true.
    pub(crate) fn at(self, node: &str) -> CallError {
        let is_passing = self.is_passing();
        let at = |reason: &str| format!("{node}: {reason}");
        match self {
            CallError::Server(text) if is_passing => CallError::NotSent(at(&text).into()),
            CallError::NotSent(reason) => CallError::NotSent(reason.reworded(at)),
            CallError::NoReply { reason, timed_out } => CallError::NoReply {
                reason: reason.reworded(at),
                timed_out,
            },
            CallError::Server(text) => CallError::Server(at(&text)),
            CallError::Unfit(text) => CallError::Unfit(at(&text)),
            CallError::Untrusted(reason) => CallError::Untrusted(reason.reworded(at)),
            CallError::Exhausted(of) => CallError::Exhausted(of),
        }
    }
}

#[cfg(test)]
mod tests;
