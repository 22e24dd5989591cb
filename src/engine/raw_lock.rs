//! How a thread enters a lock, enters it again, and leaves it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::client_inner::{ClientInner, HandOffOffer};
use crate::engine::hold::{Hold, InFlightId, Lease, LevelId, ReleasePlan};
use crate::engine::owner::{LockKey, Owner, current_thread_id};
use crate::engine::wait_loop::{self, Queue, Verdict, WaitContext, WaitLimit};
use crate::engine::wait_queue::{QueueNode, Turn};
use crate::ground::claim::Claim;
use crate::ground::clock::SHORTEST_LEASE;
use crate::ground::error::{Error, Result};
use crate::ground::events::{self, WaitSpan};
use crate::ground::loss::LossCause;
use crate::ground::notify::Parker;
use crate::store::{Attempt, Release, Transfer};

/// The way into one lock, with one lease.
#[derive(Clone)]
pub(crate) struct RawLock {
    pub(crate) inner: Arc<ClientInner>,
    pub(crate) key: LockKey,
    pub(crate) lease: Lease,
    /// What is wrong with the name, kept for the first operation.
    pub(crate) flaw: Option<Box<Error>>,
    /// The locks that this one is made of, if it is.
    pub(crate) parts: Option<Arc<[LockKey]>>,
}

/// A level of a hold that was entered.
pub(crate) struct Entry {
    pub(crate) hold: Arc<Hold>,
    pub(crate) level: LevelId,
}

impl RawLock {
    /// Says what is wrong with this lock or its client before anything is sent.
    pub(crate) fn ready(&self) -> Result<()> {
        if let Some(flaw) = &self.flaw {
            return Err((**flaw).clone());
        }
        // A forked child has a copy of everything but owns nothing, and other threads' mutexes may be locked for good.
        if self.inner.is_forked() {
            return Err(Error::Forked {
                lock: Arc::clone(&self.key.name),
            });
        }
        Ok(())
    }

    /// Takes the lock or enters it once more; `None` if it was refused until the limit.
    pub(crate) fn acquire(&self, limit: WaitLimit<'_>) -> Result<Option<Entry>> {
        self.ready()?;
        if let Lease::Fixed(lease) = self.lease
            && !(SHORTEST_LEASE..=self.inner.store.longest_lease()).contains(&lease)
        {
            return Err(Error::InvalidLease {
                lock: Arc::clone(&self.key.name),
                lease,
                longest: self.inner.store.longest_lease(),
            });
        }
        #[cfg(feature = "mysql")]
        if let Some(store) = &self.inner.database {
            store.check_not_pinned_here(&self.key.name)?;
        }
        let me = self.inner.thread(&self.key.name)?;
        if let Some(held) = me.held.overlapping(&self.key, self.parts.as_deref()) {
            return Err(Error::Overlap {
                lock: Arc::clone(&self.key.name),
                held,
            });
        }
        // A re-entry barges past the queue.
        let is_inside = || {
            let current = me.held.current(&self.key);
            current.is_some_and(|hold| hold.stands())
        };
        let _span = WaitSpan::enter(&self.key.name, me.id);
        let context = WaitContext {
            lock: &self.key.name,
            notifier: self.inner.store.notifier(),
            request: self.inner.timeouts.request(),
            outage_timeout: self.inner.timeouts.outage_timeout,
            is_busy: self.inner.wait_queues.is_busy(&self.key.name) && !is_inside(),
        };
        let mut is_first_refusal = true;
        let entry = wait_loop::wait(
            &context,
            limit,
            |deadline| {
                let verdict = self.attempt(&me, deadline)?;
                if matches!(verdict, Verdict::Refused { .. })
                    && std::mem::take(&mut is_first_refusal)
                {
                    events::contended(&self.key.name);
                }
                Ok(verdict)
            },
            |parker| {
                let RawLock { inner, key, .. } = self;
                inner.store.subscribe(key.kind, &key.name, 0, parker)
            },
            |parker| (!is_inside()).then(|| QueuedThread::join(self, &me, parker)),
        )?;
        Ok(entry)
    }

