//! One wait of a thread for a lock: its attempts, re-entries and hand-offs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::counters::OpenWait;
use crate::engine::hold::{HandOffOffer, Hold, Lease};
use crate::engine::owner::Owner;
use crate::engine::raw_lock::{Entry, RawLock};
use crate::engine::wait_loop::Visit;
use crate::ground::claim::{COUNTS_AS_WAITING, Claim, Queueing, VisitorId};
use crate::ground::error::{Error, Result};
use crate::ground::events;
use crate::ground::loss::LossCause;
use crate::ground::observer::Event;
use crate::store::{Granted, InDoubt, Outcome, Refusal, StoreEntry};

pub(super) struct LockVisit<'a> {
    raw_lock: &'a RawLock,
    me: Arc<Owner>,
    /// The visitor id of the next attempt, for kinds of lock where a refused attempt leaves a queue entry in the store.
    /// For other kinds, and after an in-doubt attempt, the next attempt gets a new id. So an in-doubt attempt can be
    /// resolved while the next one runs.
    visitor: Option<VisitorId>,
    was_refused: bool,
    /// True if this wait may make more than one attempt.
    waits: bool,
    /// True after a refused attempt that requested a queue entry in the store.
    has_place: bool,
    was_contended: bool,
    holder: Option<Box<str>>,
    /// The holder named by the first refusal, for the tracing span.
    pub(super) first_holder: Option<Box<str>>,
    pub(super) attempts: u32,
    /// The entry of this wait in the list of waits that `Client::activity` returns.
    open_wait: Option<OpenWait>,
    via: Option<&'static str>,
}

impl Visit for LockVisit<'_> {
    type Entry = Entry;

    fn attempt(&mut self, deadline: Instant) -> Result<ControlFlow<Entry, Refusal>> {
        self.attempts += 1;
        let RawLock { inner, key, .. } = self.raw_lock;
        // Checked before each attempt, because the renewal thread may die during the wait.
        inner.watchdog.ensure_running(&key.lock.name)?;
        if let Some(hold) = self.current()
            && let Some(entry) = self.reenter(&hold, deadline)?
        {
            return Ok(ControlFlow::Break(entry));
        }
        let answer = self.ask(deadline)?;
        if answer.is_continue() && !std::mem::replace(&mut self.was_refused, true) {
            events::contended(&key.lock.name);
            self.note_contended();
        }
        Ok(answer)
    }

    fn joined(&mut self) {
        self.note_contended();
        let RawLock { inner, key, .. } = self.raw_lock;
        let class = self.raw_lock.class;
        let begin = || OpenWait::begin(&inner.counters, class, &key.lock, self.me.id);
        self.open_wait.get_or_insert_with(begin);
    }

    fn slept(&mut self, now: Instant) {
        if let Some(open_wait) = &mut self.open_wait {
            open_wait.report_if_long(now, self.holder.as_deref());
        }
    }

    fn acquired_via(&mut self, via: &'static str) {
        self.via = Some(via);
    }

    fn entry(&self) -> Option<StoreEntry<'_>> {
        let waits_in_store = self.raw_lock.key.lock.kind.rules().waits_in_store();
        let visitor = self.visitor.as_ref().filter(|_| waits_in_store);
        visitor.map(StoreEntry::OfLock)
    }

    fn offer(&self) -> Option<HandOffOffer> {
        let rules = self.raw_lock.key.lock.kind.rules();
        // A thread that re-enters its hold bypasses the queue.
        let is_inside = || self.current().is_some_and(|hold| hold.excludes_overlap());
        (rules.queues_locally && !is_inside()).then(|| HandOffOffer {
            thread: self.me.id,
            liveness: self.me.liveness(),
            lease: self.raw_lock.lease(),
        })
    }

    fn accept(&self, hold: Arc<Hold>) -> Option<Entry> {
        if !hold.begin() {
            self.discard(&hold);
            // The watchdog no longer watches this hold, so this call wakes the queue instead.
            let RawLock { inner, key, .. } = self.raw_lock;
            inner.wait_queues.freed(&key.lock, None, None);
            return None;
        }
        Some(self.enter(hold))
    }

    fn discard(&self, hold: &Hold) {
        let inner = &self.raw_lock.inner;
        let in_doubt = hold.in_doubt();
        hold.release_level(0, inner.deadline());
        inner.watchdog.unwatch(hold);
        inner.watchdog.resolve_later(in_doubt);
    }
}

