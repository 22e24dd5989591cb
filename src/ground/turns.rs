//! The count of the turns that others have at a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The turns that others have had at a lock since it was set free here. Each ends with a message to all who listen.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    /// The messages that have arrived so far.
    messages: Arc<AtomicU64>,
    /// The number of messages by which our own has arrived.
    own: u64,
    /// The number of those who listened elsewhere.
    pub(crate) listeners: u64,
}

impl Turns {
    /// Counts from the message that is sent after `messages` had come to `before`.
    pub(crate) fn after(messages: Arc<AtomicU64>, before: u64, listeners: u64) -> Turns {
        Turns {
            messages,
            own: before + 1,
            listeners,
        }
    }

    /// How many messages are to come until there were so many turns.
    pub(crate) fn to_come(&self, turns: u64) -> u64 {
        let messages = self.messages.load(Ordering::Acquire);
        (self.own + turns).saturating_sub(messages)
    }

    /// The number of turns so far.
    pub(crate) fn so_far(&self) -> u64 {
        let messages = self.messages.load(Ordering::Acquire);
        messages.saturating_sub(self.own)
    }
}
