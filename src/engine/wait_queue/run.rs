//! Limits the hand-offs among the threads of one client. At the limit, the client yields the lock to other processes.

use std::time::{Duration, Instant};

use crate::ground::time;

/// While waiters of other processes are subscribed, at most this many hand-offs in a row are allowed.
const HAND_OFFS_IN_A_ROW: u32 = 4;

/// A run of hand-offs ends after this time even if the client knows no waiter of another process. Such a waiter may
/// exist, because the client does not count waiters that are subscribed at replicas.
const HAND_OFFS_FOR: Duration = Duration::from_millis(100);

const LONGEST_HEAD_START: Duration = Duration::from_millis(10);

/// How long the client yields the lock to processes that react slowly to an unlock message.
const SLOWER_TURN: Duration = Duration::from_millis(3);

/// If the waiters poll, a run of hand-offs ends after this many times the longest pause between two polls. Then the
/// client leaves the lock free for this longest pause, so that each poller of another process attempts.
const POLL_PAUSES: u32 = 4;

/// A run of hand-offs: the threads of one client hold a lock one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    /// The number of hand-offs since the lock was last free.
    handed: u32,
    others_wait: bool,
    since: Option<Instant>,
    /// Until this instant the client yields the lock to other processes.
    left_until: Option<Instant>,
    /// True if this client's last unlock notified two or more waiters of other processes. When the fastest of them
    /// unlocks, the client yields the lock once to the others.
    owes_slower_turn: bool,
}

impl Run {
    pub(super) fn is_over(&mut self, poll_pause: Option<Duration>) -> bool {
        let since = *self.since.get_or_insert_with(time::now);
        let longest = poll_pause.map_or(HAND_OFFS_FOR, |pause| pause * POLL_PAUSES);
        let is_timed = poll_pause.is_some() || !self.others_wait;
        is_timed && time::since(since) >= longest
            || self.others_wait && self.handed >= HAND_OFFS_IN_A_ROW
    }

    pub(super) fn handed(&mut self, others_wait: bool) {
        self.handed += 1;
        self.others_wait = others_wait;
    }

    pub(super) fn freed(
        &mut self,
        head_start: Option<(Duration, u32)>,
        poll_pause: Option<Duration>,
    ) {
        let is_over = self.is_over(poll_pause);
        let pause = poll_pause.filter(|_| is_over);
        self.owes_slower_turn = head_start.is_some_and(|(_, others)| others > 1);
        let head_start = head_start.map(|(length, _)| length.min(LONGEST_HEAD_START));
        self.left_until = pause.max(head_start).map(|it| time::now() + it);
        self.handed = 0;
        self.since = self.since.filter(|_| poll_pause.is_some() && !is_over);
    }

    /// Notes an unlock by another process.
    pub(super) fn note_unlock(&mut self) {
        let now = time::now();
        // While the client yields the lock, the message usually reports its own unlock, so the message is ignored.
        if self.owes_slower_turn && self.is_left_until(now).is_none() {
            self.owes_slower_turn = false;
            self.left_until = Some(now + SLOWER_TURN);
        }
    }

    /// Notes that some process holds the lock, so there is nothing to yield.
    pub(super) fn note_holder(&mut self) {
        self.left_until = None;
    }

    pub(super) fn is_left_until(&self, now: Instant) -> Option<Instant> {
        self.left_until.filter(|until| now < *until)
    }
}

#[cfg(all(test, not(redlatch_shuttle)))]
mod tests {
    use super::*;

    const PAUSE: Option<Duration> = Some(Duration::from_millis(200));

    fn old(pauses: u32) -> Run {
        let since = PAUSE.and_then(|pause| time::now().checked_sub(pause * pauses));
        Run {
            since,
            ..Run::default()
        }
    }

    #[test]
    fn waiters_in_other_processes_end_a_run() {
        let mut run = Run::default();
        for _ in 0..HAND_OFFS_IN_A_ROW {
            assert!(!run.is_over(None));
            run.handed(true);
        }
        assert!(run.is_over(None) && run.is_over(PAUSE));
        run.handed(false);
        assert!(!run.is_over(None), "no waiter is left");
        let mut run = old(POLL_PAUSES);
        assert!(run.is_over(None), "somebody may listen elsewhere");
        run.freed(None, None);
        assert!(!run.is_over(None) && run.is_left_until(time::now()).is_none());
    }

    #[test]
    fn a_long_run_of_a_polled_lock_is_followed_by_a_pause() {
        let now = time::now();
        let mut run = old(POLL_PAUSES - 1);
        run.freed(None, PAUSE);
        assert!(!run.is_over(PAUSE) && run.is_left_until(now).is_none());
        let mut run = old(POLL_PAUSES);
        assert!(run.is_over(PAUSE));
        run.freed(None, PAUSE);
        assert!(!run.is_over(PAUSE), "a new one begins");
        let until = run.is_left_until(now);
        assert!(until >= PAUSE.map(|pause| now + pause), "a whole pause");
        assert!(until.is_some_and(|until| run.is_left_until(until).is_none()));
        run.note_holder();
        assert!(run.is_left_until(now).is_none());
    }

    #[test]
    fn the_head_start_of_other_processes_is_bounded() {
        let (now, mut run) = (time::now(), Run::default());
        run.freed(Some((Duration::from_secs(9), 1)), None);
        assert!(run.is_left_until(now).is_some());
        assert!(
            run.is_left_until(time::now() + LONGEST_HEAD_START)
                .is_none()
        );
        run.freed(None, None);
        assert!(run.is_left_until(now).is_none());
    }

    #[test]
    fn a_foreign_unlock_is_left_once_to_slower_processes() {
        let is_left = |run: &Run| run.is_left_until(time::now()).is_some();
        for (others, lets_by) in [(1, false), (2, true)] {
            let mut run = Run::default();
            run.freed(Some((Duration::ZERO, others)), None);
            run.note_unlock();
            assert_eq!(is_left(&run), lets_by, "{others}");
            run.note_holder();
            run.note_unlock();
            assert!(!is_left(&run), "once");
        }
    }
}