impl<'a> LockVisit<'a> {
    pub(super) fn new(raw_lock: &'a RawLock, me: Arc<Owner>, waits: bool) -> LockVisit<'a> {
        LockVisit {
            raw_lock,
            me,
            visitor: None,
            was_refused: false,
            waits,
            has_place: false,
            was_contended: false,
            holder: None,
            first_holder: None,
            attempts: 0,
            open_wait: None,
            via: None,
        }
    }

    pub(super) fn via(&self, entry: &Entry) -> &'static str {
        match entry.is_first() {
            true => self.via.unwrap_or("free"),
            false => "reentered",
        }
    }

    fn note_contended(&mut self) {
        if !std::mem::replace(&mut self.was_contended, true) {
            let RawLock { inner, key, .. } = self.raw_lock;
            let (counters, lock) = (&inner.counters, &key.lock.name);
            counters.tell(self.raw_lock.class, |class| Event::Contended {
                class,
                lock,
            });
        }
    }

    fn queueing(&self) -> Queueing {
        let rules = self.raw_lock.key.lock.kind.rules();
        if self.raw_lock.prefers_readers {
            return Queueing::Barges;
        }
        // With `Waits`, a `MultiLock` first queries the member that refused the last attempt. If that member is held,
        // the refusal names no holder. So the first attempt uses `Tries`, and its refusal names the holder.
        let is_first_of_several = self.raw_lock.parts().is_some() && !self.was_refused;
        match self.waits && !is_first_of_several {
            true => Queueing::Waits {
                // Only the first waiter of the client's queue should take a queue entry in the store. A waiter with an
                // `open_wait` has joined the client's queue, and is usually the first when it makes an attempt.
                takes_place: self.was_refused || self.open_wait.is_some() || rules.waits_in_store(),
                had_place: self.has_place,
            },
            false => Queueing::Tries,
        }
    }

    fn current(&self) -> Option<Arc<Hold>> {
        let key = &self.raw_lock.key;
        let current = self.me.held.current(key);
        current.filter(|_| key.lock.kind.rules().has_thread_owner)
    }

    fn ask(&mut self, deadline: Instant) -> Result<ControlFlow<Entry, Refusal>> {
        let RawLock { inner, key, .. } = self.raw_lock;
        let lease = self.raw_lock.lease();
        let kind = key.lock.kind;
        let new = || self.raw_lock.visitor(self.me.id);
        let visitor = self.visitor.take().unwrap_or_else(new);
        self.visitor = kind.rules().places_in_store.then(|| visitor.clone());
        let inside = self.raw_lock.outer_hold(&self.me)?;
        if let Some(inside) = &inside {
            inside.set_may_outlast();
        }
        let claim = Claim {
            is_renewed: matches!(lease, Lease::Watchdog(_)),
            inside: inside.as_ref().map(|it| it.visitor.clone()),
            queueing: self.queueing(),
            ..Claim::new(kind, &key.lock.name, visitor, lease.duration())
        };
        match inner.ask_by("acquire", |store| store.acquire(&claim, deadline))? {
            Outcome::Done(granted) => {
                // The new hold has this visitor id, so `LockVisit::drop` must not remove this id from the store.
                self.visitor = None;
                let me = (self.me.id, self.me.liveness());
                let hold = self
                    .raw_lock
                    .new_hold(&claim, me, lease, &granted, deadline);
                if inside.is_some() {
                    hold.set_may_outlast();
                }
                if !hold.begin() {
                    self.resolve_attempt(claim.in_doubt(0));
                    let reason = "the reply arrived after the granted lease had ended";
                    let (name, visitor) = (&claim.name, Some(&claim.visitor));
                    let error = Error::unknown(name, "the store", "acquire", visitor, reason);
                    return Err(error);
                }
                events::acquired(&claim.name, &claim.visitor);
                let entry = self.enter(Arc::new(hold));
                inner.watchdog.watch(&entry.hold);
                Ok(ControlFlow::Break(entry))
            }
            Outcome::Refused(mut refusal) => {
                self.holder.clone_from(&refusal.holder);
                if self.first_holder.is_none() && cfg!(feature = "tracing") {
                    self.first_holder.clone_from(&refusal.holder);
                }
                self.has_place = matches!(
                    claim.queueing,
                    Queueing::Waits {
                        takes_place: true,
                        ..
                    }
                );
                if let Some(leftover) = refusal.leftover.take() {
                    self.resolve_attempt(leftover);
                }
                Ok(ControlFlow::Continue(refusal))
            }
            // The store acquired nothing, so the waiter attempts again at once.
            Outcome::Gone(_) => Ok(ControlFlow::Continue(Refusal::until(Some(Duration::ZERO)))),
            Outcome::Unknown { in_doubt, error } => {
                self.resolve_attempt(in_doubt);
                Err(error)
            }
        }
    }

