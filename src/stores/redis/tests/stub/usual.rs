//! The claims and the times of most tests at a stub.

use std::time::{Duration, Instant};

use crate::ground::claim::{Claim, Kind, VisitorId};

/// The answer to an acquisition that got the lock, which tells no time.
pub(crate) const GRANTED: i64 = (1 << 22) - 1;

pub(crate) fn soon() -> Instant {
    within(3000)
}

pub(crate) fn within(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

/// A claim of a lock that its visitor has not entered.
pub(crate) fn claim(name: &str) -> Claim {
    Claim {
        kind: Kind::Reentrant,
        name: name.into(),
        visitor: VisitorId::new("client", 1, 1),
        count: 0,
        lease: Duration::from_secs(30),
        inside: None,
        queueing: Default::default(),
    }
}
