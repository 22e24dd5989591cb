//! Late requests and replies: F5 and F6.

use super::*;

#[test]
fn a_request_that_waited_in_a_frozen_server_grants_nothing() {
    // With one slot, the next request uses the connection of the last one.
    let fixture = Fixture::with(quick().pool_size(1));
    let lock = fixture.warm();
    let monitor = Monitor::start(&fixture.server);
    for round in 0..6 {
        // Long enough for the last release in the background; they are at most half a second apart.
        thread::sleep(ms(1200));
        monitor.clear();
        fixture.server.freeze();
        ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
        // Sometimes the background release overtakes the request.
        thread::sleep(ms(100 * round));
        fixture.server.thaw();
        leaves_nothing(&fixture.server);
        // The server's clock is known up to a round trip. A request within it is executed, and released again.
        if round >= 2 {
            assert_eq!(
                written(&monitor, fixture.client.id()),
                Vec::<String>::new(),
                "the request was executed after its caller had left"
            );
        }
        assert!(
            !monitor.lines_containing(&sha(ACQUIRE)).is_empty(),
            "the request has arrived late"
        );
        assert!(lock.try_lock().unwrap(), "later requests are not too late");
        lock.unlock().unwrap();
    }
    is_empty(&fixture.server);
}

#[test]
fn a_request_that_arrives_after_its_call_ended_grants_nothing() {
    let fixture = Fixture::new();
    let lock = fixture.warm();
    let monitor = Monitor::start(&fixture.server);
    let rule = fixture.next(1, ACQUIRE, Fault::Hold);
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
    eventually(ms(5000), "the withdrawal", || {
        !monitor.lines_containing(&sha(WITHDRAW)).is_empty()
    });
    // Long enough for the last release in the background; they are at most half a second apart.
    thread::sleep(ms(1200));
    monitor.clear();
    rule.release();
    eventually(ms(5000), "the late request", || {
        !monitor.lines_containing(&sha(ACQUIRE)).is_empty()
    });
    assert_eq!(written(&monitor, fixture.client.id()), Vec::<String>::new());
    is_empty(&fixture.server);
    assert!(
        monitor.lines_containing(&sha(WITHDRAW)).is_empty(),
        "they have ended"
    );
}

#[test]
fn a_late_release_and_a_late_renewal_do_not_touch_the_next_hold() {
    let fixture = Fixture::with(quick().watchdog_timeout(LEASE));
    let lock = fixture.warm();
    let monitor = Monitor::start(&fixture.server);
    lock.lock().unwrap();
    // The first request contains the script's text.
    let first = fixture.next(1, RENEW, Fault::DelayReply(ms(0)));
    eventually(LEASE + SLACK, "the first renewal", || first.hits() == 1);
    let renewal = fixture.next(1, RENEW, Fault::Hold);
    let release = fixture.next(2, RELEASE, Fault::Hold);
    eventually(LEASE + SLACK, "a renewal", || renewal.hits() == 1);
    fails(lock.unlock(), Class::Unknown);
    leaves_nothing(&fixture.server);
    // The same thread of the same client, again.
    let minute = lock.with_lease_time(Duration::from_secs(60));
    let guard = minute.guard().unwrap();
    monitor.clear();
    renewal.release();
    release.release();
    for script in [RENEW, RELEASE] {
        eventually(ms(5000), "the late request", || {
            !monitor.lines_containing(&sha(script)).is_empty()
        });
    }
    assert_eq!(counts(&fixture.server, "orders"), ["1"]);
    assert!(fixture.server.int(&["PTTL", "orders"]) > 50_000);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    is_empty(&fixture.server);
}

#[test]
fn a_late_reply_is_not_used_for_the_next_request() {
    let fixture = Fixture::with(quick().pool_size(1).command_timeout(ms(300)));
    let held = fixture.client.lock("held");
    let free = fixture.client.lock("free");
    held.lock().unwrap();
    assert!(held.is_locked().unwrap());
    let accepted = fixture.proxy.counters().accepted;
    fixture.server.cmd(&["CLIENT", "PAUSE", "600", "ALL"]);
    ends_within(ms(300), || fails(held.is_locked(), Class::Unreachable));
    eventually(ms(5000), "an answer", || free.is_locked().is_ok());
    for _ in 0..5 {
        assert!(!free.is_locked().unwrap());
        assert!(held.is_locked().unwrap());
    }
    assert!(
        fixture.proxy.counters().accepted > accepted,
        "a connection that has timed out is closed"
    );
    held.unlock().unwrap();
}
