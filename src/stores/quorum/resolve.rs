use std::time::{Duration, Instant};

use crate::ground::claim::Claim;
use crate::store::InDoubt;
use crate::stores::quorum::Quorum;
use crate::stores::quorum::node::Purpose;

impl Quorum {
    /// Releases the lock at each node in `open`. A node with the expiry 0 granted the request. Any other node can
    /// execute the request until its expiry. Returns an in-doubt request if a node may still have or grant the lock.
    pub(super) fn undo(
        &self,
        claim: &Claim,
        open: &[(usize, i64)],
        deadline: Instant,
    ) -> Option<InDoubt> {
        if open.is_empty() {
            return None;
        }
        let mut in_doubt = InDoubt::at_none(claim, self.nodes.len());
        for (index, not_after) in open {
            in_doubt.set(*index, Some(*not_after));
        }
        let is_settled = self.settle(&mut in_doubt, claim.lease, deadline);
        (!is_settled).then_some(in_doubt)
    }

    /// Releases what the request `in_doubt` acquired or can still acquire. Returns true if nothing is left to release.
    pub(super) fn settle(
        &self,
        in_doubt: &mut InDoubt,
        lease: Duration,
        deadline: Instant,
    ) -> bool {
        in_doubt.list(self.nodes.len());
        let purpose = Purpose::Request;
        let open = in_doubt.not_after.iter().zip(&self.nodes).enumerate();
        let open = open
            .filter(|(_, (not_after, node))| not_after.is_some() && !node.is_tripped(purpose))
            .map(|(index, _)| index)
            .collect();
        let asked = in_doubt.clone();
        let mut fan_out = self.send(open, purpose, lease, deadline, move |node, by| {
            node.node.send_resolve(asked.part(node.index), by)
        });
        fan_out.is_needed = false;
        while let Some((index, answer)) = fan_out.next() {
            let Some(node) = self.nodes.get(index) else {
                continue;
            };
            match answer {
                Ok(true) => {
                    node.reset();
                    in_doubt.set(index, None);
                }
                Ok(false) => node.reset(),
                Err(error) => node.trip(&error),
            }
        }
        in_doubt.is_resolved()
    }
}
