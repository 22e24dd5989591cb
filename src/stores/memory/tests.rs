//! Two clients of one world: what each answer tells beside its outcome.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use super::*;
use crate::ground::claim::Kind;

/// The lock of all tests of this store.
pub(super) const NAME: &str = "orders";

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The first wish of a visitor, with a lease of so many ms.
pub(super) fn claim_for(kind: Kind, visitor: &str, lease: u64) -> Claim {
    Claim {
        kind,
        name: NAME.into(),
        visitor: VisitorId::of_field(visitor),
        count: 0,
        lease: ms(lease),
        inside: None,
        queueing: Default::default(),
    }
}

fn claim(kind: Kind, visitor: &str) -> Claim {
    claim_for(kind, visitor, 10_000)
}

fn done<D, R: fmt::Debug>(outcome: Result<Outcome<D, R>>) -> D
where
    D: fmt::Debug,
{
    match outcome.unwrap() {
        Outcome::Done(done) => done,
        other => panic!("{other:?}"),
    }
}

/// Two clients of a world.
fn pair() -> (Memory, Memory) {
    let world = Arc::default();
    (Memory::new(Arc::clone(&world)), Memory::new(world))
}

/// A place in the queue of a lock.
fn waits(store: &Memory, kind: Kind, source: u32) -> Subscription {
    let name = NAME.into();
    let parker = store.facts.notifier.parker();
    store.subscribe(&LockId { kind, name }, None, source, &parker)
}

#[test]
fn a_release_tells_whether_another_client_waits() {
    let (mine, theirs) = pair();
    let (now, hold) = (Instant::now(), claim(Kind::Reentrant, "a"));
    let others_wait = || {
        done(mine.acquire(&hold, now));
        done(mine.release(&hold, 0, now)).others_wait
    };
    assert!(!others_wait());
    let own = waits(&mine, hold.kind, 0);
    assert!(!others_wait(), "these are in its own queue");
    let another = waits(&theirs, hold.kind, 0);
    assert!(others_wait());
    drop(another);
    assert!(!others_wait());
    drop(own);
    // One that waits for several stands in no queue of a lock.
    let _several = waits(&mine, hold.kind, 1);
    assert!(others_wait());
}

#[test]
fn a_hand_over_tells_whether_another_client_waits() {
    let (mine, theirs) = pair();
    let (now, from) = (Instant::now(), claim(Kind::Fenced, "a"));
    let to = claim(Kind::Fenced, "b");
    let first = done(mine.acquire(&from, now)).fence;
    let handed = done(mine.hand_off(&from, &to, now));
    assert!(!handed.others_wait);
    assert!(handed.fence > first && first.is_some());
    let _waits = waits(&theirs, to.kind, 0);
    let again = done(mine.hand_off(&to, &from, now));
    assert!(again.others_wait);
    assert!(again.fence > handed.fence);
}

#[test]
fn a_writer_tells_whether_another_client_waits_and_a_reader_does_not() {
    let (mine, theirs) = pair();
    let now = Instant::now();
    let others_wait = |kind| {
        let hold = claim(kind, "a");
        done(mine.acquire(&hold, now));
        done(mine.release(&hold, 0, now)).others_wait
    };
    assert!(!others_wait(Kind::Write));
    let _waits = waits(&theirs, Kind::Write, 0);
    assert!(others_wait(Kind::Write));
    assert!(!others_wait(Kind::Read));
}

#[test]
fn a_refusal_names_the_holder_and_the_end_of_its_lease() {
    let (mine, theirs) = pair();
    let now = Instant::now();
    for kind in [Kind::Reentrant, Kind::Token, Kind::Fair, Kind::Write] {
        let hold = claim(kind, "a");
        done(mine.acquire(&hold, now));
        match theirs.acquire(&claim(kind, "b"), now).unwrap() {
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.holder.as_deref(), Some("a"), "{kind:?}");
                let left = refusal.retry_after.unwrap();
                assert!(left <= hold.lease && left > hold.lease / 2, "{kind:?}");
            }
            other => panic!("{kind:?} {other:?}"),
        }
        done(mine.release(&hold, 0, now));
    }
}

