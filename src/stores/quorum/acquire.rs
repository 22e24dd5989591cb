//! Acquisition at a majority of the nodes. If only a minority grants the lock, the client releases these grants.

use std::time::Instant;

use crate::ground::claim::Claim;
use crate::ground::error::Result;
use crate::ground::time;
use crate::store::{Granted, Outcome, Refusal};
use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::tally::Tally;
use crate::stores::quorum::{Quorum, bit, bits};

impl Quorum {
    pub(super) fn acquire_by_majority(
        &self,
        claim: &Claim,
        deadline: Instant,
    ) -> Result<Outcome<Granted, Refusal>> {
        let begun = time::now();
        let purpose = Purpose::Vote;
        let own = match claim.count {
            0 => None,
            _ => Some(self.placement(&claim.visitor)),
        };
        let order = self.in_order(self.all(), own.as_slice(), purpose);
        let mut tally = Tally::new(self.nodes.len());
        // If only a minority grants the lock, the reserve is the time to release these grants before the deadline.
        let left = deadline.saturating_duration_since(begun);
        let reserve = self.node_timeout(claim.lease).min(left / 8);
        let (lease, by) = (claim.lease, deadline - reserve);
        let mut fan_out = self.send(order, purpose, lease, by, |node, by| {
            node.node.send_acquire(claim, false, &node.handle, by)
        });
        while !tally.is_decided(self.needed, fan_out.len()) {
            let Some((index, answer)) = fan_out.next() else {
                break;
            };
            tally.note(index, self.record_reply(index, answer));
        }
        let is_first = claim.count == 0;
        if tally.granted() >= self.needed {
            self.note_round_trip(fan_out.age());
            // The remaining nodes get the hold as well, so that it survives the failure of a node.
            fan_out.send_rest();
            // A re-entry waits for all replies. Otherwise a node could execute the re-entry after a later release. A
            // first acquisition does not wait. It only reads the replies that have arrived. The next request on a
            // connection would otherwise have to read the old reply first.
            while let Some((index, answer)) = match is_first {
                true => fan_out.next_arrived(begun),
                false => fan_out.next(),
            } {
                tally.note(index, self.record_reply(index, answer));
            }
            let is_open = !is_first && tally.is_in_doubt();
            let open = tally.open();
            let granted = open.iter().fold(0, |bits, (index, _)| bits | bit(*index));
            let may_have = granted | fan_out.bits();
            let mut placements = self.placements.lock();
            let placement = placements.entry(claim.visitor.clone()).or_default();
            placement.nodes |= may_have;
            placement.note_unknown(&open);
            for request in fan_out.in_flight.iter().chain(&fan_out.arrived) {
                if let Some(not_after) = request.in_flight.not_after() {
                    placement.note(request.index, not_after);
                }
            }
            return Ok(Outcome::Done(Granted {
                leftover: is_open.then(|| claim.in_doubt(0)),
                ..Granted::at(fan_out.first_sent)
            }));
        }
        // `refuse` compares the refusals of all nodes, so this loop reads the remaining replies.
        loop {
            fan_out.is_needed = tally.answered() < self.needed;
            let Some((index, answer)) = fan_out.next() else {
                break;
            };
            tally.note(index, self.record_reply(index, answer));
        }
        fan_out.note_rest(&mut tally.votes);
        let open = tally.open();
        if is_first {
            let leftover = self.undo(claim, &open, deadline);
            return self.refuse(claim, &tally, leftover);
        }
        if let Some(cause) = tally.lacking(self.nodes.len() - self.needed) {
            // A node can execute an unanswered request until its expiry. So the expiry is noted for the later release.
            if let Some(placement) = self.placements.lock().get_mut(&claim.visitor) {
                placement.note_unknown(&open);
            }
            return Ok(Outcome::Gone(cause));
        }
        // Some nodes may have counted this re-entry. The last release frees the lock at any hold count.
        let error = self.no_quorum(&claim.name, &tally);
        Ok(Outcome::unknown(claim.in_doubt(0), error))
    }

    /// Acquires a hold again at nodes that lost it, after a majority of the nodes has renewed the hold.
    pub(super) fn give_back(&self, claim: &Claim, nodes: &[usize], deadline: Instant) {
        let may_have = bits(nodes);
        // A concurrent release must include these nodes, so the nodes are noted before the send.
        match self.placements.lock().get_mut(&claim.visitor) {
            Some(placement) => placement.nodes |= may_have,
            None => return,
        }
        let purpose = Purpose::Vote;
        let (nodes, lease) = (nodes.to_vec(), claim.lease);
        let mut fan_out = self.send(nodes, purpose, lease, deadline, |node, by| {
            node.node.send_acquire(claim, true, &node.handle, by)
        });
        fan_out.is_needed = false;
        let mut tally = Tally::new(self.nodes.len());
        while let Some((index, answer)) = fan_out.next() {
            tally.note(index, self.record_reply(index, answer));
        }
        let open = tally.open();
        let mut placements = self.placements.lock();
        if let Some(placement) = placements.get_mut(&claim.visitor) {
            placement.note_unknown(&open);
            return;
        }
        drop(placements);
        // The hold was released in the meantime. A node that does not answer may keep the key until the lease ends.
        self.undo(claim, &open, deadline);
    }
}
