//! Word of several sources, and messages that are let by.

use super::*;
use std::time::Duration;

#[test]
fn one_node_of_a_quorum_among_others_wakes_nobody() {
    let parker = Parker::default();
    let has_word_of = |source| {
        parker.hear(source, false, Wake::Permit);
        parker.take_permit().is_some()
    };
    // A lock, and a quorum of three nodes.
    parker.need(2, 3, 2);
    assert!(has_word_of(1), "a lock of one server");
    for _ in 0..3 {
        assert!(!has_word_of(3), "the same node again");
    }
    assert!(has_word_of(4), "a second node");
    assert!(!has_word_of(2), "it begins anew");
    assert!(has_word_of(LAST_SOURCE + 7), "one of too many");
}

#[test]
fn messages_that_are_let_by_wake_nobody_and_are_not_lost() {
    let notifier = Arc::new(Notifier::default());
    let name: Arc<str> = "orders".into();
    let parkers = [notifier.parker(), notifier.parker()];
    let [mut first, mut second] = [0, 1].map(|at| notifier.join(0, &name, &parkers[at]));
    let now = Some(Instant::now());
    let late = Some(Instant::now() + Duration::from_secs(20));
    // The last one of three wakes it, and does not go to the one behind.
    let woken = std::thread::scope(|scope| {
        let woken = scope.spawn(|| first.park_past(2, late));
        while parkers[0].state.lock().lets_by < 2 {
            std::thread::yield_now();
        }
        for left in [1, 0] {
            notifier.release(&name, 1);
            assert_eq!(parkers[0].state.lock().lets_by, left);
            assert_eq!(parkers[0].state.lock().permit, None);
        }
        notifier.release(&name, 1);
        woken.join()
    });
    assert_eq!(woken.ok(), Some(Wake::Permit));
    assert_eq!(second.park(now), Wake::TimedOut);
    // Word that messages were lost wakes it, and with it gone the next one has to look.
    let woken = std::thread::scope(|scope| {
        let woken = scope.spawn(|| first.park_past(2, late));
        while parkers[0].state.lock().lets_by < 2 {
            std::thread::yield_now();
        }
        notifier.have_look(&name);
        woken.join()
    });
    assert_eq!(woken.ok(), Some(Wake::Look));
    assert_eq!(second.park(now), Wake::Look);
    first.spend();
    second.spend();
    // Time was over before the turns were: who comes next hears of those that were let by.
    let woken = std::thread::scope(|scope| {
        let woken = scope.spawn(|| {
            let soon = Instant::now() + Duration::from_millis(300);
            first.park_past(9, Some(soon))
        });
        while parkers[0].state.lock().lets_by < 9 {
            std::thread::yield_now();
        }
        notifier.release(&name, 1);
        woken.join()
    });
    assert_eq!(woken.ok(), Some(Wake::TimedOut));
    drop(first);
    assert_eq!(second.park(now), Wake::Permit);
}
