//! A Redis Cluster: every name has a slot, and every slot a master, which may be another one tomorrow.
//!
//! The map of the slots is read from any node, when the first request needs it and whenever a request finds it wrong: it
//! was redirected, or its node cannot be reached. Only requests for the node that is in doubt wait for a new map; the
//! others go on with what is known. A request that was not executed is tried again until its time is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::Value;

use crate::ground::backoff::Backoff;
use crate::ground::events;
use crate::ground::notify::Notifier;
use crate::ground::sync::{Condvar, Mutex};
use crate::stores::permits::PermitSource;
use crate::stores::redis::keys;
use crate::stores::redis::server::Node;
use crate::stores::redis::subscriber::{Interest, Shards};
use crate::stores::redis::topology::connector::{Connector, Hook, Hooks, share};
use crate::stores::redis::transport::connection::{Address, CallError, Connection, name_of};
use crate::stores::redis::{Settings, text_of};

/// The map is asked for at most this often.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// So many redirections in a row are followed at once; then it is waited for the nodes to agree.
const REDIRECTIONS: u32 = 5;

/// If the map was told less than this ago and is in doubt again, somebody else may know better.
const SOON: Duration = Duration::from_secs(5);

/// No node gets less than this part of the time that is left, however many are to be asked behind it.
const LEAST_SHARE: usize = 4;

pub(crate) struct Cluster {
    shared: Arc<Shared>,
}

struct Shared {
    seeds: Vec<Address>,
    /// How nodes are talked to that are no seeds.
    template: Address,
    whole_name: Arc<str>,
    settings: Settings,
    notifier: Arc<Notifier>,
    permit_source: PermitSource,
    map: Mutex<Map>,
    refreshed: Condvar,
    /// The channels that somebody waits on.
    channels: Mutex<Channels>,
    /// Called when another server has become a master, or one is none any more.
    on_takeover: Hooks,
    myself: Weak<Shared>,
}

#[derive(Default)]
struct Map {
    /// In order, and without overlaps.
    ranges: Vec<Range>,
    /// What a redirection has said since.
    moved: HashMap<u16, Arc<Shard>>,
    /// All masters, by name.
    shards: HashMap<Arc<str>, Arc<Shard>>,
    /// Former ones, whose threads have still to end.
    retired: Vec<Arc<Shard>>,
    /// Whom to ask for the next map: the seeds, and the nodes of this one.
    sources: Vec<Seed>,
    told_at: Option<Instant>,
    /// Whether unlock messages are sharded, once that is known.
    is_sharded: Option<bool>,
    is_being_refreshed: bool,
    version: u64,
    asked_at: Option<Instant>,
    /// Why there is no map.
    trouble: Option<CallError>,
}

struct Range {
    first: u16,
    last: u16,
    master: Arc<Shard>,
}

/// One master.
pub(crate) struct Shard {
    pub(crate) node: Node,
    pub(crate) address: Address,
    /// Whether something has gone wrong with it since the map was read.
    is_doubtful: AtomicBool,
}

/// A node that can be asked for the map.
struct Seed {
    address: Address,
    asked_at: Option<Instant>,
    /// Whether it failed when it was asked last.
    has_failed: bool,
}

/// A map as a node tells it.
#[derive(Debug, PartialEq, Eq)]
struct SlotMap {
    /// The first slot, the last one and the master of it.
    ranges: Vec<(u16, u16, (String, u16))>,
    replicas: Vec<(String, u16)>,
}

#[derive(Default)]
struct Channels {
    heard: HashMap<Arc<str>, Heard>,
    is_closed: bool,
}

/// One channel with waiters, and where its messages are heard.
struct Heard {
    waiters: usize,
    at: Option<(Arc<Shard>, Interest)>,
}

/// The wish of one waiter to hear the messages of one channel, wherever its slot goes.
pub(crate) struct ChannelInterest {
    shared: Arc<Shared>,
    channel: Arc<str>,
}

