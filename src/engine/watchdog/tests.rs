//! The fate of holds that are looked after, of a store that answers as a test says, on a clock that the test sets.
#![allow(
    clippy::unwrap_used,
    clippy::unreachable,
    reason = "a test that cannot go on has failed"
)]

mod ends;
mod parts;
mod scene;

use super::*;
use crate::engine::hold::{Lease, ReleasePlan};
use crate::engine::wait_queue::Turn;
use crate::ground::claim::Kind;
use crate::ground::loss::{Loss, NoLoss};
use crate::ground::notify::Notifier;
use crate::store::Renewal;
use scene::{Answering, COMMAND, LEASE, LONG, Scene, until};

fn unreachable() -> LossCause {
    LossCause::Unreachable {
        reason: "it is silent".to_owned(),
    }
}

#[test]
fn holds_that_count_on_renewal_are_renewed_and_others_end() {
    let scene = Scene::new();
    let holds = ["orders", "stock"].map(|name| scene.watched(name, Lease::Watchdog(LEASE)));
    let fixed = scene.watched("users", Lease::Fixed(LEASE));
    for _ in 0..6 {
        scene.advance(LEASE / 3);
        assert!(holds.iter().all(|hold| hold.is_valid()));
    }
    let renewed = scene.renewed().concat();
    assert!(!renewed.contains(&"users".to_owned()));
    assert_eq!(fixed.loss_cause(), Some(LossCause::LeaseEnded));
    until(|| *scene.losses.lock() == ["users LeaseEnded"]);
}

#[test]
fn a_hold_is_renewed_at_a_third_of_its_lease() {
    let scene = Scene::new();
    let lease = Duration::from_millis(1_500);
    let began = time::now();
    let hold = scene.watched("orders", Lease::Watchdog(lease));
    until(|| !scene.renewed().is_empty());
    assert!(hold.is_valid());
    assert!(scene.store.renewed.lock()[0].0.duration_since(began) >= lease / 4);
}

#[test]
fn who_sets_the_clock_waits_for_the_renewals_that_fell_due() {
    let scene = Scene::new();
    let hold = scene.watched("orders", Lease::Watchdog(LEASE));
    *scene.store.takes.lock() = Duration::from_millis(90);
    for times in 1..3 {
        scene.advance(LEASE / 2);
        assert_eq!(scene.renewed().len(), times);
        assert!(hold.remaining_validity() > LEASE / 2);
    }
}

#[test]
fn a_renewal_takes_a_quarter_of_the_lease_at_most() {
    for (lease, most) in [(LEASE, COMMAND), (Duration::from_secs(8), COMMAND * 2 / 5)] {
        let scene = Scene::new();
        let _hold = scene.watched("orders", Lease::Watchdog(lease));
        let before = time::now();
        scene.watchdog.check_now("orders");
        until(|| !scene.renewed().is_empty());
        let (came, deadline, _) = scene.store.renewed.lock()[0].clone();
        assert!(
            (before + most..=came + most).contains(&deadline),
            "{lease:?}"
        );
    }
}

#[test]
fn a_renewal_without_an_answer_is_tried_again_soon() {
    let scene = Scene::new();
    let lease = Duration::from_millis(1_500);
    let unknown = || Renewal::Unknown("it is silent".to_owned());
    scene.store.answers.lock().extend([unknown(), unknown()]);
    let hold = scene.watched("orders", Lease::Watchdog(lease));
    scene.watchdog.check_now("orders");
    // A second between two of them would be too long.
    until(|| scene.renewed().len() == 3 || hold.loss_cause().is_some());
    assert!(hold.is_valid());
    let renewed = scene.store.renewed.lock();
    assert!(renewed[1].0.duration_since(renewed[0].0) >= lease / 20);
}

#[test]
fn a_hold_that_the_store_has_not_is_lost_and_told_once() {
    let scene = Scene::new();
    let hold = scene.watched("orders", Lease::Watchdog(LEASE));
    scene
        .store
        .answers
        .lock()
        .push_back(Renewal::Lost(LossCause::Gone));
    scene.advance(LEASE / 2);
    assert_eq!(hold.loss_cause(), Some(LossCause::Gone));
    scene.advance(LEASE);
    scene.watchdog.end(&hold, unreachable());
    scene.watchdog.expire(&hold);
    scene.stop();
    assert_eq!(*scene.losses.lock(), ["orders Gone"]);
    assert_eq!(scene.renewed().len(), 1);
}

#[test]
fn a_renewal_for_less_than_the_lease_ends_with_what_it_was_taken_from() {
    let scene = Scene::new();
    let kind = Kind::Permits;
    let hold = scene.begun(kind, "orders", Lease::Watchdog(LEASE));
    let short = LEASE / 6;
    scene
        .store
        .answers
        .lock()
        .push_back(Renewal::RenewedFor(short));
    scene.watchdog.watch(&hold);
    scene.advance(LEASE / 2);
    assert!(hold.remaining_validity() <= short);
}

