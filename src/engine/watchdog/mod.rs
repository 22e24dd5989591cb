//! The watchdog of one client, which renews its holds and reports their loss. `renew.rs` has the loops.
//!
//! | thread | does | waits for |
//! |---|---|---|
//! | `redlatch-watch` | reports the end of a validity, queues renewals that are due | the timer |
//! | `redlatch-renew` | renews holds at a third of their lease | the store |
//! | `redlatch-release` | repeats releases, see `background_release.rs` | the store |
//! | `redlatch-on-lost` | runs the user's hook | the hook |
//!
//! None of these threads waits for another one. So a loss is reported at once. A renewal is delayed only by other
//! renewals, and by the user's observer if the observer is slow.

mod renew;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;

use crate::engine::background_release::Resolver;
use crate::engine::counters::Counters;
use crate::engine::hold::{HandOffOffer, Hold};
use crate::engine::loss_notice::{LossHook, OnLost};
use crate::engine::timer::Timer;
use crate::engine::wait_queue::WaitQueues;
use crate::engine::watchdog::renew::Job;
pub(crate) use crate::engine::watchdog::renew::{join, poll_until};
#[cfg(feature = "in-memory")]
use crate::ground::clock::ClockListener;
use crate::ground::error::{Error, Result};
use crate::ground::loss::LossCause;
use crate::ground::sync::{self, JoinHandle, Mutex};
use crate::ground::{events, time};
use crate::store::{InDoubt, Store};

pub(crate) struct Watchdog {
    store: Arc<dyn Store>,
    wait_queues: Arc<WaitQueues<HandOffOffer, Arc<Hold>>>,
    command_timeout: Duration,
    timer: Timer<Job>,
    running: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    resolver: Arc<Resolver>,
    client: Arc<Counters>,
    hook: LossHook,
    on_lost: Option<OnLost>,
    #[cfg(feature = "test-util")]
    die: AtomicBool,
}