    fn attempt(&self, me: &Arc<Owner>, deadline: Instant) -> Result<Verdict<Entry>> {
        // At each attempt: the thread that renews may die while we wait.
        self.inner.watchdog.ensure_running(&self.key.name)?;
        if let Some(hold) = me.held.current(&self.key)
            && let Some(entry) = self.reenter(&hold, deadline)?
        {
            return Ok(Verdict::Done(entry));
        }
        let kind = self.key.kind;
        let claim = Claim {
            kind,
            name: Arc::clone(&self.key.name),
            visitor: kind.visitor(&self.inner.id, me.id, self.inner.next_hold()),
            count: 0,
            lease: self.lease.duration(),
        };
        match self.inner.store.acquire(&claim, deadline)? {
            Attempt::Granted { sent, fence, .. } => {
                let client = Arc::clone(self.inner.watchdog.client());
                let hold = Hold::new(&claim, me.id, me.liveness(), client, self.lease, sent);
                let hold = hold.counted_by(self.inner.store.timeline());
                let hold = Arc::new(hold.with_fence(fence));
                if !hold.is_valid() {
                    // The answer came after all that it could have been good for.
                    self.inner.watchdog.settle(claim.in_doubt(0));
                    return Err(self.late(&claim));
                }
                events::acquired(&claim.name, &claim.visitor);
                me.held
                    .push(&self.key, self.parts.as_ref(), Arc::clone(&hold));
                self.inner.watchdog.watch(&hold);
                if let Lease::Watchdog(_) = self.lease {
                    self.inner.store.get_ready_to_renew(&claim.name, deadline);
                }
                Ok(Verdict::Done(Entry { hold, level: 0 }))
            }
            Attempt::Refused(refusal) => {
                if let Some(leftover) = refusal.leftover {
                    self.inner.watchdog.settle(leftover);
                }
                // A part that this thread holds through another client is not given up while it waits.
                if self.parts.is_some()
                    && let Some(held) = refusal.holder.and_then(|it| me.held.held_as(&it))
                {
                    return Err(Error::Overlap {
                        lock: Arc::clone(&self.key.name),
                        held,
                    });
                }
                Ok(Verdict::Refused {
                    retry_after: refusal.retry_after,
                    split: refusal.split,
                })
            }
            // Nobody else knows this visitor yet.
            Attempt::Lost(_) => Ok(Verdict::Refused {
                retry_after: Some(Duration::ZERO),
                split: None,
            }),
            Attempt::Unknown { in_doubt, error } => {
                self.inner.watchdog.settle(in_doubt);
                Err(error)
            }
        }
    }

    /// Enters `hold` once more; `None` if it turns out to be over, and a new one has to begin.
    fn reenter(&self, hold: &Arc<Hold>, deadline: Instant) -> Result<Option<Entry>> {
        if !hold.is_held() {
            return Ok(None);
        }
        if let Some(cause) = hold.lapse() {
            self.inner.watchdog.end(hold, cause);
            return Ok(None);
        }
        if !self.key.kind.is_reentrant() {
            return Err(Error::NotReentrant {
                lock: Arc::clone(&self.key.name),
            });
        }
        let (claim, in_flight_id) = hold.reentry(self.lease, deadline);
        let attempt = self.inner.store.acquire(&claim, deadline);
        let attempt = attempt.inspect_err(|error| {
            if error.is_ambiguous() {
                hold.unanswered(in_flight_id);
            } else {
                hold.not_done(in_flight_id);
            }
        });
        match attempt? {
            Attempt::Granted { sent, leftover, .. } => {
                let may_run_again = leftover.is_some();
                let entered = hold.entered(&claim, in_flight_id, self.lease, sent, may_run_again);
                let Some(level) = entered else {
                    // It has ended here while the request was under way, and must not last on in the store.
                    self.inner.watchdog.settle(claim.in_doubt(0));
                    return Ok(None);
                };
                self.inner.watchdog.rewatch(hold);
                Ok(Some(Entry {
                    hold: Arc::clone(hold),
                    level,
                }))
            }
            Attempt::Lost(cause) => {
                self.inner.watchdog.end(hold, cause);
                Ok(None)
            }
            Attempt::Refused(_) => {
                self.inner.watchdog.lose(hold, LossCause::Gone);
                Ok(None)
            }
            // The outer hold goes on with the count it has; the request, if it ran, changed no more than that count.
            Attempt::Unknown { error, .. } => {
                hold.reentry_unknown(in_flight_id);
                Err(error)
            }
        }
    }

    fn late(&self, claim: &Claim) -> Error {
        Error::Unknown {
            lock: Arc::clone(&claim.name),
            node: "the store".into(),
            operation: "acquire",
            visitor: Some(claim.visitor.clone()),
            reason: "it answered after the lease it granted had ended".to_owned(),
            source: None,
        }
    }

