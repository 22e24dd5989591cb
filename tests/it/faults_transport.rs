//! Faults on the way between client and server: F1 .. F14 of the catalogue, except those that need a root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use redlatch::{Builder, Client, Lock, LossCause};

use crate::invariants::{
    ACQUIRE, Class, FORCE_RELEASE, INSPECT, RELEASE, RELEASE_LEVEL, RENEW, SLACK, TIMEOUT,
    WITHDRAW, connections, counts, ends_within, every_key_expires, fails, is_empty, leaves_nothing,
    no_connection_is_left, not_heard_of, quick, sha, somebody_waits, subscriptions, teach, told,
    written,
};
use crate::support::proxy::Rule;
use crate::support::{End, Fault, Monitor, Proxy, RedisServer, eventually, ms};

/// A lease that is long enough to be kept on a busy machine, and short enough to see some of its ends.
const LEASE: Duration = ms(1500);

const ENDS: [End; 2] = [End::Reset, End::Silent];

const FOR_EVER: usize = usize::MAX;

/// A client behind a proxy, and a server that knows all scripts. The client goes first.
struct Scene {
    client: Client,
    proxy: Proxy,
    server: RedisServer,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(quick())
    }

    fn with(builder: Builder) -> Scene {
        let server = RedisServer::start();
        teach(&server);
        let proxy = Proxy::to(server.addr());
        let client = builder.open(&proxy.url()).unwrap();
        Scene {
            client,
            proxy,
            server,
        }
    }

    /// The next `times` calls of a script meet `fault`.
    fn next(&self, times: usize, script: &str, fault: Fault) -> Rule {
        self.proxy.next(times, Some(sha(script).as_bytes()), fault)
    }

    /// A client with a way to the server that no fault disturbs.
    fn undisturbed(&self) -> Client {
        quick().open(&self.server.url()).unwrap()
    }

    /// Locks and unlocks, so that there is a connection.
    fn warm(&self) -> Lock {
        let lock = self.client.lock("orders");
        lock.lock().unwrap();
        lock.unlock().unwrap();
        lock
    }
}

/// The id of the first client of a CLIENT LIST.
fn id(list: Option<String>) -> Option<String> {
    Some(list?.split_once(' ')?.0.to_owned())
}

fn one_hold_and_then_none(scene: &Scene, lock: &Lock) {
    assert_eq!(counts(&scene.server, "orders"), ["1"]);
    assert_eq!(lock.hold_count().unwrap(), 1);
    assert!(lock.is_valid());
    lock.unlock().unwrap();
    is_empty(&scene.server);
}

fn try_lock_is_unknown_and_leaves_nothing(scene: &Scene, script: &str, fault: Fault) {
    let lock = scene.client.lock("orders");
    let rule = scene.next(1, script, fault);
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
    assert_eq!(rule.hits(), 1);
    assert!(!lock.is_valid());
    leaves_nothing(&scene.server);
    fails(lock.unlock(), Class::NotHeld);
    assert!(lock.try_lock().unwrap());
    one_hold_and_then_none(scene, &lock);
}

fn a_waiting_call_gets_one_hold(scene: &Scene, script: &str, fault: Fault) {
    let lock = scene.client.lock("orders");
    let rule = scene.next(1, script, fault);
    // Long before the lease of half a minute that the lost call may have set.
    let got = ends_within(TIMEOUT + ms(1100), || {
        lock.try_lock_for(Duration::from_secs(20)).unwrap()
    });
    assert!(got);
    assert_eq!(rule.hits(), 1);
    one_hold_and_then_none(scene, &lock);
}

// F1

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

// F2

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

// F3

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

// F4

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

// F5

