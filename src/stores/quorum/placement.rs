//! Which nodes may have the holds of this process.

use smallvec::SmallVec;

use crate::ground::claim::VisitorId;
use crate::store::InDoubt;
use crate::stores::quorum::{Quorum, bit};

#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    /// The nodes that may have the hold, one bit each.
    pub(super) nodes: u64,
    pub(super) extensions: u32,
    pub(super) open: SmallVec<[OpenRequest; 2]>,
}

/// A request whose reply was not read. The node can still execute the request.
#[derive(Clone, Debug)]
pub(super) struct OpenRequest {
    pub(super) node: usize,
    /// The node refuses the request after this time of its clock in ms.
    pub(super) not_after: i64,
}

impl Quorum {
    pub(super) fn placement(&self, visitor: &VisitorId) -> u64 {
        let placements = self.placements.lock();
        let placement = placements.get(visitor);
        placement.map_or(self.all(), |it| it.nodes)
    }

    /// Removes the placement of a hold, and returns the nodes that may have the hold. Lists these nodes in `in_doubt`.
    /// Also lists each node that can still execute a request, with the expiry of this request.
    pub(super) fn forget(&self, in_doubt: &mut InDoubt) -> u64 {
        let placement = self.placements.lock().remove(&in_doubt.visitor);
        let nodes = placement.as_ref().map_or(self.all(), |it| it.nodes);
        in_doubt.list(self.nodes.len());
        for index in (0..self.nodes.len()).filter(|index| nodes & bit(*index) == 0) {
            in_doubt.set(index, None);
        }
        for open in placement.iter().flat_map(|it| &it.open) {
            in_doubt.raise(open.node, open.not_after);
        }
        nodes
    }
}

impl Placement {
    /// Notes the requests in `open` that nodes can still execute. A node with `not_after` 0 has granted its request.
    pub(super) fn note_unknown(&mut self, open: &[(usize, i64)]) {
        for (node, not_after) in open.iter().filter(|(_, not_after)| *not_after > 0) {
            self.note(*node, *not_after);
        }
    }

    pub(super) fn note(&mut self, node: usize, not_after: i64) {
        match self.open.iter_mut().find(|open| open.node == node) {
            Some(open) => open.not_after = open.not_after.max(not_after),
            None => self.open.push(OpenRequest { node, not_after }),
        }
    }
}
