//! The controls for tests of other programs: the clock of a world, and faults in it.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::testing::{self, Controls};
use redlatch::{Client, Error, Guard, LossCause, NoLoss};

use crate::invariants::SLACK;
use crate::support::{eventually, ms};

const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[test]
fn each_world_has_its_own_clock() {
    let (here, there) = (Client::in_memory(), Client::in_memory());
    let hold = |client: &Client| {
        let lock = client.lock("orders").with_lease_time(HOUR);
        lock.guard().unwrap()
    };
    let (ours, theirs) = (hold(&here), hold(&there));
    Controls::of(&here).advance(HOUR);
    // It is the clock of real servers, which no world uses.
    testing::advance_clock(ms(1));
    assert!(!ours.is_valid() && theirs.is_valid());
    assert!(theirs.remaining_validity() > HOUR * 9 / 10);
    assert_eq!(theirs.lost().try_recv(), Err(NoLoss::NotYet));
    assert!(!here.lock("orders").is_locked().unwrap());
    let left = there.lock("orders").remaining_lease().unwrap().unwrap();
    assert!(left > HOUR * 9 / 10, "{left:?}");
    theirs.unlock().unwrap();
}

#[test]
fn advancing_the_clock_reports_ended_holds() {
    let (sender, told) = mpsc::channel();
    let client = Client::builder()
        .on_lost(move |loss| sender.send(loss.clone()).unwrap())
        .in_memory()
        .unwrap();
    let elsewhere = client.another().unwrap();
    let fixed = client.lock("fixed").with_lease_time(HOUR).guard().unwrap();
    let kept = client.lock("kept").guard().unwrap();
    let later = client.lock("later").with_lease_time(HOUR * 2);
    let later = later.guard().unwrap();
    let theirs = elsewhere.lock("theirs").with_lease_time(HOUR);
    let theirs = theirs.guard().unwrap();
    let losses = [&fixed, &kept, &theirs].map(Guard::lost);
    Controls::of(&client).advance(HOUR);
    let [fixed_cause, kept_cause, theirs_cause] =
        losses.map(|losses| losses.try_recv().unwrap().cause);
    assert_eq!(fixed_cause, LossCause::LeaseEnded);
    assert!(matches!(kept_cause, LossCause::Unreachable { .. }));
    assert_eq!(theirs_cause, LossCause::LeaseEnded);
    assert!(later.is_valid());
    let mut names: Vec<_> = (0..3)
        .map(|_| told.recv_timeout(SLACK).unwrap().lock.to_string())
        .collect();
    names.sort();
    assert_eq!(names, ["fixed", "kept", "theirs"]);
    assert!(fixed.unlock().unwrap_err().is_lost());
    later.unlock().unwrap();
}

