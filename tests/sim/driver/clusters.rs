//! A cluster: the slots of its shards, which move, and each server's view of them.

use redlatch_server_checks::{Address, SlotRange, slot};
use redlatch_world::scheduler::{self, MILLI};
use redlatch_world::{events, network};

use crate::machine::host;
use crate::replication::{PORT, bytes};
use crate::shards::{self, Shards};
use crate::topology::{Kind, Replicated};

const SLOTS: usize = 16_384;
const LAST: u16 = 16_383;

/// Sets each server's view of the slots, and plans which slots move.
pub(crate) fn begin(shape: &Replicated) {
    shards::with(|all| {
        for server in 0..all.redis.len() {
            all.show_slots_to(server);
        }
    });
    for (at, lock) in shape.moves.clone() {
        scheduler::at(at, move || begin_to_move(&lock));
    }
}

fn address(server: usize) -> Address {
    (host(server), PORT)
}

impl Shards {
    /// The shard of a slot.
    pub(crate) fn shard_of_slot(&self, slot: u16) -> usize {
        let moved = self.moved.iter().rev().find(|(moved, _)| *moved == slot);
        let before = usize::from(slot) * self.shards.len() / SLOTS;
        moved.map_or(before, |(_, shard)| *shard)
    }

    /// The present owners of the slots.
    fn ranges(&self) -> Vec<SlotRange> {
        let count = self.shards.len();
        // The slots at which another shard may begin.
        let of_shards = (0..count).map(|shard| (shard * SLOTS).div_ceil(count) as u16);
        let of_moved = self.moved.iter().flat_map(|(slot, _)| [*slot, slot + 1]);
        let mut begins: Vec<u16> = of_shards.chain(of_moved).collect();
        begins.sort_unstable();
        begins.dedup();
        let ends = begins.iter().skip(1).map(|next| next - 1).chain([LAST]);
        let ranges = begins.iter().zip(ends).filter(|(first, _)| **first <= LAST);
        ranges
            .map(|(first, last)| self.range(*first, last))
            .collect()
    }

    fn range(&self, first: u16, last: u16) -> SlotRange {
        let shard = &self.shards[self.shard_of_slot(first)];
        let replicas = shard.members.iter().filter(|it| **it != shard.master);
        SlotRange {
            first,
            last,
            master: address(shard.master),
            replicas: replicas.map(|replica| address(*replica)).collect(),
        }
    }

    fn show_slots_to(&mut self, server: usize) {
        let ranges = self.ranges();
        let told = (self.redis[server].machine().server).set_slots(address(server), ranges);
        network::deliver(bytes(told));
    }

    fn is_busy(&self) -> bool {
        let now = scheduler::now();
        self.shards.iter().any(|shard| shard.busy_until > now)
    }

    fn be_busy(&mut self, until: u64) {
        for shard in &mut self.shards {
            shard.busy_until = shard.busy_until.max(until);
        }
    }
}

/// Notifies all servers of the masters: the shard with a new one at once, the others with a random delay.
pub(crate) fn tell_of_masters(shard: usize) {
    let others = shards::with(|all| {
        if all.shape.kind != Kind::Cluster {
            return Vec::new();
        }
        let master = all.shards[shard].master;
        all.show_slots_to(master);
        let longest = all.shape.longest_news;
        // No other change may come before all know this one.
        let by = scheduler::now() + longest + MILLI;
        all.be_busy(by);
        let others = (0..all.redis.len()).filter(|server| *server != master);
        others
            .map(|server| (server, scheduler::draw(|draw| draw.u64(0..=longest))))
            .collect()
    });
    for (server, lag) in others.unwrap_or_default() {
        scheduler::at(scheduler::now() + lag, move || {
            shards::with(|all| all.show_slots_to(server));
        });
    }
}

/// Carries published messages of a server to the others.
pub(crate) fn spread_messages(server: usize) {
    let spread = shards::with(|all| {
        let messages = all.redis[server].machine().server.take_broadcasts();
        let others = (0..all.redis.len()).filter(|other| *other != server);
        let others = others.map(|other| (all.redis[other].clone(), all.lag().min(10 * MILLI)));
        if messages.is_empty() {
            return None;
        }
        Some((messages, others.collect::<Vec<_>>()))
    });
    let Some((messages, others)) = spread.flatten() else {
        return;
    };
    for (other, lag) in others {
        let messages = messages.clone();
        scheduler::at(scheduler::now() + lag, move || {
            if network::is_up(other.place) {
                network::deliver(other.hear(&messages));
            }
        });
    }
}

/// Begins to move the slot of a lock to the next shard.
fn begin_to_move(lock: &str) {
    let slot = slot(lock.as_bytes());
    let planned = shards::with(|all| {
        if all.is_busy() {
            return None;
        }
        let from = all.shard_of_slot(slot);
        let to = (from + 1) % all.shards.len();
        let span = scheduler::draw(|draw| draw.u64(MILLI..=all.shape.longest_move));
        let (source, target) = (all.shards[from].master, all.shards[to].master);
        let is_up = |server: usize| network::is_up(all.redis[server].place);
        if !is_up(source) || !is_up(target) {
            return None;
        }
        let machine = |server: usize| all.redis[server].machine();
        machine(target).server.begin_to_come(slot);
        machine(source).server.begin_to_leave(slot, address(target));
        all.be_busy(scheduler::now() + span + MILLI);
        Some((to, source, target, span))
    });
    let Some((to, source, target, span)) = planned.flatten() else {
        return;
    };
    events::count("slot begins to move");
    scheduler::note(|| format!("slot {slot} of {lock} moves from s{source} to s{target}"));
    let now = scheduler::now();
    let early = scheduler::draw(|draw| draw.u64(0..=span));
    scheduler::at(now + early, move || hand_keys(slot, source, target));
    scheduler::at(now + span, move || {
        hand_keys(slot, source, target);
        shards::with(|all| all.moved.push((slot, to)));
        // The target learns it before the source, so that the slot always has an owner.
        shards::with(|all| all.show_slots_to(target));
        shards::with(|all| all.show_slots_to(source));
        tell_of_masters(to);
    });
}

fn hand_keys(slot: u16, source: usize, target: usize) {
    let moved = shards::with(|all| all.redis[source].hand_keys(slot, &all.redis[target]));
    if moved.unwrap_or_default() > 0 {
        events::count("key moved to another shard");
        scheduler::note(|| format!("the key of slot {slot} goes to s{target}"));
    }
    shards::fed(source);
    shards::fed(target);
}
