//! Requests and replies that are lost: F1 to F4.

use super::*;

#[test]
fn a_lost_reply_to_a_try_is_unknown_and_leaves_nothing() {
    let scene = Scene::new();
    for end in ENDS {
        try_lock_is_unknown_and_leaves_nothing(&scene, ACQUIRE, Fault::SwallowReply(end));
    }
}

#[test]
fn a_lost_reply_to_a_waiting_call_makes_one_hold() {
    let scene = Scene::new();
    for end in ENDS {
        a_waiting_call_gets_one_hold(&scene, ACQUIRE, Fault::SwallowReply(end));
    }
}

#[test]
fn a_lost_reply_to_a_reentry_counts_once() {
    let scene = Scene::new();
    let lock = scene.warm();
    lock.lock().unwrap();
    let rule = scene.next(1, ACQUIRE, Fault::SwallowReply(End::Reset));
    assert!(lock.try_lock().unwrap(), "a copy of it changes nothing");
    assert_eq!(rule.hits(), 1);
    assert_eq!(counts(&scene.server, "orders"), ["2"]);
    lock.unlock().unwrap();
    assert_eq!(counts(&scene.server, "orders"), ["1"]);
    one_hold_and_then_none(&scene, &lock);
}

#[test]
fn a_reentry_of_unknown_outcome_leaves_the_outer_hold_as_it_was() {
    let scene = Scene::with(quick().watchdog_timeout(LEASE));
    let lock = scene.warm();
    let guard = lock.guard().unwrap();
    scene.next(1, ACQUIRE, Fault::SwallowReply(End::Silent));
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
    assert!(guard.is_valid());
    assert_eq!(counts(&scene.server, "orders"), ["2"], "it ran");
    assert_eq!(lock.hold_count().unwrap(), 1, "it has one level to unlock");
    thread::sleep(LEASE + ms(300));
    assert!(guard.is_valid(), "it is renewed as before");
    // The count is put right by the next change of it.
    lock.lock().unwrap();
    assert_eq!(counts(&scene.server, "orders"), ["2"]);
    lock.lock().unwrap();
    assert_eq!(counts(&scene.server, "orders"), ["3"]);
    lock.unlock().unwrap();
    lock.unlock().unwrap();
    assert_eq!(counts(&scene.server, "orders"), ["1"]);
    guard.unlock().unwrap();
    is_empty(&scene.server);

    // What the store counts too many is gone with the last unlock.
    let guard = lock.guard().unwrap();
    scene.next(1, ACQUIRE, Fault::SwallowReply(End::Silent));
    fails(lock.try_lock(), Class::Unknown);
    guard.unlock().unwrap();
    is_empty(&scene.server);
}

#[test]
fn a_wait_without_any_reply_is_unknown_and_leaves_nothing() {
    let scene = Scene::new();
    let lock = scene.client.lock("orders");
    for end in ENDS {
        scene.next(FOR_EVER, ACQUIRE, Fault::SwallowReply(end));
        let start = Instant::now();
        ends_within(ms(700), || {
            fails(lock.try_lock_for(ms(700)), Class::Unknown)
        });
        assert!(start.elapsed() >= ms(700));
        scene.proxy.heal();
        leaves_nothing(&scene.server);
        assert!(scene.undisturbed().lock("orders").try_lock().unwrap());
        scene.server.cmd(&["FLUSHALL"]);
    }
    // `lock()` has no deadline, but does not wait for ever.
    scene.next(FOR_EVER, ACQUIRE, Fault::SwallowReply(End::Silent));
    let start = Instant::now();
    ends_within(ms(800) + TIMEOUT, || fails(lock.lock(), Class::Unknown));
    assert!(start.elapsed() >= ms(800), "the outage time-out");
    scene.proxy.heal();
    leaves_nothing(&scene.server);
}

