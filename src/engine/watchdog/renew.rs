#[cfg(feature = "test-util")]
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use crate::engine::hold::{DueAction, Hold, NextCheck};
use crate::engine::timer::Timed;
use crate::engine::watchdog::Watchdog;
use crate::ground::clock::{BootInstant, ClockPair};
use crate::ground::loss::LossCause;
use crate::ground::sync::{self, JoinHandle};
use crate::ground::{events, time};
use crate::store::Renewal;

#[derive(Debug)]
pub(super) enum Job {
    Renew(Arc<Hold>),
    End(Arc<Hold>),
    /// Check a batch of holds when the first of these holds becomes invalid. Void once the batch has been renewed.
    FirstEnd(Weak<Batch>),
    RenewAll,
}

/// Holds that are renewed together.
pub(super) type Batch = Vec<Arc<Hold>>;

impl Job {
    pub(super) fn add_holds(&self, holds: &mut Batch) {
        match self {
            Job::Renew(hold) | Job::End(hold) => holds.push(Arc::clone(hold)),
            Job::FirstEnd(batch) => {
                holds.extend(batch.upgrade().iter().flat_map(|it| it.iter()).cloned())
            }
            Job::RenewAll => {}
        }
    }
}

impl Timed for Job {
    fn is_due_at(&self, due: Instant) -> bool {
        match self {
            Job::Renew(hold) | Job::End(hold) => hold.is_due_at(due),
            Job::FirstEnd(batch) => batch.strong_count() > 0,
            Job::RenewAll => true,
        }
    }
}

impl Watchdog {
    /// Reports holds whose validity has ended, and queues renewals that are due. Waits only for the timer.
    pub(super) fn watch_all(&self, renewals: &Sender<Arc<Batch>>) {
        let mut panic_guard = PanicGuard {
            watchdog: self,
            in_hand: Vec::new(),
            queued: None,
        };
        while let Some(jobs) = self.timer.next_due() {
            let mut in_hand = Batch::with_capacity(jobs.len());
            jobs.iter().for_each(|job| job.add_holds(&mut in_hand));
            panic_guard.in_hand = vec![Arc::new(in_hand)];
            #[cfg(feature = "test-util")]
            if self.die.load(Ordering::Acquire) {
                panic!("the renewal thread was stopped by a test");
            }
            let now = self.now();
            let (mut due, mut first_end) = (Batch::new(), None);
            for job in jobs {
                match job {
                    Job::Renew(hold) => match hold.duty(now) {
                        DueAction::Renew(end) => {
                            first_end = Some(first_end.map_or(end, |first| end.min(first)));
                            due.push(hold);
                        }
                        duty => self.follow(&hold, duty, now),
                    },
                    Job::End(hold) => match hold.lapse() {
                        Some(cause) => self.end(&hold, cause),
                        None => {
                            hold.set_due(None);
                            self.watch_at(&hold, self.now(), None);
                        }
                    },
                    Job::FirstEnd(batch) => {
                        if let Some(batch) = batch.upgrade() {
                            batch.iter().for_each(|hold| self.end_lapsed(hold));
                            let ends = batch.iter().filter_map(|hold| hold.unwatched_end(now));
                            self.watch_end(&batch, ends.min(), now);
                        }
                    }
                    Job::RenewAll => self.renew_now(|_| true),
                }
            }
            if !due.is_empty() {
                let due = Arc::new(due);
                self.watch_end(&due, first_end, now);
                // Sending fails only if the renewal thread has ended, by the shutdown or by a panic.
                let _ = renewals.send(Arc::clone(&due));
                if !self.client.has_watchdog() {
                    for hold in due.iter() {
                        self.lose(hold, LossCause::WatchdogDied);
                    }
                } else if self.timer.is_closed() {
                    due.iter().for_each(|hold| hold.abandon());
                }
            }
        }
    }

    fn watch_end(&self, batch: &Arc<Batch>, first_end: Option<BootInstant>, now: ClockPair) {
        if let Some(end) = first_end {
            let job = Job::FirstEnd(Arc::downgrade(batch));
            if !self.timer.schedule(now.instant_of(end), job) {
                batch.iter().for_each(|hold| hold.abandon());
            }
        }
    }

    pub(super) fn renew_now(&self, is_meant: impl Fn(&Hold) -> bool) {
        // All these holds get the same instant, so that they are renewed in one batch.
        let due = time::now();
        for hold in self.holds().into_iter().filter(|hold| is_meant(hold)) {
            if hold.set_due(Some(due)) {
                self.timer.cancelled();
            }
            self.timer.schedule(due, Job::Renew(hold));
        }
    }

    pub(super) fn renew_all(&self, due: &Receiver<Arc<Batch>>) {
        let mut panic_guard = PanicGuard {
            watchdog: self,
            in_hand: Vec::new(),
            queued: Some(due),
        };
        while let Ok(first) = due.recv() {
            // The holds that became due during the previous renewals are renewed together.
            panic_guard.in_hand.push(first);
            panic_guard.in_hand.extend(due.try_iter());
            let holds = || panic_guard.in_hand.iter().flat_map(|batch| batch.iter());
            if self.timer.is_closed() {
                holds().for_each(|hold| hold.abandon());
                let queued = due.try_iter().flat_map(|batch| batch.to_vec());
                queued.for_each(|hold| hold.abandon());
                return;
            }
            self.renew(holds());
            // The batches are renewed, so their `FirstEnd` entries in the timer are void now.
            for batch in panic_guard.in_hand.drain(..) {
                drop(batch);
                self.timer.cancelled();
            }
        }
    }

