//! The part of a client that all its holds share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::counters::Counters;

/// The part of a client that its holds know: its end, and its counters.
#[derive(Debug, Default)]
pub(crate) struct ClientState {
    has_no_watchdog: AtomicBool,
    is_gone: AtomicBool,
    counters: Arc<Counters>,
}

impl ClientState {
    pub(crate) fn new(counters: &Arc<Counters>) -> ClientState {
        ClientState {
            counters: Arc::clone(counters),
            ..ClientState::default()
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Notes that a thread of the watchdog has died: nothing is renewed any more, so nothing is valid.
    pub(crate) fn watchdog_died(&self) {
        self.has_no_watchdog.store(true, Ordering::Release);
    }

    pub(crate) fn has_watchdog(&self) -> bool {
        !self.has_no_watchdog.load(Ordering::Acquire)
    }

    /// Notes that the last handle of the client is gone: what it holds nobody can unlock any more.
    pub(crate) fn note_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}
