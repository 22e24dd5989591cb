use std::time::Duration;

use crate::engine::hold::tests::held;
use crate::engine::hold::{Hold, Lease};
use crate::ground::clock::PROCESS;
use crate::ground::loss::LossCause;

const LEASE: Duration = Duration::from_secs(60);

#[test]
fn only_one_transaction_at_a_time_pins_a_hold() {
    let (hold, _thread) = held(Lease::Watchdog(LEASE), PROCESS.now());
    assert!(!hold.is_pinned() && !hold.put_off(0));
    assert!(hold.pin() && hold.is_pinned());
    assert!(!hold.pin());
    assert!(hold.put_off(0));
    hold.unpin(None);
    assert!(!hold.is_pinned() && hold.pin());
    assert_eq!(hold.take_put_off()[..], [0]);
    assert!(hold.take_put_off().is_empty());
    hold.unpin(None);
    assert!(hold.lose(LossCause::Gone).is_some());
    assert!(!hold.pin() && !hold.is_pinned());
}

#[test]
fn a_loss_names_the_transaction_that_blocked_the_renewal() {
    let now = PROCESS.now();
    let trouble = |hold: &Hold| {
        let state = hold.state.lock();
        state.rare.as_ref().and_then(|it| it.last_trouble.clone())
    };
    let pinned = |sent| {
        let (hold, _) = held(Lease::Watchdog(LEASE), sent);
        assert!(hold.pin());
        hold
    };
    let short = pinned(now);
    short.unpin(None);
    assert_eq!(trouble(&short), None);
    let long = pinned(now.earlier(LEASE / 2));
    long.unpin(None);
    let told = trouble(&long);
    assert!(
        told.as_ref().is_some_and(|it| it.contains("a transaction")),
        "{told:?}"
    );

    // A commit sets the lease, which counts from when the commit was sent.
    let committed = pinned(now.earlier(LEASE / 2));
    let sent = now.earlier(LEASE * 2 / 5);
    committed.unpin(Some((sent, LEASE)));
    assert_eq!(trouble(&committed), None);
    assert_eq!(committed.state.lock().counted_from, sent);
    // A commit does not revive a lost hold.
    let lost = pinned(now);
    let end = lost.state.lock().valid_until;
    assert!(lost.lose(LossCause::Gone).is_some());
    lost.unpin(Some((now + LEASE, LEASE)));
    assert_eq!(lost.state.lock().valid_until, end);
}
