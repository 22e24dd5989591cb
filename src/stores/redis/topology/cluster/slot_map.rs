//! The slot map: the master of each slot.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::Cluster;
use super::seeds::Seed;
use crate::stores::redis::server::Node;
use crate::stores::redis::transport::{Address, CallError};

#[derive(Default)]
pub(super) struct SlotMap {
    /// Sorted, without overlaps.
    pub(super) ranges: Vec<Range>,
    /// The new masters of single slots, from the redirections since the last refresh.
    pub(super) moved: HashMap<u16, Arc<Shard>>,
    pub(super) shards: HashMap<Arc<str>, Arc<Shard>>,
    /// The nodes that are queried for the next map: the seeds, and the nodes of this map.
    pub(super) sources: Vec<Seed>,
    /// Whether unlock messages use `SPUBLISH`; `None` while unknown.
    pub(super) is_sharded: Option<bool>,
    pub(super) is_being_refreshed: bool,
    pub(super) asked_at: Option<Instant>,
    pub(super) trouble: Option<CallError>,
}

pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: Arc<Shard>,
}

pub(crate) struct Shard {
    pub(crate) node: Node,
    pub(crate) address: Address,
    /// Whether a request to this master failed or was redirected since the last refresh.
    pub(super) is_doubtful: AtomicBool,
}

impl Shard {
    pub(crate) fn suspect(&self) {
        self.is_doubtful.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Relaxed)
    }
}

impl Cluster {
    pub(super) fn master(&self, slot: u16, deadline: Instant) -> Result<Arc<Shard>, CallError> {
        let known = self.present(slot);
        if let Some(shard) = &known
            && !shard.is_doubtful()
        {
            return Ok(Arc::clone(shard));
        }
        let refreshed = self.refresh(deadline);
        if let Some(shard) = self.present(slot).or(known) {
            return Ok(shard);
        }
        refreshed?;
        // No master of this slot is known. Any master replies with a redirection or an error.
        self.shards().into_iter().next().ok_or_else(|| {
            CallError::NotSent(format!("no node of the cluster serves slot {slot}").into())
        })
    }

    pub(crate) fn present(&self, slot: u16) -> Option<Arc<Shard>> {
        let map = self.map.lock();
        if let Some(shard) = map.moved.get(&slot) {
            return Some(Arc::clone(shard));
        }
        let index = map.ranges.partition_point(|range| range.last < slot);
        let range = map.ranges.get(index).filter(|range| range.first <= slot);
        range.map(|range| Arc::clone(&range.master))
    }
}
