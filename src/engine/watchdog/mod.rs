//! The watchdog of the holds of one client: one timer heap of them, and the threads around it.
//!
//! | thread | does | waits for |
//! |---|---|---|
//! | `redlatch-watch` | notices when a validity ends and tells it, says what is to be renewed | the timer alone |
//! | `redlatch-renew` | renews, at a third of the lease | the store |
//! | `redlatch-release` | releases what requests without an answer may have left, see `clearing.rs` | the store |
//! | `redlatch-on-lost` | runs the user's hook | the hook |
//!
//! None waits for another, so news of an end come when it comes, and nothing but renewals delays renewals. Nothing here
//! knows what a store is made of.

mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;

use crate::engine::clearing::Clearing;
use crate::engine::counters::Counters;
use crate::engine::hold::{HandOffOffer, Hold};
use crate::engine::loss_notice::{LossHook, OnLost};
use crate::engine::timer::Timer;
use crate::engine::wait_queue::WaitQueues;
use crate::engine::watchdog::threads::Job;
pub(crate) use crate::engine::watchdog::threads::{eventually, join};
#[cfg(feature = "in-memory")]
use crate::ground::clock::Moved;
use crate::ground::error::{Error, Result};
use crate::ground::events;
use crate::ground::loss::LossCause;
use crate::ground::sync::{self, JoinHandle, Mutex};
use crate::ground::time;
use crate::store::{Announcement, InDoubt, Store};

pub(crate) struct Watchdog {
    store: Arc<dyn Store>,
    /// The waiters of this client, who have to hear that one of it has the lock no longer.
    wait_queues: Arc<WaitQueues<HandOffOffer, Arc<Hold>>>,
    command_timeout: Duration,
    timer: Timer<Job>,
    /// Whether there are threads.
    running: AtomicBool,
    threads: Mutex<Threads>,
    clearing: Arc<Clearing>,
    client: Arc<Counters>,
    hook: LossHook,
    on_lost: Option<OnLost>,
    #[cfg(feature = "test-util")]
    die: AtomicBool,
}

#[derive(Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    stopped: bool,
}

impl Watchdog {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        wait_queues: Arc<WaitQueues<HandOffOffer, Arc<Hold>>>,
        command_timeout: Duration,
        client: Arc<Counters>,
        on_lost: Option<OnLost>,
    ) -> Arc<Watchdog> {
        let clearing = Clearing::new(Arc::clone(&store), command_timeout, Arc::clone(&client));
        let watchdog = Arc::new(Watchdog {
            store,
            wait_queues,
            command_timeout,
            timer: Timer::default(),
            running: AtomicBool::new(false),
            threads: Mutex::default(),
            clearing: Arc::new(clearing),
            client,
            hook: LossHook::default(),
            on_lost,
            #[cfg(feature = "test-util")]
            die: AtomicBool::new(false),
        });
        let facts = watchdog.store.facts();
        #[cfg(feature = "in-memory")]
        facts.timeline.attach(&watchdog);
        let weak = Arc::downgrade(&watchdog);
        let announce = move |announcement| match (weak.upgrade(), announcement) {
            // A server that took over may lack what the one before had granted: its holders hear of it now, not at their
            // next renewal.
            (Some(watchdog), Announcement::TakenOver) => {
                watchdog.timer.schedule(time::now(), Job::RenewAll);
            }
            (Some(watchdog), Announcement::Leftover(in_doubt)) => watchdog.settle(in_doubt),
            (None, _) => {}
        };
        facts.announcements.listen(announce);
        watchdog
    }

    /// Starts the threads if they do not run yet. Called before a lock is asked for, so that none is taken that could
    /// not be kept.
    pub(crate) fn ensure_running(self: &Arc<Self>, lock: &Arc<str>) -> Result<()> {
        let died = |reason: String| Error::WatchdogDied {
            lock: Arc::clone(lock),
            reason,
        };
        if !self.client.has_watchdog() {
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
        let mut start = |name: &str, run: Box<dyn FnOnce(&Watchdog) + Send>| -> Result<()> {
            let watchdog = Arc::clone(self);
            let started = sync::spawn(name, move || run(&watchdog));
            threads
                .handles
                .push(started.map_err(|error| died(error.to_string()))?);
            Ok(())
        };
        // If there is no room for one, those before it end at once, because what they wait at is closed.
        if let Some(on_lost) = &self.on_lost {
            let (on_lost, losses) = (Arc::clone(on_lost), self.hook.open());
            // A thread of its own, so that a slow hook delays no renewal.
            let call = move |it: &Watchdog| it.hook.call(&on_lost, &losses);
            start("redlatch-on-lost", Box::new(call))?;
        }
        let (sender, receiver) = unbounded();
        start(
            "redlatch-renew",
            Box::new(move |it| it.renew_all(&receiver)),
        )?;
        start("redlatch-watch", Box::new(move |it| it.watch_all(&sender)))?;
        self.running.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the hook that is called when a hold is lost.
    #[cfg(feature = "in-memory")]
    pub(crate) fn on_lost(&self) -> Option<OnLost> {
        self.on_lost.clone()
    }

    /// Looks after a hold from now on.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.watch_at(hold, self.now(), None);
    }

    /// Looks after a hold that was watched before and may have to be looked at earlier now.
    pub(crate) fn rewatch(&self, hold: &Arc<Hold>) {
        let now = self.now();
        if hold.is_due_earlier(now) {
            self.watch_at(hold, now, None);
        }
    }

    /// Looks after a hold no longer.
    pub(crate) fn unwatch(&self, hold: &Hold) {
        if hold.set_due(None) {
            self.timer.cancelled();
        }
    }

    /// Asks the store at once about the holds of this name.
    pub(crate) fn check_now(&self, name: &str) {
        self.hasten(|hold| *hold.name == *name);
    }

    /// The holds that it looks after.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        let mut holds = Vec::new();
        self.timer.each(|job| holds.extend(job.hold()));
        holds
    }

    /// How many doubts are to be cleared up.
    pub(crate) fn doubts(&self) -> u64 {
        self.clearing.open()
    }

    /// Tells that the rest of a hold has no lease left, whose release clears up.
    pub(crate) fn expire(&self, hold: &Hold) {
        self.unwatch(hold);
        self.tell_lost(hold, LossCause::LeaseEnded);
    }

    /// Tells of the loss that a release has found.
    pub(crate) fn lost_in_release(&self, hold: &Hold, cause: LossCause) {
        if let Some(loss) = hold.lose_in_release(cause) {
            hold.count_loss(&loss);
            self.hook.tell(loss);
        }
        if hold.may_outlast() {
            self.settle(hold.in_doubt());
        }
    }

    /// Ends a hold whose validity is over by the clock.
    pub(crate) fn end_lapsed(&self, hold: &Hold) {
        if let Some(cause) = hold.lapse() {
            self.end(hold, cause);
        }
    }

    /// Releases a hold in the background that was given back here, also if the client ends meanwhile. Returns whether there
    /// is somebody to do it.
    pub(crate) fn release_later(&self, hold: InDoubt) -> bool {
        self.clearing.settle(hold, true)
    }

    /// Takes back what a visitor has left in the store that has waited, and has no hold: in the background, also if the
    /// client ends meanwhile, or here until `deadline` if it has ended.
    pub(crate) fn withdraw(&self, mut place: InDoubt, deadline: Instant) {
        if self.clearing.settle(place.clone(), true) {
            return;
        }
        let resolve = || self.store.resolve(&mut [&mut place], deadline);
        if let Some(Err(error)) = self.client.request("clear", resolve).last() {
            events::not_settled(&place.name, error);
        }
    }

    /// Ends the threads, and waits for them until `deadline`, for calls of the hook until `hook_until`. Holds are not freed;
    /// their listeners hear that nobody renews them any more.
    pub(crate) fn stop(&self, hook_until: Instant, deadline: Instant) {
        let mut handles = {
            let mut threads = self.threads.lock();
            threads.stopped = true;
            std::mem::take(&mut threads.handles)
        };
        self.running.store(false, Ordering::Release);
        self.timer.close();
        handles.extend(self.clearing.close());
        // Nothing is added from now on: whatever comes to be watched hears of the end by itself.
        self.holds().iter().for_each(|hold| hold.abandon());
        self.hook.close(hook_until);
        for handle in handles {
            join(handle, deadline);
        }
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn die(&self) {
        self.die.store(true, Ordering::Release);
        self.timer.schedule(time::now(), Job::RenewAll);
    }
}

