//! Masters and their replicas: replication, promotion, and the losses that it may cause.

use std::sync::{Mutex, MutexGuard, PoisonError};

use redlatch_server_checks::Persistence;
use redlatch_world::scheduler::{self, MILLI, Nanos};
use redlatch_world::{events, network};

use crate::clusters;
use crate::epochs;
use crate::machine::{self, Redis, host};
use crate::sentinels;
use crate::topology::{Kind, Replicated, Takeover};

/// A master and its replicas.
pub(crate) struct Shard {
    pub(crate) members: Vec<usize>,
    pub(crate) master: usize,
    /// Of each outdated server, by number: how many changes are in flight to it.
    underway: Vec<usize>,
    /// The end of a running promotion.
    pub(crate) busy_until: Nanos,
}

pub(crate) struct Shards {
    pub(crate) shape: Replicated,
    /// All servers, sentinels included.
    pub(crate) redis: Vec<Redis>,
    pub(crate) shards: Vec<Shard>,
    /// How often a master was replaced.
    pub(crate) epoch: i64,
    /// Slots that have moved, each with its shard.
    pub(crate) moved: Vec<(u16, usize)>,
}

static SHARDS: Mutex<Option<Shards>> = Mutex::new(None);

pub(crate) fn shards() -> MutexGuard<'static, Option<Shards>> {
    SHARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `what` with the shards, if there are any. It must not schedule an event that calls this at once.
pub(crate) fn with<T>(what: impl FnOnce(&mut Shards) -> T) -> Option<T> {
    shards().as_mut().map(what)
}

/// Sets up the shards, and plans all their faults.
pub(crate) fn begin(shape: &Replicated, redis: &[Redis], command: Nanos) {
    epochs::begin(shape, command);
    let each = 1 + shape.replicas;
    let members = |number| (number * each..(number + 1) * each).collect::<Vec<_>>();
    let all = (0..shape.shards).map(|number| Shard {
        members: members(number),
        master: number * each,
        underway: Vec::new(),
        busy_until: 0,
    });
    *shards() = Some(Shards {
        shape: shape.clone(),
        redis: redis.to_vec(),
        shards: all.collect(),
        epoch: 1,
        moved: Vec::new(),
    });
    with(|all| {
        for number in 0..all.shards.len() {
            for member in all.shards[number].members.clone() {
                if member != all.shards[number].master {
                    all.resync(number, member);
                }
            }
        }
    });
    match shape.kind {
        Kind::Fixed => {}
        Kind::Sentinels => sentinels::begin(shape),
        Kind::Cluster => clusters::begin(shape),
    }
    for (at, shard, takeover) in shape.takeovers.clone() {
        scheduler::at(at, move || take_over(shard, takeover));
    }
}

/// A server has new work: changes for its replicas, and clients that wait for them.
pub(crate) fn fed(server: usize) {
    with(|all| {
        all.carry_soon(server);
        if all.shards.iter().any(|shard| shard.master == server) {
            let standing = all.redis[server].standing();
            epochs::note_known(standing.into_iter().map(|(_, visitor)| visitor));
        }
    });
    clusters::spread_messages(server);
    tick(server);
}

/// Replies to clients whose `WAIT` has timed out, now and at the next timeout.
fn tick(server: usize) {
    let Some(redis) = with(|all| all.redis[server].clone()) else {
        return;
    };
    let (deliveries, due) = redis.tick();
    network::deliver(deliveries);
    if let Some(left) = due {
        scheduler::at(scheduler::now() + left, move || tick(server));
    }
}

impl Shards {
    fn shard_of(&self, server: usize) -> Option<usize> {
        let mut shards = self.shards.iter();
        shards.position(|shard| shard.members.contains(&server))
    }

    /// The delay of data to a replica, or to another server of a cluster.
    pub(crate) fn lag(&self) -> Nanos {
        scheduler::draw(|draw| draw.u64(MILLI / 10..=self.shape.lag))
    }

    fn carry_soon(&mut self, server: usize) {
        let Some(number) = self.shard_of(server) else {
            return;
        };
        if self.shards[number].master != server {
            return;
        }
        for member in self.shards[number].members.clone() {
            if member != server && !self.shards[number].underway.contains(&member) {
                self.shards[number].underway.push(member);
                let lag = self.lag();
                scheduler::at(scheduler::now() + lag, move || carry(number, member));
            }
        }
    }

