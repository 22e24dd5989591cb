//! Redis Cluster.
//!
//! Any node can be queried for the slot map. The map is queried before the first request, and after a redirection or a
//! failed request. Only requests for the affected master wait for the new map. Unexecuted requests are retried.
//!
//! The cluster client of the `redis` crate (1.8) is not used, for three reasons. Its calls have retries, but no
//! deadline. It repeats requests whose connection broke before the reply. Two threads cannot use it at once.

mod channels;
mod redirection;
mod refresh;
mod seeds;
mod slot_map;
mod slots_reply;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::ground::backoff::Backoff;
use crate::ground::notify::Notifier;
use crate::ground::sync::{Condvar, Mutex};
use crate::stores::redis::Settings;
use crate::stores::redis::keys;
use crate::stores::redis::server::Node;
use crate::stores::redis::transport::{Address, CallError, Connection, Hooks, last_try, share};
use channels::Channels;
pub(crate) use redirection::Redirection;
use seeds::seeds_of;
pub(crate) use slot_map::Shard;
use slot_map::SlotMap;

/// After more than this many redirections in a row, a request pauses, because the nodes disagree on the slot map.
const REDIRECTIONS: u32 = 5;

pub(crate) struct Cluster {
    seeds: Vec<Address>,
    /// The settings for nodes that are not in `seeds`.
    template: Address,
    pub(crate) whole_name: Arc<str>,
    settings: Settings,
    notifier: Arc<Notifier>,
    map: Mutex<SlotMap>,
    refreshed: Condvar,
    channels: Mutex<Channels>,
    /// Called when a refresh removed a master, or `MOVED` named an unknown server.
    pub(crate) on_takeover: Hooks,
    myself: Weak<Cluster>,
}

impl Cluster {
    pub(crate) fn new(
        template: Address,
        seeds: Vec<Address>,
        settings: &Settings,
        notifier: &Arc<Notifier>,
    ) -> Arc<Cluster> {
        let names: Vec<&str> = seeds.iter().map(|seed| &*seed.node).collect();
        let whole_name = format!("the cluster of {}", names.join(", ")).into();
        let map = SlotMap {
            sources: seeds_of(seeds.clone(), &[]),
            is_sharded: settings.sharded,
            ..SlotMap::default()
        };
        Arc::new_cyclic(|myself| Cluster {
            whole_name,
            seeds,
            template,
            settings: settings.clone(),
            notifier: Arc::clone(notifier),
            map: Mutex::new(map),
            refreshed: Condvar::default(),
            channels: Mutex::default(),
            on_takeover: Hooks::default(),
            myself: Weak::clone(myself),
        })
    }

    pub(crate) fn with<T>(
        &self,
        lock: &str,
        deadline: Instant,
        mut talk: impl FnMut(&Node, &mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let slot = keys::slot(lock);
        let mut backoff = Backoff::default();
        let last_try = last_try(deadline);
        let mut redirections = 0;
        let mut asked: Option<Arc<Shard>> = None;
        loop {
            let is_asking = asked.is_some();
            let shard = match asked.take() {
                Some(shard) => Ok(shard),
                None => self.master(slot, deadline),
            };
            let fault = match shard {
                Ok(shard) => {
                    let talked = shard.node.pool.with(deadline, |connection| {
                        connection.is_asking = is_asking;
                        let talked = talk(&shard.node, connection);
                        connection.is_asking = false;
                        talked
                    });
                    let fault = match talked {
                        Err(fault) => fault,
                        talked => return talked,
                    };
                    if let Some(redirection) = Redirection::of(&fault) {
                        let target = self.follow(&redirection, &shard);
                        redirections += 1;
                        if redirections <= REDIRECTIONS {
                            asked = redirection.is_ask.then_some(target);
                            continue;
                        }
                        redirections = 0;
                        let reason = fault.reason();
                        CallError::Server(format!("TRYAGAIN too many redirections: {reason}"))
                    } else {
                        let is_well =
                            matches!(fault, CallError::Server(_) | CallError::Exhausted(_));
                        if !is_well || fault.is_passing() {
                            shard.suspect();
                        }
                        fault
                    }
                }
                Err(fault) => fault,
            };
            if !fault.is_passing() || !backoff.pause(last_try) {
                return Err(fault);
            }
        }
    }

    pub(crate) fn each<T>(
        &self,
        deadline: Instant,
        talk: &mut impl FnMut(&Node, &mut Connection, Instant) -> Result<T, CallError>,
    ) -> Vec<(Arc<str>, Result<T, CallError>)> {
        let refreshed = self.refresh(share(deadline, 2));
        let mut shards = self.shards();
        // If the refresh fails, the known masters are used, because idle connections to them may work.
        if let Err(fault) = refreshed
            && shards.is_empty()
        {
            return vec![(self.whole_name.clone(), Err(fault))];
        }
        shards.sort_by(|a, b| a.address.node.cmp(&b.address.node));
        let count = shards.len();
        let told = shards.iter().enumerate().map(|(index, shard)| {
            let deadline = share(deadline, count - index);
            let name = Arc::clone(&shard.address.node);
            let (node, pool) = (&shard.node, &shard.node.pool);
            let told = pool.with(deadline, |connection| talk(node, connection, deadline));
            (name, told)
        });
        told.collect()
    }

    /// If `talk` fails and a retry may succeed, refreshes the map and runs `talk` again, until `deadline`.
    pub(crate) fn at_next<T>(
        &self,
        done: &[Arc<str>],
        begins: bool,
        deadline: Instant,
        talk: &mut impl FnMut(&Node, &mut Connection, &Arc<str>) -> Result<T, CallError>,
    ) -> Option<(Arc<str>, Result<T, CallError>)> {
        let mut backoff = Backoff::default();
        let mut is_stale = begins;
        loop {
            if is_stale && let Err(fault) = self.refresh(deadline) {
                return Some((self.whole_name.clone(), Err(fault)));
            }
            let shards = self.shards();
            let left = shards.iter().filter(|it| !done.contains(&it.address.node));
            let shard = left.min_by(|a, b| a.address.node.cmp(&b.address.node))?;
            let (name, node, pool) = (&shard.address.node, &shard.node, &shard.node.pool);
            let told = pool.with(deadline, |connection| talk(node, connection, name));
            let passes = matches!(&told, Err(fault) if fault.is_passing());
            if !passes || !backoff.pause(deadline) {
                return Some((Arc::clone(name), told));
            }
            shard.suspect();
            is_stale = true;
        }
    }

    pub(crate) fn shards(&self) -> Vec<Arc<Shard>> {
        self.map.lock().shards.values().cloned().collect()
    }

    pub(crate) fn replicas(&self) -> Vec<Address> {
        let map = self.map.lock();
        let is_other = |it: &&Address| it.announced.is_some() && !map.shards.contains_key(&it.node);
        let all = map.sources.iter().map(|seed| &seed.address);
        all.filter(is_other).cloned().collect()
    }

    pub(crate) fn name(&self, lock: &str) -> Arc<str> {
        match self.present(keys::slot(lock)) {
            Some(shard) => Arc::clone(&shard.address.node),
            None => self.whole_name.clone(),
        }
    }

    pub(crate) fn close(&self) {
        self.channels.lock().is_closed = true;
        let shards = self.shards();
        // Before the first wait, all threads are asked to end, so that they end concurrently.
        for shard in &shards {
            shard.node.subscriber.dismiss();
        }
        for shard in &shards {
            shard.node.close();
        }
    }
}
