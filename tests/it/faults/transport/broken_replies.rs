//! Replies that are extra, truncated, repeated or slow: F7, F9 and F10.

use super::*;

/// The effect on later requests when the reply to `ask` comes twice.
fn an_extra_reply_is_dropped(script: &str, after: Duration, ask: fn(&Lock)) {
    let fixture = Fixture::new();
    let others = fixture.undisturbed().lock("taken");
    others.lock().unwrap();
    let lock = fixture.warm();
    let rule = fixture.next(1, script, Fault::RepeatReply(after));
    ask(&lock);
    let taken = fixture.client.lock("taken");
    assert!(!taken.try_lock().unwrap(), "after {script}, {after:?}");
    assert!(!taken.is_held_by_current_thread().unwrap());
    assert_eq!(rule.hits(), 1);
    // And later replies are matched correctly.
    let free = fixture.client.lock("free");
    assert!(free.try_lock().unwrap() && free.is_locked().unwrap());
    free.unlock().unwrap();
    assert!(!free.is_locked().unwrap());
    others.unlock().unwrap();
    assert!(taken.try_lock().unwrap());
    taken.unlock().unwrap();
    if lock.is_held_by_current_thread().unwrap() {
        lock.unlock().unwrap();
    }
    is_empty(&fixture.server);
}

#[test]
fn an_extra_reply_is_not_used_for_the_next_request() {
    for after in [ms(0), ms(40)] {
        an_extra_reply_is_dropped(RELEASE, after, |lock| {
            lock.lock().unwrap();
            lock.unlock().unwrap();
        });
        an_extra_reply_is_dropped(ACQUIRE, after, |lock| {
            lock.lock().unwrap();
        });
        an_extra_reply_is_dropped(INSPECT, after, |lock| {
            assert!(!lock.is_locked().unwrap());
        });
    }
}

#[test]
fn a_truncated_reply_is_not_used() {
    let fixture = Fixture::new();
    for bytes in [0, 1, 6] {
        let fault = Fault::TruncateReply(bytes);
        try_lock_is_unknown_and_leaves_nothing(&fixture, ACQUIRE, fault);
        a_waiting_call_gets_one_hold(&fixture, ACQUIRE, fault);
        let lock = fixture.warm();
        fixture.next(1, INSPECT, fault);
        fails(lock.is_locked(), Class::Unreachable);
        assert!(!lock.is_locked().unwrap());
        lock.lock().unwrap();
        fixture.next(1, RELEASE, fault);
        lock.unlock().unwrap();
        is_empty(&fixture.server);
    }
}

#[test]
fn a_slow_reply_ends_at_the_command_timeout() {
    let fixture = Fixture::new();
    let lock = fixture.warm();
    // More than ten bytes: each arrives in time, but not all of them together.
    let drip = Fault::Drip(ms(400));
    fixture.next(1, INSPECT, drip);
    ends_within(TIMEOUT, || fails(lock.is_locked(), Class::Unreachable));
    fixture.next(1, ACQUIRE, drip);
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
    leaves_nothing(&fixture.server);
    lock.lock().unwrap();
    // `:1` and its line end are four bytes.
    fixture.next(2, RELEASE, Fault::Drip(ms(1000)));
    ends_within(TIMEOUT, || fails(lock.unlock(), Class::Unknown));
    is_empty(&fixture.server);
}
