//! A circuit breaker for each node: one that does not answer is left alone for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::error::Error;
use crate::ground::time;

use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::tally::reason_of;
use crate::stores::quorum::{Quorum, QuorumNode, bit, bits};

/// A node that does not answer is left alone for this long, then for twice as long, at most for the latter.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Whether a node is left alone because it did not answer.
#[derive(Default)]
pub(super) struct Breaker {
    pub(super) deadline: Option<Instant>,
    pub(super) pause: Duration,
    pub(super) reason: String,
}

impl Quorum {
    /// The nodes of `among` that are not left alone, unless there are too few others, or too few of those that have one
    /// of the holds that it is about.
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
    /// Whether it is to be left alone.
    pub(super) fn is_tripped(self: &Arc<QuorumNode>, purpose: Purpose) -> bool {
        {
            let mut breaker = self.breaker.lock();
            let now = time::now();
            match breaker.deadline {
                Some(deadline) if now < deadline => return true,
                Some(_) => {
                    // Whoever comes first tries it; until that has an answer the others leave it alone.
                    breaker.deadline = Some(now + breaker.pause);
                }
                None => return false,
            }
        }
        if self.node.is_ready(purpose) {
            return false;
        }
        // It may still be silent, and nobody is to wait for that.
        self.connect_aside(purpose);
        true
    }

    /// Leaves it alone for a while, after an error that means that asking it costs its time-out.
    pub(super) fn trip(&self, error: &Error) {
        if !matches!(error, Error::Unreachable { .. } | Error::Unknown { .. }) {
            return;
        }
        let mut breaker = self.breaker.lock();
        breaker.pause = (breaker.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        breaker.deadline = Some(time::now() + breaker.pause);
        breaker.reason = reason_of(error);
    }

    /// Leaves it alone no longer, after it has answered.
    pub(super) fn reset(&self) {
        let mut breaker = self.breaker.lock();
        if !breaker.pause.is_zero() {
            *breaker = Breaker::default();
        }
    }

    /// Leaves it alone no longer, now that it is connected. If it does not answer all the same, the pause goes on to grow.
    pub(super) fn revive(&self) {
        self.breaker.lock().deadline = None;
    }
}
