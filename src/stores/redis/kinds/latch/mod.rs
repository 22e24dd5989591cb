use super::*;

/// A latch has no holds. As placeholders for operations on holds, the layout has the scripts of the plain lock.
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
