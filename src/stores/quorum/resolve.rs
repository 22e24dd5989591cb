//! The withdrawal of requests without an answer at every node that may have them.

use std::time::{Duration, Instant};

use smallvec::smallvec;

use crate::ground::claim::Claim;
use crate::ground::error::Result;
use crate::ground::sync;
use crate::ground::time;
use crate::store::InDoubt;
use crate::stores::quorum::Quorum;
use crate::stores::quorum::breaker::Order;
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
        let mut in_doubt = InDoubt {
            not_after: smallvec![None; self.nodes.len()],
            ..claim.in_doubt(0)
        };
        for (index, not_after) in open {
            if let Some(place) = in_doubt.not_after.get_mut(*index) {
                *place = Some(*not_after);
            }
        }
        let is_settled = self.settle(&mut in_doubt, claim.lease, deadline);
        (!is_settled).then_some(in_doubt)
    }

    /// Withdraws at all nodes that are in doubt. Returns whether none is any more.
    fn settle(&self, in_doubt: &mut InDoubt, lease: Duration, deadline: Instant) -> bool {
        let not_after = (0..self.nodes.len()).map(|index| in_doubt.not_after(index));
        in_doubt.not_after = not_after.collect();
        let purpose = Purpose::Request(Some(&in_doubt.visitor));
        let open = in_doubt.not_after.iter().zip(&self.nodes).enumerate();
        let open = open
            .filter(|(_, (not_after, node))| not_after.is_some() && !node.is_tripped(purpose))
            .map(|(index, _)| index)
            .collect();
        let asked = in_doubt.clone();
        let mut fan_out = self.send(
            Order::of(open),
            purpose,
            lease,
            deadline,
            move |index, node, by| {
                let in_doubt = InDoubt {
                    not_after: smallvec![asked.not_after(index)],
                    ..asked.clone()
                };
                node.node.send_resolve(in_doubt, by)
            },
            Err,
        );
        fan_out.is_needed = false;
        while let Some((index, answer)) = fan_out.next() {
            let Some(node) = self.nodes.get(index) else {
                continue;
            };
            match answer {
                Ok(true) => {
                    node.reset();
                    if let Some(place) = in_doubt.not_after.get_mut(index) {
                        *place = None;
                    }
                }
                Ok(false) => node.reset(),
                Err(error) => node.trip(&error),
            }
        }
        in_doubt.not_after.iter().all(Option::is_none)
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
            let mut parts = parts_at(in_doubts, index);
            if parts.is_empty() || node.is_tripped(Purpose::Request(None)) {
                continue;
            }
            asked.push((index, node));
            jobs.push(move || {
                if !node.is_connected_by(deadline.min(time::now() + timeout)) {
                    return Vec::new();
                }
                let by = deadline.min(time::now() + timeout);
                let mut of_node: Vec<&mut InDoubt> =
                    parts.iter_mut().map(|(_, part)| part).collect();
                let outcomes = node.node.store().resolve(&mut of_node, by);
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
                        let in_doubt = in_doubts.get_mut(place).filter(|_| is_settled);
                        if let Some(at) =
                            in_doubt.and_then(|in_doubt| in_doubt.not_after.get_mut(index))
                        {
                            *at = None;
                        }
                    }
                }
            }
        }
        let is_settled = |in_doubt: &&mut InDoubt| in_doubt.not_after.iter().all(Option::is_none);
        in_doubts
            .iter()
            .map(|in_doubt| Ok(is_settled(in_doubt)))
            .collect()
    }
}

/// The parts of these doubts that concern node `index`, each with its place among them.
fn parts_at(in_doubts: &[&mut InDoubt], index: usize) -> Vec<(usize, InDoubt)> {
    let open = in_doubts
        .iter()
        .enumerate()
        .filter_map(|(place, in_doubt)| {
            let not_after = in_doubt.not_after(index);
            let part = InDoubt {
                not_after: smallvec![not_after],
                ..(**in_doubt).clone()
            };
            not_after.map(|_| (place, part))
        });
    open.collect()
}
