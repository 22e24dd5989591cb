//! The count of the turns that others have at a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::ground::time;

/// The unlock messages of a lock that have arrived.
#[derive(Debug)]
pub(crate) struct Messages {
    count: AtomicU64,
    /// The number of the last one of ours, which may be on its way.
    own: AtomicU64,
    /// When the last one came, in nanoseconds after `begin`.
    last: AtomicU64,
    begin: Instant,
}

impl Default for Messages {
    fn default() -> Messages {
        Messages {
            count: AtomicU64::new(0),
            own: AtomicU64::new(0),
            last: AtomicU64::new(0),
            begin: time::now(),
        }
    }
}

impl Messages {
    /// Notes that one has come.
    pub(crate) fn note_arrival(&self, at: Instant) {
        let last = at.saturating_duration_since(self.begin).as_nanos();
        let last = u64::try_from(last).unwrap_or(u64::MAX);
        // Before the count, so that nobody takes it for older than it is.
        self.last.store(last, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Notes that they begin anew: those that were on their way may be lost.
    pub(crate) fn note_gap(&self) {
        self.own.store(self.count(), Ordering::Release);
    }

    /// The number of one of ours, which was sent after there had been so many. It comes behind those that were sent before.
    fn number_of_own(&self, before: u64) -> u64 {
        let former = self.own.fetch_max(before, Ordering::AcqRel);
        let number = former.max(before) + 1;
        // One thread has the lock at a time, so two that come here at once are rare, and count one turn too many.
        self.own.store(number, Ordering::Release);
        number
    }

    /// The number of those that have come.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

/// The turns that others have had at a lock since it was set free here. Each ends with a message to all who listen.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    messages: Arc<Messages>,
    /// The number of messages by which our own has arrived.
    own: u64,
    /// The number of those who listened elsewhere.
    pub(crate) listeners: u64,
}

impl Turns {
    /// Counts from the message that is sent after `messages` had come to `before`.
    pub(crate) fn after(messages: Arc<Messages>, before: u64, listeners: u64) -> Turns {
        Turns {
            own: messages.number_of_own(before),
            messages,
            listeners,
        }
    }

    /// Notes that our own message is to have come by now: one that was lost would have all later ones be waited for.
    pub(crate) fn is_due(&self) {
        if self.to_come(0) > 0 {
            self.messages.note_gap();
        }
    }

    /// How many messages are to come until there were so many turns.
    pub(crate) fn to_come(&self, turns: u64) -> u64 {
        (self.own + turns).saturating_sub(self.messages.count())
    }

    /// The number of turns so far.
    pub(crate) fn so_far(&self) -> u64 {
        self.messages.count().saturating_sub(self.own)
    }

    /// When the last of them ended.
    pub(crate) fn last_end(&self) -> Instant {
        let last = self.messages.last.load(Ordering::Relaxed);
        self.messages.begin + Duration::from_nanos(last)
    }
}

// Its threads are not those of shuttle.
#[cfg(all(test, not(redlatch_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn our_own_messages_are_no_turns_of_others_however_late_they_come() {
        let messages = Arc::new(Messages::default());
        let sent = || Turns::after(Arc::clone(&messages), messages.count(), 1);
        let (first, second) = (sent(), sent());
        for _ in [first, second.clone()] {
            messages.note_arrival(time::now());
        }
        assert_eq!((second.so_far(), second.to_come(1)), (0, 1));
        messages.note_arrival(time::now());
        assert_eq!((second.so_far(), second.to_come(1)), (1, 0));
    }

    #[test]
    fn a_message_that_was_lost_is_not_waited_for() {
        let messages = Arc::new(Messages::default());
        let sent = || Turns::after(Arc::clone(&messages), messages.count(), 1);
        let lost = sent();
        assert_eq!(lost.to_come(0), 1);
        lost.is_due();
        let second = sent();
        messages.note_arrival(time::now());
        messages.note_arrival(time::now());
        assert_eq!(second.so_far(), 1);
    }
}
