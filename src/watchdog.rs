//! The renewal thread: one per client, with one timer heap of holds.
//!
//! It renews what is to be renewed at a third of its lease, notices when a validity ends, tells holders of their loss,
//! and clears up after requests that got no answer. Nothing here knows what a store is made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};
use parking_lot::Mutex;

use crate::clock::Now;
use crate::core::Offer;
use crate::error::{Error, Result};
use crate::hold::{Begun, Hold};
use crate::line::Lines;
use crate::loss::{Loss, LossCause};
use crate::store::{Doubt, Renewal, Store};
use crate::timer::{Timed, Timer};
use crate::trace;
use crate::wait::Backoff;

/// What is called when a hold is lost.
pub(crate) type OnLost = Arc<dyn Fn(&Loss) + Send + Sync>;

/// A silent server may delay the news of an end of validity by no more than this.
const LATEST_NEWS: Duration = Duration::from_millis(100);

pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    threads: Mutex<Threads>,
    running: AtomicBool,
    on_lost: Option<OnLost>,
}

#[derive(Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    stopped: bool,
}

struct Shared {
    store: Arc<dyn Store>,
    /// The waiters of this client, who have to hear that one of it has the lock no longer.
    lines: Arc<Lines<Offer, Arc<Hold>>>,
    command_timeout: Duration,
    timer: Timer<Job>,
    /// False once the thread has died: nothing is renewed any more, so nothing is valid.
    guarded: Arc<AtomicBool>,
    /// The holds taken out of the timer for the present round, to be told if the round ends in a panic.
    in_hand: Mutex<Arc<Vec<Arc<Hold>>>>,
    news: Mutex<Option<Sender<Loss>>>,
    #[cfg(feature = "test-util")]
    die: AtomicBool,
}

/// What the timer holds.
#[derive(Debug)]
enum Job {
    /// A hold is to be renewed.
    Renew(Arc<Hold>),
    /// The validity of a hold ends.
    End(Arc<Hold>),
    /// A request without an answer is to be cleared up after.
    Settle(Box<Settling>),
}

/// A doubt, and when it is worth asking again.
#[derive(Debug)]
struct Settling {
    doubt: Doubt,
    backoff: Backoff,
}

impl Job {
    fn settle(doubt: Doubt) -> Job {
        Job::Settle(Box::new(Settling {
            doubt,
            backoff: Backoff::default(),
        }))
    }
}

impl Timed for Job {
    fn is_due_at(&self, due: Instant) -> bool {
        match self {
            Job::Renew(hold) | Job::End(hold) => hold.is_due_at(due),
            Job::Settle(_) => true,
        }
    }

    fn is_urgent(&self) -> bool {
        matches!(self, Job::End(_))
    }
}

