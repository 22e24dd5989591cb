//! The claims of one call that renews in a cluster, sorted by node and slot.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::ground::claim::Claim;
use crate::ground::clock::BootInstant;
use crate::store::Renewal;
use crate::stores::redis::renewals::RENEWED_AT_ONCE;
use crate::stores::redis::topology::cluster::Shard;
use crate::stores::redis::transport::Connection;
use crate::stores::redis::wait_replicas::Replication;

/// A claim that has no outcome yet.
pub(super) struct Open {
    pub(super) index: usize,
    /// The node to ask, instead of the one that has the slot.
    pub(super) asked: Option<Arc<Shard>>,
    /// Whether the node does not know the script.
    pub(super) needs_text: bool,
    /// Whether it has to be asked for alone: of the keys of a slot on the move some are here and some are there.
    pub(super) is_single: bool,
}

impl Open {
    pub(super) fn new(index: usize) -> Open {
        Open {
            index,
            asked: None,
            needs_text: false,
            is_single: false,
        }
    }
}

/// The requests on one connection.
pub(super) struct Batch {
    pub(super) shard: Arc<Shard>,
    pub(super) is_asking: bool,
    pub(super) needs_text: bool,
    pub(super) parts: Vec<Part>,
    /// The last part of each slot.
    pub(super) last: HashMap<u16, usize>,
}

/// The claims that one call of the script renews, and where they stand among all.
#[derive(Default)]
pub(super) struct Part {
    pub(super) indices: Vec<usize>,
    pub(super) claims: Vec<Claim>,
}

/// A batch on its way.
pub(super) struct SentBatch {
    pub(super) batch: Batch,
    pub(super) connection: Connection,
    pub(super) sent: BootInstant,
    pub(super) not_after: i64,
    pub(super) expected: VecDeque<Expected>,
    /// The outcomes by the replies, to be believed when the replicas have it, too.
    pub(super) said: Vec<(usize, Renewal)>,
}

pub(super) enum Expected {
    /// The reply to ASKING.
    Nothing,
    /// The reply for this part, with this number.
    Part(usize, i64),
    Replicas(Replication),
}

impl SentBatch {
    /// The replicas do not have it, so it does not count.
    pub(super) fn discount(&mut self, flaw: &str) {
        for (_, outcome) in &mut self.said {
            if *outcome == Renewal::Renewed {
                *outcome = Renewal::Unknown(flaw.to_owned());
            }
        }
    }
}

impl Batch {
    pub(super) fn add(&mut self, slot: u16, index: usize, is_single: bool, claim: &Claim) {
        let count = self.parts.len();
        if is_single {
            self.parts.push(Part {
                indices: vec![index],
                claims: vec![claim.clone()],
            });
            return;
        }
        let at = self.last.entry(slot).or_insert(count);
        if self
            .parts
            .get(*at)
            .is_none_or(|part| part.claims.len() >= RENEWED_AT_ONCE)
        {
            *at = count;
            self.parts.push(Part::default());
        }
        if let Some(part) = self.parts.get_mut(*at) {
            part.indices.push(index);
            part.claims.push(claim.clone());
        }
    }
}