#[test]
fn a_request_that_waited_in_a_frozen_server_grants_nothing() {
    let scene = Scene::new();
    let lock = scene.warm();
    let monitor = Monitor::start(&scene.server);
    for round in 0..6 {
        // Nothing in the background uses the connection that the request is to go by.
        thread::sleep(ms(150));
        monitor.clear();
        scene.server.freeze();
        ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
        // Now and then the release in the background overtakes the request.
        thread::sleep(ms(100 * round));
        scene.server.thaw();
        leaves_nothing(&scene.server);
        // The server's clock is known up to a round trip. A request within it is executed, and released again.
        if round >= 2 {
            assert_eq!(
                written(&monitor, scene.client.id()),
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
    is_empty(&scene.server);
}

#[test]
fn a_request_that_arrives_after_its_caller_has_left_grants_nothing() {
    let scene = Scene::new();
    let lock = scene.warm();
    let monitor = Monitor::start(&scene.server);
    let rule = scene.next(1, ACQUIRE, Fault::Hold);
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
    eventually(ms(5000), "the withdrawal", || {
        !monitor.lines_containing(&sha(WITHDRAW)).is_empty()
    });
    // Time enough for the last of the withdrawals, which come at most half a second apart.
    thread::sleep(ms(1200));
    monitor.clear();
    rule.release();
    eventually(ms(5000), "the late request", || {
        !monitor.lines_containing(&sha(ACQUIRE)).is_empty()
    });
    assert_eq!(written(&monitor, scene.client.id()), Vec::<String>::new());
    is_empty(&scene.server);
    assert!(
        monitor.lines_containing(&sha(WITHDRAW)).is_empty(),
        "they have ended"
    );
}

#[test]
fn late_requests_do_not_change_a_hold_that_goes_on() {
    let scene = Scene::with(quick().watchdog_timeout(LEASE));
    let lock = scene.warm();
    let arrived = |monitor: &Monitor, script: &str| {
        eventually(ms(5000), "the late request", || {
            !monitor.lines_containing(&sha(script)).is_empty()
        });
    };
    lock.lock().unwrap();
    let rule = scene.next(1, ACQUIRE, Fault::Hold);
    fails(lock.try_lock(), Class::Unknown);
    thread::sleep(ms(100));
    let monitor = Monitor::start(&scene.server);
    rule.release();
    arrived(&monitor, ACQUIRE);
    assert_eq!(counts(&scene.server, "orders"), ["1"], "a late re-entry");

    lock.lock().unwrap();
    let rule = scene.next(1, RELEASE_LEVEL, Fault::Hold);
    fails(lock.unlock(), Class::Unknown);
    thread::sleep(ms(100));
    monitor.clear();
    rule.release();
    arrived(&monitor, RELEASE_LEVEL);
    assert_eq!(counts(&scene.server, "orders"), ["2"], "a late release");
    assert!(lock.is_valid());
    lock.unlock().unwrap();
    is_empty(&scene.server);
}

#[test]
fn a_late_release_and_a_late_renewal_do_not_touch_the_next_hold() {
    let scene = Scene::with(quick().watchdog_timeout(LEASE));
    let lock = scene.warm();
    let monitor = Monitor::start(&scene.server);
    lock.lock().unwrap();
    let renewal = scene.next(1, RENEW, Fault::Hold);
    let release = scene.next(2, RELEASE, Fault::Hold);
    eventually(LEASE + SLACK, "a renewal", || renewal.hits() == 1);
    fails(lock.unlock(), Class::Unknown);
    leaves_nothing(&scene.server);
    // The same thread of the same client, once more.
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
    assert_eq!(counts(&scene.server, "orders"), ["1"]);
    assert!(scene.server.int(&["PTTL", "orders"]) > 50_000);
    assert!(guard.is_valid());
    guard.unlock().unwrap();
    is_empty(&scene.server);
}

#[test]
fn a_late_forced_release_does_not_free_the_next_holder() {
    let scene = Scene::new();
    let lock = scene.warm();
    let monitor = Monitor::start(&scene.server);
    lock.lock().unwrap();
    let rule = scene.next(1, FORCE_RELEASE, Fault::Hold);
    ends_within(TIMEOUT, || fails(lock.force_unlock(), Class::Unknown));
    thread::sleep(ms(100));
    assert!(lock.is_valid());
    monitor.clear();
    rule.release();
    eventually(ms(5000), "the late request", || {
        !monitor.lines_containing(&sha(FORCE_RELEASE)).is_empty()
    });
    one_hold_and_then_none(&scene, &lock);
    // What was freed, though nobody said so, is not said to be left as it was.
    for end in ENDS {
        lock.lock().unwrap();
        scene.next(1, FORCE_RELEASE, Fault::SwallowReply(end));
        ends_within(TIMEOUT, || fails(lock.force_unlock(), Class::Unknown));
        is_empty(&scene.server);
        fails(lock.unlock(), Class::Lost);
    }
}

// F6

#[test]
fn a_late_reply_is_not_taken_for_the_next_one() {
    let scene = Scene::with(quick().pool_size(1).command_timeout(ms(300)));
    let held = scene.client.lock("held");
    let free = scene.client.lock("free");
    held.lock().unwrap();
    assert!(held.is_locked().unwrap());
    let accepted = scene.proxy.counters().accepted;
    scene.server.cmd(&["CLIENT", "PAUSE", "600", "ALL"]);
    ends_within(ms(300), || fails(held.is_locked(), Class::Unreachable));
    eventually(ms(5000), "an answer", || free.is_locked().is_ok());
    for _ in 0..5 {
        assert!(!free.is_locked().unwrap());
        assert!(held.is_locked().unwrap());
    }
    assert!(
        scene.proxy.counters().accepted > accepted,
        "a connection that has timed out is closed"
    );
    held.unlock().unwrap();
}

// F7

/// What a client makes of requests when the reply to the one before, by `ask`, comes twice.
fn a_reply_too_many_answers_nothing(script: &str, after: Duration, ask: fn(&Lock)) {
    let scene = Scene::new();
    let others = scene.undisturbed().lock("taken");
    others.lock().unwrap();
    let lock = scene.warm();
    let rule = scene.next(1, script, Fault::RepeatReply(after));
    ask(&lock);
    let taken = scene.client.lock("taken");
    assert!(!taken.try_lock().unwrap(), "after {script}, {after:?}");
    assert!(!taken.is_held_by_current_thread().unwrap());
    assert_eq!(rule.hits(), 1);
    // And those behind it mean what they say.
    let free = scene.client.lock("free");
    assert!(free.try_lock().unwrap() && free.is_locked().unwrap());
    free.unlock().unwrap();
    assert!(!free.is_locked().unwrap());
    others.unlock().unwrap();
    assert!(taken.try_lock().unwrap());
    taken.unlock().unwrap();
    if lock.is_held_by_current_thread().unwrap() {
        lock.unlock().unwrap();
    }
    is_empty(&scene.server);
}

#[test]
fn a_reply_too_many_is_not_taken_for_the_next_one() {
    for after in [ms(0), ms(40)] {
        a_reply_too_many_answers_nothing(RELEASE, after, |lock| {
            lock.lock().unwrap();
            lock.unlock().unwrap();
        });
        a_reply_too_many_answers_nothing(ACQUIRE, after, |lock| {
            lock.lock().unwrap();
        });
        a_reply_too_many_answers_nothing(INSPECT, after, |lock| {
            assert!(!lock.is_locked().unwrap());
        });
    }
}

#[test]
fn a_hold_needs_no_new_connection_to_be_kept() {
    let lease = ms(2000);
    for is_warm in [false, true] {
        let builder = Client::builder().command_timeout(Duration::from_secs(5));
        let scene = Scene::with(builder.watchdog_timeout(lease));
        let lock = scene.client.lock("orders");
        if is_warm {
            // There are connections for requests, and from now on no other one can be had.
            let short = scene.client.lock("short").with_lease_time(lease);
            short.run(|_| ()).unwrap();
            // The look at the server's settings gives back what it has taken.
            thread::sleep(ms(500));
            scene.proxy.refuse();
        }
        lock.lock().unwrap();
        scene.proxy.refuse();
        let start = Instant::now();
        while start.elapsed() < lease + ms(500) {
            assert!(lock.is_valid(), "lost after {:?}", start.elapsed());
            thread::sleep(ms(20));
        }
        lock.unlock().unwrap();
        is_empty(&scene.server);
    }
}

#[test]
fn a_reply_too_many_while_connecting_is_no_reply_at_all() {
    for ask in ["SETNAME", "TIME"] {
        let scene = Scene::new();
        let lock = scene.client.lock("orders");
        let doubled = |times| {
            let ask = Some(ask.as_bytes());
            scene.proxy.next(times, ask, Fault::RepeatReply(ms(0)))
        };
        let once = doubled(1);
        lock.lock().unwrap();
        assert_eq!(once.hits(), 1);
        scene.proxy.cut();
        let once = doubled(1);
        lock.unlock().unwrap();
        assert_eq!(once.hits(), 1);
        // However long it goes on, a call without a deadline outlasts it.
        scene.proxy.cut();
        let always = doubled(FOR_EVER);
        thread::scope(|scope| {
            scope.spawn(|| {
                eventually(SLACK, "several connections", || always.hits() >= 4);
                scene.proxy.heal();
            });
            lock.lock().unwrap();
        });
        lock.unlock().unwrap();
        is_empty(&scene.server);
    }
}

#[test]
fn a_renewal_answered_twice_renews_once() {
    let scene = Scene::with(quick().watchdog_timeout(LEASE));
    let lock = scene.warm();
    lock.lock().unwrap();
    let lost = lock.lost().unwrap();
    let rule = scene.next(FOR_EVER, RENEW, Fault::RepeatReply(ms(5)));
    eventually(LEASE * 4, "some renewals", || rule.hits() >= 3);
    assert!(lock.is_valid());
    scene.server.cmd(&["DEL", "orders"]);
    // The answer to an earlier renewal would say that it is still there.
    assert_eq!(told(&lost, LEASE).cause, LossCause::Gone);
    fails(lock.unlock(), Class::Lost);
}

#[test]
fn a_dead_connection_costs_one_command_timeout() {
    let scene = Scene::with(quick().pool_size(1));
    let lock = scene.warm();
    // The thread in the background uses the same connection now and then, and is to be done with it.
    let mute = || {
        thread::sleep(ms(300));
        scene.proxy.mute();
    };
    mute();
    ends_within(TIMEOUT, || fails(lock.is_locked(), Class::Unreachable));
    assert!(!lock.is_locked().unwrap());

    mute();
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
    assert!(lock.try_lock().unwrap());

    mute();
    ends_within(TIMEOUT, || lock.unlock().unwrap());
    is_empty(&scene.server);

    mute();
    let got = ends_within(TIMEOUT, || {
        lock.try_lock_for(Duration::from_secs(20)).unwrap()
    });
    assert!(got);
    one_hold_and_then_none(&scene, &lock);
}

#[test]
fn every_call_ends_in_time_while_the_server_is_silent() {
    let scene = Scene::with(quick().watchdog_timeout(LEASE));
    let lock = scene.warm();
    let other = scene.client.lock("invoices");
    let third = scene.client.lock("parcels");
    lock.lock().unwrap();
    lock.lock().unwrap();
    let guard = other.guard().unwrap();
    // Nobody else frees what the renewal cannot keep.
    scene.proxy.black_hole();
    let bounded = |what: &str, call: &mut dyn FnMut() -> bool| {
        let start = Instant::now();
        assert!(call(), "{what} has not failed");
        let took = start.elapsed();
        assert!(took < TIMEOUT + SLACK, "{what} took {took:?}");
    };
    bounded("unlock of a level", &mut || lock.unlock().is_err());
    bounded("unlock", &mut || lock.unlock().is_err());
    let mut guard = Some(guard);
    bounded("drop of a guard", &mut || guard.take().is_some());
    bounded("try_lock", &mut || third.try_lock().is_err());
    bounded("try_lock_for", &mut || third.try_lock_for(ms(300)).is_err());
    bounded("is_locked", &mut || third.is_locked().is_err());
    bounded("remaining_lease", &mut || third.remaining_lease().is_err());
    bounded("force_unlock", &mut || third.force_unlock().is_err());
    bounded("check", &mut || scene.client.check().is_err());
    let start = Instant::now();
    assert!(third.lock().is_err());
    assert!(start.elapsed() >= ms(800), "the outage time-out");
    assert!(start.elapsed() < ms(800) + TIMEOUT + SLACK);
    scene.proxy.heal();
    leaves_nothing(&scene.server);
    assert!(lock.try_lock().unwrap());
    scene.proxy.black_hole();
    ends_within(TIMEOUT * 2, || scene.client.shutdown());
    scene.proxy.heal();
    every_key_expires(&scene.server);
}

// F8

#[test]
fn a_dead_subscriber_is_replaced_and_delays_no_waiter_for_long() {
    let scene = Scene::new();
    let lock = scene.client.lock("orders");
    let undisturbed = scene.undisturbed();
    let holder = undisturbed
        .lock("orders")
        .with_lease_time(Duration::from_secs(60));
    let unlocked_after = |prepare: &dyn Fn()| {
        holder.lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                assert!(lock.try_lock_for(Duration::from_secs(40)).unwrap());
                let now = Instant::now();
                lock.unlock().unwrap();
                now
            });
            somebody_waits(&scene.server, "orders");
            prepare();
            let freed = Instant::now();
            holder.unlock().unwrap();
            waiting.join().unwrap().duration_since(freed)
        })
    };
    let took = unlocked_after(&|| scene.proxy.mute());
    // It looks for itself after 1.1 s at the latest, and then meets the dead command connection.
    assert!(took < ms(1100) + TIMEOUT + SLACK, "{took:?}");
    let subscriber = || scene.server.text(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
    let dead = id(subscriber());
    let took = unlocked_after(&|| {
        eventually(Duration::from_secs(20), "another subscriber", || {
            let present = id(subscriber());
            present.is_some() && present != dead
        });
        // The wake-up after the subscription is over.
        thread::sleep(ms(150));
    });
    assert!(took < ms(600), "it was not woken: {took:?}");
}

