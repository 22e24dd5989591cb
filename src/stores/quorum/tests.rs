#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod aside;
#[cfg(not(redlatch_sim))]
mod connecting;
#[cfg(not(redlatch_sim))]
pub(super) mod distant;
mod five;
mod forgetful;
mod looks;
#[cfg(not(redlatch_sim))]
mod servers;
#[cfg(not(redlatch_sim))]
mod times;
mod votes;

use smallvec::smallvec;

use super::*;
use crate::ground::claim::Kind;
use crate::store::{Granted, Outcome, Severity};
use crate::stores::redis::in_memory::tests::node as node_in_memory;
use crate::stores::redis::node::RedisNode;

const LEASE: Duration = Duration::from_secs(10);

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(2)
}

fn claim(visitor: &str, count: u32) -> Claim {
    Claim {
        kind: Kind::Reentrant,
        name: "a".into(),
        visitor: VisitorId::new(visitor, 1, 1),
        count,
        lease: LEASE,
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

/// All nodes are trusted from the beginning, and have the time that the lease gives them.
fn settings() -> Settings {
    Settings {
        node_timeout: None,
        max_lease: LEASE,
        max_extensions: None,
        trusts_new_nodes: true,
        connect_timeout: LEASE,
    }
}

/// The quorum of these nodes, which trusts them all from the beginning.
fn quorum_of<N: Node + 'static>(nodes: &[Arc<N>], node_timeout: Option<Duration>) -> Quorum {
    let settings = Settings {
        node_timeout,
        ..settings()
    };
    let stores = nodes.iter().map(|node| {
        let node: Arc<dyn Node> = node.clone();
        (node, Arc::new(()) as _)
    });
    Quorum::new(stores.collect(), settings, soon()).unwrap()
}

/// What a quorum says of the hold of a visitor, which takes a majority in any case.
fn inspect(quorum: &Quorum) -> Result<Holding> {
    let visitor = claim("me", 0).visitor;
    quorum.inspect(&lock(), Some(&visitor), soon())
}

/// Three nodes, of which the last one is held by somebody else.
fn with_one_taken() -> Quorum {
    let nodes = [(); 3].map(|()| node_in_memory());
    let quorum = quorum_of(&nodes, None);
    let taken = quorum.nodes.last().unwrap();
    let granted = taken
        .node
        .store()
        .acquire(&claim("other", 0), soon())
        .unwrap();
    assert!(matches!(granted, Outcome::Done(Granted { .. })));
    quorum
}

fn trip(quorum: &Quorum, index: usize) {
    *quorum.nodes.get(index).unwrap().breaker.lock() = Breaker {
        deadline: Some(Instant::now() + LEASE),
        pause: LEASE,
        reason: String::new(),
    };
}

#[test]
fn the_nodes_of_a_hold_are_asked_however_many_others_there_are() {
    let quorum = with_one_taken();
    let granted = quorum.acquire(&claim("me", 0), soon()).unwrap();
    assert!(
        matches!(granted, Outcome::Done(Granted { .. })),
        "{granted:?}"
    );
    for index in 0..2 {
        trip(&quorum, index);
        let renewals = quorum.renew(&[claim("me", 1)], soon());
        assert_eq!(renewals, [Renewal::Renewed]);
        trip(&quorum, index);
        let entered = quorum.acquire(&claim("me", 1), soon()).unwrap();
        assert!(
            matches!(entered, Outcome::Done(Granted { .. })),
            "{entered:?}"
        );
    }
}

#[test]
fn what_may_still_arrive_is_kept_until_the_hold_is_freed() {
    let quorum = with_one_taken();
    quorum.acquire(&claim("me", 0), soon()).unwrap();
    let claim = claim("me", 1);
    let late = InDoubt {
        not_after: smallvec![None, Some(7), None],
        ..claim.in_doubt(0)
    };
    quorum.note_open(&claim.visitor, &late);
    let mut in_doubt = claim.in_doubt(0);
    quorum.forget(&mut in_doubt);
    assert_eq!(in_doubt.not_after[..], [Some(0), Some(7), Some(0)]);
    assert!(quorum.placements.lock().is_empty());
}
