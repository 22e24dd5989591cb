//! A member of a lock that is made of others.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use crate::ground::claim::{Claim, LockId, Queueing, VisitorId};
use crate::ground::error::{Error, Result};
use crate::store::{Granted, InDoubt, Outcome, Refusal, Released, Renewal, Store};

/// One of the locks.
pub(crate) struct Member {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lock: LockId,
    /// Keeps the store open.
    pub(crate) _keep: Arc<dyn Any + Send + Sync>,
}

/// A member, and its place among them.
pub(super) struct Part {
    pub(super) member: Member,
    pub(super) place: usize,
}

impl Deref for Part {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.member
    }
}

impl Part {
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
        match self.prolong(&claim, deadline) {
            Renewal::Renewed | Renewal::RenewedFor(_) => Ok(Outcome::Done(Granted {
                leftover: self.left_of_prolonging(&claim),
                ..Granted::at(sent)
            })),
            Renewal::Lost(cause) => Ok(Outcome::Gone(cause)),
            Renewal::Unknown(reason) => Ok(self.unknown(&claim, "acquire", reason)),
        }
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
            return self.store.release(&claim, keep, deadline);
        }
        match self.prolong(&claim, deadline) {
            Renewal::Renewed | Renewal::RenewedFor(_) => Ok(Outcome::Done(Released {
                leftover: self.left_of_prolonging(&claim),
                ..Released::default()
            })),
            Renewal::Lost(cause) => Ok(Outcome::Gone(cause)),
            Renewal::Unknown(reason) => Ok(self.unknown(&claim, "release", reason)),
        }
    }

    /// Sets the lease of a hold that stands.
    fn prolong(&self, claim: &Claim, deadline: Instant) -> Renewal {
        let outcome = self
            .store
            .renew(std::slice::from_ref(claim), deadline)
            .pop();
        outcome.unwrap_or_else(|| Renewal::Unknown("there was no answer".to_owned()))
    }

    /// The effect that a confirmed lease may yet have: a node of a quorum that has not answered may set it late.
    fn left_of_prolonging(&self, claim: &Claim) -> Option<InDoubt> {
        let is_composite = self.store.facts().is_composite;
        is_composite.then(|| claim.in_doubt(0))
    }

    fn unknown<D, R>(
        &self,
        claim: &Claim,
        operation: &'static str,
        reason: String,
    ) -> Outcome<D, R> {
        let (node, visitor) = (self.store.node(None), Some(&claim.visitor));
        let error = Error::unknown(&claim.name, node, operation, visitor, reason);
        Outcome::unknown(claim.in_doubt(0), error)
    }
}

impl Member {
    /// Returns the place and the name: two members with the same are one lock.
    pub(crate) fn identity(&self) -> (String, Arc<str>) {
        let place = format!("{}/{}", self.store.node(None), self.store.facts().area);
        (place, Arc::clone(&self.lock.name))
    }
}
