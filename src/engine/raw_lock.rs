//! How a thread enters a lock, enters it again, and leaves it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::client_inner::{Core, Offer};
use crate::engine::hold::{Hold, Launch, Lease, LevelId, Return};
use crate::engine::owner::{StackKey, ThreadToken, current_thread_id};
use crate::engine::wait_loop::{self, Patience, Queue, Room, Verdict};
use crate::engine::wait_queue::{Place, Turn};
use crate::ground::claim::Claim;
use crate::ground::clock::SHORTEST_LEASE;
use crate::ground::error::{Error, Result};
use crate::ground::events::{self, WaitSpan};
use crate::ground::loss::LossCause;
use crate::ground::notify::Parker;
use crate::store::{Attempt, Release, Transfer};

/// The way into one lock, with one lease.
#[derive(Clone)]
pub(crate) struct Entrance {
    pub(crate) core: Arc<Core>,
    pub(crate) key: StackKey,
    pub(crate) lease: Lease,
    /// What is wrong with the name, kept for the first operation.
    pub(crate) flaw: Option<Box<Error>>,
    /// The locks that this one is made of, if it is.
    pub(crate) parts: Option<Arc<[StackKey]>>,
}

/// A level of a hold that was entered.
pub(crate) struct Entry {
    pub(crate) hold: Arc<Hold>,
    pub(crate) level: LevelId,
}

impl Entrance {
    /// Says what is wrong with this lock or its client before anything is sent.
    pub(crate) fn ready(&self) -> Result<()> {
        if let Some(flaw) = &self.flaw {
            return Err((**flaw).clone());
        }
        // A forked child has a copy of everything but owns nothing, and other threads' mutexes may be locked for good.
        if self.core.is_forked() {
            return Err(Error::Forked {
                lock: Arc::clone(&self.key.name),
            });
        }
        Ok(())
    }

    /// Takes the lock or enters it once more; `None` if it was refused until the patience was over.
    pub(crate) fn enter(&self, patience: Patience<'_>) -> Result<Option<Entry>> {
        self.ready()?;
        if let Lease::Fixed(lease) = self.lease
            && !(SHORTEST_LEASE..=self.core.store.longest_lease()).contains(&lease)
        {
            return Err(Error::InvalidLease {
                lock: Arc::clone(&self.key.name),
                lease,
                longest: self.core.store.longest_lease(),
            });
        }
        let me = self.core.thread(&self.key.name)?;
        if let Some(held) = me.held.overlapping(&self.key, self.parts.as_deref()) {
            return Err(Error::Overlap {
                lock: Arc::clone(&self.key.name),
                held,
            });
        }
        // A re-entry passes the line by.
        let is_inside = || {
            let current = me.held.current(&self.key);
            current.is_some_and(|hold| hold.is_held())
        };
        let _span = WaitSpan::enter(&self.key.name, me.id);
        let room = Room {
            lock: &self.key.name,
            signals: self.core.store.signals(),
            request: self.core.times.request(),
            outage_timeout: self.core.times.outage_timeout,
            is_busy: self.core.lines.is_busy(&self.key.name) && !is_inside(),
        };
        let mut is_first_refusal = true;
        let entry = wait_loop::wait(
            &room,
            patience,
            |until| {
                let verdict = self.attempt(&me, until)?;
                if matches!(verdict, Verdict::Refused { .. })
                    && std::mem::take(&mut is_first_refusal)
                {
                    events::contended(&self.key.name);
                }
                Ok(verdict)
            },
            |parker| {
                let Entrance { core, key, .. } = self;
                core.store.subscribe(key.kind, &key.name, 0, parker)
            },
            |parker| (!is_inside()).then(|| Standing::join(self, &me, parker)),
        )?;
        Ok(entry)
    }