#[cfg(feature = "in-memory")]
impl Moved for Watchdog {
    /// Ends what has lapsed by that, and renews the others here, so that a test that has set the clock ahead finds them so.
    fn clock_moved(&self) {
        let mut holds = self.holds();
        holds.retain(|hold| match hold.lapse() {
            Some(cause) => {
                self.end(hold, cause);
                false
            }
            None => true,
        });
        if self.running.load(Ordering::Acquire) && self.client.has_watchdog() {
            self.renew(&holds);
        }
    }
}

impl Watchdog {
    /// Clears up in the background after a request that got no answer.
    pub(crate) fn settle(&self, in_doubt: InDoubt) {
        events::outcome_unknown(&in_doubt.name, &in_doubt.visitor);
        self.clearing.settle(in_doubt, false);
    }

    /// Turns a hold lost. If the store may still have it, others need not wait until its lease ends there.
    pub(crate) fn end(&self, hold: &Hold, cause: LossCause) {
        // A side of a read-write lock that is gone may have left its count, which others keep.
        let is_half_gone = cause == LossCause::Gone && hold.kind.rules().side.is_some();
        let may_still_stand = matches!(cause, LossCause::Unreachable { .. })
            || is_half_gone
            || self.store.facts().is_composite;
        // A hold that may outlast its end is cleared up after any loss.
        let in_doubt = (may_still_stand && !hold.may_outlast()).then(|| hold.in_doubt());
        let is_lost_now = self.lose(hold, cause);
        if let Some(in_doubt) = in_doubt.filter(|_| is_lost_now) {
            self.settle(in_doubt);
        }
    }

    /// Turns a hold lost, and tells who wants to know. Returns whether it was not lost before.
    pub(crate) fn lose(&self, hold: &Hold, cause: LossCause) -> bool {
        self.unwatch(hold);
        let is_lost_now = self.tell_lost(hold, cause);
        if is_lost_now && hold.may_outlast() {
            self.settle(hold.in_doubt());
        }
        is_lost_now
    }

    fn tell_lost(&self, hold: &Hold, cause: LossCause) -> bool {
        let Some(loss) = hold.lose(cause) else {
            return false;
        };
        self.wait_queues.freed(&hold.lock(), None, None);
        hold.count_loss(&loss);
        self.hook.tell(loss);
        true
    }
}
