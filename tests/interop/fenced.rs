//! One fenced lock of both sides: its tokens rise, whoever draws them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Mutex;
use std::thread;

use redlatch::Lock;

use crate::both_sides::{BothSides, Turn, report};
use crate::jvm::{JavaLock, version};

/// The first generation that has the lock.
const SINCE: (u32, u32) = (3, 19);

/// Whether this generation of Redisson has no fenced lock, which is told.
fn is_missing() -> bool {
    let is_missing = version() < SINCE;
    if is_missing {
        report("there is no RFencedLock");
    }
    is_missing
}

fn locks(sides: &BothSides, name: &str) -> (Lock, JavaLock) {
    let java = sides.java.thread().lock("fenced", name);
    (sides.rust.fenced_lock(name), java)
}

fn rust_token(lock: &Lock) -> u64 {
    lock.guard().unwrap().fencing_token().unwrap()
}

fn java_token(lock: &JavaLock) -> u64 {
    let token = lock.lock_and_get_token();
    lock.unlock();
    token
}

#[test]
#[ignore = "needs Java: make interop"]
fn tokens_rise_over_both_sides() {
    if is_missing() {
        return;
    }
    let sides = BothSides::new();
    for name in ["orders", "{shop}:orders"] {
        let (rust, java) = locks(&sides, name);
        let mut last = 0;
        let mut rises = |next: u64| {
            assert!(next > last, "{name}: {next} after {last}");
            last = next;
        };
        rises(java_token(&java));
        for _ in 0..5 {
            rises(rust_token(&rust));
            rises(java_token(&java));
            rises(java_token(&java));
        }
        // Each side sees the last token of the other, and a re-entry there draws one, here none.
        let ours = rust_token(&rust);
        rises(ours);
        assert_eq!(java.token(), ours);
        let theirs = java.lock_and_get_token();
        rises(theirs);
        rises(java.lock_and_get_token());
        java.unlock();
        java.unlock();
        let outer = rust.guard().unwrap();
        rises(outer.fencing_token().unwrap());
        let inner = rust.guard().unwrap();
        assert_eq!(inner.fencing_token(), outer.fencing_token());
        assert_eq!(Some(java.token()), outer.fencing_token());
        drop((inner, outer));
        // After the data is lost, that of Redisson begins anew, and rises again from ours.
        sides.server.cmd(&["FLUSHALL"]);
        assert_eq!(java_token(&java), 1);
        rises(rust_token(&rust));
        rises(java_token(&java));
        sides.server.cmd(&["FLUSHALL"]);
        rises(rust_token(&rust));
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn tokens_rise_over_threads_of_both_sides() {
    const ROUNDS: usize = 30;
    if is_missing() {
        return;
    }
    let sides = BothSides::with(Turn::together(), crate::both_sides::PATIENCE);
    // In the order in which they held it: each is noted while it is held.
    let tokens = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..3 {
            let ((rust, java), tokens) = (locks(&sides, "orders"), &tokens);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let guard = rust.guard().unwrap();
                    tokens.lock().unwrap().push(guard.fencing_token().unwrap());
                    guard.unlock().unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let token = java.lock_and_get_token();
                    tokens.lock().unwrap().push(token);
                    java.unlock();
                }
            });
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert_eq!(tokens.len(), 6 * ROUNDS);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    assert!(sides.hash("orders").is_empty());
}