impl Drop for ChannelInterest {
    fn drop(&mut self) {
        let mut channels = self.shared.channels.lock();
        if let Some(heard) = channels.heard.get_mut(&self.channel) {
            heard.waiters -= 1;
            if heard.waiters == 0 {
                channels.heard.remove(&self.channel);
            }
        }
    }
}

/// Where a server sends a request that it does not serve.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Redirection {
    /// Only this one request, because the slot is on the move.
    pub(crate) is_ask: bool,
    slot: u16,
    /// Empty for the host of the one that says so.
    host: String,
    port: u16,
}

impl Redirection {
    pub(crate) fn of(fault: &CallError) -> Option<Redirection> {
        let CallError::Server(text) = fault else {
            return None;
        };
        let mut words = text.split(' ');
        let is_ask = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.parse().ok()?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        Some(Redirection {
            is_ask,
            slot,
            host: known_host(host.trim_matches(['[', ']'])).to_owned(),
            port: port.parse().ok()?,
        })
    }
}

impl Cluster {
    pub(crate) fn new(
        template: Address,
        seeds: Vec<Address>,
        settings: &Settings,
        notifier: &Arc<Notifier>,
        permit_source: PermitSource,
    ) -> Cluster {
        let names: Vec<&str> = seeds.iter().map(|seed| &*seed.node).collect();
        let whole_name = format!("the cluster of {}", names.join(", ")).into();
        let sources = seeds.iter().cloned().map(Seed::new).collect();
        let map = Map {
            sources,
            is_sharded: settings.sharded,
            ..Map::default()
        };
        Cluster {
            shared: Arc::new_cyclic(|myself| Shared {
                whole_name,
                seeds,
                template,
                settings: settings.clone(),
                notifier: Arc::clone(notifier),
                permit_source,
                map: Mutex::new(map),
                refreshed: Condvar::default(),
                channels: Mutex::default(),
                on_takeover: Hooks::default(),
                myself: Weak::clone(myself),
            }),
        }
    }

    /// Runs `talk` on a connection to the master of the slot of `lock`, wherever that is.
    pub(crate) fn with<T>(
        &self,
        lock: &str,
        deadline: Instant,
        mut talk: impl FnMut(&Node, &mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let slot = keys::slot(lock);
        let mut backoff = Backoff::default();
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
                        fault.of_a_redirection()
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
            if !fault.is_passing() || !backoff.pause(deadline, &self.shared.notifier) {
                return Err(fault);
            }
        }
    }

    /// Runs `talk` once for every master.
    pub(crate) fn each<T>(
        &self,
        deadline: Instant,
        talk: &mut impl FnMut(&Node, &mut Connection, Instant) -> Result<T, CallError>,
    ) -> Vec<(Arc<str>, Result<T, CallError>)> {
        if let Err(fault) = self.shared.refresh(deadline) {
            return vec![(self.whole_name(), Err(fault))];
        }
        let mut shards: Vec<Arc<Shard>> = self.shared.map.lock().shards.values().cloned().collect();
        shards.sort_by(|a, b| a.address.node.cmp(&b.address.node));
        let count = shards.len();
        let told = shards.iter().enumerate().map(|(index, shard)| {
            let deadline = share(deadline, count - index);
            let name = Arc::clone(&shard.address.node);
            let node = &shard.node;
            (
                name,
                node.pool
                    .with(deadline, |connection| talk(node, connection, deadline)),
            )
        });
        told.collect()
    }

    /// The master of a slot. Asks for a new map first if that one is in doubt.
    fn master(&self, slot: u16, deadline: Instant) -> Result<Arc<Shard>, CallError> {
        let known = self.shared.present(slot);
        if let Some(shard) = &known
            && !shard.is_doubtful.load(Ordering::Relaxed)
        {
            return Ok(Arc::clone(shard));
        }
        let refreshed = self.shared.refresh(deadline);
        match (self.shared.present(slot).or(known), refreshed) {
            (Some(shard), _) => Ok(shard),
            (None, Err(fault)) => Err(fault),
            // The server knows best how to say it.
            (None, Ok(())) => self.shared.any().ok_or_else(|| {
                CallError::NotSent(format!("no node of the cluster serves slot {slot}").into())
            }),
        }
    }

