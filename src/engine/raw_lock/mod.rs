//! Acquiring, re-entering and releasing a lock.

mod condition;
mod count;
mod guarded_write;
mod hand_off;
mod release;
#[cfg(test)]
mod tests;
mod visit;

use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::engine::client_inner::ClientInner;
use crate::engine::counters::class::{ClassId, end_of_wait};
use crate::engine::hold::{Hold, Lease, LevelId};
use crate::engine::owner::{LockKey, Owner, current_thread_id};
use crate::engine::raw_lock::visit::LockVisit;
use crate::engine::wait_loop::{self, Polling, WaitLimit};
use crate::ground::claim::{Claim, ENDLESS, VisitorId};
use crate::ground::clock::SHORTEST_LEASE;
use crate::ground::error::{Error, Result};
use crate::ground::events::{WaitOutcome, WaitSpan};
use crate::ground::interrupt::Interrupt;
use crate::ground::observer::Event;
use crate::ground::time;
use crate::store::Granted;

#[derive(Clone, Debug)]
pub(crate) struct RawLock {
    pub(crate) inner: Arc<ClientInner>,
    pub(crate) key: LockKey,
    /// `None` if the watchdog renews the holds.
    pub(crate) fixed_lease: Option<Duration>,
    pub(crate) class: ClassId,
    pub(crate) permits: Option<NonZeroU32>,
    /// Whether readers of a read-write lock overtake waiting writers.
    pub(crate) prefers_readers: bool,
    /// `None` for most locks. The box saves memory for each hold.
    pub(crate) rare: Option<Box<RareSettings>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RareSettings {
    pub(crate) polling: Option<Polling>,
    /// The error that every operation returns, because the name, the kind or a setting of the lock is invalid.
    pub(crate) flaw: Option<Error>,
    /// The members of a `MultiLock`.
    pub(crate) parts: Option<Arc<[LockKey]>>,
}

// An error in `flaw` need not be unwind-safe. But `flaw` never changes, so a panic cannot leave it inconsistent.
impl std::panic::UnwindSafe for RawLock {}
impl std::panic::RefUnwindSafe for RawLock {}

pub(crate) struct Entry {
    pub(crate) hold: Arc<Hold>,
    pub(crate) level: LevelId,
    /// Renewals of the hold end when this owner is dropped.
    pub(crate) owner: Arc<Owner>,
}

impl Entry {
    fn is_first(&self) -> bool {
        self.level == 0
    }
}

impl RawLock {
    /// Must be called before any request is sent.
    pub(crate) fn ready(&self) -> Result<()> {
        if let Some(flaw) = self.flaw() {
            return Err(flaw.clone());
        }
        self.inner.not_forked(&self.key.lock.name)
    }

    fn lease(&self) -> Lease {
        let renewed = Lease::Watchdog(self.inner.timeouts.watchdog_timeout);
        self.fixed_lease.map_or(renewed, Lease::Fixed)
    }

    pub(crate) fn flaw(&self) -> Option<&Error> {
        self.rare.as_ref()?.flaw.as_ref()
    }

    pub(crate) fn parts(&self) -> Option<&Arc<[LockKey]>> {
        self.rare.as_ref()?.parts.as_ref()
    }

    fn polling(&self) -> Option<&Polling> {
        self.rare.as_ref()?.polling.as_ref()
    }

    pub(crate) fn rare(&mut self) -> &mut RareSettings {
        self.rare.get_or_insert_default()
    }

    pub(crate) fn acquire(&self, limit: WaitLimit<'_>) -> Result<Option<Entry>> {
        self.check()?;
        let RawLock { inner, key, .. } = self;
        let me = match key.lock.kind.rules().has_thread_owner {
            true => inner.thread(&key.lock.name)?,
            false => Owner::of_handle(inner.pid),
        };
        self.acquire_as(me, limit)
    }

    pub(crate) fn acquire_owned(&self, limit: WaitLimit<'_>) -> Result<Option<Entry>> {
        self.check()?;
        self.acquire_as(Owner::without_thread(self.inner.pid), limit)
    }

    fn check(&self) -> Result<()> {
        self.ready()?;
        if let Some(lease) = self.fixed_lease
            && !(lease == ENDLESS && self.key.lock.kind.rules().has_ids)
        {
            self.check_lease(SHORTEST_LEASE, lease)?;
        }
        Ok(())
    }

