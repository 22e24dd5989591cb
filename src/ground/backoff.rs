//! Growing pauses between attempts, which whatever ends the wait around them ends, too.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::ground::interrupt::Interrupt;
use crate::ground::notify::{Notifier, Wake};
use crate::ground::sync;
use crate::ground::time;

/// Growing pauses between attempts, jittered so that clients do not come back in step.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Default for Backoff {
    /// After attempts that got no usable answer.
    fn default() -> Backoff {
        Backoff {
            next: Duration::from_millis(10),
            longest: Duration::from_millis(500),
        }
    }
}

impl Backoff {
    /// About the longest pause between questions to a store that sends no messages.
    pub(crate) const LONGEST_POLL: Duration = Duration::from_millis(100);

    /// Between questions to a store that sends no messages.
    pub(crate) fn of_polls() -> Backoff {
        Backoff::between(Duration::from_millis(5), Backoff::LONGEST_POLL)
    }

    /// How long a pause of about this length may be.
    pub(crate) fn longest_of(about: Duration) -> Duration {
        about + about / 2
    }

    /// Pauses of about `first`, each twice as long as the one before, up to about `longest`.
    pub(crate) fn between(first: Duration, longest: Duration) -> Backoff {
        Backoff {
            next: first,
            longest,
        }
    }

    /// Between attempts of several that ask at once.
    pub(crate) fn of_splits(round_trip: Duration) -> Backoff {
        Backoff {
            next: round_trip * 2,
            longest: round_trip * 64,
        }
    }

    /// Sleeps for the next pause within a request, unless that would last until `deadline`; returns whether it did.
    ///
    /// An attempt of a wait hears what ends the wait: its interrupt, and the end of the client of `notifier`.
    pub(crate) fn pause(&mut self, deadline: Instant, notifier: &Notifier) -> bool {
        let ends = time::now() + self.next();
        if ends >= deadline {
            return false;
        }
        let Some(interrupt) = WaitScope::interrupt() else {
            // Nobody may end what is no wait: an unlock goes on while the client is shut down.
            sync::sleep(ends.saturating_duration_since(time::now()));
            return true;
        };
        let parker = notifier.parker();
        if let Some(interrupt) = interrupt {
            interrupt.attach(&parker);
        }
        parker.park(Some(ends)) == Wake::TimedOut
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next / 2 + jitter(self.next);
        self.next = (self.next * 2).min(self.longest);
        pause
    }
}

pub(crate) fn jitter(up_to: Duration) -> Duration {
    up_to.mul_f64(fastrand::f64())
}

thread_local! {
    /// Whether this thread waits, and what may interrupt it.
    static WAITING: RefCell<Option<Option<Interrupt>>> = const { RefCell::new(None) };
}

/// The time during which the calling thread works at what its client's end ends, and perhaps an interrupt: for the stores
/// below, which know nothing of waits. A wait within a wait, such as that of a subscriber to events, has its own.
pub(crate) struct WaitScope {
    outer: Option<Option<Interrupt>>,
}

impl WaitScope {
    pub(crate) fn begin(interrupt: Option<&Interrupt>) -> WaitScope {
        // A thread whose thread-local values are gone has been refused before.
        let outer = WAITING.try_with(|waiting| waiting.replace(Some(interrupt.cloned())));
        WaitScope {
            outer: outer.ok().flatten(),
        }
    }

    fn interrupt() -> Option<Option<Interrupt>> {
        WAITING.try_with(|waiting| waiting.borrow().clone()).ok()?
    }
}

impl Drop for WaitScope {
    fn drop(&mut self) {
        let _ = WAITING.try_with(|waiting| waiting.replace(self.outer.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_within_a_wait_leaves_the_outer_one_as_it_was() {
        let interrupt = Interrupt::new();
        let outer = WaitScope::begin(Some(&interrupt));
        drop(WaitScope::begin(None));
        interrupt.raise();
        let heard = WaitScope::interrupt().flatten();
        assert!(heard.is_some_and(|interrupt| interrupt.is_raised()));
        drop(outer);
        assert!(WaitScope::interrupt().is_none());
    }
}
