//! Those who listen, and take no turn that is left to them.

use std::time::{Duration, Instant};

use super::LONGEST_SPAN;

/// A turn that nobody takes costs the time that it is left for. So after the second one in a row none is left for a while,
/// for a longer while after each more, and at most for so many times as long as the last one cost: one in seventeen parts of
/// the time. One that listens already and begins to want the lock has its turn after that while.
const TWICE_AS_LONG: u32 = 4;

/// The turns that nobody took. It is forgotten as soon as somebody else is seen to take the lock, or more listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Idle {
    /// The number of them, in a row.
    vain: u32,
    /// Until when none is left.
    until: Option<Instant>,
    /// The number of those who listened last.
    listeners: u64,
}

impl Idle {
    /// Of so many who listen nobody has missed a turn yet.
    pub(super) fn of(listeners: u64) -> Idle {
        Idle {
            listeners,
            ..Idle::default()
        }
    }

    /// Notes how many listen now.
    pub(super) fn among(&mut self, listeners: u64) {
        if listeners > self.listeners {
            self.forget();
        }
        self.listeners = listeners;
    }

    /// Notes that nobody took the turn that was left for so long.
    pub(super) fn was_in_vain(&mut self, left_for: Duration, now: Instant) {
        self.vain += 1;
        let cost = left_for.min(LONGEST_SPAN);
        self.until = (self.vain > 1).then(|| now + cost * (1 << self.vain.min(TWICE_AS_LONG)));
    }

    /// Notes that somebody else takes the lock.
    pub(super) fn forget(&mut self) {
        (self.vain, self.until) = (0, None);
    }

    /// Whether no turn is left to anybody.
    pub(super) fn goes_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(all(test, not(redlatch_shuttle)))]
impl Idle {
    /// The same, with the time for which none is left, if there is one, over or far from its end.
    pub(super) fn with_end(&self, is_over: bool) -> Idle {
        let until = self.until.filter(|_| !is_over);
        Idle {
            until: until.map(|until| until + Duration::from_secs(3600)),
            ..self.clone()
        }
    }
}

#[cfg(all(test, not(redlatch_shuttle)))]
mod tests {
    use super::*;
    use crate::ground::time;

    #[test]
    fn the_time_without_turns_grows_with_those_in_vain_and_with_their_cost() {
        let now = time::now();
        let cost = Duration::from_micros(300);
        let mut idle = Idle::default();
        for times in [0, 4, 8, 16, 16, 16] {
            idle.was_in_vain(cost, now);
            let until = now + cost * times;
            assert!(!idle.goes_on(until), "{times}");
            assert_eq!(idle.goes_on(until - Duration::from_nanos(1)), times > 0);
        }
        // A thread that did not come for long had other things to do.
        idle.was_in_vain(Duration::from_secs(9), now);
        assert!(!idle.goes_on(now + LONGEST_SPAN * 16));
        idle.forget();
        idle.was_in_vain(cost, now);
        assert!(!idle.goes_on(now), "it begins anew");
    }

    #[test]
    fn one_more_who_listens_ends_it() {
        let now = time::now();
        let mut idle = Idle::of(2);
        let mut goes_on_among = |listeners| {
            idle.was_in_vain(LONGEST_SPAN, now);
            idle.was_in_vain(LONGEST_SPAN, now);
            idle.among(listeners);
            idle.goes_on(now)
        };
        assert_eq!(
            [2, 1, 1, 2].map(&mut goes_on_among),
            [true, true, true, false]
        );
    }
}