    pub(super) fn renew<'h>(&self, due: impl Iterator<Item = &'h Arc<Hold>>) {
        let begun = self.now();
        let expires = begun.moment + self.command_timeout;
        let (mut batch, mut claims) = (Vec::new(), Vec::new());
        let (mut budget, mut last_end) = (self.command_timeout, begun.moment);
        for hold in due {
            match hold.begin_renewal(begun, expires) {
                Ok(start) => {
                    // A hold that becomes due during the batch is renewed after the batch, and must not expire before.
                    // So a batch may take at most a quarter of its shortest lease (`pace`).
                    budget = budget.min(start.pace / 4);
                    last_end = last_end.max(start.valid_until);
                    claims.push(start.claim);
                    batch.push((hold, start.in_flight_id));
                }
                Err(duty) => self.follow(hold, duty, begun),
            }
        }
        if claims.is_empty() {
            return;
        }
        // A reply after `last_end` would be too late for every hold of the batch.
        let deadline = (begun.instant + budget).min(begun.instant_of(last_end));
        let renew = || self.store.renew(&claims, deadline);
        let outcomes = self.client.request("renew", renew);
        let answered = self.now();
        for (((hold, in_flight_id), claim), outcome) in batch.into_iter().zip(&claims).zip(outcomes)
        {
            match outcome {
                Renewal::Renewed | Renewal::RenewedFor(_) => {
                    let life = match outcome {
                        Renewal::RenewedFor(life) => Some(life),
                        _ => None,
                    };
                    events::renewed(&hold.name, &hold.visitor);
                    hold.report_if_long(answered.moment);
                    // In a quorum, a node that has not replied can run this renewal after later requests.
                    let may_run_again = self.store.facts().is_composite;
                    hold.confirmed(in_flight_id, life, may_run_again, answered.moment);
                    self.watch_at(hold, answered, None);
                }
                Renewal::Lost(cause) => self.end(hold, cause),
                Renewal::Unknown(reason) => {
                    events::renewal_unknown(&hold.name, &hold.visitor, &reason);
                    hold.renewal_unknown(in_flight_id, &reason);
                    let again_in =
                        (claim.lease / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
                    self.watch_at(hold, answered, Some(again_in));
                }
            }
        }
    }

    fn follow(&self, hold: &Arc<Hold>, duty: DueAction, now: ClockPair) {
        match duty {
            DueAction::Lapsed(cause) => self.end(hold, cause),
            DueAction::Idle | DueAction::Waits => self.watch_at(hold, now, None),
            DueAction::Renew(_) | DueAction::Over => {}
        }
    }

    pub(super) fn watch_at(&self, hold: &Arc<Hold>, now: ClockPair, again_in: Option<Duration>) {
        if let Some(look) = hold.plan(now, again_in) {
            self.plan(hold, &look, now);
        }
    }

    pub(super) fn now(&self) -> ClockPair {
        self.store.facts().timeline.read()
    }

    fn plan(&self, hold: &Arc<Hold>, look: &NextCheck, now: ClockPair) {
        if look.replaces_another {
            self.timer.cancelled();
        }
        let kind = if look.is_end { Job::End } else { Job::Renew };
        let job = kind(Arc::clone(hold));
        if !self.timer.schedule(look.due, job) {
            hold.abandon();
        }
        // A test may have advanced the clock since `now`.
        if self.store.facts().timeline.was_moved_since(now) {
            self.rewatch(hold);
        }
    }
}

/// Marks all holds as lost if the thread panics, because without renewals no hold stays valid.
struct PanicGuard<'a> {
    watchdog: &'a Watchdog,
    /// Holds that were taken out of the timer and not yet put back.
    in_hand: Vec<Arc<Batch>>,
    queued: Option<&'a Receiver<Arc<Batch>>>,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        self.watchdog.client.watchdog_died();
        let queued = self.queued.into_iter().flat_map(Receiver::try_iter);
        let batches = self.in_hand.drain(..).chain(queued);
        for batch in batches.chain([Arc::new(self.watchdog.holds())]) {
            for hold in batch.iter() {
                self.watchdog.lose(hold, LossCause::WatchdogDied);
            }
        }
    }
}

/// Joins a thread that ends before `deadline`. A thread that hangs in the user's code or a system call is left running.
pub(crate) fn join(handle: JoinHandle<()>, deadline: Instant) {
    // The hook may drop the last handle of its client. In that case, the hook's thread runs this function, and a thread
    // cannot join itself.
    let is_other = handle.thread().id() != thread::current().id();
    if is_other && poll_until(deadline, || handle.is_finished()) {
        let _ = handle.join();
    }
}

pub(crate) fn poll_until(deadline: Instant, is_so: impl Fn() -> bool) -> bool {
    let mut pause = Duration::from_micros(20);
    while !is_so() {
        if time::now() >= deadline {
            return false;
        }
        sync::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
    true
}