    /// The master of a slot as far as known, without asking.
    pub(crate) fn present(&self, slot: u16) -> Option<Arc<Shard>> {
        self.shared.present(slot)
    }

    /// Asks for a new map, if that was not done a moment ago.
    pub(crate) fn refresh(&self, deadline: Instant) -> Result<(), CallError> {
        self.shared.refresh(deadline)
    }

    /// Calls `hook` whenever another server has become a master, or one is none any more.
    pub(crate) fn on_takeover(&self, hook: Hook) {
        self.shared.on_takeover.add(hook);
    }

    /// Notes what a redirection of `from` says, and returns the node it points to.
    pub(crate) fn follow(&self, redirection: &Redirection, from: &Shard) -> Arc<Shard> {
        let host = match &redirection.host {
            host if host.is_empty() => from.address.host().unwrap_or("localhost"),
            host => host,
        };
        let mut map = self.shared.map.lock();
        let is_new = !map.shards.contains_key(&*name_of(host, redirection.port));
        let target = self.shared.shard(&mut map, host, redirection.port);
        if !redirection.is_ask {
            map.moved.insert(redirection.slot, Arc::clone(&target));
            drop(map);
            if is_new {
                // A slot on the move goes to a master that is known.
                self.shared.on_takeover.call();
            }
            // It may have lost more than this slot.
            from.suspect();
            events::slot_moved(&redirection.slot, &target.address.node);
            self.shared.resubscribe();
        }
        target
    }

    pub(crate) fn name(&self, lock: &str) -> Arc<str> {
        match self.shared.present(keys::slot(lock)) {
            Some(shard) => Arc::clone(&shard.address.node),
            None => self.whole_name(),
        }
    }

    pub(crate) fn whole_name(&self) -> Arc<str> {
        Arc::clone(&self.shared.whole_name)
    }

    pub(crate) fn hears(&self, channel: &str) -> bool {
        let channels = self.shared.channels.lock();
        match channels.heard.get(channel) {
            Some(Heard {
                at: Some((shard, _)),
                ..
            }) => shard.node.subscriber.hears(channel),
            _ => false,
        }
    }

    pub(crate) fn listen(&self, channel: &Arc<str>) -> (ChannelInterest, bool) {
        let shared = &self.shared;
        let is_live = {
            let mut channels = shared.channels.lock();
            let is_closed = channels.is_closed;
            let heard = channels.heard.entry(Arc::clone(channel)).or_insert(Heard {
                waiters: 0,
                at: None,
            });
            heard.waiters += 1;
            if !is_closed {
                shared.hear(channel, heard);
            }
            match &heard.at {
                Some((shard, _)) => shard.node.subscriber.hears(channel),
                None => false,
            }
        };
        let listening = ChannelInterest {
            shared: Arc::clone(shared),
            channel: Arc::clone(channel),
        };
        (listening, is_live)
    }

    pub(crate) fn close(&self) {
        self.shared.channels.lock().is_closed = true;
        let shards: Vec<Arc<Shard>> = {
            let mut map = self.shared.map.lock();
            let retired = std::mem::take(&mut map.retired);
            map.shards.values().cloned().chain(retired).collect()
        };
        // All are told first, so that they end at the same time.
        for shard in &shards {
            shard.node.subscriber.dismiss();
        }
        for shard in &shards {
            shard.node.close();
        }
        self.shared.permit_source.close();
    }
}