#[test]
fn a_request_that_arrives_twice_counts_once() {
    let scene = Scene::new();
    let lock = scene.warm();
    let mut rules = Vec::new();
    for expected in ["1", "2", "3"] {
        rules.push(scene.next(1, ACQUIRE, Fault::DuplicateRequest));
        assert!(lock.try_lock().unwrap());
        assert_eq!(counts(&scene.server, "orders"), [expected]);
    }
    for expected in ["2", "1"] {
        rules.push(scene.next(1, RELEASE_LEVEL, Fault::DuplicateRequest));
        lock.unlock().unwrap();
        assert_eq!(counts(&scene.server, "orders"), [expected]);
    }
    rules.push(scene.next(1, RELEASE, Fault::DuplicateRequest));
    lock.unlock().unwrap();
    is_empty(&scene.server);
    assert!(rules.iter().all(|rule| rule.hits() == 1));
}

#[test]
fn an_unlock_whose_reply_is_lost_has_unlocked() {
    let scene = Scene::new();
    let lock = scene.warm();
    for end in ENDS {
        lock.lock().unwrap();
        let rule = scene.next(1, RELEASE, Fault::SwallowReply(end));
        ends_within(TIMEOUT, || lock.unlock().unwrap());
        assert_eq!(rule.hits(), 1);
        is_empty(&scene.server);
    }
}

#[test]
fn an_unlock_without_any_reply_is_unknown_and_leaves_nothing() {
    let scene = Scene::with(quick().watchdog_timeout(ms(900)));
    let lock = scene.warm();
    let monitor = Monitor::start(&scene.server);
    for end in ENDS {
        for fault in [Fault::SwallowReply(end), Fault::SwallowRequest(end)] {
            let guard = lock.guard().unwrap();
            let visitor = guard.visitor().to_string();
            scene.next(FOR_EVER, RELEASE, fault);
            ends_within(TIMEOUT, || fails(guard.unlock(), Class::Unknown));
            assert!(!lock.is_valid(), "it is over here");
            fails(lock.unlock(), Class::NotHeld);
            // The background release finds a way, however long the lease.
            leaves_nothing(&scene.server);
            eventually(ms(5000), "the withdrawal", || {
                let lines = monitor.lines_containing(&visitor);
                lines.iter().any(|line| line.contains(&sha(WITHDRAW)))
            });
            // An answer ends it; the command under way may still be seen.
            thread::sleep(ms(50));
            not_heard_of(&monitor, &visitor, ms(400));
            scene.proxy.heal();
        }
    }
}

#[test]
fn the_second_try_of_an_unlock_does_not_free_the_next_holder() {
    let scene = Scene::new();
    let lock = scene.warm();
    let undisturbed = scene.undisturbed();
    let next = undisturbed.lock("orders");
    lock.lock().unwrap();
    thread::scope(|scope| {
        let taken = scope.spawn(|| {
            assert!(next.try_lock_for(Duration::from_secs(10)).unwrap());
            let began = Instant::now();
            // The first holder is still in its unlock, and its second try is yet to come.
            thread::sleep(TIMEOUT);
            assert!(next.is_held_by_current_thread().unwrap());
            assert!(next.is_valid());
            next.unlock().unwrap();
            began
        });
        somebody_waits(&scene.server, "orders");
        let rule = scene.next(1, RELEASE, Fault::SwallowReply(End::Silent));
        lock.unlock().unwrap();
        let ended = Instant::now();
        assert_eq!(rule.hits(), 1);
        assert!(taken.join().unwrap() < ended, "the test was too slow");
    });
    is_empty(&scene.server);
}

#[test]
fn an_unlock_of_what_is_gone_is_a_loss_on_the_first_try() {
    let scene = Scene::new();
    let lock = scene.warm();
    lock.lock().unwrap();
    scene.server.cmd(&["DEL", "orders"]);
    let error = fails(lock.unlock(), Class::Lost);
    assert!(error.to_string().contains("gone"), "{error}");

    lock.lock().unwrap();
    lock.lock().unwrap();
    scene.server.cmd(&["DEL", "orders"]);
    fails(lock.unlock(), Class::Lost);
    assert!(!lock.is_valid());
    fails(lock.unlock(), Class::Lost);
    fails(lock.unlock(), Class::NotHeld);
    is_empty(&scene.server);
}

