use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::Cluster;
use super::seeds::{in_order, seeds_of};
use super::slot_map::{Range, Shard, SlotMap};
use super::slots_reply::{SlotsReply, ask_one};
use crate::ground::time;
use crate::stores::redis::server::Node;
use crate::stores::redis::topology::single::Single;
use crate::stores::redis::transport::{
    Address, Announced, CallError, Connector, Hook, name_of, share,
};

const ASKED_EVERY: Duration = Duration::from_millis(100);

/// A queried node gets at least 1/`LEAST_SHARE` of the remaining time.
const LEAST_SHARE: usize = 4;

impl Cluster {
    /// Adds an unknown master to `map`.
    pub(super) fn shard(
        &self,
        map: &mut SlotMap,
        (host, port): (&str, u16),
        announced: Announced,
    ) -> Arc<Shard> {
        let name = name_of(host, port);
        let server_id = announced.server_id.as_ref();
        // After `CLUSTER RESET HARD`, the node at this address has another id, so it becomes a new shard.
        let is_same = |it: &&Arc<Shard>| {
            let known = it.address.announced.as_ref();
            server_id.is_none() || known.and_then(|it| it.server_id.as_ref()) == server_id
        };
        if let Some(shard) = map.shards.get(&*name).filter(is_same) {
            return Arc::clone(shard);
        }
        let address = self.address(host, port, announced);
        let connector: Arc<dyn Connector> = Arc::new(Single::new(address.clone()));
        let myself = Weak::clone(&self.myself);
        let watched = Arc::clone(&address.node);
        let on_move = map.is_sharded.unwrap_or(false).then(|| -> Hook {
            Box::new(move || {
                if let Some(cluster) = myself.upgrade()
                    && let Some(shard) = cluster.map.lock().shards.get(&watched)
                {
                    shard.suspect();
                }
            })
        });
        let shard = Arc::new(Shard {
            node: Node::new(connector, &self.settings, &self.notifier, on_move),
            address,
            is_doubtful: AtomicBool::new(false),
        });
        let name = Arc::clone(&shard.address.node);
        if let Some(former) = map.shards.insert(name, Arc::clone(&shard)) {
            former.node.subscriber.dismiss();
        }
        shard
    }

    fn address(&self, host: &str, port: u16, announced: Announced) -> Address {
        let name = name_of(host, port);
        let seed = self.seeds.iter().find(|seed| *seed.node == *name);
        let elsewhere = || self.template.at_host(host, port);
        let mut address = seed.cloned().unwrap_or_else(elsewhere);
        if seed.is_none() || address.mapper.is_some() {
            address.announced = Some(announced);
        }
        address
    }

    /// Refreshes the map, unless it was queried within the last [`ASKED_EVERY`]. Concurrent callers share one query.
    pub(crate) fn refresh(&self, deadline: Instant) -> Result<(), CallError> {
        let mut map = self.map.lock();
        while map.is_being_refreshed {
            if time::now() >= deadline {
                let reason = "the slots of the cluster are not known yet".into();
                return Err(CallError::NotSent(reason));
            }
            map = self.refreshed.wait(map, Some(deadline));
        }
        if map.asked_at.is_some_and(|at| time::since(at) < ASKED_EVERY) {
            return map.trouble.clone().map_or(Ok(()), Err);
        }
        map.is_being_refreshed = true;
        let is_sharded = map.is_sharded;
        let is_doubtful = |node: &str| map.shards.get(node).is_some_and(|it| it.is_doubtful());
        let sources = in_order(&map.sources, is_doubtful);
        drop(map);
        let told = self.ask(&sources, is_sharded, deadline);
        let mut map = self.map.lock();
        map.is_being_refreshed = false;
        map.asked_at = Some(time::now());
        let is_taken_over = told.map(|(told, is_sharded)| {
            map.is_sharded = Some(is_sharded);
            self.adopt(&mut map, told)
        });
        map.trouble = is_taken_over.as_ref().err().cloned();
        drop(map);
        if let Ok(true) = is_taken_over {
            self.on_takeover.call();
        }
        self.refreshed.notify_all();
        self.resubscribe();
        is_taken_over.map(drop)
    }

    fn ask(
        &self,
        sources: &[Address],
        is_sharded: Option<bool>,
        deadline: Instant,
    ) -> Result<(SlotsReply, bool), CallError> {
        let mut trouble = None;
        for (tried, seed) in sources.iter().enumerate() {
            let rest = (sources.len() - tried).min(LEAST_SHARE);
            let answer = ask_one(seed, is_sharded, share(deadline, rest));
            let mut map = self.map.lock();
            let mut all = map.sources.iter_mut();
            if let Some(noted) = all.find(|it| it.address.node == seed.node) {
                noted.asked_at = Some(time::now());
                noted.has_failed = answer.is_err();
            }
            drop(map);
            match answer {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault.at(&seed.node).keep_in(&mut trouble),
            }
        }
        Err(trouble.unwrap_or_else(|| CallError::NotSent("no node is known".into())))
    }

    /// Returns whether a master was removed.
    fn adopt(&self, map: &mut SlotMap, told: SlotsReply) -> bool {
        let mut ranges: Vec<Range> = told
            .ranges
            .iter()
            .map(|(first, last, at)| Range {
                first: *first,
                last: *last,
                master: self.shard(map, (&at.0, at.1), told.announced(at)),
            })
            .collect();
        ranges.sort_by_key(|range| range.first);
        let is_master =
            |shard: &Arc<Shard>| ranges.iter().any(|range| Arc::ptr_eq(&range.master, shard));
        let gone = map.shards.extract_if(|_, shard| !is_master(shard));
        let gone: Vec<Arc<Shard>> = gone.map(|(_, shard)| shard).collect();
        for shard in &gone {
            shard.node.subscriber.dismiss();
        }
        map.moved.clear();
        for shard in map.shards.values() {
            shard.is_doubtful.store(false, Ordering::Relaxed);
        }
        let masters = told.ranges.iter().map(|(.., at)| at);
        let nodes = masters.chain(&told.replicas);
        let addresses = nodes.map(|at| self.address(&at.0, at.1, told.announced(at)));
        let addresses = self.seeds.iter().cloned().chain(addresses).collect();
        map.sources = seeds_of(addresses, &map.sources);
        map.ranges = ranges;
        !gone.is_empty()
    }
}
