#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use redis::Value;

use super::*;
use crate::stores::redis::tests::stub::bulk;

fn told(kind: &str, channel: &str, last: Value) -> Value {
    Value::Array(vec![bulk(kind), bulk(channel), last])
}

impl Scene {
    fn handle(&self, kind: &str, name: &str, last: Value) {
        let message = told(kind, &channel(name), last);
        self.subscriber.shared.handle(message);
    }

    /// Sets the subscription state of a channel, without a connection.
    fn believe(&self, name: &str, was_asked: bool, is_live: bool) -> Interest {
        let interest = self.listen(name);
        self.change(name, |entry| {
            (entry.was_asked, entry.is_live) = (was_asked, is_live);
        });
        interest
    }

    fn state_of(&self, name: &str) -> (bool, bool) {
        self.change(name, |entry| (entry.was_asked, entry.is_live))
    }
}

#[test]
fn an_unlock_message_wakes_the_first_waiter() {
    let scene = Scene::still(false);
    let _interest = scene.believe("a", true, true);
    let (first, second) = (scene.wait("a"), scene.wait("a"));
    scene.handle("message", "a", bulk("0"));
    assert!(first.is_woken() && !second.is_woken());
}

#[test]
fn a_broadcast_message_wakes_all_waiters() {
    let scene = Scene::still(false);
    let (first, second) = (scene.wait("a"), scene.wait("a"));
    scene.handle("message", "a", bulk("1"));
    assert!(first.is_woken() && second.is_woken());
}

#[test]
fn an_unknown_channel_wakes_one_waiter_per_message() {
    let scene = Scene::still(false);
    let foreign: Arc<str> = "elsewhere".into();
    let parkers = [scene.notifier.parker(), scene.notifier.parker()];
    let _registrations = parkers
        .each_ref()
        .map(|parker| scene.notifier.join(0, &foreign, parker));
    let shared = &scene.subscriber.shared;
    shared.handle(told("message", &foreign, bulk("1")));
    let woken = parkers.map(|parker| parker.park(Some(Instant::now())));
    assert_eq!(woken, [Wake::Permit, Wake::TimedOut]);
}

#[test]
fn other_replies_wake_no_waiter() {
    let scene = Scene::still(true);
    let _interest = scene.believe("a", true, true);
    let waiter = scene.wait("a");
    let shared = &scene.subscriber.shared;
    shared.handle(Value::SimpleString("PONG".into()));
    shared.handle(Value::Array(vec![bulk("message")]));
    scene.handle("unsubscribe", "a", Value::Int(0));
    scene.handle("pong", "a", Value::Int(0));
    assert!(!waiter.is_woken());
    assert_eq!(scene.state_of("a"), (true, true));
}

#[test]
fn a_confirmed_subscription_wakes_all_waiters() {
    for kind in ["subscribe", "ssubscribe"] {
        let scene = Scene::still(false);
        let _interest = scene.believe("a", true, false);
        let (first, second) = (scene.wait("a"), scene.wait("a"));
        assert!(!first.is_woken() && !scene.is_live("a"));
        scene.handle(kind, "a", Value::Int(1));
        assert!(first.is_woken() && second.is_woken() && scene.is_live("a"));
    }
}

#[test]
fn a_confirmation_after_an_error_does_not_count() {
    let scene = Scene::still(true);
    let _interest = scene.believe("a", true, false);
    scene.subscriber.shared.refused("ERR busy");
    scene.handle("ssubscribe", "a", Value::Int(1));
    assert_eq!(scene.state_of("a"), (false, false));
}

#[test]
fn a_late_confirmation_wakes_no_waiter() {
    let scene = Scene::still(false);
    let waiter = scene.wait("a");
    scene.handle("subscribe", "a", Value::Int(1));
    assert!(!waiter.is_woken() && !scene.is_known("a"));
}

#[test]
fn a_moved_slot_wakes_the_waiters_of_its_channels() {
    let scene = Scene::still(true);
    let _interests = [
        scene.believe("a", true, true),
        scene.believe("b", true, true),
    ];
    let (first, second, other) = (scene.wait("a"), scene.wait("a"), scene.wait("b"));
    scene.handle("sunsubscribe", "a", Value::Int(0));
    assert!(first.is_woken() && second.is_woken() && !other.is_woken());
    assert_eq!(scene.moves(), 1);
    assert_eq!(scene.state_of("a"), (false, false));
    assert_eq!(scene.state_of("b"), (true, true));
    // The first SUNSUBSCRIBE is confirmed.
    scene.handle("sunsubscribe", "a", Value::Int(0));
    assert!(!first.is_woken());
    assert_eq!(scene.moves(), 1);
}
