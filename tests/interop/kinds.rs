//! Each kind of lock with one holder is one lock of both sides: exclusion, wake-ups, counts and releases work across
//! them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Client, Error, Lock, LossCause};

use crate::exclusion::{WAKE_UP, is_one_lock, is_refused_for_three_leases};
use crate::fixture::{BothSides, LEASE, LONG, PATIENCE, RunLock, SLACK, report, timed};
use crate::jvm::{JavaLock, is_illegal_monitor_state, version};
use crate::support::ms;

/// A kind of lock in both libraries.
struct Kind {
    name: &'static str,
    /// The first generation of Redisson that has it.
    since: (u32, u32),
    ours: fn(&Client, &str) -> Lock,
}

const fn kind(name: &'static str, since: (u32, u32), ours: fn(&Client, &str) -> Lock) -> Kind {
    Kind { name, since, ours }
}

const KINDS: [Kind; 4] = [
    kind("plain", (0, 0), Client::lock),
    kind("fair", (0, 0), Client::fair_lock),
    kind("spin", (3, 15), Client::spin_lock),
    kind("fenced", (3, 19), Client::fenced_lock),
];

/// The kinds that this generation of Redisson has.
fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(|kind| {
        let is_there = version() >= kind.since;
        if !is_there {
            report(&format!("there is no {} lock", kind.name));
        }
        is_there
    })
}

