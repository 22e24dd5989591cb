//! A member of a lock that is made of others.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use crate::ground::claim::{Claim, LockId, Queueing, VisitorId};
use crate::ground::error::{Error, Result};
use crate::store::{Granted, InDoubt, Left, Outcome, Refusal, Released, Renewal, Store};

/// One of the locks.
pub(crate) struct Member {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lock: LockId,
    /// Its place among the members, which the whole gives it.
    pub(crate) place: usize,
    /// Keeps the store open.
    pub(crate) _keep: Arc<dyn Any + Send + Sync>,
}

impl Member {
    /// As whom it is held.
    pub(super) fn visitor(&self, visitor: &VisitorId) -> VisitorId {
        (self.lock.kind.rules().visitor_of_part)(visitor, self.place)
    }

    pub(super) fn claim(&self, claim: &Claim) -> Claim {
        Claim {
            kind: self.lock.kind,
            name: Arc::clone(&self.lock.name),
            visitor: self.visitor(&claim.visitor),
            inside: None,
            queueing: Queueing::default(),
            ..*claim
        }
    }

    /// Takes it, or enters it once more. A member that cannot be entered twice gets the lease of the whole.
    pub(super) fn acquire(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Outcome<Granted, Refusal>> {
        let claim = self.claim(claim);
        if claim.count == 0 || self.lock.kind.rules().is_reentrant {
            return self.store.acquire(&claim, deadline);
        }
        let sent = self.store.facts().timeline.now();
        self.prolong(&claim, "acquire", deadline, |leftover| Granted {
            leftover,
            ..Granted::at(sent)
        })
    }

    /// Gives one level back. A member that was not entered twice keeps the lease of the rest.
    pub(super) fn release_level(
        &self,
        claim: &Claim,
        keep: u32,
        deadline: Instant,
    ) -> Result<Outcome<Released>> {
        let claim = self.claim(claim);
        if self.lock.kind.rules().is_reentrant {
            return self.store.release(&claim, Left::Levels(keep), deadline);
        }
        self.prolong(&claim, "release", deadline, |leftover| Released {
            leftover,
            ..Released::default()
        })
    }

    /// Sets the lease of a hold that stands. `done` is given the effect that it may yet have: a node of a quorum that has
    /// not answered may set it late.
    fn prolong<D, R>(
        &self,
        claim: &Claim,
        operation: &'static str,
        deadline: Instant,
        done: impl FnOnce(Option<InDoubt>) -> D,
    ) -> Result<Outcome<D, R>> {
        let renewed = self.store.renew(std::slice::from_ref(claim), deadline);
        let reason = match renewed.into_iter().next() {
            Some(Renewal::Renewed | Renewal::RenewedFor(_)) => {
                let is_composite = self.store.facts().is_composite;
                return Ok(Outcome::Done(done(is_composite.then(|| claim.in_doubt(0)))));
            }
            Some(Renewal::Lost(cause)) => return Ok(Outcome::Gone(cause)),
            Some(Renewal::Unknown(reason)) => reason,
            None => "no reply".to_owned(),
        };
        let (node, visitor) = (self.store.node(None), Some(&claim.visitor));
        let error = Error::unknown(&claim.name, node, operation, visitor, reason);
        Ok(Outcome::unknown(claim.in_doubt(0), error))
    }

    /// Returns the place and the name: two members with the same are one lock.
    pub(crate) fn identity(&self) -> (String, Arc<str>) {
        let place = format!("{}/{}", self.store.node(None), self.store.facts().area);
        (place, Arc::clone(&self.lock.name))
    }
}
