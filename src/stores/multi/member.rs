//! A member of a lock that is made of others.

use std::any::Any;
use std::sync::Arc;

use crate::ground::claim::{Claim, LockId, Queueing, VisitorId};
use crate::store::Store;

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

    /// Returns the place and the name: two members with the same are one lock.
    pub(crate) fn identity(&self) -> (String, Arc<str>) {
        let place = format!("{}/{}", self.store.node(None), self.store.facts().area);
        (place, Arc::clone(&self.lock.name))
    }
}
