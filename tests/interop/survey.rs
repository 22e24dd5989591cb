//! How `list` and `inspect` show locks held by Redisson.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use redlatch::{LockInfo, LockKind};

use crate::fixture::BothSides;
use crate::jvm::is_illegal_monitor_state;

/// The only listed lock.
fn the_one(sides: &BothSides) -> LockInfo {
    let mut all: Vec<LockInfo> = sides.rust.locks("").map(|info| info.unwrap()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_lock_of_redisson_is_listed_with_its_client_and_thread() {
    let sides = BothSides::new();
    let (rust, java) = sides.locks("orders");
    for count in 1..=2 {
        java.lock();
        let info = the_one(&sides);
        assert_eq!(info.holders, rust.describe().unwrap().holders);
        assert_eq!((&*info.name, info.kind), ("orders", LockKind::Reentrant));
        assert!(info.expires.is_some_and(|left| !left.is_zero()));
        let [holder] = &info.holders[..] else {
            panic!("{info:?}");
        };
        let field = java.field();
        let (client, thread) = field.split_once(':').unwrap();
        assert_eq!(holder.visitor, field);
        assert_eq!(holder.client.as_deref(), Some(client));
        assert_eq!(holder.thread, thread.parse().ok());
        assert_eq!((holder.hold, holder.count), (None, count));
        assert_eq!(holder.by, "Redisson");
    }
    let holder = rust.describe().unwrap().holders.remove(0);
    assert!(rust.force_unlock_of(&holder.visitor).unwrap());
    assert!(!java.is_held());
    is_illegal_monitor_state(&java.try_unlock());
    // The only hold was that one.
    java.lock();
    java.unlock();
    assert_eq!(sides.rust.locks("").count(), 0);
}

#[test]
#[ignore = "needs Java: make interop"]
fn read_and_write_locks_of_redisson_are_distinguished() {
    let sides = BothSides::new();
    let thread = sides.java.thread();
    for (kind, told) in [("read", LockKind::Read), ("write", LockKind::Write)] {
        let java = thread.lock(kind, "orders");
        java.lock();
        let info = the_one(&sides);
        assert_eq!(info.kind, told);
        assert_eq!(info.holders.len(), 1, "{info:?}");
        assert_eq!(info.holders[0].by, "Redisson");
        java.unlock();
    }
}
