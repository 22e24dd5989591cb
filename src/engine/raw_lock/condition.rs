//! Waiting on a condition of a held lock, and signalling it.
//!
//! A waiter enters the queue of the condition while it holds the lock. Then the waiter releases all levels of its hold,
//! and sleeps until it is signalled. After a signal, a timeout or an interrupt, the waiter acquires the lock again. If
//! a signalled waiter cannot acquire the lock, another waiter is signalled instead.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::hold::{Hold, Leases};
use crate::engine::owner::Owner;
use crate::engine::raw_lock::{Entry, RawLock};
use crate::engine::wait_loop::{self, Visit, WaitLimit};
use crate::ground::claim::VisitorId;
use crate::ground::error::{Error, Result};
use crate::ground::events;
use crate::store::{
    ConditionAnswer, ConditionOp, ConditionStep, EntryInDoubt, InDoubt, Outcome, Refusal,
    StoreEntry,
};

/// A waiter without messages queries its queue entry after this time. The query keeps the entry alive, and finds a
/// signal whose message was lost.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);

const POLLS: &str = "a polled lock has no conditions, because its waiters receive no messages; use a condition of \
    Client::lock, which is the same lock";

pub(crate) struct Waited {
    /// The last of the levels that were acquired again.
    pub(crate) entry: Entry,
    pub(crate) was_woken: bool,
}

/// How a wait ended, before the lock is acquired again.
#[derive(Debug)]
enum Ended {
    Woken,
    TimedOut,
    Interrupted,
    Failed(Error),
}

struct Place<'a> {
    raw_lock: &'a RawLock,
    condition: &'a Arc<str>,
    ticket: VisitorId,
}

impl RawLock {
    /// If the caller waits with a guard, `of_guard` is the hold of this guard.
    pub(crate) fn wait_on(
        &self,
        condition: &Arc<str>,
        limit: WaitLimit<'_>,
        of_guard: Option<&Arc<Hold>>,
    ) -> Result<Waited> {
        let (me, hold) = self.held_with_conditions()?;
        if of_guard.is_some_and(|of_guard| !Arc::ptr_eq(of_guard, &hold)) {
            return Err(self.not_held());
        }
        let lock = || Arc::clone(&self.key.lock.name);
        let other = self.key.other_side();
        if other.is_some_and(|other| me.held.stands(&other)) {
            // A thread that holds the read lock could not acquire the write lock again after the wait.
            return Err(Error::Upgrade { lock: lock() });
        }
        if !hold.has_levels_of(of_guard.is_some()) {
            return Err(Error::Nested { lock: lock() });
        }
        if limit.is_raised() {
            return Err(Error::Interrupted { lock: lock() });
        }
        let place = Place {
            raw_lock: self,
            condition,
            ticket: VisitorId::new(&self.inner.id, me.id, self.inner.next_hold()),
        };
        place.enlist(&hold)?;
        let leases = match self.give_all_back(&me, &hold) {
            Ok((leases, Ok(()))) => leases,
            // The unlock failed, and is repeated in the background while this thread waits.
            Ok((leases, Err(error))) if error.may_pass() => leases,
            Ok((_, Err(error))) | Err(error) => {
                place.pass_on(false);
                return Err(error);
            }
        };
        let ended = place.wait(limit);
        if let Ended::Failed(error @ Error::Closed { .. }) = ended {
            place.pass_on(true);
            return Err(error);
        }
        let entry = match self.take_again(&me, &leases) {
            Ok(entry) => entry,
            Err(error) => {
                place.pass_on(matches!(ended, Ended::Woken));
                return Err(error);
            }
        };
        let error = match ended {
            Ended::Woken | Ended::TimedOut => {
                let was_woken = matches!(ended, Ended::Woken);
                return Ok(Waited { entry, was_woken });
            }
            Ended::Interrupted => Error::Interrupted { lock: lock() },
            Ended::Failed(error) => error,
        };
        if of_guard.is_some()
            && let Err(error) = self.release(&entry.hold, entry.level)
        {
            events::unlock_failed(&self.key.lock.name, &error);
        }
        Err(error)
    }

    pub(crate) fn signal(&self, condition: &Arc<str>, most: u32) -> Result<u32> {
        let (_, hold) = self.held_with_conditions()?;
        let op = ConditionOp {
            lock: &self.key.lock,
            condition,
            visitor: &hold.visitor,
            step: ConditionStep::Signal(most),
        };
        match self.ask_condition(&op, self.inner.deadline())? {
            Outcome::Done(ConditionAnswer::Signalled(count)) => Ok(count),
            Outcome::Done(_) => Ok(0),
            Outcome::Gone(cause) => Err(self.inner.watchdog.lost(&hold, cause)),
            Outcome::Unknown { error, .. } => Err(error),
        }
    }

    fn ask_condition(
        &self,
        op: &ConditionOp<'_>,
        deadline: Instant,
    ) -> Result<Outcome<ConditionAnswer>> {
        self.inner.ask_by("condition", |store| {
            store.redis_for(op.lock)?.condition(op, deadline)
        })
    }

    fn held_with_conditions(&self) -> Result<(Arc<Owner>, Arc<Hold>)> {
        self.ready()?;
        self.inner.store.redis_for(&self.key.lock)?;
        let of_kind = self.key.lock.kind.rules().no_conditions;
        let polls = self.polling().map(|_| POLLS);
        if let Some(reason) = of_kind.or(polls) {
            return Err(Error::unsupported(&self.key.lock.name, reason));
        }
        let me = self.inner.thread(&self.key.lock.name)?;
        let hold = me.held.current(&self.key).ok_or_else(|| self.not_held())?;
        self.inner.watchdog.end_lapsed(&hold);
        match hold.loss_cause() {
            Some(cause) => Err(hold.lost_error(cause)),
            None if !hold.is_held() => Err(self.not_held()),
            None => Ok((me, hold)),
        }
    }