#[test]
fn the_end_of_a_lease_lets_those_who_wait_here_ask() {
    let scene = Scene::new();
    let hold = scene.watched("orders", Lease::Fixed(LEASE));
    let queues = &scene.watchdog.shared.wait_queues;
    let parker = Notifier::default().parker();
    let offer = || HandOffOffer {
        thread: 2,
        liveness: Arc::downgrade(&scene.thread),
        lease: Lease::Fixed(LEASE),
    };
    let join = || queues.join(&hold.lock(), &parker, offer());
    let (first, second) = (join(), join());
    first.leave(true, false);
    assert_eq!(second.view().turn, Turn::HeldLocally);
    scene.advance(LEASE);
    assert_eq!(second.view().turn, Turn::Attempt);
}

#[test]
fn what_may_still_stand_in_the_store_is_cleared_up_after_a_loss() {
    let plain = Kind::Reentrant;
    let held_by = || LossCause::HeldBy("another".to_owned());
    let rows = [
        (
            "a silent store may have it",
            false,
            plain,
            unreachable(),
            true,
        ),
        ("it is gone", false, plain, LossCause::Gone, false),
        ("another one has it", false, plain, held_by(), false),
        (
            "its lease is over",
            false,
            plain,
            LossCause::LeaseEnded,
            false,
        ),
        (
            "the count of a side may be left",
            false,
            Kind::Read,
            LossCause::Gone,
            true,
        ),
        (
            "a side that another one has",
            false,
            Kind::Read,
            held_by(),
            false,
        ),
        ("some parts may have it", true, plain, LossCause::Gone, true),
    ];
    for (row, is_composite, kind, cause, is_left) in rows {
        for may_outlast in [false, true] {
            let scene = Scene::of(is_composite);
            let hold = scene.begun(kind, "orders", Lease::Watchdog(LEASE));
            if may_outlast {
                hold.note_other_side();
            }
            scene.watchdog.watch(&hold);
            for _ in 0..2 {
                scene.watchdog.end(&hold, cause.clone());
            }
            let times = usize::from(is_left || may_outlast);
            assert_eq!(
                scene.resolved(),
                vec!["orders"; times],
                "{row}, {may_outlast}"
            );
            assert!(scene.watchdog.holds().is_empty());
        }
    }
}

#[test]
fn a_loss_that_a_release_finds_is_told() {
    for may_outlast in [false, true] {
        let scene = Scene::new();
        let hold = scene.begun(Kind::Reentrant, "orders", Lease::Watchdog(LEASE));
        if may_outlast {
            hold.note_other_side();
        }
        hold.leave(0, time::now());
        scene.watchdog.lost_in_release(&hold, LossCause::Gone);
        assert_eq!(scene.resolved(), vec!["orders"; usize::from(may_outlast)]);
        until(|| *scene.losses.lock() == ["orders Gone"]);
    }
}

#[test]
fn a_lock_is_asked_after_at_once_by_its_name_and_all_where_another_server_took_over() {
    let scene = Scene::new();
    for name in ["orders", "stock"] {
        scene.watched(name, Lease::Watchdog(LEASE));
    }
    scene.watchdog.check_now("users");
    scene.watchdog.check_now("stock");
    until(|| scene.renewed() == [["stock"]]);
    // So that it is over, and the next one planned.
    scene.advance(Duration::ZERO);
    let before = scene.renewed().len();
    let announcements = &scene.store.facts.announcements;
    announcements.announce(Announcement::TakenOver);
    let is_asked_after = |name: &str| {
        let renewed = scene.renewed()[before..].concat();
        renewed.iter().any(|it| it == name)
    };
    until(|| is_asked_after("orders") && is_asked_after("stock"));
    let left = scene.begun(Kind::Reentrant, "users", Lease::Fixed(LEASE));
    announcements.announce(Announcement::Leftover(left.in_doubt()));
    assert_eq!(scene.resolved(), ["users"]);
}

