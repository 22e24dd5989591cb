//! How a thread enters a lock, enters it again, and leaves it.

mod hand_off;
mod release;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::client_inner::ClientInner;
use crate::engine::hold::{Hold, Lease, LevelId};
use crate::engine::owner::{LockKey, Owner};
use crate::engine::raw_lock::hand_off::QueuedThread;
use crate::engine::wait_loop::{self, Verdict, WaitContext, WaitLimit};
use crate::ground::claim::{Claim, VisitorId};
use crate::ground::clock::SHORTEST_LEASE;
use crate::ground::error::{Error, Result};
use crate::ground::events::{self, WaitSpan};
use crate::ground::loss::LossCause;
use crate::store::{Granted, Outcome};

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
                lock: Arc::clone(&self.key.lock.name),
            });
        }
        Ok(())
    }

    /// Takes the lock or enters it once more; `None` if it was refused until the limit.
    pub(crate) fn acquire(&self, limit: WaitLimit<'_>) -> Result<Option<Entry>> {
        self.ready()?;
        if let Lease::Fixed(lease) = self.lease
            && !(SHORTEST_LEASE..=self.inner.store.facts().longest_lease).contains(&lease)
        {
            return Err(Error::InvalidLease {
                lock: Arc::clone(&self.key.lock.name),
                lease,
                longest: self.inner.store.facts().longest_lease,
            });
        }
        let me = self.inner.thread(&self.key.lock.name)?;
        if let Some(held) = me.held.overlapping(&self.key, self.parts.as_deref()) {
            return Err(Error::Overlap {
                lock: Arc::clone(&self.key.lock.name),
                held,
            });
        }
        // A re-entry barges past the queue.
        let is_inside = || self.current(&me).is_some_and(|hold| hold.stands());
        let rules = self.key.lock.kind.rules();
        let mut visitor = None;
        let _span = WaitSpan::enter(&self.key.lock.name, me.id);
        let context = WaitContext {
            lock: &self.key.lock.name,
            notifier: &self.inner.store.facts().notifier,
            request: self.inner.timeouts.request(),
            outage_timeout: self.inner.timeouts.outage_timeout,
            is_busy: rules.queues_locally
                && self.inner.wait_queues.is_busy(&self.key.lock)
                && !is_inside(),
        };
        let mut is_first_refusal = true;
        let entry = wait_loop::wait(
            &context,
            limit,
            |deadline| {
                let verdict = self.attempt(&me, &mut visitor, deadline)?;
                if matches!(verdict, Verdict::Refused { .. })
                    && std::mem::take(&mut is_first_refusal)
                {
                    events::contended(&self.key.lock.name);
                }
                Ok(verdict)
            },
            |parker| {
                let RawLock { inner, key, .. } = self;
                inner.store.subscribe(&key.lock, 0, parker)
            },
            |parker| {
                (rules.queues_locally && !is_inside())
                    .then(|| QueuedThread::join(self, &me, parker))
            },
        )?;
        Ok(entry)
    }

    /// The hold that the calling thread enters again, or has to give back first.
    fn current(&self, me: &Owner) -> Option<Arc<Hold>> {
        let current = me.held.current(&self.key);
        current.filter(|_| self.key.lock.kind.rules().has_thread_owner)
    }

    /// Asks the store once. `waiting` is the visitor of this wait, as long as it is to be asked for again.
    fn attempt(
        &self,
        me: &Arc<Owner>,
        waiting: &mut Option<VisitorId>,
        deadline: Instant,
    ) -> Result<Verdict<Entry>> {
        // At each attempt: the thread that renews may die while we wait.
        self.inner.watchdog.ensure_running(&self.key.lock.name)?;
        if let Some(hold) = self.current(me)
            && let Some(entry) = self.reenter(&hold, deadline)?
        {
            return Ok(Verdict::Done(entry));
        }
        let kind = self.key.lock.kind;
        let claim = Claim {
            kind,
            name: Arc::clone(&self.key.lock.name),
            visitor: waiting
                .take()
                .unwrap_or_else(|| kind.visitor(&self.inner.id, me.id, self.inner.next_hold())),
            count: 0,
            lease: self.lease.duration(),
        };
        match self.inner.store.acquire(&claim, deadline)? {
            Outcome::Done(Granted { sent, fence, .. }) => {
                let client = Arc::clone(self.inner.watchdog.client());
                let hold = Hold::new(&claim, me.id, me.liveness(), client, self.lease, sent);
                let hold = hold.counted_by(&self.inner.store.facts().timeline);
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
                    self.inner.store.prepare_renewal(&claim.name, deadline);
                }
                Ok(Verdict::Done(Entry { hold, level: 0 }))
            }
            Outcome::Refused(refusal) => {
                // What is cleared up after is not to be asked for again: that would withdraw a hold.
                *waiting = Some(claim.visitor)
                    .filter(|_| kind.rules().places_in_store && refusal.leftover.is_none());
                if let Some(leftover) = refusal.leftover {
                    self.inner.watchdog.settle(leftover);
                }
                // A part that this thread holds through another client is not given up while it waits.
                if self.parts.is_some()
                    && let Some(held) = refusal.holder.and_then(|it| me.held.held_as(&it))
                {
                    return Err(Error::Overlap {
                        lock: Arc::clone(&self.key.lock.name),
                        held,
                    });
                }
                Ok(Verdict::Refused {
                    retry_after: refusal.retry_after,
                    split: refusal.split,
                })
            }
            // Nobody else knows this visitor yet.
            Outcome::Gone(_) => Ok(Verdict::Refused {
                retry_after: Some(Duration::ZERO),
                split: None,
            }),
            Outcome::Unknown {
                in_doubt, error, ..
            } => {
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
        if !self.key.lock.kind.rules().is_reentrant {
            return Err(Error::NotReentrant {
                lock: Arc::clone(&self.key.lock.name),
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
            Outcome::Done(Granted { sent, leftover, .. }) => {
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
            Outcome::Gone(cause) => {
                self.inner.watchdog.end(hold, cause);
                Ok(None)
            }
            Outcome::Refused(_) => {
                self.inner.watchdog.lose(hold, LossCause::Gone);
                Ok(None)
            }
            // The outer hold goes on with the count it has; the request, if it ran, changed no more than that count.
            Outcome::Unknown { error, .. } => {
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
}