    fn give_all_back(&self, me: &Owner, hold: &Arc<Hold>) -> Result<(Leases, Result<()>)> {
        self.inner.watchdog.end_lapsed(hold);
        let left = hold.release_all_levels();
        let (claim, leases) = left.map_err(|cause| hold.lost_error(cause))?;
        let outcome = self.release_whole(hold, &claim, self.inner.deadline());
        me.held.remove_if_released(&self.key, hold);
        Ok((leases, outcome))
    }

    /// Acquires a level for each of `leases`. Each lease begins with this new acquisition.
    fn take_again(&self, me: &Owner, leases: &Leases) -> Result<Entry> {
        let mut last: Option<Entry> = None;
        loop {
            let taken = last.as_ref().map_or(0, |entry| entry.hold.count());
            let lease = usize::try_from(taken).ok().and_then(|at| leases.get(at));
            let Some(lease) = lease else {
                return last.ok_or_else(|| self.not_held());
            };
            let mut with_lease = self.clone();
            with_lease.fixed_lease = *lease;
            match with_lease.acquire(WaitLimit::forever(None)) {
                Ok(entry) => last = entry.or(last),
                Err(error) => {
                    if let Some(Entry { hold, .. }) = last
                        && let Ok((_, Err(error))) | Err(error) = self.give_all_back(me, &hold)
                    {
                        events::unlock_failed(&self.key.lock.name, &error);
                    }
                    return Err(error);
                }
            }
        }
    }
}

impl Place<'_> {
    fn ask(&self, step: ConditionStep<'_>, deadline: Instant) -> Result<Outcome<ConditionAnswer>> {
        let op = ConditionOp {
            lock: &self.raw_lock.key.lock,
            condition: self.condition,
            visitor: &self.ticket,
            step,
        };
        self.raw_lock.ask_condition(&op, deadline)
    }

    /// Enters the queue. The calling thread still holds the lock, so no other thread can signal yet.
    fn enlist(&self, hold: &Hold) -> Result<()> {
        let inner = &self.raw_lock.inner;
        match self.ask(ConditionStep::Enlist(&hold.visitor), inner.deadline())? {
            Outcome::Done(_) => Ok(()),
            Outcome::Gone(cause) => Err(inner.watchdog.lost(hold, cause)),
            Outcome::Unknown { in_doubt, error } => {
                inner.watchdog.resolve_later(in_doubt);
                Err(error)
            }
        }
    }

    fn wait(&self, limit: WaitLimit<'_>) -> Ended {
        let RawLock { inner, key, .. } = self.raw_lock;
        let mut visit = ConditionVisit(self);
        match wait_loop::wait(inner, &key.lock, None, limit, &mut visit) {
            Ok(Some(())) => Ended::Woken,
            Ok(None) => self.leave(Ended::TimedOut),
            Err(Error::Interrupted { .. }) => self.leave(Ended::Interrupted),
            Err(error) if error.may_pass() => self.leave(match limit.is_endless() {
                true => Ended::Woken,
                false => Ended::TimedOut,
            }),
            Err(error @ Error::Closed { .. }) => Ended::Failed(error),
            Err(error) => {
                self.pass_on(false);
                Ended::Failed(error)
            }
        }
    }

    fn leave(&self, reason: Ended) -> Ended {
        let deadline = self.raw_lock.inner.deadline();
        match self.ask(ConditionStep::Leave, deadline) {
            Ok(Outcome::Done(ConditionAnswer::Woken)) => return Ended::Woken,
            Ok(Outcome::Done(_)) => {}
            // This waiter may have been signalled. If `reason` is not `Woken`, another waiter gets the signal.
            Ok(Outcome::Gone(_) | Outcome::Unknown { .. }) | Err(_) => {
                self.pass_on(!matches!(reason, Ended::Woken));
            }
        }
        reason
    }

    /// Leaves the queue in the background. If `was_told`, another waiter gets this waiter's signal.
    fn pass_on(&self, was_told: bool) {
        let RawLock { inner, key, .. } = self.raw_lock;
        let place = EntryInDoubt {
            condition: Arc::clone(self.condition),
            was_told,
        };
        let in_doubt = InDoubt::of_condition_entry(&key.lock, &self.ticket, place, 0);
        inner.watchdog.give_up_entry(in_doubt, inner.deadline());
    }
}

struct ConditionVisit<'a>(&'a Place<'a>);

impl Visit for ConditionVisit<'_> {
    type Entry = ();

    fn attempt(&mut self, deadline: Instant) -> Result<ControlFlow<(), Refusal>> {
        match self.0.ask(ConditionStep::Look, deadline)? {
            Outcome::Done(ConditionAnswer::Waits) => {
                Ok(ControlFlow::Continue(Refusal::until(Some(LOOKS_AGAIN))))
            }
            Outcome::Done(_) | Outcome::Gone(_) => Ok(ControlFlow::Break(())),
            Outcome::Unknown { error, .. } => Err(error),
        }
    }

    fn entry(&self) -> Option<StoreEntry<'_>> {
        Some(StoreEntry::OfCondition(self.0.condition, &self.0.ticket))
    }
}
