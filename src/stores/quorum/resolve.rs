use std::time::{Duration, Instant};

use crate::ground::claim::Claim;
use crate::ground::error::Result;
use crate::ground::{sync, time};
use crate::store::{InDoubt, Store};
use crate::stores::quorum::Quorum;
use crate::stores::quorum::node::Purpose;

impl Quorum {
    /// Releases the lock at the nodes in `open`, pairs of a node and an expiry. A node with the expiry 0 granted the request.
    /// Any other node can execute the request until the expiry. Returns an in-doubt request unless each release was final.
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

    /// Tries to release what the request `in_doubt` acquired or can still acquire. Returns true if all nodes released it.
    fn settle(&self, in_doubt: &mut InDoubt, lease: Duration, deadline: Instant) -> bool {
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

    /// Releases what many requests may have acquired, with one call per node. So background unlocks keep pace with the
    /// client's acquisitions. The nodes are called at the same time, so that a silent node does not delay the other nodes.
    pub(super) fn resolve_everywhere(
        &self,
        in_doubts: &mut [&mut InDoubt],
        deadline: Instant,
    ) -> Vec<Result<bool>> {
        for in_doubt in in_doubts.iter_mut() {
            self.forget(in_doubt);
        }
        if let [in_doubt] = in_doubts {
            return vec![Ok(self.settle(in_doubt, self.settings.max_lease, deadline))];
        }
        let by = deadline.min(time::now() + self.node_timeout(self.settings.max_lease));
        let (mut asked, mut jobs) = (Vec::new(), Vec::new());
        for (index, node) in self.nodes.iter().enumerate() {
            let parts = in_doubts.iter().map(|in_doubt| in_doubt.part(node.index));
            let open = parts.enumerate().filter(|(_, part)| !part.is_resolved());
            let mut parts: Vec<_> = open.collect();
            if parts.is_empty() || node.is_tripped(Purpose::Request) {
                continue;
            }
            if !node.node.is_ready(Purpose::Request) {
                // The engine calls again later. The node may be connected by then.
                node.connect_aside(Purpose::Request);
                continue;
            }
            asked.push((index, node));
            jobs.push(move || {
                let mut of_node: Vec<_> = parts.iter_mut().map(|(_, part)| part).collect();
                let outcomes = node.node.resolve(&mut of_node, by);
                let places = parts.iter().map(|(place, _)| *place);
                places.zip(outcomes).collect::<Vec<_>>()
            });
        }
        let answers = sync::run_at_once("redlatch-release", jobs);
        for ((index, node), answers) in asked.into_iter().zip(answers) {
            // A node has no answers if its thread could not be started. The next call of the engine includes that node.
            for (place, answer) in answers.into_iter().flatten() {
                match answer {
                    Err(error) => node.trip(&error),
                    Ok(is_resolved) => {
                        node.reset();
                        if let Some(in_doubt) = in_doubts.get_mut(place).filter(|_| is_resolved) {
                            in_doubt.set(index, None);
                        }
                    }
                }
            }
        }
        in_doubts.iter().map(|it| Ok(it.is_resolved())).collect()
    }
}
