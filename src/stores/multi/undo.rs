//! The way back from an acquisition that did not get all members.

use std::sync::Arc;
use std::time::Instant;

use smallvec::smallvec;

use super::{MultiStore, share};
use crate::ground::claim::Claim;
use crate::store::InDoubt;

impl MultiStore {
    /// A doubt about no member yet.
    pub(super) fn no_doubt(&self, claim: &Claim) -> InDoubt {
        InDoubt {
            not_after: smallvec![None; self.members.len()],
            ..claim.in_doubt(0)
        }
    }

    /// Frees the first `taken` members again, and what is in `in_doubt`. Returns what is left of that.
    pub(super) fn undo(
        &self,
        taken: usize,
        mut in_doubt: InDoubt,
        deadline: Instant,
    ) -> Option<InDoubt> {
        for place in in_doubt.not_after.iter_mut().take(taken) {
            *place = Some(0);
        }
        (!self.settle(&mut in_doubt, deadline)).then_some(in_doubt)
    }

    /// Withdraws at all members that are in doubt. Returns whether none is any more.
    pub(super) fn settle(&self, in_doubt: &mut InDoubt, deadline: Instant) -> bool {
        let not_after = (0..self.members.len()).map(|index| in_doubt.not_after(index));
        in_doubt.not_after = not_after.collect();
        let members = self.members.len();
        let mut is_settled = true;
        for index in (0..members).rev() {
            let (Some(member), not_after @ Some(_)) =
                (self.members.get(index), in_doubt.not_after(index))
            else {
                continue;
            };
            let mut part = InDoubt {
                kind: member.lock.kind,
                name: Arc::clone(&member.lock.name),
                visitor: member.visitor(&in_doubt.visitor),
                not_after: smallvec![not_after],
                ..in_doubt.clone()
            };
            // An error is tried again in the background.
            let by = share(deadline, index + 1);
            let resolved = member.store.resolve(&mut [&mut part], by).pop();
            if matches!(resolved, Some(Ok(true))) {
                if let Some(place) = in_doubt.not_after.get_mut(index) {
                    *place = None;
                }
            } else {
                is_settled = false;
            }
        }
        is_settled
    }

    /// Puts the count back that a re-entry has raised at the first `raised` members. It does not tell whether all have
    /// answered: the outcome of the re-entry counts as unknown in any case.
    pub(super) fn put_back(&self, claim: &Claim, raised: usize, deadline: Instant) {
        for (left, member) in (1..=raised).rev().zip(&self.members) {
            let raised = Claim {
                count: claim.count.saturating_add(1),
                ..claim.clone()
            };
            // A member that keeps the higher count is freed by the last release all the same.
            let _ = member.release_level(&raised, claim.count, share(deadline, left));
        }
    }
}