    /// Makes a server replicate its shard's master from now on, with all data.
    fn resync(&mut self, shard: usize, member: usize) {
        let master = self.shards[shard].master;
        for other in &self.shards[shard].members {
            let mut other = self.redis[*other].machine();
            other.server.lose_replica(member as u64);
        }
        let (from, to) = (&self.redis[master], &self.redis[member]);
        to.follow(&host(master), from);
        to.machine().is_stale = false;
        let deliveries = from.hear_from(member, to);
        network::deliver(deliveries);
    }
}

/// Carries the missing changes to a replica, and its acknowledgement back.
fn carry(shard: usize, member: usize) {
    const LATER: Nanos = 20 * MILLI;
    let deliveries = with(|all| {
        let master = all.shards[shard].master;
        let (from, to) = (all.redis[master].clone(), all.redis[member].clone());
        if member == master || !network::is_up(from.place) || !network::is_up(to.place) {
            all.shards[shard].underway.retain(|it| *it != member);
            return Vec::new();
        }
        if network::is_paused(from.place) || network::is_paused(to.place) {
            scheduler::at(scheduler::now() + LATER, move || carry(shard, member));
            return Vec::new();
        }
        all.shards[shard].underway.retain(|it| *it != member);
        if to.glimpse().is_stale {
            return Vec::new();
        }
        if !from.carry_to(&to) {
            events::count("replica synced anew");
            all.resync(shard, member);
            return Vec::new();
        }
        from.hear_from(member, &to)
    });
    network::deliver(deliveries.unwrap_or_default());
}

/// Promotes a replica according to the failover.
fn take_over(shard: usize, takeover: Takeover) {
    let now = scheduler::now();
    let chosen = with(|all| {
        let it = &mut all.shards[shard];
        if it.busy_until > now {
            return None;
        }
        let old = it.master;
        let able = it.members.iter().copied();
        let able = able.filter(|member| *member != old && network::is_up(all.redis[*member].place));
        let able: Vec<usize> = able
            .filter(|it| !all.redis[*it].glimpse().is_stale)
            .collect();
        let new = scheduler::draw(|draw| draw.choice(able))?;
        it.busy_until = now + takeover.takes + takeover.returns;
        Some((old, new))
    });
    let Some((old, new)) = chosen.flatten() else {
        return;
    };
    scheduler::note(|| format!("{takeover:?}: s{new} is to take over from s{old}"));
    if takeover.dies {
        with(|all| all.redis[old].clone()).inspect(Redis::go_down);
    }
    let promote = move || {
        events::count(if takeover.is_planned {
            "takeover as planned"
        } else if takeover.dies {
            "takeover from a dead master"
        } else {
            "takeover from a master that goes on"
        });
        promote(shard, old, new, takeover);
    };
    scheduler::at(now + takeover.takes, promote);
}

fn promote(shard: usize, old: usize, new: usize, takeover: Takeover) {
    with(|all| {
        let (from, to) = (all.redis[old].clone(), all.redis[new].clone());
        if takeover.is_planned {
            // The migration ends only when the target has all keys.
            if !from.carry_to(&to) {
                to.follow(&host(old), &from);
            }
        } else if !(all.shape.is_safe() && takeover.dies) {
            let lost = from.lacking_in(&to);
            if !lost.is_empty() {
                events::count("holds lost in a takeover");
            }
            machine::excuse(lost);
        } else {
            events::count("takeover in which nothing acknowledged may be lost");
        }
        to.machine().server.promote();
        epochs::turn();
        all.epoch += 1;
        all.shards[shard].master = new;
        from.machine().is_stale = true;
        if takeover.is_planned {
            all.resync(shard, old);
        }
        for member in all.shards[shard].members.clone() {
            if member != new && member != old {
                all.redis[member].machine().is_stale = true;
                let lag = all.lag();
                let join = move || join(shard, member);
                scheduler::at(scheduler::now() + lag, join);
            }
        }
    });
    sentinels::tell_of_master();
    clusters::tell_of_masters(shard);
    if !takeover.is_planned {
        scheduler::at(scheduler::now() + takeover.returns, move || {
            come_back(shard, old);
        });
    }
}

/// A replica of the old master joins the new one.
fn join(shard: usize, member: usize) {
    with(|all| {
        if all.shards[shard].master != member && network::is_up(all.redis[member].place) {
            all.resync(shard, member);
        }
    });
}

/// The demoted master becomes a replica.
fn come_back(shard: usize, old: usize) {
    with(|all| {
        let redis = all.redis[old].clone();
        if !network::is_up(redis.place) {
            redis.come_back(Persistence::All);
        }
        all.resync(shard, old);
    });
    clusters::tell_of_masters(shard);
}
