//! How a hold goes to a waiter of the same client.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::hold::{HandOffOffer, Hold};
use crate::engine::raw_lock::RawLock;
use crate::ground::claim::{Claim, Queueing};
use crate::ground::error::Result;
use crate::ground::events;
use crate::store::Outcome;

impl RawLock {
    /// Hands the hold off to the head of the queue; `None` if nobody takes it, or nothing was changed.
    pub(super) fn hand_off(
        &self,
        hold: &Hold,
        claim: &Claim,
        deadline: Instant,
    ) -> Option<Result<()>> {
        if !self.key.lock.kind.rules().hands_off || !self.inner.store.facts().hands_off {
            return None;
        }
        let successor = self
            .inner
            .wait_queues
            .choose(&self.key.lock, self.poll_pause())?;
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
            inside: None,
            queueing: Queueing::default(),
        };
        let outcome = match self.inner.store.hand_off(claim, &next, deadline) {
            Ok(Outcome::Done(mut granted)) => {
                if let Some(leftover) = granted.leftover.take() {
                    self.inner.watchdog.settle(leftover);
                }
                let owner = (*thread, liveness.clone());
                let successor_hold = self.hold_of(&next, owner, *lease, &granted, deadline);
                let successor_hold = Arc::new(successor_hold.counted_in(self.class));
                self.inner.watchdog.watch(&successor_hold);
                events::acquired(&next.name, &next.visitor);
                if let Err(successor_hold) = successor.grant(successor_hold, granted.others_wait) {
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
        self.inner.wait_queues.freed(&self.key.lock, None, None);
        Some(outcome)
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