// F9

/// Lets somebody else hold all these locks.
fn held_by_another(server: &RedisServer, names: &[String]) {
    let hold = "for _, name in ipairs(ARGV) do redis.call('HSET', name, 'another:1:1', 1) redis.call('PEXPIRE', name, 60000) end";
    let mut words = vec!["EVAL", hold, "0"];
    words.extend(names.iter().map(String::as_str));
    server.cmd(&words);
}

/// How many channels somebody listens to.
fn channels(server: &RedisServer) -> usize {
    let answer = server.cmd(&["PUBSUB", "CHANNELS", "redisson_lock__channel:*"]);
    redis::from_redis_value::<Vec<String>>(answer)
        .unwrap()
        .len()
}

#[test]
fn waiters_with_long_names_hear_again_after_a_reconnect() {
    const WAITERS: usize = 600;
    let server = RedisServer::start();
    let names: Vec<String> = (0..WAITERS)
        .map(|number| format!("{number}{}", "x".repeat(500)))
        .collect();
    held_by_another(&server, &names);
    let client = Client::open(&server.unix_url()).unwrap();
    thread::scope(|scope| {
        for name in &names {
            let lock = client.lock(name);
            scope.spawn(move || lock.try_lock_for(Duration::from_secs(50)).unwrap_err());
        }
        let all = || channels(&server) == WAITERS;
        eventually(Duration::from_secs(20), "all listen", all);
        assert_eq!(server.int(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
        // The requests for all channels together are more than such a socket takes at once.
        eventually(Duration::from_secs(20), "all listen again", all);
        client.shutdown();
    });
}

#[test]
fn channels_are_given_up_while_others_are_busy() {
    let server = RedisServer::start();
    let mut names: Vec<String> = (0..30).map(|number| format!("left{number}")).collect();
    held_by_another(&server, &["busy".to_owned()]);
    held_by_another(&server, &names);
    let client = Client::open(&server.url()).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let busy = client.lock("busy");
            busy.try_lock_for(Duration::from_secs(50)).unwrap_err();
        });
        somebody_waits(&server, "busy");
        scope.spawn(|| {
            let mut admin = server.admin();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut publish = redis::cmd("PUBLISH");
                publish.arg("redisson_lock__channel:{busy}").arg("0");
                publish.query::<i64>(&mut admin).unwrap();
                thread::sleep(ms(100));
            }
        });
        for name in &names {
            assert!(!client.lock(name).try_lock_for(ms(5)).unwrap());
        }
        names.clear();
        assert!(channels(&server) > 1, "they linger");
        let start = Instant::now();
        while channels(&server) > 1 && start.elapsed() < Duration::from_secs(20) {
            thread::sleep(ms(20));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        client.shutdown();
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "they are given up"
        );
    });
}

