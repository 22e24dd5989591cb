//! The nodes that can be asked for the map of the slots, and their order.

use std::time::Instant;

use crate::stores::redis::transport::Address;

/// A node that can be asked for the map.
pub(super) struct Seed {
    pub(super) address: Address,
    pub(super) asked_at: Option<Instant>,
    /// Whether it failed when it was asked last.
    pub(super) has_failed: bool,
}

impl Seed {
    pub(super) fn new(address: Address) -> Seed {
        Seed {
            address,
            asked_at: None,
            has_failed: false,
        }
    }
}

/// Returns the nodes at these addresses, with what is known of them. Others are forgotten.
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

/// Returns the order in which nodes are asked: those that have answered, then those never asked, then those in doubt,
/// then those that have failed; of each the one that was not asked for the longest time first. Those that answered may
/// all be cut off from the rest: if their map was of no use, one that was never asked comes first.
pub(super) fn in_order(
    seeds: &[Seed],
    is_doubtful: impl Fn(&str) -> bool,
    was_of_no_use: bool,
) -> Vec<Address> {
    let mut order: Vec<(u8, &Seed)> = seeds
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
