//! The doubt about what a request without an answer has done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};

use crate::ground::claim::{Claim, Kind, LockId, VisitorId};
use crate::ground::clock::BootInstant;
use crate::ground::error::Result;
use crate::ground::time;
use crate::store::condition::{PLACE_LIFE, PlaceInDoubt};

/// A request without an answer may take this long to arrive, and its lease counts from then.
const LONGEST_WAY: Duration = Duration::from_secs(30);

/// A field that a request without an answer may have left in the store, or may yet put there.
#[derive(Debug, Clone)]
pub(crate) struct InDoubt {
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
    pub(crate) visitor: VisitorId,
    /// Set if it is no hold but a place among those who wait on a condition, whose ticket the visitor is.
    pub(crate) place: Option<PlaceInDoubt>,
    /// For each node: the request is refused there after this time of the node's own clock, in ms, so that a release
    /// answered later settles it. `None` where nothing is left; a node that is not listed is as the last one.
    pub(crate) not_after: SmallVec<[Option<i64>; 1]>,
    /// When the lease that the request may have set has run out in any case.
    pub(crate) ends: BootInstant,
}

impl Claim {
    /// The doubt whether a hold of this claim stands, or comes to stand until the server's time `not_after`.
    pub(crate) fn in_doubt(&self, not_after: i64) -> InDoubt {
        InDoubt {
            not_after: smallvec![Some(not_after)],
            ..InDoubt::of(self.kind, &self.name, &self.visitor, self.lease)
        }
    }
}

impl InDoubt {
    /// The doubt whether the visitor still has a hold, with this lease at most.
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

    /// The doubt whether this ticket still has a place, or comes to have one until the server's time `not_after`.
    pub(crate) fn of_place(
        lock: &LockId,
        ticket: &VisitorId,
        place: PlaceInDoubt,
        not_after: i64,
    ) -> InDoubt {
        InDoubt {
            place: Some(place),
            not_after: smallvec![Some(not_after)],
            ..InDoubt::of(lock.kind, &lock.name, ticket, PLACE_LIFE)
        }
    }

    /// The doubt whether a hold of this claim stands at some of `nodes` nodes, at none as yet.
    pub(crate) fn at_none(claim: &Claim, nodes: usize) -> InDoubt {
        InDoubt {
            not_after: smallvec![None; nodes],
            ..claim.in_doubt(0)
        }
    }

    /// Lists each of `nodes` nodes.
    pub(crate) fn list(&mut self, nodes: usize) {
        self.not_after = (0..nodes).map(|node| self.not_after(node)).collect();
    }

    /// The part that concerns a listed node.
    pub(crate) fn part(&self, node: usize) -> InDoubt {
        InDoubt {
            not_after: smallvec![self.not_after(node)],
            ..self.clone()
        }
    }

    /// Notes what is left at a listed node.
    pub(crate) fn set(&mut self, node: usize, not_after: Option<i64>) {
        if let Some(place) = self.not_after.get_mut(node) {
            *place = not_after;
        }
    }

    /// Notes that something may come to a listed node until its time `not_after`.
    pub(crate) fn raise(&mut self, node: usize, not_after: i64) {
        let latest = self.not_after.get(node).copied().flatten();
        self.set(node, latest.max(Some(not_after)));
    }

    /// Whether nothing is left at any listed node.
    pub(crate) fn is_resolved(&self) -> bool {
        self.not_after.iter().all(Option::is_none)
    }

    /// The server time after which nothing comes any more at node `node`; `None` if nothing is left there.
    pub(crate) fn not_after(&self, node: usize) -> Option<i64> {
        let listed = self.not_after.get(node).or(self.not_after.last());
        listed.copied().unwrap_or(Some(0))
    }
}

/// Resolves one by one, until one has no answer or the time is over.
pub(crate) fn resolve_each(
    in_doubts: &mut [&mut InDoubt],
    deadline: Instant,
    mut resolve: impl FnMut(&mut InDoubt) -> Result<bool>,
) -> Vec<Result<bool>> {
    let mut outcomes = Vec::with_capacity(in_doubts.len());
    for in_doubt in in_doubts {
        let outcome = resolve(in_doubt);
        let is_silent = matches!(&outcome, Err(error) if error.may_pass());
        outcomes.push(outcome);
        if is_silent || time::now() >= deadline {
            break;
        }
    }
    outcomes
}