#[test]
fn a_reply_that_breaks_off_is_no_reply() {
    let scene = Scene::new();
    for bytes in [0, 1, 6] {
        let fault = Fault::TruncateReply(bytes);
        try_lock_is_unknown_and_leaves_nothing(&scene, ACQUIRE, fault);
        a_waiting_call_gets_one_hold(&scene, ACQUIRE, fault);
        let lock = scene.warm();
        scene.next(1, INSPECT, fault);
        fails(lock.is_locked(), Class::Unreachable);
        assert!(!lock.is_locked().unwrap());
        lock.lock().unwrap();
        scene.next(1, RELEASE, fault);
        lock.unlock().unwrap();
        is_empty(&scene.server);
    }
}

// F10

#[test]
fn a_reply_that_drips_in_does_not_take_longer_than_a_command_may() {
    let scene = Scene::new();
    let lock = scene.warm();
    // More than ten bytes: each comes in time, all together do not.
    let drip = Fault::Drip(ms(400));
    scene.next(1, INSPECT, drip);
    ends_within(TIMEOUT, || fails(lock.is_locked(), Class::Unreachable));
    scene.next(1, ACQUIRE, drip);
    ends_within(TIMEOUT, || fails(lock.try_lock(), Class::Unknown));
    leaves_nothing(&scene.server);
    lock.lock().unwrap();
    // `:1` and its end of line are four bytes.
    scene.next(2, RELEASE, Fault::Drip(ms(1000)));
    ends_within(TIMEOUT, || fails(lock.unlock(), Class::Unknown));
    is_empty(&scene.server);
}

