//! The time for which the threads of one client keep a lock among themselves before others have a chance.

use std::time::{Duration, Instant};

use crate::ground::time;

/// So many hand-overs in a row are allowed while others listen in other processes.
const HAND_OFFS_IN_A_ROW: u32 = 4;

/// Where nobody else listens the lock is still set free after this time.
const HAND_OFFS_FOR: Duration = Duration::from_millis(100);

/// A process that polls is not known and asks seldom, so a lock that is polled rests free after a run, for longer than a
/// poller pauses. The run is so many times that long: at first, when others were seen to want the lock, and at most.
const AT_FIRST: u32 = 4;
const AMONG_OTHERS: u32 = 2;
const AT_MOST: u32 = 40;

/// The time during which the threads of a client have had a lock, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Hand-overs since the lock was free the last time.
    handed: u32,
    since: Option<Instant>,
    /// Whether somebody is known to listen in another process.
    others_wait: bool,
    /// The number of rests that it may be long.
    length: u32,
    /// The end of the rest after it.
    rests_until: Option<Instant>,
}

impl Default for Run {
    fn default() -> Run {
        Run {
            handed: 0,
            since: None,
            others_wait: true,
            length: AT_FIRST,
            rests_until: None,
        }
    }
}

impl Run {
    /// Whether it is time to set the lock free, which pollers need to be for the time `rest`.
    pub(super) fn is_enough(&mut self, rest: Option<Duration>) -> bool {
        let lasts = time::since(*self.since.get_or_insert_with(time::now));
        match rest {
            _ if self.others_wait => self.handed >= HAND_OFFS_IN_A_ROW,
            Some(rest) => lasts >= rest * self.length,
            None => lasts >= HAND_OFFS_FOR,
        }
    }

    pub(super) fn handed(&mut self, others_wait: bool) {
        self.handed += 1;
        self.others_wait = others_wait;
    }

    /// Notes that the lock was set free while a thread of this client waits for it: a long run is followed by a rest.
    pub(super) fn freed(&mut self, rest: Option<Duration>) {
        self.handed = 0;
        let now = time::now();
        let since = *self.since.get_or_insert(now);
        self.since = rest.map(|_| since);
        if let Some(rest) = rest.filter(|rest| now >= since + *rest * self.length) {
            self.since = None;
            self.rests_until = Some(now + rest);
        }
    }

    /// Notes that the lock was set free, and no thread of this client waits for it.
    pub(super) fn ended(&mut self) {
        *self = Run {
            length: self.length,
            ..Run::default()
        };
    }

    /// Until when the lock rests, if it does.
    pub(super) fn rests(&self, now: Instant) -> Option<Instant> {
        self.rests_until.filter(|until| now < *until)
    }

    /// Notes that somebody else has the lock.
    pub(super) fn refused(&mut self) {
        if self.rests_until.take().is_some() {
            self.length = AMONG_OTHERS;
        }
    }

    /// Notes that a thread of this client has got the lock. After a whole rest nobody else wants it.
    pub(super) fn granted(&mut self) {
        let rest = self.rests_until.take();
        if rest.is_some_and(|until| time::now() >= until) {
            self.length = (self.length * 2).min(AT_MOST);
        }
    }

    /// Whether there is something to go on with when a thread of this client waits again.
    pub(super) fn goes_on(&self) -> bool {
        self.since.is_some() || self.length != AT_FIRST
    }
}

#[cfg(all(test, not(redlatch_shuttle)))]
mod tests {
    use super::*;

    const REST: Option<Duration> = Some(Duration::from_millis(200));

    /// A run that began so many rests ago, where nobody else listens.
    fn old(length: u32, rests: u32) -> Run {
        let since = REST.and_then(|rest| time::now().checked_sub(rest * rests));
        Run {
            since,
            others_wait: false,
            length,
            ..Run::default()
        }
    }

    #[test]
    fn others_who_listen_end_it_soon() {
        let mut run = Run::default();
        for _ in 0..HAND_OFFS_IN_A_ROW {
            assert!(!run.is_enough(None));
            run.handed(true);
        }
        assert!(run.is_enough(None) && run.is_enough(REST));
        run.handed(false);
        assert!(!run.is_enough(None), "nobody listens any more");
    }

    #[test]
    fn a_long_run_of_a_polled_lock_is_followed_by_a_rest() {
        assert!(!old(AT_FIRST, AT_FIRST - 1).is_enough(REST));
        let mut run = old(AT_FIRST, AT_FIRST);
        assert!(run.is_enough(REST));
        run.freed(REST);
        assert!(run.rests(time::now()).is_some() && !run.is_enough(REST));
    }

    #[test]
    fn without_pollers_and_after_a_short_run_it_does_not_rest() {
        for (mut run, rest) in [(old(AT_FIRST, 9), None), (old(AT_FIRST, 1), REST)] {
            run.freed(rest);
            assert_eq!(run.rests(time::now()), None);
        }
    }

    #[test]
    fn a_run_goes_on_where_the_lock_was_free_for_a_moment() {
        let mut run = old(AT_FIRST, AT_FIRST - 1);
        run.freed(REST);
        run.since = old(AT_FIRST, AT_FIRST).since.min(run.since);
        assert!(run.is_enough(REST));
    }

    #[test]
    fn a_rest_is_over_at_its_end_and_the_length_outlasts_the_run() {
        let mut run = old(AT_MOST, 1);
        let end = time::now() + Duration::from_secs(1);
        run.rests_until = Some(end);
        assert_eq!(run.rests(end - Duration::from_nanos(1)), Some(end));
        assert_eq!(run.rests(end), None);
        run.ended();
        assert!(run.length == AT_MOST && run.goes_on() && run.rests_until.is_none());
    }

    #[test]
    fn its_length_is_learned() {
        let mut run = old(AT_FIRST, AT_FIRST);
        run.freed(REST);
        run.granted();
        assert_eq!(
            run.length, AT_FIRST,
            "it was taken before the rest was over"
        );
        let rested = |length, learn: fn(&mut Run)| {
            let mut run = old(length, length);
            run.rests_until = Some(time::now());
            learn(&mut run);
            run.length
        };
        assert_eq!(rested(AT_FIRST, Run::granted), AT_FIRST * 2);
        assert_eq!(rested(AT_MOST, Run::granted), AT_MOST);
        assert_eq!(rested(AT_MOST, Run::refused), AMONG_OTHERS);
    }
}
