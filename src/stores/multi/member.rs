use std::any::Any;
use std::sync::Arc;

use crate::ground::claim::{Claim, LockId, Queueing, VisitorId};
use crate::store::Store;

pub(crate) struct Member {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lock: LockId,
    /// The index in `MultiStore::members`. `MultiStore::new` sets it.
    pub(crate) index: usize,
    /// Keeps the client of the store open.
    pub(crate) _keep: Arc<dyn Any + Send + Sync>,
}

impl Member {
    pub(super) fn visitor(&self, visitor: &VisitorId) -> VisitorId {
        (self.lock.kind.rules().visitor_of_part)(visitor, self.index)
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

    /// Two members with equal identities are one lock.
    pub(crate) fn identity(&self) -> (String, Arc<str>) {
        let place = format!("{}/{}", self.store.node(None), self.store.facts().area);
        (place, Arc::clone(&self.lock.name))
    }
}