#[test]
fn renewals_that_drip_in_end_the_hold_in_time() {
    let scene = Scene::with(quick().watchdog_timeout(ms(900)));
    let lock = scene.warm();
    let guard = lock.guard().unwrap();
    let lost = guard.lost();
    scene.next(FOR_EVER, RENEW, Fault::Drip(ms(150)));
    let start = Instant::now();
    while guard.is_valid() {
        assert!(start.elapsed() < ms(900), "nothing was confirmed");
        thread::sleep(ms(1));
    }
    told(&lost, ms(100));
    leaves_nothing(&scene.server);
}

// F11

#[test]
fn a_server_that_accepts_and_says_nothing_is_unreachable() {
    let scene = Scene::with(quick().connect_timeout(ms(200)));
    let lock = scene.client.lock("orders");
    scene.server.freeze();
    ends_within(ms(200), || fails(lock.try_lock(), Class::Unreachable));
    ends_within(ms(300), || {
        fails(lock.try_lock_for(ms(300)), Class::Unreachable)
    });
    ends_within(ms(200), || fails(lock.is_locked(), Class::Unreachable));
    scene.server.thaw();
    assert!(lock.try_lock().unwrap());
    one_hold_and_then_none(&scene, &lock);
}

#[test]
fn one_budget_covers_connecting_and_the_whole_handshake() {
    let server = RedisServer::start();
    teach(&server);
    server.cmd(&[
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all",
    ]);
    let proxy = Proxy::to(server.addr());
    let url = proxy.url().replace("redis://", "redis://app:secret@") + "/3";
    let client = quick().connect_timeout(ms(500)).open(&url).unwrap();
    let lock = client.lock("orders");
    // AUTH, SELECT, SETNAME, TIME: each in time, all together not.
    proxy.next(FOR_EVER, None, Fault::DelayReply(ms(400)));
    let start = Instant::now();
    fails(lock.try_lock(), Class::Unreachable);
    assert!(start.elapsed() >= ms(400));
    // Without one budget it would take 1.6 s.
    assert!(start.elapsed() < ms(1200), "{:?}", start.elapsed());
    proxy.heal();
    assert!(lock.try_lock().unwrap());
    lock.unlock().unwrap();
}