#[test]
fn a_partial_unlock_whose_reply_is_lost_has_given_back_one_level() {
    let scene = Scene::with(quick().watchdog_timeout(LEASE));
    let lock = scene.warm();
    for fault in [
        Fault::SwallowReply(End::Reset),
        Fault::SwallowRequest(End::Reset),
    ] {
        lock.lock().unwrap();
        lock.lock().unwrap();
        scene.next(1, RELEASE_LEVEL, fault);
        ends_within(TIMEOUT, || lock.unlock().unwrap());
        one_hold_and_then_none(&scene, &lock);
    }
    for (fault, count) in [
        (Fault::SwallowReply(End::Silent), "1"),
        (Fault::SwallowRequest(End::Silent), "2"),
    ] {
        lock.lock().unwrap();
        lock.lock().unwrap();
        scene.next(1, RELEASE_LEVEL, fault);
        ends_within(TIMEOUT, || fails(lock.unlock(), Class::Unknown));
        assert_eq!(counts(&scene.server, "orders"), [count]);
        assert_eq!(lock.hold_count().unwrap(), 1);
        thread::sleep(LEASE + ms(200));
        assert!(lock.is_valid(), "what remains is renewed");
        lock.unlock().unwrap();
        is_empty(&scene.server);
    }
}

#[test]
fn a_hold_outlives_some_lost_renewals() {
    let scene = Scene::with(quick().watchdog_timeout(LEASE));
    let lock = scene.warm();
    let guard = lock.guard().unwrap();
    let rules = [
        Fault::SwallowReply(End::Reset),
        Fault::SwallowReply(End::Silent),
        Fault::SwallowRequest(End::Reset),
        Fault::TruncateReply(2),
        Fault::SwallowRequest(End::Silent),
    ]
    .map(|fault| {
        let rule = scene.next(1, RENEW, fault);
        let start = Instant::now();
        while rule.hits() == 0 || start.elapsed() < LEASE / 2 {
            assert!(guard.is_valid(), "{fault:?} after {:?}", start.elapsed());
            assert!(start.elapsed() < LEASE * 2, "no renewal is sent");
            thread::sleep(ms(5));
        }
        rule
    });
    assert!(rules.iter().all(|rule| rule.hits() == 1));
    guard.unlock().unwrap();
    is_empty(&scene.server);
}

#[test]
fn renewals_without_a_reply_extend_nothing() {
    let scene = Scene::with(quick().watchdog_timeout(LEASE));
    let lock = scene.warm();
    let monitor = Monitor::start(&scene.server);
    let guard = lock.guard().unwrap();
    let visitor = guard.visitor().to_string();
    let lost = guard.lost();
    thread::sleep(LEASE);
    let rule = scene.next(FOR_EVER, RENEW, Fault::SwallowReply(End::Silent));
    let start = Instant::now();
    while guard.is_valid() {
        // The server has executed them, but what counts is what is known here.
        assert!(start.elapsed() < LEASE, "no renewal was confirmed since");
        thread::sleep(ms(1));
    }
    assert!(guard.remaining_validity().is_zero());
    assert!(rule.hits() > 0);
    let loss = told(&lost, ms(100));
    assert!(
        matches!(loss.cause, LossCause::Unreachable { .. }),
        "{loss}"
    );
    // The holder has been told to stop, so others need not wait for what the server still has.
    leaves_nothing(&scene.server);
    not_heard_of(&monitor, &visitor, LEASE);
    let error = fails(guard.unlock(), Class::Lost);
    assert!(error.to_string().contains("orders"), "{error}");
    is_empty(&scene.server);
}

#[test]
fn a_lost_request_is_unknown_or_tried_again() {
    let scene = Scene::new();
    for end in ENDS {
        try_lock_is_unknown_and_leaves_nothing(&scene, ACQUIRE, Fault::SwallowRequest(end));
        a_waiting_call_gets_one_hold(&scene, ACQUIRE, Fault::SwallowRequest(end));
        let lock = scene.warm();
        lock.lock().unwrap();
        scene.next(1, RELEASE, Fault::SwallowRequest(end));
        ends_within(TIMEOUT, || lock.unlock().unwrap());
        is_empty(&scene.server);
    }
}
