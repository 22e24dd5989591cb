use std::sync::Arc;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::BootInstant;
use crate::store::condition::{CONDITION_ENTRY_LIFE, EntryInDoubt};

/// The longest time assumed between the sending and the arrival of a request. In the store, a lease begins at the arrival.
const LONGEST_WAY: Duration = Duration::from_secs(30);

/// A request whose outcome is unknown. It may already have written the id `visitor` to the store, or can still write it.
#[derive(Debug, Clone)]
pub(crate) struct InDoubt {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// `Some` if the request concerns an entry in the queue of a condition, not a hold. In this case, `visitor` identifies
    /// the wait.
    pub(crate) place: Option<EntryInDoubt>,
    /// For each node, the time in ms on the node's clock after which the node refuses the request. After that time,
    /// one successful release resolves the request at the node. `None` means that nothing is left to release at the
    /// node. A node beyond the end of the list has the value of the last listed node, or 0 if the list is empty.
    pub(crate) not_after: SmallVec<[Option<i64>; 1]>,
    /// The latest time at which a lease set by the request can end.
    pub(crate) ends: BootInstant,
}

impl Claim {
    /// A request for this claim. The request can still arrive until the server's time `not_after`.
    pub(crate) fn in_doubt(&self, not_after: i64) -> InDoubt {
        InDoubt {
            not_after: smallvec![Some(not_after)],
            ..InDoubt::of(self.kind, &self.name, &self.visitor, self.lease)
        }
    }
}

impl InDoubt {
    /// A hold that the store may have, with the id `visitor` and at most this lease.
    pub(crate) fn of(kind: Kind, name: &Arc<str>, visitor: &VisitorId, lease: Duration) -> InDoubt {
        InDoubt {
            kind,
            name: Arc::clone(name),
            visitor: visitor.clone(),
            place: None,
            not_after: SmallVec::new(),
            ends: BootInstant::now() + lease + LONGEST_WAY,
        }
    }

    /// An entry in the queue of a condition. The entry may exist, or a request can still write it until the server's time
    /// `not_after`.
    pub(crate) fn of_condition_entry(
        lock: &LockId,
        ticket: &VisitorId,
        place: EntryInDoubt,
        not_after: i64,
    ) -> InDoubt {
        InDoubt {
            place: Some(place),
            not_after: smallvec![Some(not_after)],
            ..InDoubt::of(lock.kind, &lock.name, ticket, CONDITION_ENTRY_LIFE)
        }
    }

    /// A request for this claim. `not_after` is `None` for each of `nodes` nodes, until [`InDoubt::set`] sets a time.
    pub(crate) fn at_none(claim: &Claim, nodes: usize) -> InDoubt {
        InDoubt {
            not_after: smallvec![None; nodes],
            ..claim.in_doubt(0)
        }
    }

    /// Resizes `not_after` to `nodes` entries.
    pub(crate) fn list(&mut self, nodes: usize) {
        self.not_after = (0..nodes).map(|node| self.not_after(node)).collect();
    }

    pub(crate) fn part(&self, node: usize) -> InDoubt {
        InDoubt {
            not_after: smallvec![self.not_after(node)],
            ..self.clone()
        }
    }

    pub(crate) fn set(&mut self, node: usize, not_after: Option<i64>) {
        if let Some(place) = self.not_after.get_mut(node) {
            *place = not_after;
        }
    }

    /// Notes that the request can arrive at the listed node `node` until the node's time `not_after`.
    pub(crate) fn raise(&mut self, node: usize, not_after: i64) {
        let latest = self.not_after.get(node).copied().flatten();
        self.set(node, latest.max(Some(not_after)));
    }

    pub(crate) fn is_resolved(&self) -> bool {
        self.not_after.iter().all(Option::is_none)
    }

    pub(crate) fn not_after(&self, node: usize) -> Option<i64> {
        let listed = self.not_after.get(node).or(self.not_after.last());
        listed.copied().unwrap_or(Some(0))
    }
}