#[test]
fn as_many_renewals_are_dropped_as_a_test_asks_for() {
    let (store, _) = pair();
    let (now, hold) = (Instant::now(), claim(Kind::Reentrant, "a"));
    done(store.acquire(&hold, now));
    store.world.state.lock().faults.renewals_to_drop = 2;
    let holds = [(); 4].map(|()| hold.clone());
    let renewals = store.renew(&holds, now);
    let is_dropped = |it: &Renewal| matches!(it, Renewal::Unknown(_));
    let dropped: Vec<bool> = renewals.iter().map(is_dropped).collect();
    assert_eq!(dropped, [true, true, false, false]);
    assert!(matches!(renewals[2], Renewal::Renewed));
}

#[test]
fn a_hold_at_another_kind_of_lock_is_gone() {
    let (store, _) = pair();
    let now = Instant::now();
    let (hash, text) = (claim(Kind::Reentrant, "a"), claim(Kind::Token, "b"));
    done(store.acquire(&text, now));
    let entered = Claim {
        count: 1,
        ..hash.clone()
    };
    let outcomes = [
        format!("{:?}", store.acquire(&entered, now).unwrap()),
        format!("{:?}", store.release(&hash, 1, now).unwrap()),
        format!("{:?}", store.release(&hash, 0, now).unwrap()),
        format!("{:?}", store.hand_off(&hash, &hash, now).unwrap()),
        format!("{:?}", store.renew(std::slice::from_ref(&hash), now)),
    ];
    for outcome in outcomes {
        assert!(outcome.contains("HeldBy"), "{outcome}");
    }
    assert!(store.acquire(&hash, now).is_err());
    let id = LockId {
        kind: hash.kind,
        name: NAME.into(),
    };
    assert!(store.inspect(&id, None, now).is_err());
    assert!(store.force_release(&id, now).is_err());
    let mut in_doubt = hash.in_doubt(0);
    let left = store.resolve(&mut [&mut in_doubt], now);
    assert!(left[0].is_err(), "text is no hash of visitors");
    done(store.release(&text, 0, now));
    done(store.acquire(&claim(Kind::Read, "c"), now));
    let left = store.resolve(&mut [&mut in_doubt], now);
    assert!(matches!(left[..], [Ok(true)]), "it is none of the readers");
}

#[test]
fn a_question_tells_the_count_of_the_visitor_and_the_time_left() {
    let (store, _) = pair();
    let (now, hold) = (Instant::now(), claim(Kind::Reentrant, "a"));
    let id = LockId {
        kind: hold.kind,
        name: NAME.into(),
    };
    let ask = |visitor: &str| {
        let visitor = VisitorId::of_field(visitor);
        store.inspect(&id, Some(&visitor), now).unwrap()
    };
    assert!(!ask("a").is_locked);
    assert_eq!(ask("a").remaining, None);
    done(store.acquire(&hold, now));
    done(store.acquire(
        &Claim {
            count: 1,
            ..hold.clone()
        },
        now,
    ));
    assert!(ask("b").is_locked);
    assert_eq!((ask("a").count, ask("b").count), (2, 0));
    let left = ask("a").remaining.unwrap();
    assert!(left <= hold.lease && left > hold.lease / 2);
    done(store.release(&hold, 1, now));
    assert_eq!(ask("a").count, 1);
    assert!(store.force_release(&id, now).unwrap());
    assert!(!store.force_release(&id, now).unwrap());
}

#[test]
fn one_without_a_place_asks_now_and_then() {
    let (store, _) = pair();
    assert_eq!(format!("{store:?}"), "Memory");
    let fair = waits(&store, Kind::Fair, 0);
    assert_eq!(fair.delivery, Delivery::Polling);
    assert_eq!(waits(&store, Kind::Reentrant, 0).delivery, Delivery::Live);
    let (name, visitor) = (NAME.into(), VisitorId::of_field("a"));
    let parker = store.facts.notifier.parker();
    let lock = LockId {
        kind: Kind::Fair,
        name,
    };
    let placed = store.subscribe(&lock, Some(&visitor), 0, &parker);
    assert_eq!(placed.delivery, Delivery::Live);
    assert!(
        store
            .facts
            .notifier
            .has_waiters(&queues::channel_of(NAME, &visitor))
    );
}
