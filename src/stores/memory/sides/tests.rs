//! The sides of a read-write lock in memory: whose end is that of the lock, and who is told.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::time::Instant;

use super::*;
use crate::ground::claim::Queueing;
use crate::ground::notify::{Notifier, Wake};
use crate::store::Store;
use crate::stores::memory::tests::{NAME, claim_for as claim, ms};

fn read(visitor: &str, lease: u64) -> Claim {
    claim(Kind::Read, visitor, lease)
}

fn write(visitor: &str, lease: u64) -> Claim {
    claim(Kind::Write, visitor, lease)
}

/// A state, and one who waits and hears of the lock.
struct Scene {
    state: State,
    now: BootInstant,
    notifier: Arc<Notifier>,
}

impl Scene {
    fn new() -> Scene {
        let notifier = Arc::new(Notifier::default());
        let mut state = State::default();
        state.clients.push(Arc::downgrade(&notifier));
        let now = BootInstant::now();
        Scene {
            state,
            now,
            notifier,
        }
    }

    /// A lock that these have.
    fn of(claims: &[Claim]) -> Scene {
        let mut scene = Scene::new();
        for claim in claims {
            assert!(scene.enter(claim), "{claim:?}");
        }
        scene
    }

    fn enter(&mut self, claim: &Claim) -> bool {
        self.state.enter_side(claim, self.now).is_ok()
    }

    fn leave(&mut self, visitor: &str) -> Result<(), LossCause> {
        let visitor = VisitorId::of_field(visitor);
        self.state.drop_side(NAME, &visitor, self.now)
    }

    /// How long the lock stands, in ms; `None` if it is free.
    fn left(&self) -> Option<u128> {
        let sides = self.state.sides.get(NAME);
        sides.map(|it| self.now.until(it.ends).as_millis())
    }

    /// Whether one who waits is woken by this.
    fn wakes<T>(&mut self, act: impl FnOnce(&mut Scene) -> T) -> bool {
        let parker = self.notifier.parker();
        let _place = self.notifier.join(0, &NAME.into(), &parker);
        act(self);
        parker.park(Some(Instant::now())) == Wake::Permit
    }
}

#[test]
fn the_lock_ends_with_the_longest_of_its_holds() {
    let mut scene = Scene::of(&[read("a", 9_000), read("b", 3_000)]);
    assert_eq!(scene.left(), Some(9_000));
    assert!(scene.enter(&read("c", 12_000)));
    assert_eq!(scene.left(), Some(12_000));
    scene.leave("c").unwrap();
    assert_eq!(scene.left(), Some(9_000));
    assert!(matches!(
        scene.state.renew_side(&read("b", 20_000), scene.now),
        Renewal::Renewed
    ));
    assert_eq!(scene.left(), Some(20_000));
    // No renewal shortens.
    scene.state.renew_side(&read("b", 1_000), scene.now);
    assert_eq!(scene.left(), Some(20_000));
}

#[test]
fn a_reader_that_ends_well_before_the_lock_leaves_its_end_as_it_is() {
    // The end is that of another one, so nothing has to be looked at; one whose end it may be is looked for.
    for (lease, left) in [(8_998, 10_000), (9_000, 9_500), (9_400, 9_500)] {
        let mut scene = Scene::of(&[read("a", 9_500), read("b", lease)]);
        scene.state.sides.get_mut(NAME).unwrap().ends = scene.now + ms(10_000);
        scene.leave("b").unwrap();
        assert_eq!(scene.left(), Some(left), "{lease}");
    }
    // One that is over says nothing of others.
    let mut scene = Scene::of(&[read("a", 9_500), read("b", 10)]);
    scene.state.sides.get_mut(NAME).unwrap().ends = scene.now + ms(20_000);
    scene.now = scene.now + ms(10);
    scene.leave("b").unwrap();
    assert_eq!(scene.left(), Some(9_490));
    // The last one frees the lock, whatever end is noted.
    let mut scene = Scene::of(&[read("a", 1_000)]);
    scene.state.sides.get_mut(NAME).unwrap().ends = scene.now + ms(20_000);
    assert!(scene.wakes(|it| it.leave("a").unwrap()));
    assert_eq!(scene.left(), None);
    // Nor is a reader inside a writer one of several that read.
    let inside = Claim {
        inside: Some(VisitorId::of_field("w")),
        ..read("a", 1_000)
    };
    let mut scene = Scene::of(&[write("w", 5_000), inside]);
    scene.state.sides.get_mut(NAME).unwrap().ends = scene.now + ms(20_000);
    scene.leave("a").unwrap();
    assert_eq!(scene.left(), Some(5_000));
}

#[test]
fn the_end_of_a_hold_wakes_where_others_may_come_in() {
    let mut scene = Scene::of(&[read("a", 9_000), read("b", 9_000)]);
    assert!(!scene.wakes(|it| it.leave("a").unwrap()), "readers are in");
    assert!(scene.wakes(|it| it.leave("b").unwrap()), "it is free");
    assert!(scene.state.sides.is_empty());
    let inside = Claim {
        inside: Some(VisitorId::of_field("w")),
        ..read("a", 9_000)
    };
    let mut scene = Scene::of(&[write("w", 9_000), inside]);
    assert!(!scene.enter(&read("c", 9_000)));
    assert!(scene.wakes(|it| it.leave("w").unwrap()), "others may read");
    assert!(scene.enter(&read("c", 9_000)));
    assert!(!scene.enter(&write("w", 9_000)));
}

