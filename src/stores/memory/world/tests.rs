//! What stands in a world at the very end of a lease, and what goes when there is much of it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use super::*;

fn hold(visitor: &str, ends: BootInstant) -> Entry {
    Entry {
        kind: Kind::Reentrant,
        visitor: VisitorId::of_field(visitor),
        count: 1,
        ends,
    }
}

#[test]
fn holds_that_are_over_go_when_there_are_many() {
    let (mut state, now) = (State::default(), BootInstant::now());
    let over = now + Duration::from_secs(1);
    let put = |state: &mut State, number: usize, ends, now| {
        state.put(&format!("{number}").into(), hold("a", ends), now);
    };
    for number in 0..LEAST_SWEPT {
        put(&mut state, number, over, now);
    }
    assert_eq!(
        (state.holds.len(), state.sweep_at),
        (LEAST_SWEPT, LEAST_SWEPT)
    );
    let late = over + Duration::from_secs(1);
    // All of these are over at that moment.
    put(&mut state, LEAST_SWEPT, late, over);
    assert_eq!((state.holds.len(), state.sweep_at), (1, LEAST_SWEPT));
    for number in 0..LEAST_SWEPT + 44 {
        put(&mut state, number, late, over);
    }
    assert_eq!(state.holds.len(), LEAST_SWEPT + 44);
    assert_eq!(state.sweep_at, LEAST_SWEPT * 2, "none of them is over");
}

#[test]
fn nothing_stands_at_the_very_end_of_its_lease() {
    let world = World::default();
    let name: Arc<str> = "orders".into();
    let stands = |kind| {
        let ends = BootInstant::now();
        let mut state = world.state.lock();
        match kind {
            Kind::Permits => {
                let counter = Counter {
                    count: 1,
                    ends: Some(ends),
                    owners: Vec::new(),
                };
                state.counters.insert(Arc::clone(&name), counter);
            }
            Kind::Read => {
                let sides = Sides {
                    is_written: false,
                    ends,
                    holds: Vec::new(),
                };
                state.sides.insert(Arc::clone(&name), sides);
            }
            _ => drop(state.holds.insert(Arc::clone(&name), hold("a", ends))),
        }
        drop(state);
        let form = |state: &mut State| state.form_of(&name);
        world.with_any(&name, form).unwrap()
    };
    for kind in [Kind::Reentrant, Kind::Permits, Kind::Read] {
        assert_eq!(stands(kind), None, "{kind:?}");
    }
}

#[test]
fn what_stands_there_has_a_form_and_is_no_lock_of_another() {
    let world = World::default();
    let name: Arc<str> = "orders".into();
    let late = BootInstant::now() + Duration::from_secs(60);
    let state = || world.state.lock();
    assert!(!world.is_hash(Form::Hash, &name), "nothing stands there");
    state().holds.insert(Arc::clone(&name), hold("a", late));
    assert!(world.is_hash(Form::Hash, &name));
    assert!(world.is_hash(Form::ReadWrite, &name));
    assert!(!world.is_hash(Form::Text, &name));
    assert!(world.with(Kind::Fair, &name, |_| ()).is_ok());
    let refused = world.with(Kind::Token, &name, |_| ()).unwrap_err();
    assert!(matches!(refused, Error::WrongType { .. }), "{refused:?}");
    assert!(world.with_any(&name, |_| ()).is_ok());
    state().holds.get_mut(&name).unwrap().kind = Kind::Token;
    assert!(!world.is_hash(Form::Hash, &name));
    state().faults.is_silent = true;
    let refused = world.with(Kind::Token, &name, |_| ()).unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused:?}");
}

#[test]
fn as_many_answers_and_messages_are_lost_as_a_test_asks_for() {
    let world = World::default();
    let name: Arc<str> = "orders".into();
    world.state.lock().faults.answers_to_lose = 2;
    let ask = || world.ask(Kind::Reentrant, &name, || Ok("lost"), |_| "told");
    let answers = [(); 4].map(|()| ask().unwrap());
    assert_eq!(answers, ["lost", "lost", "told", "told"]);
    let any = || world.ask_any(&name, || Ok("lost"), |_| "told").unwrap();
    assert_eq!(any(), "told");
    world.state.lock().faults.answers_to_lose = 1;
    assert_eq!((any(), any()), ("lost", "told"));

    let notifier = Arc::new(Notifier::default());
    let mut state = world.state.lock();
    state.clients.push(Arc::downgrade(&notifier));
    state.clients.push(Weak::new());
    state.faults.messages_to_lose = 2;
    let parker = notifier.parker();
    let mut place = notifier.join(0, &name, &parker);
    let now = || Some(std::time::Instant::now());
    let woken = [(); 3].map(|()| {
        state.wake(&name, 1);
        place.park(now()) == crate::ground::notify::Wake::Permit
    });
    assert_eq!(woken, [false, false, true]);
    assert_eq!(state.clients.len(), 1, "one is not there any more");
}

#[test]
#[cfg(feature = "test-util")]
fn a_hold_that_a_test_ends_was_there() {
    let world = World::default();
    let expire = || world.expire(["orders", "{orders}"]);
    assert!(!expire());
    let put = |ends| {
        let mut state = world.state.lock();
        state.holds.insert("{orders}".into(), hold("a", ends));
    };
    put(world.timeline.now() + Duration::from_secs(9));
    assert!(expire());
    assert!(!expire());
    put(world.timeline.now());
    assert!(!expire(), "it was over");
    let sides = Sides {
        is_written: true,
        ends: world.timeline.now() + Duration::from_secs(9),
        holds: Vec::new(),
    };
    world.state.lock().sides.insert("orders".into(), sides);
    assert!(expire());
    assert!(world.state.lock().sides.is_empty());
}
