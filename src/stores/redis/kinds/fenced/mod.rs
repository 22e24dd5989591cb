//! The fenced lock: a reentrant lock with a token that increases with each holder.

use super::*;

pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| {
    let acquire = include_str!("acquire.lua");
    let transfer = include_str!("transfer.lua");
    let keys = &[Key::Name, COUNTER];
    let entered = &[Visitor, Lease, Known, Wanted, Floor];
    let handed_off = &[Visitor, Successor, Lease, Channel, Floor];
    Layout {
        rights: "fenced",
        acquire: expiring(acquire, keys, entered),
        transfer: expiring(transfer, keys, handed_off),
        ..Layout::plain()
    }
});
