//! The withdrawal of requests without an answer at every node that may have them.

use std::time::{Duration, Instant};

use crate::ground::claim::Claim;
use crate::ground::error::Result;
use crate::ground::sync;
use crate::ground::time;
use crate::store::{InDoubt, Store};
use crate::stores::quorum::Quorum;
use crate::stores::quorum::node::Purpose;

impl Quorum {
    /// Frees what a refused attempt has taken at the nodes `open`, each with the expiry of its request. Returns the
    /// doubt about those that do not answer.
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

    /// Withdraws at all nodes that are in doubt. Returns whether none is any more.
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

    pub(super) fn resolve_everywhere(
        &self,
        in_doubts: &mut [&mut InDoubt],
        deadline: Instant,
    ) -> Vec<Result<bool>> {
        if let [in_doubt] = in_doubts {
            self.forget(in_doubt);
            return vec![Ok(self.settle(in_doubt, self.settings.max_lease, deadline))];
        }
        for in_doubt in in_doubts.iter_mut() {
            self.forget(in_doubt);
        }
        let timeout = self.node_timeout(self.settings.max_lease);
        // Each node at the same time, so that a silent one keeps nobody waiting but for its own time-out.
        let mut jobs = Vec::with_capacity(self.nodes.len());
        let mut asked = Vec::with_capacity(self.nodes.len());
        for (index, node) in (0..).zip(&self.nodes) {
            // The parts of the doubts that concern this node, each with its place among them.
            let parts = in_doubts.iter().map(|in_doubt| in_doubt.part(index));
            let open = parts.enumerate().filter(|(_, part)| !part.is_resolved());
            let mut parts: Vec<_> = open.collect();
            if parts.is_empty() || node.is_tripped(Purpose::Request) {
                continue;
            }
            if !node.node.is_ready(Purpose::Request) {
                // It is asked when the rest is tried again.
                node.connect_aside(Purpose::Request);
                continue;
            }
            asked.push((index, node));
            jobs.push(move || {
                let by = deadline.min(time::now() + timeout);
                let mut of_node: Vec<&mut InDoubt> =
                    parts.iter_mut().map(|(_, part)| part).collect();
                let outcomes = node.node.resolve(&mut of_node, by);
                let places = parts.iter().map(|(place, _)| *place);
                places.zip(outcomes).collect::<Vec<_>>()
            });
        }
        let answers = sync::run_at_once("redlatch-release", jobs);
        for ((index, node), answers) in asked.into_iter().zip(answers) {
            // Where there is no room for a thread, or it died, it is tried again later.
            let answers = answers.unwrap_or_default();
            for (place, answer) in answers {
                match answer {
                    Err(error) => node.trip(&error),
                    Ok(is_settled) => {
                        node.reset();
                        if let Some(in_doubt) = in_doubts.get_mut(place).filter(|_| is_settled) {
                            in_doubt.set(index, None);
                        }
                    }
                }
            }
        }
        let is_resolved = in_doubts.iter().map(|in_doubt| Ok(in_doubt.is_resolved()));
        is_resolved.collect()
    }
}
