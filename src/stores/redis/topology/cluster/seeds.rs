//! The nodes to query for the slot map, and their order.

use std::time::Instant;

use crate::stores::redis::transport::Address;

pub(super) struct Seed {
    pub(super) address: Address,
    pub(super) asked_at: Option<Instant>,
    pub(super) has_failed: bool,
}

pub(super) fn seeds_of(addresses: Vec<Address>, known: &[Seed]) -> Vec<Seed> {
    let mut seeds: Vec<Seed> = Vec::with_capacity(addresses.len());
    for address in addresses {
        if seeds.iter().any(|it| it.address.node == address.node) {
            continue;
        }
        let before = known.iter().find(|it| it.address.node == address.node);
        seeds.push(Seed {
            asked_at: before.and_then(|it| it.asked_at),
            has_failed: before.is_some_and(|it| it.has_failed),
            address,
        });
    }
    seeds
}

/// Nodes that failed come last, after doubtful nodes. Among equal nodes, the least recently queried node comes first,
/// so that a node in the minority of a partition is not queried again and again.
pub(super) fn in_order(seeds: &[Seed], is_doubtful: impl Fn(&str) -> bool) -> Vec<Address> {
    let mut order: Vec<&Seed> = seeds.iter().collect();
    order.sort_by_key(|it| (it.has_failed, is_doubtful(&it.address.node), it.asked_at));
    order.into_iter().map(|it| it.address.clone()).collect()
}
