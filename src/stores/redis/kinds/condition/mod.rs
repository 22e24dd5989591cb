//! The conditions of a lock. A thread must hold the lock to wait for a condition.

use super::*;

pub(in crate::stores::redis) struct Conditions {
    /// The layout that is used to test rights.
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

pub(super) const WAITING: &[Key] = &[
    Key::Name,
    Key::OfCondition(":waiting"),
    Key::OfCondition(":due"),
];

/// The channel of a condition's waiter is this prefix, followed by `:visitor`.
pub(in crate::stores::redis) const PLACES: Key = Key::OfCondition("");
