//! A clock that a test sets ahead.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, unbounded};

use crate::engine::watchdog::Shared;
use crate::engine::watchdog::jobs::Job;
use crate::ground::clock::Moved;
use crate::ground::time;

/// The watchdog checks this often whether the renewal thread it waits for is still alive.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Moved for Shared {
    fn clock_moved(&self) {
        let mut holds = Vec::new();
        self.timer.each(|job| {
            if let Job::Renew(hold) | Job::End(hold) = job {
                holds.push(Arc::clone(hold));
            }
        });
        for hold in holds {
            if let Some(cause) = hold.lapse() {
                if hold.set_due(None) {
                    self.timer.cancelled();
                }
                self.end(&hold, cause);
            } else if hold.is_renewed() {
                let due = time::now();
                if hold.set_due(Some(due)) {
                    self.timer.cancelled();
                }
                self.timer.schedule(due, Job::Renew(hold));
            } else {
                self.rewatch(&hold);
            }
        }
    }

    fn catch_up(&self, deadline: Instant) {
        // A renewal that was under way when the clock moved plans the next one itself, behind the first mark.
        for _ in 0..2 {
            let (mark, done) = unbounded();
            let is_looked_after =
                || self.running.load(Ordering::Acquire) && self.client.has_watchdog();
            if !is_looked_after() {
                return;
            }
            self.timer.schedule(time::now(), Job::Mark(mark));
            while let Err(RecvTimeoutError::Timeout) = done.recv_timeout(LOOK_AGAIN) {
                if !is_looked_after() || time::now() >= deadline {
                    return;
                }
            }
        }
    }
}
