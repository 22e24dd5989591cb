//! A batch: the claims that are renewed at one server in one round, with one or more calls of the script.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use crate::ground::claim::{Claim, ID_LENGTH};
use crate::ground::clock::BootInstant;
use crate::stores::redis::keys;
use crate::stores::redis::kinds::Layout;
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::{Shard, Topology};
use crate::stores::redis::transport::{Borrowed, CallError};
use crate::stores::redis::wait_replicas::Replication;

/// One call renews at most this many holds or permits with ids, so that the server is busy for less than 1 ms. A claim
/// with more permits gets a call of its own.
const RENEWED_AT_ONCE: usize = 100;

fn permits_of(claim: &Claim) -> usize {
    match claim.kind.rules().has_ids {
        true => (claim.visitor.as_str().len() / ID_LENGTH).max(1),
        false => 1,
    }
}

#[derive(Clone, Default)]
pub(super) struct OpenClaim {
    /// The index of the claim in `Renewals::claims`.
    pub(super) index: usize,
    /// After the redirection `ASK`: the node that receives the claim in place of the slot's master.
    pub(super) asked: Option<Arc<Shard>>,
    /// Whether the claim needs a separate call, because a batch with this claim has failed.
    pub(super) is_single: bool,
}

pub(super) enum Server<'a> {
    One(&'a Node),
    Shard(Arc<Shard>),
}

impl Deref for Server<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        match self {
            Server::One(node) => node,
            Server::Shard(shard) => &shard.node,
        }
    }
}

impl<'a> Server<'a> {
    /// `None` if no master is known for the slot of the lock.
    pub(super) fn of(topology: &'a Topology, lock: &str) -> Option<Server<'a>> {
        match topology {
            Topology::One(node) => Some(Server::One(node)),
            Topology::Cluster(cluster) => cluster.present(keys::slot(lock)).map(Server::Shard),
        }
    }

    pub(super) fn shard(&self) -> Option<&Arc<Shard>> {
        match self {
            Server::One(_) => None,
            Server::Shard(shard) => Some(shard),
        }
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.shard().is_some_and(|shard| shard.is_doubtful())
    }

    pub(super) fn suspect(&self) {
        if let Some(shard) = self.shard() {
            shard.suspect();
        }
    }
}

pub(super) struct Batch<'a> {
    pub(super) server: Server<'a>,
    pub(super) is_asking: bool,
    /// The indices of the claims in each call. In a Cluster, all claims of a call have the same slot.
    pub(super) parts: Vec<Vec<usize>>,
    /// For each slot and script, the index in `parts` of the last call, and how many holds or permits this call renews.
    last: BTreeMap<(u16, usize), (usize, usize)>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(server: Server<'a>, is_asking: bool) -> Batch<'a> {
        Batch {
            server,
            is_asking,
            parts: Vec::new(),
            last: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, open: &OpenClaim, claim: &Claim) {
        let slot = self.server.shard().map_or(0, |_| keys::slot(&claim.name));
        let is_single = open.is_single || self.server.pool.dialect().is_some();
        let at = (slot, Layout::of(claim.kind).renew.id());
        let permits = permits_of(claim);
        let has_room = |(_, renewed): &&mut (usize, usize)| *renewed + permits <= RENEWED_AT_ONCE;
        let last = self.last.get_mut(&at).filter(|_| !is_single);
        if let Some((last, renewed)) = last.filter(has_room)
            && let Some(part) = self.parts.get_mut(*last)
        {
            *renewed += permits;
            part.push(open.index);
            return;
        }
        if !is_single {
            self.last.insert(at, (self.parts.len(), permits));
        }
        self.parts.push(vec![open.index]);
    }

    pub(super) fn part(&self, part: usize) -> &[usize] {
        self.parts.get(part).map_or(&[], Vec::as_slice)
    }

    pub(super) fn asked(&self) -> Option<Arc<Shard>> {
        self.server.shard().filter(|_| self.is_asking).cloned()
    }
}

pub(super) struct SentBatch<'a> {
    pub(super) batch: Batch<'a>,
    pub(super) connection: Borrowed,
    pub(super) sent: BootInstant,
    pub(super) expected: VecDeque<Expected>,
    /// The error reply of a server that is no longer the master. The connection is then closed.
    pub(super) fault: Option<CallError>,
}

pub(super) enum Expected {
    /// The reply to ASKING.
    Nothing,
    Part {
        part: usize,
        number: i64,
        by_text: bool,
    },
    Replicas(Replication),
}
