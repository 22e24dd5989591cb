//! The slots of a cluster: the server's own, and redirections to other servers.
//!
//! The caller sets each server's view of the slots, which may be outdated.

use std::collections::{BTreeMap, BTreeSet};

use redlatch_server::{Delivery, Key, Message, slot};

use super::Server;
use crate::reply::{Reply, array};

/// A server of a cluster: host and port.
pub type Address = (String, u16);

/// Slots that are together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
    /// The server that has them.
    pub master: Address,
    /// The servers that replicate it.
    pub replicas: Vec<Address>,
}

/// The cluster as one server sees it.
#[derive(Debug)]
pub(super) struct Cluster {
    me: Address,
    ranges: Vec<SlotRange>,
    /// Slots on their way to other servers.
    leaving: BTreeMap<u16, Address>,
    /// Slots that are being imported.
    coming: BTreeSet<u16>,
}

impl Server {
    /// Sets the server's address in the cluster and the owner of each slot. Subscribers of sharded channels in other
    /// slots are then notified.
    pub fn set_slots(&mut self, me: Address, ranges: Vec<SlotRange>) -> Vec<Delivery> {
        self.cluster = Some(Cluster {
            me,
            ranges,
            leaving: BTreeMap::new(),
            coming: BTreeSet::new(),
        });
        self.inner.set_mode("cluster");
        self.inner.set_leaving(BTreeSet::new());
        let channels = self.inner.shard_channels();
        let gone = channels.filter(|channel| !self.has_slot(slot(channel)));
        let gone: Vec<Vec<u8>> = gone.map(<[u8]>::to_vec).collect();
        let ended = gone
            .iter()
            .flat_map(|channel| self.inner.end_shard_channel(channel));
        ended.collect()
    }

    /// Begins to hand a slot over to another server.
    pub fn begin_to_leave(&mut self, slot: u16, to: Address) {
        if let Some(cluster) = &mut self.cluster {
            cluster.leaving.insert(slot, to);
            let slots = cluster.leaving.keys().copied().collect();
            self.inner.set_leaving(slots);
        }
    }

    /// Begins to take a slot from another server.
    pub fn begin_to_come(&mut self, slot: u16) {
        if let Some(cluster) = &mut self.cluster {
            cluster.coming.insert(slot);
        }
    }

    /// Moves at most this many keys of a slot to another server. Returns how many.
    pub fn hand_keys(&mut self, now: i64, wanted: u16, most: usize, to: &mut Server) -> usize {
        let now = now.div_euclid(1000);
        // An expired key does not exist, and changes nothing on the other server.
        let all = self.inner.all_keys();
        let keys = all.iter().map(|(key, _)| key);
        let keys = keys.filter(|key| slot(&key.1) == wanted && all.get(key, now).is_some());
        let keys = keys.take(most);
        let keys: Vec<Key> = keys.cloned().collect();
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for key in &keys {
            let entry = self.keys().get(key, now).cloned();
            come.push(to.keys().put(key.clone(), entry, now));
            gone.push(self.keys().put(key.clone(), None, now));
        }
        if !keys.is_empty() {
            self.replication.record(gone);
            to.replication.record(come);
            self.is_replication_changed = true;
            to.is_replication_changed = true;
        }
        keys.len()
    }

    /// The messages, channel and text, for the other servers of the cluster.
    pub fn take_broadcasts(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.broadcasts)
    }

    /// Delivers a message that another server of the cluster has published.
    pub fn hear(&mut self, channel: &[u8], text: &[u8]) -> Vec<Delivery> {
        self.inner.publish(&Message {
            channel: channel.to_vec(),
            text: text.to_vec(),
            is_sharded: false,
        })
    }

    fn has_slot(&self, slot: u16) -> bool {
        let Some(cluster) = &self.cluster else {
            return true;
        };
        cluster
            .range_of(slot)
            .is_some_and(|range| range.master == cluster.me)
    }

    /// The refusal of a request for keys, or sharded channels, that are not here.
    pub(super) fn elsewhere(
        &self,
        now: i64,
        keys: &[&[u8]],
        is_asking: bool,
        are_channels: bool,
    ) -> Option<Reply> {
        let cluster = self.cluster.as_ref()?;
        let wanted = slot(keys.first()?);
        let error = |text: String| Some(Reply::Error(text));
        if keys.iter().any(|key| slot(key) != wanted) {
            return error("CROSSSLOT Keys in request don't hash to the same slot".into());
        }
        let Some(range) = cluster.range_of(wanted) else {
            return error("CLUSTERDOWN Hash slot not served".into());
        };
        let now = now.div_euclid(1000);
        let is_here = |key: &&&[u8]| {
            are_channels || self.inner.all_keys().get(&(0, key.to_vec()), now).is_some()
        };
        let here = keys.iter().filter(is_here).count();
        let try_again = "TRYAGAIN Multiple keys request during rehashing of slot";
        if range.master == cluster.me {
            return match cluster.leaving.get(&wanted) {
                Some((host, port)) if here == 0 => error(format!("ASK {wanted} {host}:{port}")),
                Some(_) if here < keys.len() => error(try_again.into()),
                _ => None,
            };
        }
        if cluster.coming.contains(&wanted) && is_asking {
            return match keys.len() > 1 && here < keys.len() {
                true => error(try_again.into()),
                false => None,
            };
        }
        let (host, port) = &range.master;
        error(format!("MOVED {wanted} {host}:{port}"))
    }

    /// CLUSTER SLOTS and CLUSTER INFO.
    pub(super) fn tell_cluster(&self, word: &[u8]) -> Reply {
        let Some(cluster) = &self.cluster else {
            return Reply::Error("ERR This instance has cluster support disabled".into());
        };
        match word.to_ascii_uppercase().as_slice() {
            b"SLOTS" => Reply::Array(cluster.ranges.iter().map(SlotRange::told).collect()),
            b"INFO" => Reply::text("cluster_state:ok\r\n"),
            _ => Reply::Error("ERR unknown subcommand".into()),
        }
    }
}

impl Cluster {
    fn range_of(&self, slot: u16) -> Option<&SlotRange> {
        let mut ranges = self.ranges.iter();
        ranges.find(|range| (range.first..=range.last).contains(&slot))
    }
}

impl SlotRange {
    fn told(&self) -> Reply {
        let node = |(host, port): &Address| {
            let id = format!("{:0>40}", format!("{port:x}"));
            let more = Reply::Array(Vec::new());
            array![host.as_str(), i64::from(*port), id.as_str(), more]
        };
        let mut told = vec![Reply::Int(self.first.into()), Reply::Int(self.last.into())];
        told.push(node(&self.master));
        told.extend(self.replicas.iter().map(node));
        Reply::Array(told)
    }
}
