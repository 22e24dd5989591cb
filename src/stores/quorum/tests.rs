#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod five;
mod inspections;
mod votes;
mod without_vote;

use super::*;
use crate::ground::claim::Kind;
use crate::store::{Granted, Outcome};

const LEASE: Duration = Duration::from_secs(10);

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn claim(visitor: &str, count: u32) -> Claim {
    Claim {
        kind: Kind::Reentrant,
        name: "a".into(),
        visitor: VisitorId::new(visitor, 1, 1),
        count,
        lease: LEASE,
        is_renewed: false,
        inside: None,
        queueing: Default::default(),
    }
}

fn lock() -> LockId {
    LockId {
        kind: Kind::Reentrant,
        name: "a".into(),
    }
}

fn settings() -> Settings {
    Settings {
        node_timeout: Some(Duration::from_secs(5)),
        max_lease: LEASE,
        max_extensions: None,
        trusts_new_nodes: true,
        connect_timeout: LEASE,
    }
}

fn inspect(quorum: &Quorum) -> Result<Holding> {
    let visitor = claim("me", 0).visitor;
    quorum.inspect(&lock(), Some(&visitor), soon())
}