#[test]
fn waits_go_by_the_clock_of_their_world() {
    let client = Client::in_memory();
    let elsewhere = client.another().unwrap();
    let taken = elsewhere.lock("taken").with_lease_time(YEAR);
    taken.lock().unwrap();
    elsewhere
        .lock("ending")
        .with_lease_time(HOUR)
        .lock()
        .unwrap();
    let began = Instant::now();
    let (taken, ending) = (client.lock("taken"), client.lock("ending"));
    thread::scope(|scope| {
        let refused: Vec<_> = (0..3)
            .map(|_| {
                let taken = taken.clone();
                scope.spawn(move || taken.try_lock_for(HOUR / 2).unwrap())
            })
            .collect();
        let granted = scope.spawn(|| {
            ending.lock().unwrap();
            ending.unlock().unwrap();
        });
        thread::sleep(ms(100));
        let waits_on = scope.spawn(|| taken.try_lock_for(HOUR * 3).unwrap());
        thread::sleep(ms(100));
        assert!(refused.iter().all(|waiting| !waiting.is_finished()));
        Controls::of(&client).advance(HOUR);
        for waiting in refused {
            assert!(!waiting.join().unwrap());
        }
        granted.join().unwrap();
        assert!(!waits_on.is_finished());
        Controls::of(&elsewhere).advance(HOUR * 3);
        assert!(!waits_on.join().unwrap());
    });
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn renewals_fall_due_by_the_clock_of_their_world() {
    let client = Client::in_memory();
    let lock = client.lock("orders");
    let guard = lock.guard().unwrap();
    for _ in 0..5 {
        // Of a lease of 30 s.
        Controls::of(&client).advance(Duration::from_secs(25));
        assert!(guard.is_valid());
        eventually(SLACK, "it is renewed", || {
            guard.remaining_validity() > Duration::from_secs(25)
        });
        assert!(lock.remaining_lease().unwrap().unwrap() > Duration::from_secs(25));
    }
    guard.unlock().unwrap();
}

#[test]
fn names_may_have_the_prefix_or_not() {
    let client = Client::builder().key_prefix("app:").in_memory().unwrap();
    let lock = client.lock("orders");
    for name in ["orders", lock.name()] {
        let guard = lock.guard().unwrap();
        assert!(Controls::of(&client).expire(name), "{name}");
        assert!(!Controls::of(&client).expire(name), "{name}");
        assert!(guard.is_valid());
        assert!(guard.unlock().unwrap_err().is_lost());
    }
    assert!(!Controls::of(&client).expire("invoices"));
    let guard = lock.guard().unwrap();
    Controls::of(&client).lose("orders").unwrap();
    assert!(!guard.is_valid(), "its holder knows when the call returns");
    drop(guard);
    let error = Controls::of(&client).lose("orders").unwrap_err();
    assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
    let short = lock.with_lease_time(ms(10));
    short.lock().unwrap();
    thread::sleep(ms(20));
    assert!(!Controls::of(&client).expire("orders"), "it has ended");
}

#[test]
fn a_lost_reply_is_an_unknown_outcome() {
    let client = Client::in_memory();
    let elsewhere = client.another().unwrap().lock("orders");
    let controls = Controls::of(&client);
    let lock = client.lock("orders");
    let is_unknown = |result: redlatch::Result<()>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    };
    // An acquisition was executed, and is undone.
    controls.lose_answers(1);
    is_unknown(lock.try_lock().map(drop));
    assert!(!lock.is_valid());
    assert!(elsewhere.try_lock_for(SLACK).unwrap());
    elsewhere.unlock().unwrap();
    // A wait survives the fault.
    controls.lose_answers(2);
    lock.lock().unwrap();
    // Re-entry and partial release.
    controls.lose_answers(1);
    is_unknown(lock.try_lock().map(drop));
    lock.lock().unwrap();
    controls.lose_answers(1);
    is_unknown(lock.unlock());
    assert!(lock.is_valid() && lock.hold_count().unwrap() == 1);
    // A query changes nothing.
    controls.lose_answers(1);
    let error = lock.is_locked().unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    // The release was executed.
    controls.lose_answers(1);
    is_unknown(lock.unlock());
    assert!(!lock.is_locked().unwrap());
    // A hand-off was executed, and its successor does not hold.
    lock.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            lock.lock().unwrap();
            lock.unlock().unwrap();
        });
        thread::sleep(ms(100));
        controls.lose_answers(1);
        is_unknown(lock.unlock());
        waiting.join().unwrap();
    });
    lock.lock().unwrap();
    controls.lose_answers(1);
    is_unknown(lock.force_unlock().map(drop));
    assert!(!lock.is_locked().unwrap());
    assert!(lock.unlock().unwrap_err().is_lost());
}

#[test]
fn a_lock_is_free_at_the_end_of_its_lease() {
    let client = Client::in_memory();
    for _ in 0..50 {
        for lock in [client.lock("plain"), client.fair_lock("fair")] {
            let lock = lock.with_lease_time(SLACK);
            lock.lock().unwrap();
            Controls::of(&client).advance(SLACK);
            assert!(!lock.is_locked().unwrap());
        }
    }
}
