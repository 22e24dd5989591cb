//! The way back from an acquisition that did not get all members.

use std::sync::Arc;
use std::time::Instant;

use super::{MultiStore, share};
use crate::ground::claim::Claim;
use crate::store::InDoubt;

impl MultiStore {
    /// Frees the first `taken` members again, and what is in `in_doubt`. Returns what is left of that.
    pub(super) fn undo(
        &self,
        taken: usize,
        mut in_doubt: InDoubt,
        deadline: Instant,
    ) -> Option<InDoubt> {
        for index in 0..taken {
            in_doubt.set(index, Some(0));
        }
        (!self.settle(&mut in_doubt, deadline)).then_some(in_doubt)
    }

    /// Withdraws at all members that are in doubt. Returns whether none is any more.
    pub(super) fn settle(&self, in_doubt: &mut InDoubt, deadline: Instant) -> bool {
        in_doubt.list(self.members.len());
        for (index, member) in self.members.iter().enumerate().rev() {
            let part = in_doubt.part(index);
            if part.is_resolved() {
                continue;
            }
            let mut part = InDoubt {
                kind: member.lock.kind,
                name: Arc::clone(&member.lock.name),
                visitor: member.visitor(&in_doubt.visitor),
                ..part
            };
            // An error is tried again in the background.
            let by = share(deadline, index + 1);
            let resolved = member.store.resolve(&mut [&mut part], by).pop();
            if matches!(resolved, Some(Ok(true))) {
                in_doubt.set(index, None);
            }
        }
        in_doubt.is_resolved()
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