// F13

#[test]
fn waiters_ride_out_a_restart() {
    let server = RedisServer::start();
    let client = quick()
        .outage_timeout(Duration::from_secs(30))
        .open(&server.url())
        .unwrap();
    let other = quick().open(&server.url()).unwrap();
    other.lock("orders").lock().unwrap();
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..4)
            .map(|number| {
                let lock = client.lock("orders");
                scope.spawn(move || {
                    if number % 2 == 0 {
                        lock.lock().unwrap();
                    } else {
                        assert!(lock.try_lock_for(Duration::from_secs(30)).unwrap());
                    }
                    lock.unlock().unwrap();
                    Instant::now()
                })
            })
            .collect();
        somebody_waits(&server, "orders");
        server.kill();
        // The end of a connection that was just in use may show only after something was sent on it.
        let error = ends_within(ms(0), || client.lock("other").try_lock()).unwrap_err();
        assert!(error.is_retryable() || error.is_ambiguous(), "{error}");
        let fresh = quick().open(&server.url()).unwrap();
        let lock = fresh.lock("other");
        ends_within(ms(0), || fails(lock.try_lock(), Class::Unreachable));
        ends_within(ms(200), || {
            fails(lock.try_lock_for(ms(200)), Class::Unreachable)
        });
        thread::sleep(ms(500));
        // It comes back without the lock.
        server.restart();
        let back = Instant::now();
        for waiter in waiters {
            let granted = waiter.join().unwrap();
            assert!(
                granted.duration_since(back) < ms(1100) + SLACK,
                "{:?}",
                granted.duration_since(back)
            );
        }
    });
    drop(client);
    drop(other);
    no_connection_is_left(&server);
}