    fn enter(&self, hold: Arc<Hold>) -> Entry {
        let RawLock { key, .. } = self.raw_lock;
        if key.lock.kind.rules().has_thread_owner {
            let parts = self.raw_lock.parts();
            self.me.held.push(key, parts, Arc::clone(&hold));
        }
        let owner = Arc::clone(&self.me);
        Entry {
            hold,
            level: 0,
            owner,
        }
    }

    fn resolve_attempt(&mut self, in_doubt: InDoubt) {
        self.visitor = None;
        self.has_place = false;
        self.raw_lock.inner.watchdog.resolve_later(in_doubt);
    }

    /// Returns `None` if the hold has ended. The caller then acquires a new hold.
    fn reenter(&self, hold: &Arc<Hold>, deadline: Instant) -> Result<Option<Entry>> {
        if !hold.is_held() {
            return Ok(None);
        }
        if let Some(cause) = hold.lapse() {
            self.raw_lock.inner.watchdog.end(hold, cause);
            return Ok(None);
        }
        if !self.raw_lock.key.lock.kind.rules().is_reentrant {
            let lock = Arc::clone(&self.raw_lock.key.lock.name);
            return Err(Error::NotReentrant { lock });
        }
        if hold.is_pinned() {
            return Err(Error::in_its_transaction(&hold.name));
        }
        let (claim, in_flight_id) = hold.reentry(self.raw_lock.lease(), deadline);
        let inner = &self.raw_lock.inner;
        let attempt = inner.ask_by("acquire", |store| store.acquire(&claim, deadline));
        match attempt.inspect_err(|_| hold.not_done(in_flight_id))? {
            Outcome::Done(Granted { sent, leftover, .. }) => {
                let may_run_again = leftover.is_some();
                let lease = self.raw_lock.lease();
                let entered = hold.entered(&claim, in_flight_id, lease, sent, may_run_again);
                let Some(level) = entered else {
                    // The hold ended in this process during the request, so it must not stay in the store.
                    inner.watchdog.resolve_later(claim.in_doubt(0));
                    return Ok(None);
                };
                self.raw_lock.inner.watchdog.rewatch(hold);
                Ok(Some(Entry {
                    hold: Arc::clone(hold),
                    level,
                    owner: Arc::clone(&self.me),
                }))
            }
            Outcome::Gone(cause) => {
                self.raw_lock.inner.watchdog.end(hold, cause);
                Ok(None)
            }
            Outcome::Refused(_) => {
                self.raw_lock.inner.watchdog.end(hold, LossCause::Gone);
                Ok(None)
            }
            // The hold's count in this process stays as it was. If the request ran, the count in the store is one higher.
            Outcome::Unknown { error, .. } => {
                hold.set_may_outlast();
                hold.unanswered(in_flight_id);
                Err(error)
            }
        }
    }
}

impl Drop for LockVisit<'_> {
    fn drop(&mut self) {
        if let Some(visitor) = self.visitor.take().filter(|_| self.has_place) {
            let RawLock { inner, key, .. } = self.raw_lock;
            let place = InDoubt::of(key.lock.kind, &key.lock.name, &visitor, COUNTS_AS_WAITING);
            inner.watchdog.give_up_entry(place, inner.deadline());
        }
    }
}