    /// Gives level `level` of `hold` back, by the thread that holds it and after [`RawLock::ready`].
    pub(crate) fn release(&self, hold: &Arc<Hold>, level: LevelId) -> Result<()> {
        if hold.is_held()
            && let Some(cause) = hold.lapse()
        {
            self.inner.watchdog.end(hold, cause);
        }
        let deadline = self.inner.deadline();
        let outcome = match hold.leave(level, deadline) {
            ReleasePlan::Lost { cause, had_level } => {
                if had_level && let Ok(me) = self.inner.thread(&self.key.name) {
                    me.held.leave_lapsed(&self.key, hold);
                }
                Err(hold.lost_error(cause))
            }
            ReleasePlan::Before => Err(Error::NotHeld {
                lock: Arc::clone(&self.key.name),
                client: Arc::clone(&self.inner.id),
                thread: current_thread_id(),
            }),
            ReleasePlan::Whole(claim) => self.release_whole(hold, &claim, deadline),
            ReleasePlan::Part(claim, in_flight_id) => {
                // Its validity may end while the answer is waited for.
                self.inner.watchdog.rewatch(hold);
                self.give_level_back(hold, &claim, in_flight_id, deadline)
            }
            ReleasePlan::Expired(claim) => {
                // The remaining levels had leases that are over: they learn it now, and others need not wait.
                self.inner.watchdog.lose(hold, LossCause::LeaseEnded);
                self.release_whole(hold, &claim, deadline)
            }
        };
        // A guard may outlive the rest of its thread.
        if let Ok(me) = self.inner.thread(&self.key.name) {
            me.held.settle(&self.key, hold);
        }
        outcome
    }

    fn give_level_back(
        &self,
        hold: &Arc<Hold>,
        claim: &Claim,
        in_flight_id: InFlightId,
        deadline: Instant,
    ) -> Result<()> {
        match self.inner.store.release_level(claim, deadline) {
            Ok(Release::Done { leftover, .. }) => {
                hold.confirmed(
                    in_flight_id,
                    leftover.is_some(),
                    self.inner.store.timeline().now(),
                );
                self.inner.watchdog.rewatch(hold);
                Ok(())
            }
            Ok(Release::NotHeld(cause)) => {
                self.inner.watchdog.lose(hold, cause.clone());
                Err(hold.lost_error(cause))
            }
            Ok(Release::Unknown { error, .. }) | Err(error) => {
                hold.unanswered(in_flight_id);
                self.inner.watchdog.rewatch(hold);
                Err(error)
            }
        }
    }

    fn release_whole(&self, hold: &Hold, claim: &Claim, deadline: Instant) -> Result<()> {
        self.inner.watchdog.unwatch(hold);
        let outcome = match self.hand_off(hold, claim, deadline) {
            Some(outcome) => outcome,
            None => match self.free(claim, deadline) {
                Ok(None) => Ok(()),
                Ok(Some(cause)) => {
                    self.inner.watchdog.lost_in_release(hold, cause.clone());
                    Err(hold.lost_error(cause))
                }
                Err(error) => Err(error),
            },
        };
        hold.close_listeners();
        events::unlocked(&claim.name, &claim.visitor);
        outcome
    }

    /// Frees the lock, and wakes the next. Returns why the hold was not there, if it was not.
    fn free(&self, claim: &Claim, deadline: Instant) -> Result<Option<LossCause>> {
        let mut yield_for = None;
        let outcome = match self.inner.store.release(claim, deadline) {
            Ok(Release::Done {
                others_wait,
                leftover,
            }) => {
                if let Some(leftover) = leftover {
                    self.inner.watchdog.settle(leftover);
                }
                // Two round trips: that long another process takes to hear of it and to ask.
                let rest = || {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let took = self.inner.timeouts.request().saturating_sub(left);
                    (took * 2).min(LONGEST_YIELD)
                };
                yield_for = others_wait.then(rest);
                Ok(None)
            }
            Ok(Release::NotHeld(cause)) => {
                if self.inner.store.is_composite() {
                    self.inner.watchdog.settle(claim.in_doubt(0));
                }
                Ok(Some(cause))
            }
            Ok(Release::Unknown { in_doubt, error }) => {
                self.inner.watchdog.settle(in_doubt);
                Err(error)
            }
            Err(error) => {
                self.inner.watchdog.settle(claim.in_doubt(0));
                Err(error)
            }
        };
        self.inner.wait_queues.freed(&claim.name, yield_for);
        outcome
    }

