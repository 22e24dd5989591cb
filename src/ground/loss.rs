use std::fmt;
use std::sync::Arc;

use crate::ground::claim::VisitorId;

/// The cause of a lost hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossCause {
    /// The store no longer contains the hold: it expired, was deleted, evicted, force-unlocked or lost by the server.
    Gone,
    /// The store contains another hold of the lock, with this id. A long id is shortened. Control characters are escaped.
    HeldBy(String),
    /// The validity of the hold ended before a renewal was confirmed. The server did not reply or refused the renewal, or
    /// this process was paused.
    #[non_exhaustive]
    Unreachable {
        /// The outcome of the last renewal, and whether this process may have been paused.
        reason: String,
    },
    /// The fixed lease has ended.
    LeaseEnded,
    /// The holding thread ended without unlocking, so the hold was no longer renewed.
    ThreadEnded,
    /// The renewal thread died, so the hold is no longer renewed.
    WatchdogDied,
    /// This process is a fork of the holding process.
    Forked,
    /// The client was shut down, so the hold is no longer renewed. The hold ends with its lease or an unlock.
    Closed,
    /// Not a loss. The [`Losses`](crate::Losses) that created the channel was dropped, so the channel reports no loss.
    Unheard,
}

impl LossCause {
    /// Returns the cause in snake case, such as `held_by`, for the labels of metrics. These texts stay the same in later
    /// versions.
    pub fn kind(&self) -> &'static str {
        match self {
            LossCause::Gone => "gone",
            LossCause::HeldBy(_) => "held_by",
            LossCause::Unreachable { .. } => "unreachable",
            LossCause::LeaseEnded => "lease_ended",
            LossCause::ThreadEnded => "thread_ended",
            LossCause::WatchdogDied => "watchdog_died",
            LossCause::Forked => "forked",
            LossCause::Closed => "closed",
            LossCause::Unheard => "unheard",
        }
    }

    /// `holder` may be any text, because any client can write it.
    pub(crate) fn held_by(holder: &str) -> LossCause {
        LossCause::HeldBy(printable(holder))
    }
}

/// Escapes the control characters of a text from the server, so that the text cannot forge log lines.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            // Line separators, paragraph separators, and marks of text direction.
            '\u{61c}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                printable.extend(sign.escape_unicode());
            }
            sign if sign.is_control() => printable.extend(sign.escape_default()),
            sign => printable.push(sign),
        }
    }
    printable
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossCause::Gone => f.write_str(
                "it is gone from the store (expired, deleted, evicted or force-unlocked)",
            ),
            LossCause::HeldBy(visitor) => write!(f, "{visitor} holds it now"),
            LossCause::Unreachable { reason } => {
                write!(
                    f,
                    "its lease ended before a renewal was confirmed ({reason})"
                )
            }
            LossCause::LeaseEnded => f.write_str("its lease has expired"),
            LossCause::ThreadEnded => f.write_str("the thread that held it has ended"),
            LossCause::WatchdogDied => f.write_str("the renewal thread died"),
            LossCause::Forked => f.write_str("this process was forked from the one that holds it"),
            LossCause::Unheard => {
                f.write_str("its `Losses` was dropped, so a loss could not be reported any more")
            }
            LossCause::Closed => f.write_str("the client was shut down and no longer renews it"),
        }
    }
}

/// The report of a lost hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The name of the lock, prefix included.
    pub lock: Arc<str>,
    /// The id of the hold.
    pub visitor: VisitorId,
    /// The number of the holding thread, see [`current_thread_id`](crate::current_thread_id), or the number of the
    /// [`OwnedGuard`](crate::OwnedGuard).
    pub thread: u64,
    /// The cause of the loss.
    pub cause: LossCause,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lock {:?}: the hold of {} was lost: {}",
            self.lock, self.visitor, self.cause
        )
    }
}

/// The reason why a hold has no [`Loss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoLoss {
    /// The hold has not been lost so far.
    NotYet,
    /// The hold was unlocked without a loss.
    Ended,
}

impl fmt::Display for NoLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoLoss::NotYet => "the hold has not been lost so far",
            NoLoss::Ended => "the hold was released",
        })
    }
}

impl std::error::Error for NoLoss {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_text_cannot_forge_log_lines() {
        assert_eq!(printable("uuid:1 ünï \\ \""), "uuid:1 ünï \\ \"");
        let said = LossCause::held_by("a\r\n\u{1b}[2J\u{2029}b\u{202e}\0").to_string();
        assert_eq!(said, r"a\r\n\u{1b}[2J\u{2029}b\u{202e}\u{0} holds it now");
    }
}