impl Watchdog {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        lines: Arc<Lines<Offer, Arc<Hold>>>,
        command_timeout: Duration,
        on_lost: Option<OnLost>,
    ) -> Watchdog {
        Watchdog {
            shared: Arc::new(Shared {
                store,
                lines,
                command_timeout,
                timer: Timer::default(),
                guarded: Arc::new(AtomicBool::new(true)),
                in_hand: Mutex::default(),
                news: Mutex::default(),
                #[cfg(feature = "test-util")]
                die: AtomicBool::new(false),
            }),
            threads: Mutex::default(),
            running: AtomicBool::new(false),
            on_lost,
        }
    }

    /// Starts the thread if it does not run yet. Called before a lock is asked for, so that none is taken that could
    /// not be kept.
    pub(crate) fn ensure_running(&self, lock: &Arc<str>) -> Result<()> {
        let died = |reason: String| Error::WatchdogDied {
            lock: Arc::clone(lock),
            reason,
        };
        if !self.shared.guarded.load(Ordering::Acquire) {
            return Err(died("it panicked; make a new client".to_owned()));
        }
        if self.running.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut threads = self.threads.lock();
        if threads.stopped {
            return Err(Error::Closed {
                lock: Arc::clone(lock),
            });
        }
        if self.running.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(on_lost) = &self.on_lost {
            let on_lost = Arc::clone(on_lost);
            let (sender, receiver) = unbounded::<Loss>();
            // A thread of its own, so that a slow hook delays no renewal.
            let teller = thread::Builder::new()
                .name("redlatch-on-lost".to_owned())
                .spawn(move || {
                    for loss in receiver {
                        tell(&on_lost, &loss);
                    }
                })
                .map_err(|error| died(error.to_string()))?;
            *self.shared.news.lock() = Some(sender);
            threads.handles.push(teller);
        }
        let shared = Arc::clone(&self.shared);
        let renewer = thread::Builder::new()
            .name("redlatch-renew".to_owned())
            .spawn(move || shared.run())
            .map_err(|error| died(error.to_string()))?;
        threads.handles.push(renewer);
        self.running.store(true, Ordering::Release);
        Ok(())
    }

    /// The flag that all holds of this client share: false once nobody renews them any more.
    pub(crate) fn guarded(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.guarded)
    }

    /// Looks after a hold from now on.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.shared.watch(hold, Now::read(), None);
    }

    /// Looks after a hold that was watched before and may have to be looked at earlier now.
    pub(crate) fn rewatch(&self, hold: &Arc<Hold>) {
        let now = Now::read();
        if hold.is_due_earlier(now) {
            self.shared.watch(hold, now, None);
        }
    }

    /// Looks after a hold no longer.
    pub(crate) fn unwatch(&self, hold: &Hold) {
        if hold.set_due(None) {
            self.shared.timer.cancelled();
        }
    }

    /// Asks the store at once about the holds of this name.
    pub(crate) fn check_now(&self, name: &str) {
        let mut holds = Vec::new();
        self.shared.timer.each(|job| match job {
            Job::Renew(hold) | Job::End(hold) if *hold.name == *name => {
                holds.push(Arc::clone(hold))
            }
            _ => {}
        });
        for hold in holds {
            let due = Instant::now();
            if hold.set_due(Some(due)) {
                self.shared.timer.cancelled();
            }
            self.shared.timer.schedule(due, Job::Renew(hold));
        }
    }

    /// Turns a hold lost, and tells who wants to know.
    pub(crate) fn lose(&self, hold: &Hold, cause: LossCause) {
        self.unwatch(hold);
        self.shared.lose(hold, cause);
    }

    /// Tells of the loss that a release has found.
    pub(crate) fn lost_in_release(&self, hold: &Hold, cause: LossCause) {
        if let Some(loss) = hold.lose_in_release(cause) {
            self.shared.publish(loss);
        }
    }

    /// Turns a hold lost whose validity has ended by the clock.
    pub(crate) fn end(&self, hold: &Hold, cause: LossCause) {
        self.unwatch(hold);
        self.shared.end(hold, cause);
    }

    /// Clears up in the background after a request that got no answer.
    pub(crate) fn settle(&self, doubt: Doubt) {
        trace::outcome_unknown(&doubt.name, &doubt.visitor);
        self.shared
            .timer
            .schedule(Instant::now(), Job::settle(doubt));
    }

    /// Ends the threads. Holds are not freed; their listeners hear that nobody renews them any more.
    pub(crate) fn stop(&self) {
        let handles = {
            let mut threads = self.threads.lock();
            threads.stopped = true;
            std::mem::take(&mut threads.handles)
        };
        self.running.store(false, Ordering::Release);
        self.shared.timer.close();
        *self.shared.news.lock() = None;
        for handle in handles {
            // The last handle of a client may be dropped by its own hook.
            if handle.thread().id() != thread::current().id() {
                // A panic was already turned into losses.
                let _ = handle.join();
            }
        }
        self.shared.timer.each(|job| {
            if let Job::Renew(hold) | Job::End(hold) = job {
                hold.abandon();
            }
        });
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn die(&self) {
        self.shared.die.store(true, Ordering::Release);
        use crate::claim::Kind;
        let doubt = Doubt {
            kind: Kind::Reentrant,
            name: "".into(),
            visitor: Kind::Reentrant.visitor("", 0, 0),
            not_after: smallvec::SmallVec::new(),
            ends: Now::read().moment,
        };
        self.settle(doubt);
    }
}

