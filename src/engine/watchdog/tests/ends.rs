//! The ends of holds that somebody else finds, and the doubts behind them.

use super::*;

#[test]
fn a_hold_whose_rest_has_no_lease_left_is_told_at_once() {
    let scene = Scene::new();
    let hold = scene.watched("orders", Lease::Watchdog(LEASE));
    scene.watchdog.expire(&hold);
    assert_eq!(hold.loss_cause(), Some(LossCause::LeaseEnded));
    assert!(scene.watchdog.holds().is_empty());
    until(|| *scene.losses.lock() == ["orders LeaseEnded"]);
}

#[cfg(feature = "mysql")]
#[test]
fn a_hold_that_a_transaction_finds_gone_is_told_at_once() {
    let scene = Scene::new();
    let hold = scene.watched("orders", Lease::Watchdog(LEASE));
    scene.watchdog.lose(&hold, LossCause::Gone);
    assert_eq!(hold.loss_cause(), Some(LossCause::Gone));
    assert!(scene.watchdog.holds().is_empty());
    until(|| *scene.losses.lock() == ["orders Gone"]);
}

#[test]
fn a_hold_that_has_a_shorter_lease_than_before_is_looked_at_earlier() {
    let scene = Scene::new();
    let short = Lease::Fixed(Duration::from_millis(500));
    let hold = scene.begun(Kind::Reentrant, "orders", short);
    let deadline = time::now() + COMMAND;
    let (claim, request) = hold.reentry(Lease::Fixed(LEASE), deadline);
    let now = scene.store.facts.timeline.now();
    let level = hold.entered(&claim, request, Lease::Fixed(LEASE), now, false);
    scene.watchdog.watch(&hold);
    let plan = hold.leave(level.unwrap(), deadline);
    assert!(matches!(plan, ReleasePlan::Part(..)), "{plan:?}");
    scene.watchdog.rewatch(&hold);
    until(|| hold.loss_cause() == Some(LossCause::LeaseEnded));
}

#[test]
fn the_end_of_a_hold_is_told_while_its_renewal_is_under_way() {
    let scene = Scene::new();
    let gate = scene.store.takes.lock();
    let hold = scene.watched("orders", Lease::Watchdog(Duration::from_millis(400)));
    until(|| hold.loss_cause().is_some());
    assert!(scene.renewed().is_empty());
    drop(gate);
}

#[test]
fn a_hold_that_is_planned_by_an_old_look_at_the_clock_is_looked_at_in_time() {
    let scene = Scene::new();
    let before = scene.watchdog.shared.now();
    let hold = scene.begun(Kind::Reentrant, "orders", Lease::Fixed(LEASE));
    scene.advance(LEASE);
    scene.watchdog.shared.watch(&hold, before, None);
    until(|| hold.loss_cause() == Some(LossCause::LeaseEnded));
}

#[test]
fn who_sets_the_clock_waits_for_no_watchdog_that_has_died() {
    let scene = Scene::new();
    let _hold = scene.watched("orders", Lease::Watchdog(LEASE));
    let gate = scene.store.takes.lock();
    let began = time::now();
    std::thread::scope(|scope| {
        let advances = scope.spawn(|| scene.advance(LEASE / 2));
        sync::sleep(Duration::from_millis(50));
        assert!(!advances.is_finished());
        scene.watchdog.client().watchdog_died();
        assert!(eventually(began + LONG, || advances.is_finished()));
        drop(gate);
    });
}

#[test]
fn the_doubts_that_are_to_be_cleared_up_are_counted() {
    let scene = Scene::new();
    let settle = |name| {
        let hold = scene.begun(Kind::Reentrant, name, Lease::Fixed(LEASE));
        scene.watchdog.settle(hold.in_doubt());
    };
    assert_eq!(scene.watchdog.doubts(), 0);
    let gate = scene.store.gate.lock();
    settle("orders");
    until(|| scene.store.resolved.lock().len() == 1);
    settle("stock");
    settle("users");
    assert_eq!(scene.watchdog.doubts(), 2);
    drop(gate);
    until(|| scene.watchdog.doubts() == 0);
}

#[test]
fn the_hook_is_known_to_those_who_ask_for_it() {
    let scene = Scene::new();
    let hold = scene.begun(Kind::Reentrant, "orders", Lease::Fixed(LEASE));
    let on_lost = scene.watchdog.on_lost().unwrap();
    on_lost(&hold.loss(LossCause::Gone));
    assert_eq!(*scene.losses.lock(), ["orders Gone"]);
}

#[test]
fn a_doubt_without_a_thread_gets_one_as_soon_as_there_is_room() {
    let scene = Scene::new();
    // Neither at once nor at the first look.
    let no_room = &scene.watchdog.shared.clearing.no_room;
    no_room.store(2, Ordering::SeqCst);
    let began = time::now();
    let hold = scene.begun(Kind::Reentrant, "orders", Lease::Fixed(LEASE));
    scene.watchdog.settle(hold.in_doubt());
    until(|| !scene.store.resolved.lock().is_empty());
    assert!(time::since(began) >= ROOM_AGAIN * 2);
    assert_eq!(no_room.load(Ordering::SeqCst), 0);
}