#[test]
fn a_hold_that_is_not_there_is_lost_to_whoever_has_the_lock() {
    let mut scene = Scene::of(&[]);
    assert_eq!(scene.leave("a"), Err(LossCause::Gone));
    assert!(scene.enter(&read("r", 500)));
    assert_eq!(scene.leave("a"), Err(LossCause::HeldBy("r".to_owned())));
    let inside = Claim {
        inside: Some(VisitorId::of_field("w")),
        ..read("a", 9_000)
    };
    // The writer is named, whoever came first.
    let mut scene = Scene::of(&[write("w", 9_000), inside]);
    scene.state.sides.get_mut(NAME).unwrap().holds.reverse();
    assert_eq!(scene.leave("b"), Err(LossCause::HeldBy("w".to_owned())));
    let renewal = |scene: &mut Scene, claim: &Claim| match scene.state.renew_side(claim, scene.now)
    {
        Renewal::Lost(cause) => cause,
        other => panic!("{other:?}"),
    };
    let held = LossCause::HeldBy("w".to_owned());
    assert_eq!(renewal(&mut scene, &read("b", 1_000)), held);
    // Its own hold at its very end.
    scene.now = scene.now + ms(9_000);
    assert_eq!(renewal(&mut scene, &write("w", 1_000)), LossCause::Gone);
}

#[test]
fn a_copy_of_a_request_enters_once_and_shortens_nothing() {
    let mut scene = Scene::of(&[read("a", 9_000), read("a", 4_000)]);
    let holds = &scene.state.sides[NAME].holds;
    assert_eq!((holds.len(), holds[0].count), (1, 1));
    assert_eq!(scene.left(), Some(9_000));
    assert!(scene.enter(&read("a", 11_000)));
    assert_eq!(scene.left(), Some(11_000));
}

#[test]
fn what_is_over_goes_at_its_very_end() {
    let mut scene = Scene::of(&[read("a", 3_000), read("b", 9_000)]);
    let sides = scene.state.sides.get_mut(NAME).unwrap();
    assert_eq!(sides.settle(scene.now + ms(2_999)), (true, false));
    assert_eq!(sides.holds.len(), 2);
    assert_eq!(sides.settle(scene.now + ms(3_000)), (true, false));
    assert_eq!(sides.holds.len(), 1);
    assert_eq!(sides.settle(scene.now + ms(9_000)), (false, false));
    let inside = Claim {
        inside: Some(VisitorId::of_field("w")),
        ..read("a", 9_000)
    };
    let mut scene = Scene::of(&[write("w", 3_000), inside]);
    let sides = scene.state.sides.get_mut(NAME).unwrap();
    assert_eq!(sides.settle(scene.now), (true, false));
    assert!(sides.is_written);
    assert_eq!(sides.settle(scene.now + ms(3_000)), (true, true));
    assert!(!sides.is_written);
    assert_eq!(sides.settle(scene.now + ms(3_000)), (true, false));
}

#[test]
fn a_note_that_is_withdrawn_wakes_the_readers_behind_it() {
    let mut scene = Scene::of(&[read("a", 9_000)]);
    let waits = Claim {
        queueing: Queueing::Waits {
            need: ms(300),
            memo: None,
            takes_place: true,
            had_place: false,
        },
        ..write("w", 9_000)
    };
    assert!(!scene.enter(&waits));
    let in_doubt = waits.in_doubt(0);
    assert!(scene.wakes(|it| it.state.withdraw_side(&in_doubt, it.now)));
    assert!(!scene.wakes(|it| it.state.withdraw_side(&in_doubt, it.now)));
    assert_eq!(scene.left(), Some(9_000));
    let in_doubt = read("a", 9_000).in_doubt(0);
    assert!(scene.wakes(|it| it.state.withdraw_side(&in_doubt, it.now)));
    assert_eq!(scene.left(), None);
}