/// Runs the user's hook. What it does wrong stays its own affair.
fn tell(on_lost: &OnLost, loss: &Loss) {
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| on_lost(loss)));
    if told.is_err() {
        trace::hook_panicked(&loss.lock);
    }
}

impl Shared {
    fn run(&self) {
        let _sentinel = Sentinel(self);
        if cfg!(feature = "tracing") {
            self.preflight();
        }
        // After an attempt that was cut short for somebody's end of validity, the next one gets its time.
        let mut was_cut_short = false;
        while let Some(jobs) = self.timer.next_due() {
            #[cfg(feature = "test-util")]
            if self.die.load(Ordering::Acquire) {
                panic!("the renewal thread was told to die");
            }
            let mut due = Vec::new();
            let mut open = Vec::new();
            for job in jobs {
                match job {
                    Job::Renew(hold) => due.push(hold),
                    Job::End(hold) => {
                        hold.set_due(None);
                        match hold.lapse() {
                            Some(cause) => self.end(&hold, cause),
                            None => self.watch(&hold, Now::read(), None),
                        }
                    }
                    Job::Settle(settling) => open.push(*settling),
                }
            }
            if !due.is_empty() {
                let due = Arc::new(due);
                *self.in_hand.lock() = Arc::clone(&due);
                was_cut_short = self.renew(&due, was_cut_short);
                *self.in_hand.lock() = Arc::default();
            }
            if !open.is_empty() {
                self.settle(open);
            }
        }
    }