    /// Hands the hold off to the head of the queue; `None` if nobody takes it, or nothing was changed.
    fn hand_off(&self, hold: &Hold, claim: &Claim, deadline: Instant) -> Option<Result<()>> {
        if !self.inner.store.hands_off() {
            return None;
        }
        let successor = self.inner.wait_queues.choose(&claim.name)?;
        let HandOffOffer {
            kind,
            thread,
            liveness,
            lease,
        } = successor.offer();
        if *kind != claim.kind {
            return None;
        }
        let next = Claim {
            kind: *kind,
            name: Arc::clone(&claim.name),
            visitor: kind.visitor(&self.inner.id, *thread, self.inner.next_hold()),
            count: 0,
            lease: lease.duration(),
        };
        let outcome = match self.inner.store.transfer(claim, &next, deadline) {
            Ok(Transfer::Done {
                sent,
                fence,
                others_wait,
            }) => {
                let client = Arc::clone(self.inner.watchdog.client());
                let successor_hold =
                    Hold::new(&next, *thread, liveness.clone(), client, *lease, sent);
                let successor_hold = successor_hold.counted_by(self.inner.store.timeline());
                let successor_hold = Arc::new(successor_hold.with_fence(fence));
                self.inner.watchdog.watch(&successor_hold);
                events::acquired(&next.name, &next.visitor);
                if let Err(successor_hold) = successor.grant(successor_hold, others_wait) {
                    self.take_back(&successor_hold, next, deadline);
                }
                return Some(Ok(()));
            }
            Ok(Transfer::NotHeld(cause)) => {
                self.inner.watchdog.lost_in_release(hold, cause.clone());
                Err(hold.lost_error(cause))
            }
            Ok(Transfer::Unknown { in_doubts, error }) => {
                for in_doubt in *in_doubts {
                    self.inner.watchdog.settle(in_doubt);
                }
                Err(error)
            }
            // Nothing was changed; the plain release may do, or says what is wrong.
            Err(_) => return None,
        };
        drop(successor);
        self.inner.wait_queues.freed(&claim.name, None);
        Some(outcome)
    }
}

impl RawLock {
    fn join_queue(&self, me: &Owner, parker: &Arc<Parker>) -> QueueNode<HandOffOffer, Arc<Hold>> {
        let offer = HandOffOffer {
            kind: self.key.kind,
            thread: me.id,
            liveness: me.liveness(),
            lease: self.lease,
        };
        self.inner.wait_queues.join(&self.key.name, parker, offer)
    }

    /// Makes the hold that was handed off the current one of the thread, if it is still valid.
    fn accept(&self, me: &Owner, hold: Arc<Hold>) -> Option<Entry> {
        if !hold.is_valid() {
            self.discard(&hold);
            return None;
        }
        me.held
            .push(&self.key, self.parts.as_ref(), Arc::clone(&hold));
        Some(Entry { hold, level: 0 })
    }

    /// Frees in the background what was granted to the calling thread and is of no use to it.
    fn discard(&self, hold: &Hold) {
        let in_doubt = hold.in_doubt();
        hold.leave(0, self.inner.deadline());
        self.inner.watchdog.unwatch(hold);
        self.inner.watchdog.settle(in_doubt);
    }

    /// Frees a hold whose successor left the queue before it was granted.
    fn take_back(&self, successor_hold: &Hold, granted: Claim, deadline: Instant) {
        successor_hold.leave(0, deadline);
        self.inner.watchdog.unwatch(successor_hold);
        let claim = Claim {
            count: 1,
            ..granted
        };
        // The releaser's own hold is given back in any case, and this one in the background if it was not now.
        if let Err(error) = self.free(&claim, deadline) {
            events::unlock_failed(&claim.name, &error);
        }
    }
}

const LONGEST_YIELD: Duration = Duration::from_millis(10);

/// A thread in the wait queue of one lock.
struct QueuedThread<'a> {
    raw_lock: &'a RawLock,
    me: &'a Arc<Owner>,
    parker: Arc<Parker>,
    node: QueueNode<HandOffOffer, Arc<Hold>>,
}

impl<'a> QueuedThread<'a> {
    fn join(raw_lock: &'a RawLock, me: &'a Arc<Owner>, parker: &Arc<Parker>) -> Self {
        QueuedThread {
            raw_lock,
            me,
            parker: Arc::clone(parker),
            node: raw_lock.join_queue(me, parker),
        }
    }
}

impl Queue<Entry> for QueuedThread<'_> {
    fn turn(&self) -> Turn {
        self.node.turn()
    }

    fn take(&mut self) -> Option<Entry> {
        let entry = self.raw_lock.accept(self.me, self.node.take()?);
        if entry.is_none() {
            self.node = self.raw_lock.join_queue(self.me, &self.parker);
        }
        entry
    }

    fn note_usable(&self) {
        self.node.note_usable();
    }

    fn note_news(&self) {
        self.node.note_news();
    }

    fn note_trouble(&self) {
        self.node.note_trouble();
    }

    fn last_news(&self) -> Option<Instant> {
        self.node.last_news()
    }

    fn last_usable(&self) -> Option<Instant> {
        self.node.last_usable()
    }

    fn leave(self, has_the_lock: bool) -> Option<Entry> {
        let handed = self.node.leave(has_the_lock)?;
        if has_the_lock {
            // The store has granted it twice, which it may only if one of the two is over.
            self.raw_lock.discard(&handed);
            return None;
        }
        self.raw_lock.accept(self.me, handed)
    }
}
