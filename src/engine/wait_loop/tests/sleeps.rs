//! The place where one waiting thread sleeps: which messages come there, and who gets them once it leaves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Client;
use crate::engine::wait_loop::{Sleeper, WaitLimit};
use crate::ground::claim::{Kind, LockId, VisitorId};
use crate::ground::error::Error;
use crate::ground::interrupt::Interrupt;
use crate::ground::notify::{Registration, Wake};
use crate::ground::time;
use crate::store::{Delivery, Subscription};

/// A client, and the channel of its lock.
struct Scene {
    client: Client,
    lock: LockId,
}

impl Scene {
    fn new() -> Scene {
        Scene {
            client: Client::in_memory(),
            lock: LockId {
                kind: Kind::Reentrant,
                name: "orders".into(),
            },
        }
    }

    fn sleeper<'a>(&'a self, limit: WaitLimit<'a>) -> Sleeper<'a> {
        Sleeper::new(&*self.client.inner().store, &self.lock, false, limit)
    }

    fn listen(&self, sleeper: &mut Sleeper<'_>, place: Option<&VisitorId>) {
        let parker = Arc::clone(sleeper.parker());
        let store = &self.client.inner().store;
        let subscription = store.subscribe(&self.lock, place, 0, &parker);
        sleeper.listen(subscription, place);
    }

    /// One that listens behind all others.
    fn last(&self) -> Registration {
        let notifier = &self.client.inner().store.facts().notifier;
        notifier.join(0, &self.lock.name, &notifier.parker())
    }

    fn tell(&self) {
        self.client
            .inner()
            .store
            .facts()
            .notifier
            .release(&self.lock.name, 1);
    }
}

fn is_woken(registration: &mut Registration) -> bool {
    registration.park(Some(time::now())) == Wake::Permit
}

fn soon() -> Instant {
    time::now() + Duration::from_millis(20)
}

#[test]
fn messages_are_heard_of_as_long_as_it_listens() {
    let scene = Scene::new();
    let mut sleeper = scene.sleeper(WaitLimit::forever(None));
    assert_eq!(sleeper.messages(), None);
    let jitter = Duration::from_millis(7);
    sleeper.listen(
        Subscription {
            jitter,
            ..Subscription::of(scene.last(), Delivery::Pending)
        },
        None,
    );
    assert_eq!(sleeper.messages(), Some((Delivery::Pending, jitter)));
    sleeper.stop_listening();
    assert_eq!(sleeper.messages(), None);
    let store = &scene.client.inner().store;
    let polls = Sleeper::new(&**store, &scene.lock, true, WaitLimit::forever(None));
    assert_eq!(polls.messages(), Some((Delivery::Polling, Duration::ZERO)));
}

#[test]
fn one_whose_place_is_that_of_another_visitor_listens_no_more() {
    let scene = Scene::new();
    let [one, other] = [1, 2].map(|number| VisitorId::new("client", 1, number));
    for (now, listens) in [(Some(&one), true), (Some(&other), false), (None, false)] {
        let mut sleeper = scene.sleeper(WaitLimit::forever(None));
        scene.listen(&mut sleeper, Some(&one));
        sleeper.stands_at(now);
        assert_eq!(sleeper.messages().is_some(), listens, "{now:?}");
        // Once it is gone it may listen anew, without a place.
        if now.is_none() {
            scene.listen(&mut sleeper, None);
            sleeper.stands_at(None);
            assert!(sleeper.messages().is_some());
        }
    }
}

#[test]
fn a_message_that_led_to_no_answer_goes_to_the_next_who_listens() {
    for is_spent in [true, false] {
        let ways: [fn(&mut Sleeper<'_>); 2] = [|it| it.stop_listening(), |_| {}];
        for leaves in ways {
            let scene = Scene::new();
            let mut sleeper = scene.sleeper(WaitLimit::forever(None));
            scene.listen(&mut sleeper, None);
            let mut next = scene.last();
            scene.tell();
            assert!(
                sleeper
                    .sleep(soon(), 0)
                    .is_ok_and(|wake| wake == Wake::Permit)
            );
            if is_spent {
                sleeper.spend();
            }
            leaves(&mut sleeper);
            drop(sleeper);
            assert_eq!(is_woken(&mut next), !is_spent);
        }
    }
}

#[test]
fn a_sleep_ends_by_a_message_or_with_its_time() {
    let scene = Scene::new();
    let mut sleeper = scene.sleeper(WaitLimit::forever(None));
    let sleeps: [fn(&mut Sleeper<'_>) -> _; 2] =
        [|it| it.sleep(soon(), 0), |it| it.rests_on(soon())];
    for listens in [false, true] {
        for sleep in sleeps {
            sleeper.parker().give_permit();
            let began = time::now();
            assert!(matches!(sleep(&mut sleeper), Ok(Wake::Look)));
            assert!(matches!(sleep(&mut sleeper), Ok(Wake::TimedOut)));
            assert!(time::since(began) >= Duration::from_millis(20));
        }
        if !listens {
            scene.listen(&mut sleeper, None);
        }
    }
}

#[test]
fn an_interrupt_and_the_end_of_the_client_are_errors() {
    let scene = Scene::new();
    let interrupt = Interrupt::new();
    let mut sleeper = scene.sleeper(WaitLimit::forever(Some(&interrupt)));
    let _parker = sleeper.parker();
    interrupt.raise();
    assert!(matches!(
        sleeper.sleep(soon(), 0),
        Err(Error::Interrupted { .. })
    ));
    assert!(matches!(
        sleeper.rests_on(soon()),
        Err(Error::Interrupted { .. })
    ));
    let mut sleeper = scene.sleeper(WaitLimit::forever(None));
    let _parker = sleeper.parker();
    scene.client.inner().store.facts().notifier.close();
    assert!(matches!(
        sleeper.sleep(soon(), 0),
        Err(Error::Closed { .. })
    ));
    assert!(matches!(
        sleeper.rests_on(soon()),
        Err(Error::Closed { .. })
    ));
}
