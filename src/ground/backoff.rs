use std::time::{Duration, Instant};

use crate::ground::{sync, time};

/// Doubling pauses between attempts. The lengths are partly random, so that clients do not attempt at the same time.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Default for Backoff {
    /// The pauses after attempts without a usable reply.
    fn default() -> Backoff {
        Backoff::between(Duration::from_millis(10), Duration::from_millis(500))
    }
}

impl Backoff {
    /// The longest mean pause between polls. A single pause can be longer, see [`Backoff::longest_of`].
    pub(crate) const LONGEST_POLL: Duration = Duration::from_millis(100);

    /// The means of the first and the longest pause of a spin lock, as in Redisson.
    pub(crate) const SPIN: (Duration, Duration) =
        (Duration::from_millis(1), Duration::from_millis(128));

    pub(crate) fn of_polls() -> Backoff {
        Backoff::between(Duration::from_millis(5), Backoff::LONGEST_POLL)
    }

    /// The longest possible pause if the mean pause is `about`.
    pub(crate) fn longest_of(about: Duration) -> Duration {
        about + about / 2
    }

    pub(crate) fn between(first: Duration, longest: Duration) -> Backoff {
        let next = first;
        Backoff { next, longest }
    }

    /// The pauses after attempts in which several clients each acquired only a minority of the nodes of a quorum.
    pub(crate) fn of_splits(round_trip: Duration) -> Backoff {
        Backoff::between(round_trip * 2, round_trip * 64)
    }

    /// Sleeps for the next pause, unless the pause would last until `deadline`. Returns whether the thread slept.
    pub(crate) fn pause(&mut self, deadline: Instant) -> bool {
        let pause = self.next();
        let has_time = time::now() + pause < deadline;
        if has_time {
            sync::sleep(pause);
        }
        has_time
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