impl Kind {
    fn locks(&self, sides: &BothSides, name: &str) -> (Lock, JavaLock) {
        let java = sides.java.thread().lock(self.name, name);
        ((self.ours)(&sides.rust, name), java)
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn each_kind_is_one_lock_and_each_side_wakes_the_other() {
    let sides = BothSides::with(RunLock::alone(), LONG);
    for kind in kinds() {
        for name in [kind.name.to_owned(), format!("{{shop}}:{}", kind.name)] {
            let (rust, java) = kind.locks(&sides, &name);
            is_one_lock(&rust, &java);
            assert!(sides.hash(&name).is_empty());
        }
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn each_side_sees_the_counts_of_the_other() {
    let sides = BothSides::new();
    for kind in kinds() {
        let (rust, java) = kind.locks(&sides, kind.name);
        assert!(!java.is_locked());
        assert_eq!(java.remain_time_to_live(), -2);
        for count in 1..=3 {
            let guard = rust.guard().unwrap();
            let field = guard.visitor().as_str().to_owned();
            let expected = [(field, count.to_string())].into();
            assert_eq!(sides.hash(kind.name), expected, "the count as text");
            std::mem::forget(guard);
            assert!(java.is_locked() && !java.is_held());
            assert_eq!(java.hold_count(), 0);
            assert!((1..=30_000).contains(&java.remain_time_to_live()));
            assert!(!java.try_lock(ms(0)));
        }
        is_illegal_monitor_state(&java.try_unlock());
        for left in [2, 1, 0] {
            rust.unlock().unwrap();
            assert_eq!(rust.hold_count().unwrap(), left);
            assert_eq!(java.is_locked(), left > 0);
        }
        for count in 1..=3 {
            java.lock();
            let expected = [(java.field(), count.to_string())].into();
            assert_eq!(sides.hash(kind.name), expected);
            assert!(rust.is_locked().unwrap());
            assert!(!rust.is_held_by_current_thread().unwrap());
            assert_eq!(rust.hold_count().unwrap(), 0);
            let left = rust.remaining_lease().unwrap().unwrap();
            assert!(left > Duration::ZERO && left <= LONG, "{left:?}");
            assert!(!rust.try_lock().unwrap());
        }
        assert!(matches!(rust.unlock(), Err(Error::NotHeld { .. })));
        for left in [2, 1, 0] {
            java.unlock();
            assert_eq!(java.hold_count(), left);
            assert_eq!(rust.is_locked().unwrap(), left > 0);
        }
        assert_eq!(rust.remaining_lease().unwrap(), None);
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn each_watchdog_keeps_the_other_side_out() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    thread::scope(|scope| {
        for kind in kinds() {
            let sides = &sides;
            scope.spawn(move || {
                let (rust, java) = kind.locks(sides, kind.name);
                let guard = rust.guard().unwrap();
                is_refused_for_three_leases(|| java.try_lock(ms(0)));
                assert!(guard.is_valid(), "{}", kind.name);
                guard.unlock().unwrap();
                java.lock();
                is_refused_for_three_leases(|| rust.try_lock().unwrap());
                assert!(java.is_held(), "{}", kind.name);
                java.unlock();
            });
        }
    });
}

#[test]
#[ignore = "needs Java: make interop"]
fn a_force_unlock_by_either_side_is_reported_to_the_holder() {
    let sides = BothSides::with(RunLock::together(), LEASE);
    for kind in kinds() {
        let (rust, java) = kind.locks(&sides, kind.name);
        let told = LEASE + SLACK;

        let guard = rust.guard().unwrap();
        let lost = guard.lost();
        assert!(java.force_unlock());
        assert_eq!(lost.recv_timeout(told).unwrap().cause, LossCause::Gone);
        assert!(!guard.is_valid());
        assert!(guard.unlock().is_err_and(|error| error.is_lost()));
        assert!(!java.force_unlock(), "nobody holds it any more");

        let guard = rust.guard().unwrap();
        let lost = guard.lost();
        assert!(java.force_unlock());
        java.lock();
        let cause = lost.recv_timeout(told).unwrap().cause;
        assert_eq!(cause, LossCause::HeldBy(java.field()));
        assert!(guard.unlock().is_err_and(|error| error.is_lost()));
        assert!(java.is_held(), "the loser has touched nothing");

        let second = sides.java.thread().lock(kind.name, kind.name);
        let waiting = second.start("lock", &[]);
        assert!(waiting.still_runs_after(ms(200)));
        let (took, ()) = timed(|| {
            assert!(rust.force_unlock().unwrap());
            waiting.value();
        });
        assert!(took < WAKE_UP, "{}: {took:?}", kind.name);
        is_illegal_monitor_state(&java.try_unlock());
        // Its watchdog has noticed, too: the present hold belongs to the second thread.
        thread::sleep(LEASE);
        assert!(!java.is_held() && second.is_held());
        second.unlock();
        assert!(!rust.force_unlock().unwrap());
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn threads_of_both_sides_never_overlap() {
    const ROUNDS: u32 = 150;
    let sides = BothSides::with(RunLock::alone(), PATIENCE);
    for kind in kinds() {
        // Read, then written later: two holders at a time would lose an increment.
        let counter = Mutex::new(0_u32);
        let add = || {
            let seen = *counter.lock().unwrap();
            thread::sleep(Duration::from_micros(50));
            *counter.lock().unwrap() = seen + 1;
        };
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..3 {
                let ((rust, java), add) = (kind.locks(&sides, kind.name), &add);
                scope.spawn(move || (0..ROUNDS).for_each(|_| rust.run(|_| add()).unwrap()));
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        java.lock();
                        add();
                        java.unlock();
                    }
                });
            }
        });
        assert_eq!(*counter.lock().unwrap(), 6 * ROUNDS, "{}", kind.name);
        let took = began.elapsed();
        report(&format!(
            "a {} lock of six threads took {took:.1?}",
            kind.name
        ));
    }
}

#[test]
#[ignore = "needs Java: make interop"]
fn tokens_of_fenced_locks_rise_over_both_sides() {
    let Some(fenced) = kinds().find(|kind| kind.name == "fenced") else {
        return;
    };
    let token_of = |lock: &Lock| lock.guard().unwrap().fencing_token().unwrap();
    let java_token_of = |lock: &JavaLock| {
        let token = lock.lock_and_get_token();
        lock.unlock();
        token
    };
    let sides = BothSides::new();
    for name in ["orders", "{shop}:orders"] {
        let (rust, java) = fenced.locks(&sides, name);
        let mut last = 0;
        let mut rises = |next: u64| {
            assert!(next > last, "{name}: {next} after {last}");
            last = next;
        };
        rises(java_token_of(&java));
        for _ in 0..5 {
            rises(token_of(&rust));
            rises(java_token_of(&java));
            rises(java_token_of(&java));
        }
        // Each side sees the last token of the other; a re-entry of Redisson draws one, ours does not.
        let ours = token_of(&rust);
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
        // After data loss the token of Redisson starts again, and rises from our next token.
        sides.server.cmd(&["FLUSHALL"]);
        assert_eq!(java_token_of(&java), 1);
        rises(token_of(&rust));
        rises(java_token_of(&java));
        sides.server.cmd(&["FLUSHALL"]);
        rises(token_of(&rust));
    }
}