#[test]
fn waiters_do_not_storm_a_port_that_refuses() {
    const WAITERS: usize = 10;
    let scene = Scene::with(quick().outage_timeout(Duration::from_secs(30)));
    scene.proxy.refuse();
    let accepted = scene.proxy.counters().accepted;
    thread::scope(|scope| {
        for _ in 0..WAITERS {
            let lock = scene.client.lock("orders");
            scope.spawn(move || {
                assert!(lock.try_lock_for(Duration::from_secs(30)).unwrap());
                lock.unlock().unwrap();
            });
        }
        thread::sleep(ms(2000));
        let tries = scene.proxy.counters().accepted - accepted;
        // 10, 20, 40, … 500 ms apart make about nine in two seconds; without growing pauses it is thousands.
        assert!(tries >= WAITERS, "{tries}");
        assert!(tries <= WAITERS * 25, "{tries} tries in 2 s");
        scene.proxy.heal();
    });
    is_empty(&scene.server);
}

// F14

#[test]
fn a_crowd_of_waiters_comes_back_over_few_connections() {
    const WAITERS: usize = 100;
    const POOL: u32 = 4;
    let server = RedisServer::start();
    let client = quick()
        .pool_size(POOL)
        .command_timeout(Duration::from_secs(2))
        .open(&server.url())
        .unwrap();
    let other = quick().open(&server.url()).unwrap();
    other.lock("orders").lock().unwrap();
    let all = Barrier::new(WAITERS + 1);
    thread::scope(|scope| {
        for _ in 0..WAITERS {
            let lock = client.lock("orders");
            let all = &all;
            scope.spawn(move || {
                all.wait();
                assert!(lock.try_lock_for(Duration::from_secs(40)).unwrap());
                lock.unlock().unwrap();
            });
        }
        all.wait();
        somebody_waits(&server, "orders");
        thread::sleep(ms(300));
        server.restart();
        let holder = other.lock("orders").with_lease_time(ms(800));
        // Somebody of the crowd may be faster.
        let _ = holder.try_lock_for(ms(200));
        let start = Instant::now();
        while start.elapsed() < ms(1500) {
            let open = connections(&server);
            // The pool, the renewals and the subscriber of the one, and three at most of the other.
            assert!(open.len() <= POOL as usize + 2 + 3, "{open:#?}");
            assert!(
                subscriptions(&server, "orders") <= 2,
                "one for each client: {open:#?}"
            );
            thread::sleep(ms(10));
        }
    });
    drop(client);
    drop(other);
    no_connection_is_left(&server);
    leaves_nothing(&server);
}