    fn acquire_as(&self, me: Arc<Owner>, limit: WaitLimit<'_>) -> Result<Option<Entry>> {
        let RawLock { inner, key, .. } = self;
        if let Some(held) = me.held.overlapping(key, self.parts().map(|it| &**it)) {
            let lock = Arc::clone(&key.lock.name);
            return Err(Error::Overlap { lock, held });
        }
        let is_side = key.lock.kind.rules().side.is_some();
        if is_side && !me.held.stands(key) {
            // An upgrade from read to write must fail before the thread joins the queue. In the queue, the thread could be
            // behind a waiter that waits for the release of this thread's read lock.
            self.outer_hold(&me)?;
        }
        let class = inner.counters.class(self.class);
        let span = WaitSpan::enter(&key.lock.name, class, me.id);
        let mut visit = LockVisit::new(self, me, !limit.is_single());
        let began = time::now();
        let outcome = wait_loop::wait(inner, &key.lock, self.polling(), limit, &mut visit);
        let lock = &key.lock.name;
        let end = end_of_wait(&outcome);
        let entry = outcome.as_ref().ok().and_then(Option::as_ref);
        span.tell(&WaitOutcome {
            outcome: end,
            began,
            attempts: visit.attempts,
            holder: visit.first_holder.as_deref(),
            visitor: entry.map(|entry| entry.hold.visitor.as_str()),
        });
        let Some(entry) = entry else {
            inner.counters.tell(self.class, |class| Event::NotAcquired {
                class,
                lock,
                waited: time::since(began),
                outcome: end,
            });
            return outcome;
        };
        if entry.is_first() && cfg!(feature = "tracing") {
            entry.hold.begin_span(span, class, time::since(began));
        }
        let via = visit.via(entry);
        inner.counters.tell(self.class, |class| Event::Acquired {
            class,
            lock,
            waited: time::since(began),
            via,
        });
        outcome
    }

    /// Returns the thread's hold of the opposite side of a read-write lock. An upgrade from read to write fails,
    /// because the thread would wait for itself.
    fn outer_hold(&self, me: &Owner) -> Result<Option<Arc<Hold>>> {
        let other = self.key.other_side();
        let held = other.and_then(|other| me.held.current(&other));
        let Some(held) = held.filter(|hold| hold.excludes_overlap()) else {
            return Ok(None);
        };
        let side = self.key.lock.kind.rules().side;
        if side.is_some_and(|side| side.enters_inside) {
            return Ok(Some(held));
        }
        let lock = Arc::clone(&self.key.lock.name);
        Err(Error::Upgrade { lock })
    }

    pub(crate) fn check_lease(&self, shortest: Duration, lease: Duration) -> Result<()> {
        let longest = self.inner.store.facts().longest_lease;
        if (shortest..=longest).contains(&lease) {
            return Ok(());
        }
        Err(Error::InvalidLease {
            lock: Arc::clone(&self.key.lock.name),
            lease,
            shortest,
            longest,
        })
    }

    fn visitor(&self, thread: u64) -> VisitorId {
        let RawLock { inner, key, .. } = self;
        let visitor = key.lock.kind.visitor(&inner.id, thread, inner.next_hold());
        match self.permits {
            Some(permits) => (key.lock.kind.rules().of_permits)(&visitor, permits.get()),
            None => visitor,
        }
    }

    pub(crate) fn limit<'a>(
        &'a self,
        wait: Duration,
        interrupt: Option<&'a Interrupt>,
    ) -> Result<WaitLimit<'a>> {
        let timeline = &self.inner.store.facts().timeline;
        WaitLimit::lasting(wait, timeline, interrupt).ok_or_else(|| Error::InvalidWait {
            lock: Arc::clone(&self.key.lock.name),
            wait,
        })
    }

    pub(crate) fn not_held(&self) -> Error {
        self.not_held_by(current_thread_id())
    }

    pub(crate) fn given_back(&self, hold: &Hold) -> Error {
        self.not_held_by(hold.thread)
    }

    fn not_held_by(&self, thread: u64) -> Error {
        Error::NotHeld {
            lock: Arc::clone(&self.key.lock.name),
            client: Arc::clone(&self.inner.id),
            thread,
        }
    }

    fn new_hold(
        &self,
        claim: &Claim,
        (thread, liveness): (u64, Weak<()>),
        lease: Lease,
        granted: &Granted,
        deadline: Instant,
    ) -> Hold {
        let client = Arc::clone(&self.inner.counters);
        let mut hold = Hold::new(claim, thread, liveness, client, lease, granted.sent);
        let least = self.inner.timeouts.watchdog_timeout;
        hold.set_store(self.class, granted.fence, least);
        if let Some(life) = granted.life {
            hold.set_lifetime(life);
        }
        if granted.leftover.is_some() {
            hold.set_copy_in_flight(claim.lease, deadline);
        }
        hold
    }
}
