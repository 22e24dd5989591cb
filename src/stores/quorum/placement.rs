//! The nodes that may have a hold of this process.

use smallvec::SmallVec;

use crate::ground::claim::VisitorId;
use crate::store::InDoubt;
use crate::stores::quorum::Quorum;

/// The nodes of one hold of this process, as far as known.
#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    /// The nodes that may have it, a bit each.
    pub(super) nodes: u64,
    pub(super) extensions: u32,
    /// The nodes where a request for it may still arrive, as nobody waited for the answer. Each refuses it after a time of
    /// its own clock, in ms.
    pub(super) open: SmallVec<[(usize, i64); 2]>,
}

impl Quorum {
    /// The nodes that may have the hold of this visitor.
    pub(super) fn placement(&self, visitor: &VisitorId) -> u64 {
        let placements = self.placements.lock();
        placements
            .get(visitor)
            .map_or(self.all(), |placement| placement.nodes)
    }

    /// Takes out what is known of the hold of this visitor, and notes in `in_doubt` what of it may still arrive.
    pub(super) fn forget(&self, in_doubt: &mut InDoubt) {
        let placement = self.placements.lock().remove(&in_doubt.visitor);
        in_doubt.list(self.nodes.len());
        for (node, not_after) in placement.iter().flat_map(|it| &it.open) {
            in_doubt.raise(*node, *not_after);
        }
    }

    /// Keeps what may still arrive of a hold, for whoever frees it.
    pub(super) fn note_open(&self, visitor: &VisitorId, in_doubt: &InDoubt) {
        if let Some(placement) = self.placements.lock().get_mut(visitor) {
            let open = in_doubt.not_after.iter().enumerate();
            let open = open.filter_map(|(node, not_after)| Some((node, (*not_after)?)));
            placement.note_unknown(&open.collect::<Vec<_>>());
        }
    }
}

impl Placement {
    /// Notes the nodes that did not answer a request, with its expiry.
    pub(super) fn note_unknown(&mut self, open: &[(usize, i64)]) {
        for (node, not_after) in open.iter().filter(|(_, not_after)| *not_after > 0) {
            self.note(*node, *not_after);
        }
    }

    /// Notes that a request may still arrive at the node. Of several the latest one counts.
    pub(super) fn note(&mut self, node: usize, not_after: i64) {
        match self.open.iter_mut().find(|(at, _)| *at == node) {
            Some((_, latest)) => *latest = not_after.max(*latest),
            None => self.open.push((node, not_after)),
        }
    }
}