#[test]
fn what_is_not_looked_after_any_more_is_neither_renewed_nor_told() {
    let scene = Scene::new();
    let hold = scene.watched("orders", Lease::Watchdog(LEASE));
    let other = scene.watched("stock", Lease::Watchdog(LEASE));
    let names = || {
        let holds = scene.watchdog.holds();
        holds
            .iter()
            .map(|it| it.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names().len(), 2);
    scene.watchdog.unwatch(&hold);
    assert_eq!(names(), ["stock"]);
    scene.advance(LEASE / 2);
    scene.advance(LEASE * 2 / 3);
    assert!(scene.renewed().iter().all(|names| names == &["stock"]));
    assert!(hold.loss_cause().is_none() && other.is_valid());
}

#[test]
fn the_age_of_the_oldest_hold_is_told() {
    let scene = Scene::new();
    assert_eq!(scene.watchdog.oldest_hold(), None);
    let counted = |name: &str| {
        let hold = scene.begun(Kind::Reentrant, name, Lease::Fixed(LEASE));
        let hold = Arc::into_inner(hold)
            .unwrap()
            .counted_in(Default::default());
        assert!(hold.begin());
        let hold = Arc::new(hold);
        scene.watchdog.watch(&hold);
        hold
    };
    let _first = counted("orders");
    scene.advance(LEASE / 2);
    let _second = counted("stock");
    let oldest = scene.watchdog.oldest_hold().unwrap();
    assert!(oldest >= LEASE / 2 && oldest < LEASE, "{oldest:?}");
}

#[test]
fn a_client_that_has_ended_looks_after_nothing() {
    let scene = Scene::new();
    let hold = scene.watched("orders", Lease::Watchdog(LEASE));
    assert_eq!(hold.news().wait(Some(time::now())), Err(NoLoss::NotYet));
    scene.stop();
    let is_closed = |hold: &Hold| {
        let told = hold.news().wait(Some(time::now()));
        told.is_ok_and(|loss| loss.cause == LossCause::Closed)
    };
    assert!(is_closed(&hold));
    assert!(is_closed(&scene.watched("stock", Lease::Watchdog(LEASE))));
    let ended = scene.watchdog.ensure_running(&"orders".into());
    assert!(matches!(ended, Err(Error::Closed { .. })));
    assert!(scene.watchdog.threads.lock().handles.is_empty());
    scene.advance(LEASE / 2);
    assert!(scene.renewed().is_empty() && hold.is_valid());
}

#[test]
fn what_is_given_back_without_a_wait_is_released_also_where_the_client_has_ended() {
    let scene = Scene::new();
    let in_doubt = |name| {
        scene
            .begun(Kind::Reentrant, name, Lease::Fixed(LEASE))
            .in_doubt()
    };
    let deadline = time::now() + COMMAND;
    assert!(scene.watchdog.release_later(in_doubt("orders")));
    scene.watchdog.withdraw(in_doubt("stock"), deadline);
    assert_eq!(scene.resolved(), ["orders", "stock"]);
    scene.stop();
    assert!(!scene.watchdog.release_later(in_doubt("orders")));
    scene.watchdog.withdraw(in_doubt("users"), deadline);
    assert_eq!(scene.store.resolved.lock().last().unwrap(), "users");
}

#[test]
fn nothing_is_valid_once_a_thread_has_died() {
    let scene = Scene::new();
    let holds = [
        scene.watched("orders", Lease::Watchdog(LEASE)),
        scene.watched("stock", Lease::Fixed(LEASE)),
    ];
    let unknown = scene.begun(Kind::Reentrant, "users", Lease::Fixed(LEASE));
    assert!(unknown.is_valid());
    scene.watchdog.die();
    until(|| holds.iter().all(|hold| hold.loss_cause().is_some()));
    assert!(!unknown.is_valid());
    for hold in holds {
        assert_eq!(hold.loss_cause(), Some(LossCause::WatchdogDied));
    }
    let died = scene.watchdog.ensure_running(&"orders".into());
    assert!(matches!(died, Err(Error::WatchdogDied { .. })));
    // It waits for nobody who is dead.
    scene.advance(LEASE);
}

#[test]
fn a_hold_that_fell_due_when_the_thread_died_is_lost_too() {
    let scene = Scene::new();
    scene.watchdog.shared.die.store(true, Ordering::Release);
    let hold = scene.watched("orders", Lease::Watchdog(LEASE));
    scene.watchdog.check_now("orders");
    until(|| hold.loss_cause() == Some(LossCause::WatchdogDied));
}

#[test]
fn the_end_of_a_client_waits_for_the_hook_that_runs() {
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    let began = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&began);
    let on_lost: OnLost = Arc::new(move |_: &Loss| {
        begins.store(true, Ordering::Release);
        sync::sleep(Duration::from_millis(60));
        told.store(true, Ordering::Release);
    });
    let scene = Scene::new();
    let watchdog = Watchdog::new(
        Arc::<Answering>::clone(&scene.store),
        Arc::default(),
        COMMAND,
        Arc::default(),
        Some(on_lost),
    );
    watchdog.ensure_running(&"orders".into()).unwrap();
    let hold = scene.begun(Kind::Reentrant, "orders", Lease::Fixed(LEASE));
    watchdog.end(&hold, LossCause::Gone);
    until(|| began.load(Ordering::Acquire));
    let deadline = time::now() + LONG;
    watchdog.stop(deadline, deadline);
    assert!(is_over.load(Ordering::Acquire));
}

#[cfg(feature = "tracing")]
#[test]
fn the_settings_of_the_server_are_looked_at_once() {
    let scene = Scene::new();
    until(|| {
        scene
            .store
            .checked
            .lock()
            .is_some_and(|left| left > COMMAND / 2)
    });
}
