//! The requests of a hold that may yet run.

use std::time::Duration;

use crate::ground::clock::BootInstant;

/// A request that sets the lease in the store: a re-entry, a renewal, a level given back, a commit.
///
/// It may run at any time from when it is sent until it is answered, and until it expires if it is not. Two of them of
/// which neither was answered before the other was sent may run in either order, and the lease of the last one stands:
///
/// | one | the other | what stands at least, and is believed |
/// |---|---|---|
/// | answered before the other was sent | sent later | what the other sets, from when it is sent |
/// | under way, or without an answer, when the other is sent | | the shorter of the two, from when the other was sent |
/// | without an answer, and expired when the other is sent | | what the other sets |
/// | answered, while an earlier copy of it or a part of the store may still have it before it | sent later | as without an answer |
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    pub(super) id: InFlightId,
    pub(super) by: By,
    pub(super) sent: BootInstant,
    pub(super) lease: Duration,
    /// The most that its own confirmation may count, for those that may run after it.
    pub(super) most: Option<BootInstant>,
    /// From here on the server refuses it.
    pub(super) expires: BootInstant,
    pub(super) state: Flying,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flying {
    /// Its answer is waited for.
    Awaited,
    /// Nobody waits for its answer any more.
    Unanswered,
    /// It has its answer, but may run once more: in a part of the store that has not answered, or as an earlier copy on a
    /// connection that was cut. No order of connections bounds that, only its expiry.
    Answered,
}

/// The sender of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Holder,
    Watchdog,
}

/// Identifies a request of a hold that sets the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InFlightId(pub(super) u32);
