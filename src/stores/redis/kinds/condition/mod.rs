//! The conditions that threads which hold a lock wait for.

use super::*;

/// The conditions of locks of every kind that has some, and what a user needs for them beside the lock.
pub(in crate::stores::redis) struct Conditions {
    /// The row by which rights are tried and named.
    pub(in crate::stores::redis) layout: Layout,
    pub(in crate::stores::redis) look: Script,
    pub(in crate::stores::redis) signal: Script,
}

pub(in crate::stores::redis) static CONDITION: LazyLock<Conditions> = LazyLock::new(|| {
    let look = include_str!("look.lua");
    let signal = include_str!("signal.lua");
    let steps = &[Visitor, Step, Successor, Lease, Places];
    Conditions {
        layout: Layout {
            channel: Key::Prefix("redlatch_condition"),
            rights: "condition",
            beside: WAITING,
            ..Layout::plain()
        },
        look: expiring(look, WAITING, steps),
        signal: expiring(signal, WAITING, &[Visitor, Amount, Places]),
    }
});

/// A lock, those who wait on a condition of it, and when each has to be heard of.
pub(super) const WAITING: &[Key] = &[
    Key::Name,
    Key::OfCondition(":waiting"),
    Key::OfCondition(":due"),
];

/// The channels of those who wait on a condition, each with `:visitor` behind it.
pub(in crate::stores::redis) const PLACES: Key = Key::OfCondition("");
