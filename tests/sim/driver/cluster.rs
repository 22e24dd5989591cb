//! The slots of a cluster: those of this server, and the way to the others.
//!
//! Whoever drives the servers tells each its view of the slots, which may be an old one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Delivery, Server};
use crate::keyspace::Key;
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
    /// Slots on their way to this one.
    coming: BTreeSet<u16>,
    is_down: bool,
}

/// The slot of a key: CRC16 (XMODEM) of the key, or of the text in its first braces, mod 16384.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|sign| *sign == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|sign| *sign == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    crc % 16384
}

impl Server {
    /// Tells it who it is in a cluster and who has which slots. Those who listen to a sharded channel that is elsewhere
    /// then are told so.
    pub fn set_slots(&mut self, me: Address, ranges: Vec<SlotRange>) -> Vec<Delivery> {
        let before = self.cluster.take();
        let is_down = before.is_some_and(|before| before.is_down);
        self.cluster = Some(Cluster {
            me,
            ranges,
            leaving: BTreeMap::new(),
            coming: BTreeSet::new(),
            is_down,
        });
        let is_elsewhere = |channel: &&Vec<u8>| !self.has_slot(slot(channel));
        let gone: Vec<Vec<u8>> = self.shard_channels.keys().filter(is_elsewhere).cloned().collect();
        for channel in gone {
            let listeners = self.shard_channels.remove(&channel).unwrap_or_default();
            for connection in listeners {
                let rest = self.shard_channels.values();
                let rest = rest.filter(|it| it.contains(&connection)).count() as i64;
                self.answer(connection, &array!["sunsubscribe", channel.as_slice(), rest]);
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Begins to hand a slot over to another server.
    pub fn begin_to_leave(&mut self, slot: u16, to: Address) {
        if let Some(cluster) = &mut self.cluster {
            cluster.leaving.insert(slot, to);
        }
    }

    /// Begins to take a slot from another server.
    pub fn begin_to_come(&mut self, slot: u16) {
        if let Some(cluster) = &mut self.cluster {
            cluster.coming.insert(slot);
        }
    }

    /// Hands the keys of a slot to another server, at most so many of them. Returns how many.
    pub fn hand_keys(&mut self, now: i64, wanted: u16, most: usize, to: &mut Server) -> usize {
        let now = now.div_euclid(1000);
        let keys = self.keys.iter().map(|(key, _)| key);
        let keys = keys.filter(|(_, name)| slot(name) == wanted).take(most);
        let keys: Vec<Key> = keys.cloned().collect();
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for key in &keys {
            come.push(to.keys.put(key.clone(), self.keys.get(key, now).cloned(), now));
            gone.push(self.keys.put(key.clone(), None, now));
        }
        self.replication.record(gone);
        to.replication.record(come);
        keys.len()
    }

    /// Sets whether it takes the cluster for down.
    pub fn set_cluster_down(&mut self, is_down: bool) {
        if let Some(cluster) = &mut self.cluster {
            cluster.is_down = is_down;
        }
    }

    /// The messages, channel and text, that the other servers of the cluster are to hear.
    pub fn take_broadcasts(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.broadcasts)
    }

    /// Hears a message that another server of the cluster tells.
    pub fn hear(&mut self, channel: &[u8], text: &[u8]) -> Vec<Delivery> {
        self.tell_listeners(channel, text, false);
        std::mem::take(&mut self.out)
    }

    fn has_slot(&self, slot: u16) -> bool {
        let Some(cluster) = &self.cluster else {
            return true;
        };
        cluster.range_of(slot).is_some_and(|range| range.master == cluster.me)
    }

    /// Whether this slot is on its way to another server.
    pub(super) fn is_leaving(&self, key: &[u8]) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.leaving.contains_key(&slot(key)))
    }

    /// The refusal of a request for keys, or sharded channels, that are not here.
    pub(super) fn elsewhere(&self, now: i64, keys: &[&[u8]], is_asking: bool, are_channels: bool) -> Option<Reply> {
        let cluster = self.cluster.as_ref()?;
        let wanted = slot(keys.first()?);
        let error = |text: String| Some(Reply::Error(text));
        if keys.iter().any(|key| slot(key) != wanted) {
            return error("CROSSSLOT Keys in request don't hash to the same slot".into());
        }
        let Some(range) = cluster.range_of(wanted) else {
            return error("CLUSTERDOWN Hash slot not served".into());
        };
        if cluster.is_down {
            return error("CLUSTERDOWN The cluster is down".into());
        }
        let now = now.div_euclid(1000);
        let is_here = |key: &&&[u8]| are_channels || self.keys.get(&(0, key.to_vec()), now).is_some();
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
            b"INFO" => {
                let state = if cluster.is_down { "fail" } else { "ok" };
                Reply::text(format!("cluster_state:{state}\r\n"))
            }
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