    /// Renews the holds, and returns whether the time for it had to be cut short.
    fn renew(&self, due: &[Arc<Hold>], was_cut_short: bool) -> bool {
        let begun = Now::read();
        let expires = begun.moment + self.command_timeout;
        let mut batch = Vec::with_capacity(due.len());
        let mut claims = Vec::with_capacity(due.len());
        let mut first_end = None;
        for hold in due {
            match hold.begin_renewal(begun.moment, expires) {
                Begun::Renewal { claim, valid_until } => {
                    first_end = Some(first_end.map_or(valid_until, |end| valid_until.min(end)));
                    claims.push(claim);
                    batch.push(hold);
                }
                Begun::Lapsed(cause) => self.end(hold, cause),
                Begun::Unowned => self.watch(hold, begun, None),
                Begun::Over => {}
            }
        }
        let lease = claims.iter().map(|claim| claim.lease).min();
        let first_end = first_end.map(|end| begun.instant_of(end));
        let (until, cut_short) = self.budget(begun.instant, lease, first_end, was_cut_short);
        let outcomes = self.store.renew(&claims, until);
        let answered = Now::read();
        let mut all_answered = true;
        for ((hold, claim), outcome) in batch.into_iter().zip(&claims).zip(outcomes) {
            match outcome {
                Renewal::Renewed => {
                    trace::renewed(&hold.name, &hold.visitor);
                    hold.confirmed(claim, begun.moment, answered.moment);
                    self.watch(hold, answered, None);
                }
                Renewal::Lost(cause) => self.end(hold, cause),
                Renewal::Unknown(reason) => {
                    trace::renewal_unknown(&hold.name, &hold.visitor, &reason);
                    all_answered = false;
                    hold.renewal_unknown(&reason);
                    let again_in =
                        (claim.lease / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
                    self.watch(hold, answered, Some(again_in));
                }
            }
        }
        cut_short && !all_answered
    }

    /// Until when the store may take its time: a third of the shortest lease, but not past the next end of a validity,
    /// which somebody waits to hear of.
    fn budget(
        &self,
        now: Instant,
        lease: Option<Duration>,
        first_end: Option<Instant>,
        was_cut_short: bool,
    ) -> (Instant, bool) {
        let full = lease.map_or(self.command_timeout, |lease| {
            self.command_timeout.min(lease / 3)
        });
        let least = if was_cut_short {
            full / 2
        } else {
            LATEST_NEWS.min(full)
        };
        let next_end = self.timer.first_urgent();
        let next_end = next_end.into_iter().chain(first_end).min();
        match next_end.map(|end| end.saturating_duration_since(now).max(least)) {
            Some(cut) if cut < full => (now + cut, true),
            _ => (now + full, false),
        }
    }

    /// Until when something may take its time that no holder waits for.
    fn spare_time(&self) -> Instant {
        let now = Instant::now();
        let next = self.timer.first();
        let spare = next.map_or(self.command_timeout, |due| {
            due.saturating_duration_since(now)
        });
        now + spare.clamp(LATEST_NEWS.min(self.command_timeout), self.command_timeout)
    }

    fn settle(&self, open: Vec<Settling>) {
        let mut is_silent = false;
        for mut settling in open {
            let doubt = &mut settling.doubt;
            if doubt.ends.has_passed() {
                continue;
            }
            // One server that does not answer one of them answers none, and others wait for this thread.
            let is_settled = !is_silent && {
                match self.store.withdraw(doubt, self.spare_time()) {
                    Ok(is_settled) => is_settled,
                    Err(error) => {
                        is_silent = error.may_pass();
                        trace::not_settled(&doubt.name, &error);
                        false
                    }
                }
            };
            if !is_settled {
                let again_at = Instant::now() + settling.backoff.next();
                self.timer
                    .schedule(again_at, Job::Settle(Box::new(settling)));
            }
        }
    }

    fn watch(&self, hold: &Arc<Hold>, now: Now, again_in: Option<Duration>) {
        let look = hold.plan(now, again_in);
        if look.replaces_another {
            self.timer.cancelled();
        }
        let job = if look.is_end {
            Job::End(Arc::clone(hold))
        } else {
            Job::Renew(Arc::clone(hold))
        };
        self.timer.schedule(look.due, job);
    }

    /// Turns a hold lost. If the store may still have it, others need not wait until its lease ends there.
    fn end(&self, hold: &Hold, cause: LossCause) {
        let may_still_stand = matches!(cause, LossCause::Unreachable { .. })
            || hold.may_outlast()
            || self.store.has_parts();
        let doubt = may_still_stand.then(|| hold.doubt());
        self.lose(hold, cause);
        if let Some(doubt) = doubt {
            self.timer.schedule(Instant::now(), Job::settle(doubt));
        }
    }

    fn lose(&self, hold: &Hold, cause: LossCause) {
        if let Some(loss) = hold.lose(cause) {
            self.lines.freed(&hold.name, None);
            self.publish(loss);
        }
    }

    fn publish(&self, loss: Loss) {
        trace::lost(&loss.lock, &loss.visitor, &loss.cause);
        if let Some(news) = &*self.news.lock() {
            // Fails only if the hook's thread is gone, which ends with the client.
            let _ = news.send(loss);
        }
    }

    /// Says once what endangers locks on this server. It is only worth asking if somebody hears the answer.
    fn preflight(&self) {
        let findings = self.store.check(Instant::now() + self.command_timeout);
        for warning in findings.into_iter().flatten() {
            trace::preflight(&warning);
        }
    }
}

/// Tells every holder if the thread dies of a panic: never "no renewal, and still valid".
struct Sentinel<'a>(&'a Shared);

impl Drop for Sentinel<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        self.0.guarded.store(false, Ordering::Release);
        let mut holds = self.0.in_hand.lock().to_vec();
        self.0.timer.each(|job| {
            if let Job::Renew(hold) | Job::End(hold) = job {
                holds.push(Arc::clone(hold));
            }
        });
        for hold in holds {
            self.0.lose(&hold, LossCause::WatchdogDied);
        }
    }
}