impl Shard {
    pub(crate) fn suspect(&self) {
        self.is_doubtful.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// The master of a slot as far as known.
    fn present(&self, slot: u16) -> Option<Arc<Shard>> {
        let map = self.map.lock();
        if let Some(shard) = map.moved.get(&slot) {
            return Some(Arc::clone(shard));
        }
        let index = map.ranges.partition_point(|range| range.last < slot);
        let range = map.ranges.get(index).filter(|range| range.first <= slot);
        range.map(|range| Arc::clone(&range.master))
    }

    fn any(&self) -> Option<Arc<Shard>> {
        self.map.lock().shards.values().next().cloned()
    }

    /// The master at this address, which may be a new one.
    fn shard(&self, map: &mut Map, host: &str, port: u16) -> Arc<Shard> {
        let name = name_of(host, port);
        if let Some(shard) = map.shards.get(&*name) {
            return Arc::clone(shard);
        }
        let address = self.address(host, port);
        let connector: Arc<dyn Connector> = Arc::new(address.clone());
        let myself = Weak::clone(&self.myself);
        let watched = Arc::clone(&address.node);
        let shards = map.is_sharded.unwrap_or(false).then(|| Shards {
            on_move: Box::new(move || {
                if let Some(shared) = myself.upgrade()
                    && let Some(shard) = shared.map.lock().shards.get(&watched)
                {
                    shard.suspect();
                }
            }),
        });
        let permits = self.permit_source.permits(self.settings.pool_size);
        let timeout = self.settings.command_timeout;
        let shard = Arc::new(Shard {
            node: Node::with_shards(&connector, permits, timeout, &self.notifier, shards),
            address,
            is_doubtful: AtomicBool::new(false),
        });
        map.shards
            .insert(Arc::clone(&shard.address.node), Arc::clone(&shard));
        shard
    }

    /// How to talk to the node at this address: as to the seed there, if there is one.
    fn address(&self, host: &str, port: u16) -> Address {
        let name = name_of(host, port);
        match self.seeds.iter().find(|seed| *seed.node == *name) {
            Some(seed) => seed.clone(),
            None => self.template.elsewhere(host, port),
        }
    }

    /// Sees to it that the map is not older than this call, or than a moment ago. Nobody asks twice at the same time.
    fn refresh(&self, deadline: Instant) -> Result<(), CallError> {
        let mut map = self.map.lock();
        let version = map.version;
        while map.is_being_refreshed {
            if Instant::now() >= deadline {
                return Err(CallError::NotSent(
                    "the slots of the cluster are not known yet".into(),
                ));
            }
            map = self.refreshed.wait(map, Some(deadline));
        }
        if map.version != version {
            return Ok(());
        }
        if map.asked_at.is_some_and(|at| at.elapsed() < ASKED_EVERY) {
            return map.trouble.clone().map_or(Ok(()), Err);
        }
        map.is_being_refreshed = true;
        map.asked_at = Some(Instant::now());
        let is_sharded = map.is_sharded;
        let is_soon = map.told_at.is_some_and(|at| at.elapsed() < SOON);
        let is_doubtful = |node: &str| map.shards.get(node).is_some_and(|it| it.is_doubtful());
        let sources = in_order(&map.sources, is_doubtful, is_soon);
        drop(map);
        let told = self.ask(&sources, is_sharded, deadline);
        let mut map = self.map.lock();
        map.is_being_refreshed = false;
        let mut is_taken_over = false;
        let outcome = match told {
            Ok((told, is_sharded)) => {
                map.is_sharded = Some(is_sharded);
                map.told_at = Some(Instant::now());
                is_taken_over = self.adopt(&mut map, told);
                map.trouble = None;
                Ok(())
            }
            Err(fault) => {
                map.trouble = Some(fault.clone());
                Err(fault)
            }
        };
        drop(map);
        if is_taken_over {
            self.on_takeover.call();
        }
        self.refreshed.notify_all();
        self.resubscribe();
        outcome
    }

    /// Asks one node after the other for the map.
    fn ask(
        &self,
        sources: &[Address],
        is_sharded: Option<bool>,
        deadline: Instant,
    ) -> Result<(SlotMap, bool), CallError> {
        let mut trouble = None;
        for (tried, seed) in sources.iter().enumerate() {
            let rest = (sources.len() - tried).min(LEAST_SHARE);
            let answer = ask_one(seed, is_sharded, share(deadline, rest));
            let mut map = self.map.lock();
            let noted = map
                .sources
                .iter_mut()
                .find(|it| it.address.node == seed.node);
            if let Some(noted) = noted {
                noted.asked_at = Some(Instant::now());
                noted.has_failed = answer.is_err();
            }
            drop(map);
            match answer {
                Ok(answer) => return Ok(answer),
                Err(fault) => {
                    let fault = fault.at(&seed.node);
                    // What a server says, such as that the password is wrong, is what somebody has to hear of.
                    if trouble.is_none()
                        || matches!(fault, CallError::Server(_) | CallError::Untrusted(_))
                    {
                        trouble = Some(fault);
                    }
                }
            }
        }
        Err(trouble.unwrap_or_else(|| CallError::NotSent("no node to ask".into())))
    }

    /// Puts a new map in the place of the old one. Returns whether a master of the old one is none any more.
    fn adopt(&self, map: &mut Map, told: SlotMap) -> bool {
        let mut ranges: Vec<Range> = told
            .ranges
            .iter()
            .map(|(first, last, (host, port))| Range {
                first: *first,
                last: *last,
                master: self.shard(map, host, *port),
            })
            .collect();
        ranges.sort_by_key(|range| range.first);
        let is_master =
            |shard: &Arc<Shard>| ranges.iter().any(|range| Arc::ptr_eq(&range.master, shard));
        let gone: Vec<Arc<Shard>> = map
            .shards
            .extract_if(|_, shard| !is_master(shard))
            .map(|(_, shard)| shard)
            .collect();
        for shard in &gone {
            shard.node.subscriber.dismiss();
        }
        let is_taken_over = !gone.is_empty();
        map.retired.retain(|shard| !shard.node.subscriber.is_over());
        map.retired.extend(gone);
        map.moved.clear();
        for shard in map.shards.values() {
            shard.is_doubtful.store(false, Ordering::Relaxed);
        }
        let masters = told.ranges.into_iter().map(|(.., at)| at);
        let nodes = masters.chain(told.replicas);
        let addresses = nodes.map(|(host, port)| self.address(&host, port));
        let addresses = self.seeds.iter().cloned().chain(addresses).collect();
        map.sources = sources_of(addresses, &map.sources);
        map.ranges = ranges;
        map.version += 1;
        is_taken_over
    }

    /// Moves every wish to where the slot of its channel is now.
    fn resubscribe(&self) {
        let mut channels = self.channels.lock();
        if channels.is_closed {
            return;
        }
        for (channel, heard) in &mut channels.heard {
            self.hear(channel, heard);
        }
    }

    /// Sees to it that a channel is heard where its slot is.
    fn hear(&self, channel: &Arc<str>, heard: &mut Heard) {
        let Some(master) = self.present(keys::slot(channel)) else {
            return;
        };
        match &heard.at {
            Some((shard, _)) if Arc::ptr_eq(shard, &master) => {
                shard.node.subscriber.ask_again(channel);
            }
            _ => {
                let (wish, _) = master.node.subscriber.listen(channel);
                heard.at = Some((master, wish));
            }
        }
    }
}

impl Seed {
    fn new(address: Address) -> Seed {
        Seed {
            address,
            asked_at: None,
            has_failed: false,
        }
    }
}

/// The nodes at these addresses, with what is known of them. What is not among them is gone.
fn sources_of(addresses: Vec<Address>, known: &[Seed]) -> Vec<Seed> {
    let mut sources: Vec<Seed> = Vec::with_capacity(addresses.len());
    for address in addresses {
        if sources.iter().any(|it| it.address.node == address.node) {
            continue;
        }
        let before = known.iter().find(|it| it.address.node == address.node);
        sources.push(Seed {
            asked_at: before.and_then(|it| it.asked_at),
            has_failed: before.is_some_and(|it| it.has_failed),
            address,
        });
    }
    sources
}

/// Whom to ask first: who has answered, then who was never asked, then who is in doubt or has failed; of these the one
/// that was not asked for the longest time. Those that answered may all be cut off from the rest: if their map was of no
/// use, one that was never asked comes first.
fn in_order(
    sources: &[Seed],
    is_doubtful: impl Fn(&str) -> bool,
    was_of_no_use: bool,
) -> Vec<Address> {
    let mut order: Vec<(u8, &Seed)> = sources
        .iter()
        .map(|it| match it {
            _ if it.has_failed => (3, it),
            _ if is_doubtful(&it.address.node) => (2, it),
            _ if it.asked_at.is_none() => (1, it),
            _ => (0, it),
        })
        .collect();
    order.sort_by_key(|(class, it)| (*class, it.asked_at));
    if was_of_no_use && let Some(at) = order.iter().position(|(class, _)| *class == 1) {
        order.get_mut(..=at).unwrap_or_default().rotate_right(1);
    }
    let addresses = order.into_iter().map(|(_, it)| it.address.clone());
    addresses.collect()
}

/// Asks a node for the map and, if that is not known, whether it knows sharded messages.
fn ask_one(
    seed: &Address,
    is_sharded: Option<bool>,
    deadline: Instant,
) -> Result<(SlotMap, bool), CallError> {
    let mut connection = Connection::connect(seed, deadline)?;
    let mut packed = Vec::new();
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS").write_packed_command(&mut packed);
    if is_sharded.is_none() {
        let mut probe = redis::cmd("PUBSUB");
        probe.arg("SHARDNUMSUB").write_packed_command(&mut packed);
    }
    connection.send(&packed, deadline)?;
    let slots = connection
        .receive(deadline)
        .map_err(CallError::of_a_search)?;
    let is_sharded = match is_sharded {
        Some(is_sharded) => is_sharded,
        None => match connection.receive(deadline).map_err(CallError::of_a_search) {
            Ok(_) => true,
            Err(CallError::Server(_)) => false,
            Err(fault) => return Err(fault),
        },
    };
    let told = told_in(&slots, seed.host().unwrap_or("localhost"));
    if told.ranges.is_empty() {
        return Err(CallError::NotSent("it knows of no slots".into()));
    }
    Ok((told, is_sharded))
}

/// The host that a node tells, empty for its own: it does not know it, or is not to tell it.
fn known_host(told: &str) -> &str {
    if told == "?" { "" } else { told }
}

/// Reads the answer to CLUSTER SLOTS; a node that does not know its own host is at `asked`.
fn told_in(slots: &Value, asked: &str) -> SlotMap {
    let mut told = SlotMap {
        ranges: Vec::new(),
        replicas: Vec::new(),
    };
    let place = |node: &Value| match node {
        Value::Array(parts) => match parts.as_slice() {
            [host, Value::Int(port), ..] => {
                let host = text_of(host);
                let host = match known_host(&host) {
                    "" => asked.to_owned(),
                    host => host.to_owned(),
                };
                Some((host, u16::try_from(*port).ok()?))
            }
            _ => None,
        },
        _ => None,
    };
    let Value::Array(ranges) = slots else {
        return told;
    };
    for range in ranges {
        let Value::Array(parts) = range else { continue };
        let [Value::Int(first), Value::Int(last), master, replicas @ ..] = parts.as_slice() else {
            continue;
        };
        if let (Ok(first), Ok(last), Some(master)) =
            (u16::try_from(*first), u16::try_from(*last), place(master))
        {
            told.ranges.push((first, last, master));
        }
        told.replicas.extend(replicas.iter().filter_map(place));
    }
    told
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_read() {
        let of = |text: &str| Redirection::of(&CallError::Server(text.to_owned()));
        let to = |is_ask, slot, host: &str, port| Redirection {
            is_ask,
            slot,
            host: host.to_owned(),
            port,
        };
        assert_eq!(
            of("MOVED 3999 127.0.0.1:6381"),
            Some(to(false, 3999, "127.0.0.1", 6381))
        );
        assert_eq!(of("ASK 0 ::1:6381"), Some(to(true, 0, "::1", 6381)));
        assert_eq!(of("MOVED 1 :6381"), Some(to(false, 1, "", 6381)));
        assert_eq!(of("MOVED 1 ?:6381"), Some(to(false, 1, "", 6381)));
        assert_eq!(of("ASK 1 ?:6381"), Some(to(true, 1, "", 6381)));
        assert_eq!(of("MOVED 99999 h:1"), None);
        assert_eq!(of("ERR no"), None);
        assert_eq!(
            Redirection::of(&CallError::NotSent("MOVED 1 h:1".into())),
            None
        );
    }

    #[test]
    fn the_map_is_read() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let slots = Value::Array(vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(8191),
                node(text("10.0.0.1"), 1),
                node(text("10.0.0.2"), 2),
            ]),
            Value::Array(vec![
                Value::Int(8192),
                Value::Int(16383),
                node(Value::Nil, 3),
                node(text("?"), 4),
                node(text(""), 5),
            ]),
        ]);
        let told = told_in(&slots, "here");
        assert_eq!(
            told.ranges,
            [
                (0, 8191, ("10.0.0.1".to_owned(), 1)),
                (8192, 16383, ("here".to_owned(), 3))
            ]
        );
        let replicas = [("10.0.0.2", 2), ("here", 4), ("here", 5)];
        let replicas = replicas.map(|(host, port)| (host.to_owned(), port));
        assert_eq!(told.replicas, replicas);
    }

    /// A node at this port, and how it was asked: `None` if it never was, else how long ago and whether it failed.
    fn seed(port: u16, asked: Option<(u64, bool)>) -> Seed {
        let timeout = Duration::from_secs(1);
        let url = format!("redis://h:{port}");
        Seed {
            address: Address::parse(&url, timeout, &Default::default()).unwrap(),
            asked_at: asked.map(|(ago, _)| Instant::now() - Duration::from_secs(ago)),
            has_failed: asked.is_some_and(|(_, has_failed)| has_failed),
        }
    }

    fn ports(sources: &[Address]) -> Vec<u16> {
        let ports = sources.iter().map(|it| it.node.rsplit_once(':').unwrap().1);
        ports.map(|port| port.parse().unwrap()).collect()
    }

    #[test]
    fn those_that_answered_last_are_asked_first() {
        let sources = [
            seed(1, Some((9, true))),
            seed(2, Some((1, true))),
            seed(3, None),
            seed(4, Some((1, false))),
            seed(5, Some((9, false))),
            seed(6, None),
            seed(7, Some((3, false))),
        ];
        let is_doubtful = |node: &str| node == "h:7";
        let order = in_order(&sources, is_doubtful, false);
        assert_eq!(ports(&order), [5, 4, 3, 6, 7, 1, 2]);
        let order = in_order(&sources, is_doubtful, true);
        assert_eq!(ports(&order), [3, 5, 4, 6, 7, 1, 2]);
        assert!(in_order(&[], |_| false, true).is_empty());
    }

    #[test]
    fn nodes_that_are_gone_are_asked_no_more() {
        let known = [
            seed(1, Some((9, false))),
            seed(2, Some((1, true))),
            seed(3, None),
        ];
        // The seed, then the nodes of a new map, of which it is one.
        let present = [2, 1, 4, 2].map(|port| seed(port, None).address);
        let sources = sources_of(present.to_vec(), &known);
        let nodes: Vec<&str> = sources.iter().map(|it| &*it.address.node).collect();
        assert_eq!(nodes, ["h:2", "h:1", "h:4"]);
        let failed: Vec<bool> = sources.iter().map(|it| it.has_failed).collect();
        assert_eq!(failed, [true, false, false]);
        assert!(sources[1].asked_at.is_some() && sources[2].asked_at.is_none());
    }
}
