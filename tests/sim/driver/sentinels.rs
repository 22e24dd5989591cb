//! Sentinels that name the master: late, falsely, or not at all.

use redlatch_server_checks::Persistence;
use redlatch_world::scheduler::{self, Nanos};
use redlatch_world::{events, network};

use crate::epochs;
use crate::machine::host;
use crate::replication::{PORT, bytes};
use crate::shards;
use crate::topology::{Kind, Replicated, SentinelFault};

/// The name of the master among the sentinels.
pub(crate) const MASTER: &str = "locks";

/// The number of sentinels, which are the last servers.
pub(crate) const SENTINELS: usize = 3;

/// Sets the first master, and plans the faults of sentinels.
pub(crate) fn begin(shape: &Replicated) {
    for number in 0..SENTINELS {
        name(number, None);
    }
    for (at, sentinel, trouble, span) in shape.troubles.clone() {
        scheduler::at(at, move || strike(sentinel, trouble, span));
    }
}

/// Notifies each sentinel of the present master, with a random delay.
pub(crate) fn tell_of_master() {
    let lags = shards::with(|all| {
        let is_here = all.shape.kind == Kind::Sentinels;
        let count = if is_here { SENTINELS } else { 0 };
        let longest = all.shape.longest_news;
        let lag = |number| (number, scheduler::draw(|draw| draw.u64(0..=longest)));
        let mut lags: Vec<(usize, Nanos)> = (0..count).map(lag).collect();
        lags.retain(|(number, _)| all.shape.late != Some(*number));
        lags
    });
    for (number, lag) in lags.into_iter().flatten() {
        scheduler::at(scheduler::now() + lag, move || name(number, None));
    }
}

/// Sets the master that a sentinel names: the real one, or another server as if by a later failover.
fn name(sentinel: usize, falsely: Option<usize>) {
    let told = shards::with(|all| {
        let server = all.redis.len() - SENTINELS + sentinel;
        let redis = &all.redis[server];
        if !network::is_up(redis.place) {
            return Vec::new();
        }
        let (named, epoch) = match falsely {
            Some(other) => (other, all.epoch + 1),
            None => (all.shards[0].master, all.epoch),
        };
        epochs::note_named(sentinel, named);
        let told = (redis.machine().server).name_master(MASTER, &host(named), PORT, epoch);
        bytes(told)
    });
    network::deliver(told.unwrap_or_default());
}

fn strike(sentinel: usize, trouble: SentinelFault, span: Nanos) {
    scheduler::note(|| format!("sentinel {sentinel}: {trouble:?}"));
    let ends = scheduler::now() + span;
    match trouble {
        SentinelFault::Lies => {
            let other = shards::with(|all| {
                let shard = &all.shards[0];
                let others = shard.members.iter().copied();
                let others = others.filter(|member| *member != shard.master);
                scheduler::draw(|draw| draw.choice(others.collect::<Vec<_>>()))
            });
            events::count("sentinel lies");
            name(sentinel, other.flatten());
            scheduler::at(ends, move || name(sentinel, None));
        }
        SentinelFault::Dies => {
            let redis =
                shards::with(|all| all.redis[all.redis.len() - SENTINELS + sentinel].clone());
            let Some(redis) = redis.filter(|redis| network::is_up(redis.place)) else {
                return;
            };
            events::count("sentinel dies");
            redis.go_down();
            scheduler::at(ends, move || {
                redis.come_back(Persistence::All);
                name(sentinel, None);
            });
        }
    }
}
