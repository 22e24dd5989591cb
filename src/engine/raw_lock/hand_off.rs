use std::sync::Arc;
use std::time::Instant;

use crate::engine::hold::{Hold, Lease};
use crate::engine::raw_lock::RawLock;
use crate::ground::claim::Claim;
use crate::ground::error::Result;
use crate::ground::events;
use crate::store::{Left, Outcome, Released};

impl RawLock {
    /// Returns `None` if nothing was changed. The caller then releases the hold.
    pub(super) fn hand_off(
        &self,
        hold: &Hold,
        claim: &Claim,
        deadline: Instant,
    ) -> Option<Result<()>> {
        if !self.key.lock.kind.rules().hands_off || !self.inner.store.facts().hands_off {
            return None;
        }
        let inner = &self.inner;
        let successor = inner
            .wait_queues
            .choose(&self.key.lock, self.poll_pause())?;
        let offer = successor.offer();
        let kind = claim.kind;
        let visitor = kind.visitor(&inner.id, offer.thread, inner.next_hold());
        let next = Claim {
            is_renewed: matches!(offer.lease, Lease::Watchdog(_)),
            ..Claim::new(kind, &claim.name, visitor, offer.lease.duration())
        };
        let outcome = match self.inner.ask_by("hand_off", |store| {
            store.release(claim, Left::Successor(&next), deadline)
        }) {
            Ok(Outcome::Done(Released {
                successor: Some(granted),
                others,
                ..
            })) => {
                let owner = (offer.thread, offer.liveness.clone());
                let successor_hold = self.new_hold(&next, owner, offer.lease, &granted, deadline);
                let successor_hold = Arc::new(successor_hold);
                self.inner.watchdog.watch(&successor_hold);
                events::acquired(&next.name, &next.visitor);
                if let Err(successor_hold) = successor.grant(successor_hold, others > 0) {
                    self.take_back(&successor_hold, next, deadline);
                }
                return Some(Ok(()));
            }
            Ok(Outcome::Gone(cause)) => Err(self.inner.watchdog.lost_in_release(hold, cause)),
            Ok(Outcome::Unknown { in_doubt, error }) => {
                // The store may have the old hold or the hold of the successor.
                let not_after = in_doubt.not_after(0).unwrap_or_default();
                self.inner.watchdog.resolve_later(in_doubt);
                self.inner.watchdog.resolve_later(next.in_doubt(not_after));
                Err(error)
            }
            // Nothing was changed. The caller now releases the hold, and reports the errors of that release.
            Ok(Outcome::Done(_)) | Err(_) => return None,
        };
        drop(successor);
        self.inner.wait_queues.freed(&self.key.lock, None, None);
        Some(outcome)
    }

    /// Frees the successor's hold, because the waiter left the queue before the grant.
    fn take_back(&self, successor_hold: &Hold, mut claim: Claim, deadline: Instant) {
        successor_hold.release_level(0, deadline);
        self.inner.watchdog.unwatch(successor_hold);
        claim.count = 1;
        // The caller's own unlock has succeeded, so an error of `free` is only logged.
        if let Err(error) = self.free(&claim, deadline) {
            events::unlock_failed(&claim.name, &error);
        }
    }
}
