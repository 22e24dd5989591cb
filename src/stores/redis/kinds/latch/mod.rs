//! A count that opens when it has come down to 0.

use super::*;

/// A latch has no holds: the scripts of holds are those of the plain lock, which find no lock there.
pub(super) static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout {
    channel: Key::Braced("redisson_countdownlatch__channel__"),
    wakes: Some(wakes_all),
    rights: "latch",
    count: Some(expiring(
        include_str!("count.lua"),
        &[Key::Name, ONCE],
        &[Step, Amount, Channel, Lease],
    )),
    ..Layout::plain()
});