#[test]
fn each_side_is_forced_and_looked_at_by_itself() {
    let store = Memory::new(Arc::default());
    let now = Instant::now();
    let id = |kind| LockId {
        kind,
        name: NAME.into(),
    };
    let look = |kind, visitor: &str| {
        let visitor = VisitorId::of_field(visitor);
        let holding = store.inspect(&id(kind), Some(&visitor), now).unwrap();
        (holding.is_locked, holding.count)
    };
    let force = |kind| store.force_release(&id(kind), now).unwrap();
    store.acquire(&read("a", 9_000), now).unwrap();
    assert_eq!(look(Kind::Read, "a"), (true, 1));
    assert_eq!(look(Kind::Read, "b"), (true, 0));
    assert_eq!(look(Kind::Write, "a"), (false, 0));
    let again = Claim {
        count: 1,
        ..read("a", 12_000)
    };
    store.acquire(&again, now).unwrap();
    assert_eq!(look(Kind::Read, "a"), (true, 2));
    let left = store.inspect(&id(Kind::Read), None, now).unwrap();
    assert!(left.remaining.unwrap() > ms(9_000));
    store.release(&read("a", 9_000), 1, now).unwrap();
    assert_eq!(look(Kind::Read, "a"), (true, 1));
    assert!(!force(Kind::Write));
    assert!(force(Kind::Read) && !force(Kind::Read));
    store.acquire(&write("w", 9_000), now).unwrap();
    assert_eq!(look(Kind::Write, "w"), (true, 1));
    assert_eq!(look(Kind::Read, "w"), (false, 0));
    let inside = Claim {
        inside: Some(VisitorId::of_field("w")),
        ..read("a", 9_000)
    };
    store.acquire(&inside, now).unwrap();
    assert_eq!(look(Kind::Read, "a"), (true, 1));
    assert!(!force(Kind::Read));
    let parker = store.facts().notifier.parker();
    let place = store.subscribe(&id(Kind::Write), None, 0, &parker);
    assert!(force(Kind::Write));
    assert_eq!(parker.park(Some(now)), Wake::Permit);
    drop(place);
    assert_eq!(look(Kind::Read, "a"), (false, 0));
}

#[test]
fn a_forced_release_of_a_writer_leaves_the_lock_to_the_readers_it_kept_out() {
    for kind in [Kind::Write, Kind::Read] {
        let store = Memory::new(Arc::default());
        let now = Instant::now();
        store.acquire(&claim(kind, "w", 9_000), now).unwrap();
        let waits = |kind, visitor| Claim {
            queueing: Queueing::Waits {
                need: ms(300),
                memo: None,
                takes_place: true,
                had_place: false,
            },
            ..claim(kind, visitor, 9_000)
        };
        for refused in [waits(Kind::Write, "x"), waits(Kind::Read, "a")] {
            let outcome = store.acquire(&refused, now).unwrap();
            assert!(matches!(outcome, Outcome::Refused(_)), "{refused:?}");
        }
        let lock = LockId {
            kind,
            name: NAME.into(),
        };
        assert!(store.force_release(&lock, now).unwrap());
        let state = store.world().state.lock();
        let has_window = state.notes[NAME].window.is_some();
        assert_eq!(has_window, kind == Kind::Write, "{kind:?}");
    }
}

fn waits(claim: Claim, memo: Option<&str>) -> Claim {
    Claim {
        queueing: Queueing::Waits {
            need: ms(300),
            memo: memo.map(Box::from),
            takes_place: true,
            had_place: false,
        },
        ..claim
    }
}

#[test]
fn one_that_comes_in_is_noted_once() {
    // Two readers that were turned away behind a writer come in; a copy of a request is no third one.
    let mut scene = Scene::of(&[write("w", 9_000)]);
    for reader in ["a", "b"] {
        assert!(!scene.enter(&waits(read(reader, 9_000), None)));
    }
    scene.leave("w").unwrap();
    let due = |scene: &Scene| scene.state.notes[NAME].window.unwrap().due;
    assert_eq!(due(&scene), 2);
    for _ in 0..2 {
        assert!(scene.enter(&waits(read("a", 9_000), Some("0"))));
        assert_eq!(due(&scene), 1);
    }
    // Nor is a reader inside its own writer one of them.
    scene.leave("a").unwrap();
    assert!(scene.enter(&write("x", 9_000)));
    let inside = Claim {
        inside: Some(VisitorId::of_field("x")),
        ..waits(read("y", 9_000), Some("0"))
    };
    assert!(scene.enter(&inside));
    assert_eq!(due(&scene), 1);
}

#[test]
fn a_writer_begins_a_phase_and_a_copy_of_its_request_does_not() {
    let mut scene = Scene::of(&[read("a", 9_000)]);
    assert!(!scene.enter(&waits(write("w", 9_000), None)));
    let phase = |scene: &Scene| scene.state.notes[NAME].phase;
    assert!(scene.enter(&read("b", 9_000)));
    assert_eq!(phase(&scene), 0);
    for reader in ["a", "b"] {
        scene.leave(reader).unwrap();
    }
    for _ in 0..2 {
        assert!(scene.enter(&waits(write("w", 9_000), None)));
        assert_eq!(phase(&scene), 1);
    }
}

#[test]
fn a_writer_that_is_not_first_is_noted_at_each_look() {
    let mut scene = Scene::of(&[read("a", 9_000)]);
    assert!(!scene.enter(&waits(write("x", 9_000), None)));
    scene.leave("a").unwrap();
    assert!(
        !scene.enter(&waits(write("w", 9_000), None)),
        "x is before it"
    );
    let writers = &scene.state.notes[NAME].writers;
    assert_eq!(writers.len(), 2);
    // A reader that is turned away is counted once by the same look.
    assert!(!scene.enter(&waits(read("b", 9_000), None)));
    assert_eq!(scene.state.notes[NAME].turned.unwrap().1, 1);
}