    fn attempt(&self, me: &Arc<ThreadToken>, until: Instant) -> Result<Verdict<Entry>> {
        // At each attempt: the thread that renews may die while we wait.
        self.core.watchdog.ensure_running(&self.key.name)?;
        if let Some(hold) = me.held.current(&self.key)
            && let Some(entry) = self.reenter(&hold, until)?
        {
            return Ok(Verdict::Done(entry));
        }
        let kind = self.key.kind;
        let claim = Claim {
            kind,
            name: Arc::clone(&self.key.name),
            visitor: kind.visitor(&self.core.id, me.id, self.core.next_hold()),
            count: 0,
            lease: self.lease.duration(),
        };
        match self.core.store.acquire(&claim, until)? {
            Attempt::Granted { sent, fence, .. } => {
                let guarded = self.core.watchdog.guarded();
                let hold = Hold::new(&claim, me.id, me.life(), guarded, self.lease, sent);
                let hold = hold.counted_by(self.core.store.timeline());
                let hold = Arc::new(hold.with_fence(fence));
                if !hold.is_valid() {
                    // The answer came after all that it could have been good for.
                    self.core.watchdog.settle(claim.doubt(0));
                    return Err(self.late(&claim));
                }
                events::acquired(&claim.name, &claim.visitor);
                me.held
                    .push(&self.key, self.parts.as_ref(), Arc::clone(&hold));
                self.core.watchdog.watch(&hold);
                if let Lease::Watchdog(_) = self.lease {
                    self.core.store.get_ready_to_renew(&claim.name, until);
                }
                Ok(Verdict::Done(Entry { hold, level: 0 }))
            }
            Attempt::Refused(refusal) => {
                if let Some(leftover) = refusal.leftover {
                    self.core.watchdog.settle(leftover);
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
            Attempt::Unknown { doubt, error } => {
                self.core.watchdog.settle(doubt);
                Err(error)
            }
        }
    }

    /// Enters `hold` once more; `None` if it turns out to be over, and a new one has to begin.
    fn reenter(&self, hold: &Arc<Hold>, until: Instant) -> Result<Option<Entry>> {
        if !hold.is_held() {
            return Ok(None);
        }
        if let Some(cause) = hold.lapse() {
            self.core.watchdog.end(hold, cause);
            return Ok(None);
        }
        if !self.key.kind.is_reentrant() {
            return Err(Error::NotReentrant {
                lock: Arc::clone(&self.key.name),
            });
        }
        let (claim, launch) = hold.reentry(self.lease, until);
        let attempt = self.core.store.acquire(&claim, until);
        let attempt = attempt.inspect_err(|error| {
            if error.is_ambiguous() {
                hold.unanswered(launch);
            } else {
                hold.not_done(launch);
            }
        });
        match attempt? {
            Attempt::Granted { sent, leftover, .. } => {
                let may_run_again = leftover.is_some();
                let entered = hold.entered(&claim, launch, self.lease, sent, may_run_again);
                let Some(level) = entered else {
                    // It has ended here while the request was under way, and must not last on in the store.
                    self.core.watchdog.settle(claim.doubt(0));
                    return Ok(None);
                };
                self.core.watchdog.rewatch(hold);
                Ok(Some(Entry {
                    hold: Arc::clone(hold),
                    level,
                }))
            }
            Attempt::Lost(cause) => {
                self.core.watchdog.end(hold, cause);
                Ok(None)
            }
            Attempt::Refused(_) => {
                self.core.watchdog.lose(hold, LossCause::Gone);
                Ok(None)
            }
            // The outer hold goes on with the count it has; the request, if it ran, changed no more than that count.
            Attempt::Unknown { error, .. } => {
                hold.reentry_unknown(launch);
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

    /// Gives level `level` of `hold` back, by the thread that holds it and after [`Entrance::ready`].
    pub(crate) fn leave(&self, hold: &Arc<Hold>, level: LevelId) -> Result<()> {
        if hold.is_held()
            && let Some(cause) = hold.lapse()
        {
            self.core.watchdog.end(hold, cause);
        }
        let until = self.core.until();
        let outcome = match hold.leave(level, until) {
            Return::Lost { cause, had_level } => {
                if had_level && let Ok(me) = self.core.thread(&self.key.name) {
                    me.held.leave_lapsed(&self.key, hold);
                }
                Err(hold.lost_error(cause))
            }
            Return::Before => Err(Error::NotHeld {
                lock: Arc::clone(&self.key.name),
                client: Arc::clone(&self.core.id),
                thread: current_thread_id(),
            }),
            Return::Whole(claim) => self.release(hold, &claim, until),
            Return::Part(claim, launch) => {
                // Its validity may end while the answer is waited for.
                self.core.watchdog.rewatch(hold);
                self.give_level_back(hold, &claim, launch, until)
            }
            Return::Expired(claim) => {
                // The remaining levels had leases that are over: they learn it now, and others need not wait.
                self.core.watchdog.lose(hold, LossCause::LeaseEnded);
                self.release(hold, &claim, until)
            }
        };
        // A guard may outlive the rest of its thread.
        if let Ok(me) = self.core.thread(&self.key.name) {
            me.held.settle(&self.key, hold);
        }
        outcome
    }

    fn give_level_back(
        &self,
        hold: &Arc<Hold>,
        claim: &Claim,
        launch: Launch,
        until: Instant,
    ) -> Result<()> {
        match self.core.store.release_level(claim, until) {
            Ok(Release::Done { leftover, .. }) => {
                hold.confirmed(launch, leftover.is_some(), self.core.store.timeline().now());
                self.core.watchdog.rewatch(hold);
                Ok(())
            }
            Ok(Release::NotHeld(cause)) => {
                self.core.watchdog.lose(hold, cause.clone());
                Err(hold.lost_error(cause))
            }
            Ok(Release::Unknown { error, .. }) | Err(error) => {
                hold.unanswered(launch);
                self.core.watchdog.rewatch(hold);
                Err(error)
            }
        }
    }

    fn release(&self, hold: &Hold, claim: &Claim, until: Instant) -> Result<()> {
        self.core.watchdog.unwatch(hold);
        let outcome = match self.hand_over(hold, claim, until) {
            Some(outcome) => outcome,
            None => match self.set_free(claim, until) {
                Ok(None) => Ok(()),
                Ok(Some(cause)) => {
                    self.core.watchdog.lost_in_release(hold, cause.clone());
                    Err(hold.lost_error(cause))
                }
                Err(error) => Err(error),
            },
        };
        hold.hush();
        events::unlocked(&claim.name, &claim.visitor);
        outcome
    }

    /// Frees the lock, and wakes the next. Returns why the hold was not there, if it was not.
    fn set_free(&self, claim: &Claim, until: Instant) -> Result<Option<LossCause>> {
        let mut stand_back = None;
        let outcome = match self.core.store.release(claim, until) {
            Ok(Release::Done {
                others_wait,
                leftover,
            }) => {
                if let Some(leftover) = leftover {
                    self.core.watchdog.settle(leftover);
                }
                // Two round trips: that long another process takes to hear of it and to ask.
                let rest = || {
                    let left = until.saturating_duration_since(Instant::now());
                    let took = self.core.times.request().saturating_sub(left);
                    (took * 2).min(LONGEST_STAND_BACK)
                };
                stand_back = others_wait.then(rest);
                Ok(None)
            }
            Ok(Release::NotHeld(cause)) => {
                if self.core.store.has_parts() {
                    self.core.watchdog.settle(claim.doubt(0));
                }
                Ok(Some(cause))
            }
            Ok(Release::Unknown { doubt, error }) => {
                self.core.watchdog.settle(doubt);
                Err(error)
            }
            Err(error) => {
                self.core.watchdog.settle(claim.doubt(0));
                Err(error)
            }
        };
        self.core.lines.freed(&claim.name, stand_back);
        outcome
    }

    /// Hands the hold to the first in line; `None` if nobody is there to take it, or it did not come to that.
    fn hand_over(&self, hold: &Hold, claim: &Claim, until: Instant) -> Option<Result<()>> {
        if !self.core.store.hands_over() {
            return None;
        }
        let chosen = self.core.lines.choose(&claim.name)?;
        let Offer {
            kind,
            thread,
            life,
            lease,
        } = chosen.offer();
        if *kind != claim.kind {
            return None;
        }
        let next = Claim {
            kind: *kind,
            name: Arc::clone(&claim.name),
            visitor: kind.visitor(&self.core.id, *thread, self.core.next_hold()),
            count: 0,
            lease: lease.duration(),
        };
        let outcome = match self.core.store.transfer(claim, &next, until) {
            Ok(Transfer::Done {
                sent,
                fence,
                others_wait,
            }) => {
                let guarded = self.core.watchdog.guarded();
                let heir = Hold::new(&next, *thread, life.clone(), guarded, *lease, sent);
                let heir = heir.counted_by(self.core.store.timeline());
                let heir = Arc::new(heir.with_fence(fence));
                self.core.watchdog.watch(&heir);
                events::acquired(&next.name, &next.visitor);
                if let Err(heir) = chosen.grant(heir, others_wait) {
                    self.take_back(&heir, next, until);
                }
                return Some(Ok(()));
            }
            Ok(Transfer::NotHeld(cause)) => {
                self.core.watchdog.lost_in_release(hold, cause.clone());
                Err(hold.lost_error(cause))
            }
            Ok(Transfer::Unknown { doubts, error }) => {
                for doubt in *doubts {
                    self.core.watchdog.settle(doubt);
                }
                Err(error)
            }
            // Nothing was changed; the plain release may do, or says what is wrong.
            Err(_) => return None,
        };
        drop(chosen);
        self.core.lines.freed(&claim.name, None);
        Some(outcome)
    }
}

impl Entrance {
    fn line_up(&self, me: &ThreadToken, parker: &Arc<Parker>) -> Place<Offer, Arc<Hold>> {
        let offer = Offer {
            kind: self.key.kind,
            thread: me.id,
            life: me.life(),
            lease: self.lease,
        };
        self.core.lines.join(&self.key.name, parker, offer)
    }

    /// Makes the hold that was handed over the current one of the thread, if it is still worth it.
    fn accept(&self, me: &ThreadToken, hold: Arc<Hold>) -> Option<Entry> {
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
        let doubt = hold.doubt();
        hold.leave(0, self.core.until());
        self.core.watchdog.unwatch(hold);
        self.core.watchdog.settle(doubt);
    }

    /// Frees a hold whose heir had left the line before it was granted.
    fn take_back(&self, heir: &Hold, granted: Claim, until: Instant) {
        heir.leave(0, until);
        self.core.watchdog.unwatch(heir);
        let claim = Claim {
            count: 1,
            ..granted
        };
        // The releaser's own hold is given back in any case, and this one in the background if it was not now.
        if let Err(error) = self.set_free(&claim, until) {
            events::unlock_failed(&claim.name, &error);
        }
    }
}

const LONGEST_STAND_BACK: Duration = Duration::from_millis(10);

/// The place of a thread in the line for one lock.
struct Standing<'a> {
    entrance: &'a Entrance,
    me: &'a Arc<ThreadToken>,
    parker: Arc<Parker>,
    place: Place<Offer, Arc<Hold>>,
}

impl<'a> Standing<'a> {
    fn join(entrance: &'a Entrance, me: &'a Arc<ThreadToken>, parker: &Arc<Parker>) -> Self {
        Standing {
            entrance,
            me,
            parker: Arc::clone(parker),
            place: entrance.line_up(me, parker),
        }
    }
}

impl Queue<Entry> for Standing<'_> {
    fn turn(&self) -> Turn {
        self.place.turn()
    }

    fn take(&mut self) -> Option<Entry> {
        let entry = self.entrance.accept(self.me, self.place.take()?);
        if entry.is_none() {
            self.place = self.entrance.line_up(self.me, &self.parker);
        }
        entry
    }

    fn note_usable(&self) {
        self.place.note_usable();
    }

    fn note_news(&self) {
        self.place.note_news();
    }

    fn note_trouble(&self) {
        self.place.note_trouble();
    }

    fn last_news(&self) -> Option<Instant> {
        self.place.last_news()
    }

    fn last_usable(&self) -> Option<Instant> {
        self.place.last_usable()
    }

    fn leave(self, has_the_lock: bool) -> Option<Entry> {
        let handed = self.place.leave(has_the_lock)?;
        if has_the_lock {
            // The store has granted it twice, which it may only if one of the two is over.
            self.entrance.discard(&handed);
            return None;
        }
        self.entrance.accept(self.me, handed)
    }
}
