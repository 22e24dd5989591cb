//! The events and spans of the feature `tracing`. Without the feature, these functions do nothing.
//!
//! A `tracing` subscriber is user code, so its panics are caught.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::ground::error::Error;

macro_rules! events {
    ($($(#[$attribute:meta])* $level:ident $name:ident($($field:ident),* $(; $error:ident)?) $text:literal;)*) => {$(
        $(#[$attribute])*
        pub(crate) fn $name($($field: &dyn Display,)* $($error: &Error)?) {
            #[cfg(feature = "tracing")]
            contain(|| tracing::$level!(target: "redlatch", $($field = %$field,)* $($error = ?$error,)? $text));
            #[cfg(not(feature = "tracing"))]
            let _ = ($($field,)* $($error)?);
        }
    )*};
}

events! {
    debug acquired(lock, visitor) "acquired";
    debug contended(lock) "contended, waiting";
    debug unlocked(lock, visitor) "unlocked";
    trace renewed(lock, visitor) "renewed";
    warn renewal_unknown(lock, visitor, reason) "a renewal failed and is retried";
    error lost(lock, visitor, cause) "lost";
    warn outcome_unknown(lock, visitor) "the outcome is unknown; the possible hold is released in the background";
    debug not_settled(lock; error) "a background release failed and is retried";
    warn unlock_failed(lock; error) "the unlock of a dropped guard failed";
    warn waiters_not_told(lock, error) "unlocked, but the message to the waiters could not be published";
    error hook_panicked(lock) "the on_lost hook panicked";
    debug connected(node) "connected";
    #[cfg(feature = "tls")]
    warn certificates_kept(reason) "the changed certificate files cannot be used; the certificates read before stay \
        in use";
    warn master_changed(before, now) "another server is the master";
    debug slot_moved(slot, node) "a slot of the cluster has moved";
    debug sentinel_failed(node, reason) "a sentinel gave no usable answer";
    debug subscriber_disconnected(node, reason) "the subscriber was disconnected";
    debug subscriber_cannot_connect(node, reason) "the subscriber cannot connect";
    warn subscriber_refused(node, error) "the server refused a command of the subscriber";
    error subscriber_cannot_start(error) "the subscriber thread cannot be started; waiters poll";
    warn preflight(warning) "preflight found a problem";
    warn long_wait(lock, thread, seconds, holder, others) "a thread has waited for a long time";
    warn long_hold(lock, thread, seconds) "a lock has been held for a long time";
}

#[cfg(feature = "tracing")]
fn contain<T>(tell: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(tell)).ok()
}

/// The thread is in the span until this value is dropped.
#[derive(Debug)]
pub(crate) struct WaitSpan {
    #[cfg(feature = "tracing")]
    span: Option<tracing::span::EnteredSpan>,
}

#[derive(Debug)]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "only a span tells it")
)]
pub(crate) struct WaitOutcome<'a> {
    pub(crate) outcome: &'static str,
    pub(crate) began: Instant,
    pub(crate) attempts: u32,
    /// The id of the hold that caused the first refusal, if the store returned this id.
    pub(crate) holder: Option<&'a str>,
    pub(crate) visitor: Option<&'a str>,
}

#[cfg(feature = "tracing")]
impl Drop for WaitSpan {
    fn drop(&mut self) {
        contain(|| drop(self.span.take()));
    }
}

impl WaitSpan {
    #[cfg(feature = "tracing")]
    pub(crate) fn enter(lock: &str, class: &str, thread: u64) -> WaitSpan {
        use tracing::field::Empty;
        WaitSpan {
            span: contain(|| {
                tracing::debug_span!(
                    target: "redlatch", "wait", lock, class, thread,
                    holder = Empty, attempts = Empty, waited_ms = Empty, outcome = Empty, visitor = Empty,
                )
                .entered()
            }),
        }
    }

    #[cfg(not(feature = "tracing"))]
    pub(crate) fn enter(_: &str, _: &str, _: u64) -> WaitSpan {
        WaitSpan {}
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn tell(&self, told: &WaitOutcome<'_>) {
        let Some(span) = &self.span else { return };
        contain(|| {
            span.record("outcome", told.outcome);
            span.record("waited_ms", millis(crate::ground::time::since(told.began)));
            span.record("attempts", told.attempts);
            span.record("holder", told.holder);
            span.record("visitor", told.visitor);
        });
    }

    #[cfg(not(feature = "tracing"))]
    pub(crate) fn tell(&self, _: &WaitOutcome<'_>) {}
}

#[derive(Debug)]
pub(crate) struct HoldSpan {
    #[cfg(feature = "tracing")]
    span: Option<tracing::Span>,
}

#[cfg(feature = "tracing")]
impl Drop for HoldSpan {
    fn drop(&mut self) {
        contain(|| drop(self.span.take()));
    }
}

impl HoldSpan {
    /// Exits the span of the wait first, so that the span of the hold gets the same parent as the span of the wait.
    #[cfg(feature = "tracing")]
    pub(crate) fn behind(
        mut wait: WaitSpan,
        (lock, class): (&str, &str),
        visitor: &str,
        fence: Option<u64>,
        waited: Duration,
    ) -> HoldSpan {
        let waited_ms = millis(waited);
        // Each call has its own `contain`. If one `contain` covered all calls, a second panic during the unwinding of the
        // first would abort the process.
        let left = contain(|| wait.span.take().map(tracing::span::EnteredSpan::exit)).flatten();
        let span = contain(|| {
            tracing::debug_span!(
                target: "redlatch", "hold", lock, class, visitor, fence, waited_ms,
                end = tracing::field::Empty,
            )
        });
        if let (Some(span), Some(left)) = (&span, &left) {
            contain(|| {
                span.follows_from(left.id());
            });
        }
        contain(|| drop(left));
        HoldSpan { span }
    }

    #[cfg(not(feature = "tracing"))]
    pub(crate) fn behind(
        _: WaitSpan,
        _: (&str, &str),
        _: &str,
        _: Option<u64>,
        _: Duration,
    ) -> HoldSpan {
        HoldSpan {}
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn tell(&self, end: &'static str) {
        if let Some(span) = &self.span {
            contain(|| {
                span.record("end", end);
            });
        }
    }

    #[cfg(not(feature = "tracing"))]
    pub(crate) fn tell(&self, _: &'static str) {}
}

#[cfg(feature = "tracing")]
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
