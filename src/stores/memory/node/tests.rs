//! A world in memory has a vote as long as it is the one that had it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::time::Duration;

use super::*;
use crate::ground::claim::{Kind, LockId};
use crate::stores::memory::tests::{NAME, claim_for};
use crate::stores::quorum::quarantine::Membership;

fn claim(count: u32) -> Claim {
    Claim {
        count,
        ..claim_for(Kind::Reentrant, "a", 9_000)
    }
}

fn ready<T>(pending: Pending<'_, T>) -> Result<T> {
    match pending {
        Pending::Ready(answer) => answer,
        _ => panic!("memory answers at once"),
    }
}

#[test]
fn another_world_at_the_place_of_a_node_has_no_vote() {
    let (first, other) = (Memory::new(Arc::default()), Memory::new(Arc::default()));
    let membership = Arc::new(Membership::new(1, Duration::from_secs(30), true));
    let handle = NodeHandle::new(&membership, 0, false);
    let now = Instant::now();
    let votes = |store: &Memory| {
        let connected = store.connect(&handle, Purpose::Renewal, now).unwrap();
        let taken = ready(store.send_acquire(&claim(0), false, &handle, now));
        let renewed = ready(store.send_renew(&[claim(1)], &handle, now));
        [connected.is_ok(), taken.is_ok(), renewed.is_ok()]
    };
    assert_eq!(votes(&first), [true; 3]);
    assert_eq!(votes(&other), [false; 3]);
    let refused = ready(other.send_acquire(&claim(0), false, &handle, now)).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
}

#[test]
fn a_hold_that_is_restored_has_all_its_levels() {
    let store = Memory::new(Arc::default());
    let membership = Arc::new(Membership::new(1, Duration::from_secs(30), true));
    let handle = NodeHandle::new(&membership, 0, false);
    let now = Instant::now();
    let visitor = claim(0).visitor;
    let restored = ready(store.send_acquire(&claim(3), true, &handle, now));
    assert!(matches!(restored, Ok(Outcome::Done(_))), "{restored:?}");
    let lock = LockId {
        kind: Kind::Reentrant,
        name: NAME.into(),
    };
    let count = || store.inspect(&lock, Some(&visitor), now).unwrap().count;
    assert_eq!(count(), 3);
    let entered = ready(store.send_acquire(&claim(3), false, &handle, now));
    assert!(matches!(entered, Ok(Outcome::Done(_))), "{entered:?}");
    assert_eq!(count(), 4);
}