impl Watchdog {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        wait_queues: Arc<WaitQueues<HandOffOffer, Arc<Hold>>>,
        command_timeout: Duration,
        client: Arc<Counters>,
        on_lost: Option<OnLost>,
    ) -> Arc<Watchdog> {
        let resolver = Resolver::new(Arc::clone(&store), command_timeout, Arc::clone(&client));
        let watchdog = Arc::new(Watchdog {
            store,
            wait_queues,
            command_timeout,
            timer: Timer::default(),
            running: AtomicBool::new(false),
            threads: Mutex::default(),
            resolver: Arc::new(resolver),
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
        // After a failover, the new server may lack holds. Renewing all holds reports these losses before the next regular
        // renewals.
        let renew_all = move || {
            if let Some(watchdog) = weak.upgrade() {
                watchdog.timer.schedule(time::now(), Job::RenewAll);
            }
        };
        facts.takeover_hook.get_or_init(|| Box::new(renew_all));
        watchdog
    }

    /// Starts the threads unless they run. Called before each acquisition, so that every acquired lock can be renewed.
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
        if self.timer.is_closed() {
            let lock = Arc::clone(lock);
            return Err(Error::Closed { lock });
        }
        if self.running.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut start = |name: &str, run: Box<dyn FnOnce(&Watchdog) + Send>| -> Result<()> {
            let watchdog = Arc::clone(self);
            let started = sync::spawn(name, move || run(&watchdog));
            threads.push(started.map_err(|error| died(error.to_string()))?);
            Ok(())
        };
        // If a thread cannot be started, the earlier threads end when the senders of their channels are dropped.
        if let Some(on_lost) = &self.on_lost {
            let (on_lost, losses) = (Arc::clone(on_lost), self.hook.open());
            // The hook has its own thread, so that a slow hook delays no renewal.
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

    #[cfg(feature = "in-memory")]
    pub(crate) fn on_lost(&self) -> Option<OnLost> {
        self.on_lost.clone()
    }

    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.watch_at(hold, self.now(), None);
    }

    pub(crate) fn rewatch(&self, hold: &Arc<Hold>) {
        let now = self.now();
        if hold.is_due_earlier(now) {
            self.watch_at(hold, now, None);
        }
    }

    pub(crate) fn unwatch(&self, hold: &Hold) {
        if hold.set_due(None) {
            self.timer.cancelled();
        }
    }

    pub(crate) fn check_now(&self, name: &str) {
        self.renew_now(|hold| *hold.name == *name);
    }

    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        let mut holds = Vec::new();
        self.timer.each(|job| job.add_holds(&mut holds));
        // A hold in a batch of renewals may also have its own timer entry.
        holds.sort_by_key(Arc::as_ptr);
        holds.dedup_by(|one, other| Arc::ptr_eq(one, other));
        holds
    }

    pub(crate) fn doubts(&self) -> u64 {
        self.resolver.open()
    }

    /// Reports the hold as lost, because the leases of its remaining levels have ended. The caller releases the hold.
    pub(crate) fn report_expired(&self, hold: &Hold) {
        self.unwatch(hold);
        self.tell_lost(hold, LossCause::LeaseEnded);
    }

    pub(crate) fn lost_in_release(&self, hold: &Hold, cause: LossCause) -> Error {
        if let Some(loss) = hold.lose_in_release(cause.clone()) {
            hold.count_loss(&loss);
            self.hook.tell(loss);
        }
        if hold.may_outlast() {
            self.resolve_later(hold.in_doubt());
        }
        hold.lost_error(cause)
    }

    pub(crate) fn lost(&self, hold: &Hold, cause: LossCause) -> Error {
        self.end(hold, cause.clone());
        hold.lost_error(cause)
    }

    pub(crate) fn end_lapsed(&self, hold: &Hold) {
        if let Some(cause) = hold.lapse() {
            self.end(hold, cause);
        }
    }

    /// Queues a release, which the shutdown still attempts. Returns false if the release cannot be queued.
    pub(crate) fn release_later(&self, hold: InDoubt) -> bool {
        self.resolver.queue(hold, true)
    }

    /// Removes the queue entry of a waiter in the background, also during the shutdown. If no background thread can do
    /// so, for example after the shutdown, the calling thread tries to remove the entry until `deadline`.
    pub(crate) fn give_up_entry(&self, mut place: InDoubt, deadline: Instant) {
        if self.resolver.queue(place.clone(), true) {
            return;
        }
        let resolve = || self.store.resolve(&mut place, deadline);
        if let Err(error) = self.client.request("clear", resolve) {
            events::not_settled(&place.name, &error);
        }
    }

    /// Makes the threads end, and waits for them until `deadline`. No call of the hook begins after `hook_until`. The holds
    /// are not released, but their listeners are notified that renewals have ended.
    pub(crate) fn stop(&self, hook_until: Instant, deadline: Instant) {
        let mut handles = {
            let mut threads = self.threads.lock();
            self.timer.close();
            std::mem::take(&mut *threads)
        };
        self.running.store(false, Ordering::Release);
        handles.extend(self.resolver.close());
        // The timer is closed, so [`Watchdog::watch`] abandons each hold that begins later.
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
impl ClockListener for Watchdog {
    /// After advancing the clock, a test expects that expired holds have ended and that all others are renewed.
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
            self.renew(holds.iter());
        }
    }
}

impl Watchdog {
    pub(crate) fn resolve_later(&self, in_doubt: InDoubt) {
        events::outcome_unknown(&in_doubt.name, &in_doubt.visitor);
        self.resolver.queue(in_doubt, false);
    }

    /// Marks a hold as lost. If the store may still have the hold, the hold is released in the background.
    pub(crate) fn end(&self, hold: &Hold, cause: LossCause) {
        // Both sides of a read-write lock share a key. If one side loses its hold, the key may still contain this hold,
        // because the other side renews the key.
        let is_half_gone = cause == LossCause::Gone && hold.kind.rules().side.is_some();
        let may_still_stand = matches!(cause, LossCause::Unreachable { .. })
            || is_half_gone
            || self.store.facts().is_composite;
        // If `hold.may_outlast()`, `lose` queues the release, so the release is not queued here.
        let in_doubt = (may_still_stand && !hold.may_outlast()).then(|| hold.in_doubt());
        let is_lost_now = self.lose(hold, cause);
        if let Some(in_doubt) = in_doubt.filter(|_| is_lost_now) {
            self.resolve_later(in_doubt);
        }
    }

    /// Marks a hold as lost and reports the loss. Returns false if the hold had already ended.
    pub(crate) fn lose(&self, hold: &Hold, cause: LossCause) -> bool {
        self.unwatch(hold);
        let is_lost_now = self.tell_lost(hold, cause);
        if is_lost_now && hold.may_outlast() {
            self.resolve_later(hold.in_doubt());
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
