//! An owned guard, which Redisson treats as another thread's hold.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use redlatch::current_thread_id;

use crate::fixture::{BothSides, elsewhere};
use crate::jvm::is_illegal_monitor_state;
use crate::support::ms;

#[test]
#[ignore = "needs Java: make interop"]
fn redisson_sees_an_owned_hold_as_another_thread() {
    let sides = BothSides::new();
    let (rust, java) = sides.locks("orders");
    let guard = rust.owned().unwrap();
    let field = guard.visitor().as_str().to_owned();
    assert_eq!(sides.hash("orders"), [(field.clone(), "1".into())].into());
    // `uuid:thread:hold`, as for a thread.
    let number = field.split(':').nth(1).unwrap();
    assert_eq!(number, guard.owner().to_string());
    assert_ne!(number, current_thread_id().to_string());
    assert!(java.is_locked() && !java.is_held());
    assert_eq!(java.hold_count(), 0);
    assert!(!java.try_lock(ms(0)));
    assert!((1..=30_000).contains(&java.remain_time_to_live()));
    is_illegal_monitor_state(&java.try_unlock());
    assert!(guard.is_valid());
    elsewhere(|| guard.unlock().unwrap());
    java.lock();
    assert!(rust.try_owned().unwrap().is_none());
    assert!(rust.try_owned_for(ms(100)).unwrap().is_none());
    java.unlock();
    // Redisson force-unlocks it like a thread's hold.
    let guard = rust.owned().unwrap();
    assert!(java.force_unlock());
    assert!(guard.unlock().unwrap_err().is_lost());
    assert!(sides.hash("orders").is_empty());
}
