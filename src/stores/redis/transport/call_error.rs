//! Why a call got no answer that it could use.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::ground::error::Reason;
use crate::stores::redis::transport::reply_text::plain;

/// Why a call got no answer that it could use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// Nothing of the request can have been executed.
    NotSent(Reason),
    /// None of so many connections became free in time. Nothing was sent, and it says nothing of the server.
    Exhausted(u32),
    /// The request was sent, and may have been executed.
    NoReply { reason: Reason, timed_out: bool },
    /// The server answered with an error.
    Server(String),
    /// TLS does not let the two talk to each other until somebody changes something. Nothing of the request was sent.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "only TLS creates it"))]
    Untrusted(Reason),
    /// The server may not be asked for it, for this reason. Nothing of the request was sent.
    Unfit(String),
}

/// The reason of [`CallError::Exhausted`] where there is no room for more.
pub(crate) const EXHAUSTED: &str = "all connections of the pool were in use until the deadline";

/// What begins an error that no server sent: the settings lead to a server of the wrong kind.
pub(crate) const MISPLACED: &str = "WRONGKIND ";

impl CallError {
    /// The error of settings that lead to a server of the wrong kind.
    pub(crate) fn misplaced(reason: impl std::fmt::Display) -> CallError {
        CallError::Server(format!("{MISPLACED}{reason}"))
    }

    /// The error of a connection that could not be made.
    pub(crate) fn of_connecting(error: io::Error) -> CallError {
        let words = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => "connecting timed out".to_owned(),
            _ => format!("connecting failed: {error}"),
        };
        CallError::NotSent(Reason::of_io(words, error))
    }

    /// The error of a request of which the socket took nothing that can be executed.
    pub(crate) fn not_sent(error: io::Error) -> CallError {
        CallError::NotSent(Reason::of_io(error.to_string(), error))
    }

    /// The fault of a request that will get no answer any more.
    pub(crate) fn cut(reason: impl Into<Reason>) -> CallError {
        CallError::NoReply {
            reason: reason.into(),
            timed_out: false,
        }
    }

    /// The fault of a request that was no request of a lock: nothing of those can have been executed.
    pub(crate) fn of_a_search(self) -> CallError {
        match self {
            CallError::NoReply { reason, .. } => CallError::NotSent(reason),
            fault => fault,
        }
    }

    /// What an error means that is of a proxy, and not of the server behind it. The words are those of Envoy.
    pub(crate) fn of_a_proxy(self) -> CallError {
        match self {
            // The server has not answered, or has closed the connection.
            CallError::Server(text) if text.starts_with("upstream ") => {
                CallError::cut(format!("a proxy answered: {text}"))
            }
            CallError::Server(text) if text.starts_with("no upstream host") => {
                CallError::NotSent(format!("a proxy answered: {text}").into())
            }
            fault => fault,
        }
    }

    /// The fault of a script that was sent with its text. That the server does not know it is no answer to that, but the
    /// copy of one before it.
    pub(crate) fn of_a_text(self) -> CallError {
        match self {
            CallError::Server(text) if text.starts_with("NOSCRIPT") => {
                CallError::cut("the reply belongs to another request")
            }
            fault => fault,
        }
    }

    /// Whether nothing was executed, and another server may do it in a moment: a topology looks for that one within the
    /// request. Whether a wait goes on after the request, says `Error::may_pass`.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, CallError::NotSent(_))
            || self.is_of_no_master()
            || self.has_code(&["CLUSTERDOWN", "TRYAGAIN"])
    }

    /// Whether another server may be the master: this one takes no writes, or has lost what it had in memory.
    pub(crate) fn is_of_no_master(&self) -> bool {
        self.has_code(&["READONLY", "MASTERDOWN", "LOADING"])
    }

    fn has_code(&self, codes: &[&str]) -> bool {
        matches!(self, CallError::Server(text) if codes.iter().any(|code| text.starts_with(code)))
    }

    /// Whether no server had anything to do with the request, so that it may be tried again.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self, CallError::NotSent(_) | CallError::Exhausted(_))
            || self.is_for_want_of_room()
    }

    /// Whether the time was over before the server had answered.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, CallError::NoReply { timed_out, .. } if *timed_out)
    }

    /// Whether there was no room for one more connection, in this process or at the server.
    pub(crate) fn is_for_want_of_room(&self) -> bool {
        let is_limit = |code| {
            [Errno::MFILE, Errno::NFILE]
                .map(Errno::raw_os_error)
                .contains(&code)
        };
        match self {
            CallError::NotSent(reason) => reason.os_error().is_some_and(is_limit),
            CallError::Server(text) => text.contains("max number of clients"),
            _ => false,
        }
    }

    /// Whether it came from the other end, and not for want of one.
    pub(crate) fn is_of_a_server(&self) -> bool {
        matches!(self, CallError::Server(_)) || self.is_hang_up()
    }

    /// Whether a test lost the answer, and so is to lose the answer to each copy of the request.
    #[cfg(feature = "in-memory")]
    pub(crate) fn is_lost_by_a_test(&self) -> bool {
        matches!(self, CallError::NoReply { reason, .. } if reason.io_kind() == Some(io::ErrorKind::Other))
    }

    /// Whether the other end hung up before a word was said. A server that has room for no more does so where it can say no
    /// word: before the handshake of TLS, or faster than the greeting comes.
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

    /// Returns the reason in the words of users.
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

    /// Keeps the first fault, or what a server says, such as that the password is wrong: somebody has to hear of that.
    pub(crate) fn keep_in(self, kept: &mut Option<CallError>) {
        if kept.is_none() || matches!(self, CallError::Server(_) | CallError::Untrusted(_)) {
            *kept = Some(self);
        }
    }

    /// The same fault, saying where it was met.
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
