//! Lost requests and replies: F1 to F4.

use super::*;

#[test]
fn a_lost_reply_to_try_lock_is_unknown_and_leaves_nothing() {
    let fixture = Fixture::new();
    for end in ENDS {
        try_lock_is_unknown_and_leaves_nothing(&fixture, ACQUIRE, Fault::SwallowReply(end));
    }
}

#[test]
fn a_lost_reply_to_a_waiting_call_makes_one_hold() {
    let fixture = Fixture::new();
    for end in ENDS {
        a_waiting_call_gets_one_hold(&fixture, ACQUIRE, Fault::SwallowReply(end));
    }
}

#[test]
fn a_request_that_arrives_twice_counts_once() {
    let fixture = Fixture::new();
    let lock = fixture.warm();
    let mut rules = Vec::new();
    for expected in ["1", "2", "3"] {
        rules.push(fixture.next(1, ACQUIRE, Fault::DuplicateRequest));
        assert!(lock.try_lock().unwrap());
        assert_eq!(counts(&fixture.server, "orders"), [expected]);
    }
    for expected in ["2", "1"] {
        rules.push(fixture.next(1, RELEASE_LEVEL, Fault::DuplicateRequest));
        lock.unlock().unwrap();
        assert_eq!(counts(&fixture.server, "orders"), [expected]);
    }
    rules.push(fixture.next(1, RELEASE, Fault::DuplicateRequest));
    lock.unlock().unwrap();
    is_empty(&fixture.server);
    assert!(rules.iter().all(|rule| rule.hits() == 1));
}

#[test]
fn an_unlock_whose_reply_is_lost_has_unlocked() {
    let fixture = Fixture::new();
    let lock = fixture.warm();
    for end in ENDS {
        lock.lock().unwrap();
        let rule = fixture.next(1, RELEASE, Fault::SwallowReply(end));
        ends_within(TIMEOUT, || lock.unlock().unwrap());
        assert_eq!(rule.hits(), 1);
        is_empty(&fixture.server);
    }
}

#[test]
fn an_unlock_without_any_reply_is_unknown_and_leaves_nothing() {
    let fixture = Fixture::with(quick().watchdog_timeout(ms(900)));
    let lock = fixture.warm();
    let monitor = Monitor::start(&fixture.server);
    for end in ENDS {
        for fault in [Fault::SwallowReply(end), Fault::SwallowRequest(end)] {
            let guard = lock.guard().unwrap();
            let visitor = guard.visitor().to_string();
            fixture.next(FOR_EVER, RELEASE, fault);
            ends_within(TIMEOUT, || fails(guard.unlock(), Class::Unknown));
            assert!(!lock.is_valid(), "it is over here");
            fails(lock.unlock(), Class::NotHeld);
            // The background release succeeds, however long the lease.
            leaves_nothing(&fixture.server);
            eventually(ms(5000), "the withdrawal", || {
                let lines = monitor.lines_containing(&visitor);
                lines.iter().any(|line| line.contains(&sha(WITHDRAW)))
            });
            // A reply ends it; the command in flight may still arrive.
            thread::sleep(ms(50));
            not_heard_of(&monitor, &visitor, ms(400));
            fixture.proxy.heal();
        }
    }
}

#[test]
fn renewals_without_a_reply_extend_nothing() {
    let fixture = Fixture::with(quick().watchdog_timeout(LEASE));
    let lock = fixture.warm();
    let monitor = Monitor::start(&fixture.server);
    let guard = lock.guard().unwrap();
    let visitor = guard.visitor().to_string();
    let lost = guard.lost();
    thread::sleep(LEASE);
    let rule = fixture.next(FOR_EVER, RENEW, Fault::SwallowReply(End::Silent));
    let start = Instant::now();
    while guard.is_valid() {
        // The server has executed them, but only replies extend the validity.
        assert!(start.elapsed() < LEASE, "no renewal was confirmed since");
        thread::sleep(ms(1));
    }
    assert!(guard.remaining_validity().is_zero());
    assert!(rule.hits() > 0);
    let loss = next_loss(&lost, ms(100));
    assert!(
        matches!(loss.cause, LossCause::Unreachable { .. }),
        "{loss}"
    );
    // The holder knows that it lost the lock, so other clients need not wait for the key.
    leaves_nothing(&fixture.server);
    not_heard_of(&monitor, &visitor, LEASE);
    let error = fails(guard.unlock(), Class::Lost);
    assert!(error.to_string().contains("orders"), "{error}");
    is_empty(&fixture.server);
}

#[test]
fn a_lost_request_is_unknown_or_retried() {
    let fixture = Fixture::new();
    for end in ENDS {
        try_lock_is_unknown_and_leaves_nothing(&fixture, ACQUIRE, Fault::SwallowRequest(end));
        a_waiting_call_gets_one_hold(&fixture, ACQUIRE, Fault::SwallowRequest(end));
        let lock = fixture.warm();
        lock.lock().unwrap();
        fixture.next(1, RELEASE, Fault::SwallowRequest(end));
        ends_within(TIMEOUT, || lock.unlock().unwrap());
        is_empty(&fixture.server);
    }
}
