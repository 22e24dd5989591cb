//! A circuit breaker for each node: after a request without a reply, the node is skipped for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::error::Error;
use crate::ground::time;

use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::tally::reason_of;
use crate::stores::quorum::{Quorum, QuorumNode, bit, bits};

/// How long a node is skipped at first. Each further pause is twice as long, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The circuit is open while `deadline` is set.
#[derive(Default)]
pub(super) struct Breaker {
    pub(super) deadline: Option<Instant>,
    pub(super) pause: Duration,
    pub(super) reason: String,
}

impl Quorum {
    /// Returns the nodes of `among` that get the request, in the order of sending. Each of `holds` is the set of nodes
    /// of one hold. Nodes with an open circuit come last. Such a node gets the request only if, in `among` or in a hold
    /// with this node, fewer than `needed` nodes have a closed circuit.
    pub(super) fn in_order(&self, among: u64, holds: &[u64], purpose: Purpose) -> Vec<usize> {
        let all = (0..self.nodes.len()).filter(|index| among & bit(*index) != 0);
        let is_tripped = |index: &usize| {
            let node = self.nodes.get(*index);
            node.is_some_and(|node| node.is_tripped(purpose))
        };
        let (tripped, mut order): (Vec<usize>, Vec<usize>) = all.partition(is_tripped);
        let asked = bits(&order);
        let is_short = |hold: &&u64| ((*hold & asked).count_ones() as usize) < self.needed;
        let short = holds.iter().filter(is_short);
        let short = short.fold(0, |nodes, hold| nodes | hold);
        let is_needed = |index: &usize| order.len() < self.needed || short & bit(*index) != 0;
        let needed: Vec<usize> = tripped.into_iter().filter(is_needed).collect();
        order.extend(needed);
        order
    }
}

impl QuorumNode {
    pub(super) fn is_tripped(self: &Arc<QuorumNode>, purpose: Purpose) -> bool {
        {
            let mut breaker = self.breaker.lock();
            let now = time::now();
            match breaker.deadline {
                Some(deadline) if now < deadline => return true,
                Some(_) => {
                    // Only this call checks the node now. Other calls skip the node for up to one more pause.
                    breaker.deadline = Some(now + breaker.pause);
                }
                None => return false,
            }
        }
        if self.node.is_ready(purpose) {
            return false;
        }
        // The node may be silent, so this call skips it and connects in the background.
        self.connect_aside(purpose);
        true
    }

    /// Each request to a silent node would take the whole timeout, so a failure without a reply opens the circuit.
    pub(super) fn trip(&self, error: &Error) {
        if !matches!(error, Error::Unreachable { .. } | Error::Unknown { .. }) {
            return;
        }
        let mut breaker = self.breaker.lock();
        breaker.pause = (breaker.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        breaker.deadline = Some(time::now() + breaker.pause);
        breaker.reason = reason_of(error);
    }

    pub(super) fn reset(&self) {
        let mut breaker = self.breaker.lock();
        if !breaker.pause.is_zero() {
            *breaker = Breaker::default();
        }
    }

    /// Closes the circuit but keeps `pause`. So if the next request gets no reply, the next pause is longer.
    pub(super) fn revive(&self) {
        self.breaker.lock().deadline = None;
    }
}
