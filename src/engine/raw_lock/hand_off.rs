//! How a hold goes to a waiter of the same client.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::client_inner::HandOffOffer;
use crate::engine::hold::Hold;
use crate::engine::owner::Owner;
use crate::engine::raw_lock::{Entry, RawLock};
use crate::engine::wait_loop::Queue;
use crate::engine::wait_queue::{QueueNode, Turn};
use crate::ground::claim::Claim;
use crate::ground::error::Result;
use crate::ground::events;
use crate::ground::notify::Parker;
use crate::store::{Granted, Outcome};

impl RawLock {
    /// Hands the hold off to the head of the queue; `None` if nobody takes it, or nothing was changed.
    pub(super) fn hand_off(
        &self,
        hold: &Hold,
        claim: &Claim,
        deadline: Instant,
    ) -> Option<Result<()>> {
        if !(self.key.lock.kind.rules().hands_off && self.inner.store.facts().hands_off) {
            return None;
        }
        let successor = self.inner.wait_queues.choose(&self.key.lock)?;
        let HandOffOffer {
            thread,
            liveness,
            lease,
        } = successor.offer();
        let next = Claim {
            kind: claim.kind,
            name: Arc::clone(&claim.name),
            visitor: claim
                .kind
                .visitor(&self.inner.id, *thread, self.inner.next_hold()),
            count: 0,
            lease: lease.duration(),
        };
        let outcome = match self.inner.store.hand_off(claim, &next, deadline) {
            Ok(Outcome::Done(Granted {
                sent,
                fence,
                others_wait,
                ..
            })) => {
                let client = Arc::clone(self.inner.watchdog.client());
                let successor_hold =
                    Hold::new(&next, *thread, liveness.clone(), client, *lease, sent);
                let successor_hold = successor_hold.counted_by(&self.inner.store.facts().timeline);
                let successor_hold = Arc::new(successor_hold.with_fence(fence));
                self.inner.watchdog.watch(&successor_hold);
                events::acquired(&next.name, &next.visitor);
                if let Err(successor_hold) = successor.grant(successor_hold, others_wait) {
                    self.take_back(&successor_hold, next, deadline);
                }
                return Some(Ok(()));
            }
            Ok(Outcome::Gone(cause)) => {
                self.inner.watchdog.lost_in_release(hold, cause.clone());
                Err(hold.lost_error(cause))
            }
            Ok(Outcome::Unknown {
                in_doubt,
                successor,
                error,
            }) => {
                self.inner.watchdog.settle(in_doubt);
                if let Some(in_doubt) = successor {
                    self.inner.watchdog.settle(*in_doubt);
                }
                Err(error)
            }
            // Nothing was changed; the plain release may do, or says what is wrong.
            Err(_) => return None,
        };
        drop(successor);
        self.inner.wait_queues.freed(&self.key.lock, None);
        Some(outcome)
    }

    fn join_queue(&self, me: &Owner, parker: &Arc<Parker>) -> QueueNode<HandOffOffer, Arc<Hold>> {
        let offer = HandOffOffer {
            thread: me.id,
            liveness: me.liveness(),
            lease: self.lease,
        };
        self.inner.wait_queues.join(&self.key.lock, parker, offer)
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

/// A thread in the wait queue of one lock.
pub(super) struct QueuedThread<'a> {
    raw_lock: &'a RawLock,
    me: &'a Arc<Owner>,
    parker: Arc<Parker>,
    node: QueueNode<HandOffOffer, Arc<Hold>>,
}

impl<'a> QueuedThread<'a> {
    pub(super) fn join(raw_lock: &'a RawLock, me: &'a Arc<Owner>, parker: &Arc<Parker>) -> Self {
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
        let rules = self.raw_lock.key.lock.kind.rules();
        let handed = self.node.leave(has_the_lock, rules.is_shared)?;
        if has_the_lock {
            // The store has granted it twice, which it may only if one of the two is over.
            self.raw_lock.discard(&handed);
            return None;
        }
        self.raw_lock.accept(self.me, handed)
    }
}
