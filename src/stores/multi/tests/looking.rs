//! How the whole is renewed, looked at, forced and heard of.

use super::*;

#[test]
fn a_renewal_is_that_of_all_parts() {
    let renew = |modes, lost: Option<usize>| {
        let three = Three::held(1);
        lost.iter().for_each(|part| three.lose(*part));
        three.set(modes);
        three.whole.renew(&[three.claim(1)], soon()).pop().unwrap()
    };
    assert_eq!(renew([W; 3], None), Renewal::Renewed);
    assert_eq!(renew([W, D, W], None), Renewal::Unknown("m1".to_owned()));
    assert_eq!(renew([W; 3], Some(0)), Renewal::Lost(LossCause::Gone));
    // What is lost is lost, whatever the others say.
    for modes in [[W, D, W], [W, W, L]] {
        assert_eq!(renew(modes, Some(0)), Renewal::Lost(LossCause::Gone));
    }
    assert_eq!(renew([D, W, W], Some(2)), Renewal::Lost(LossCause::Gone));
}

#[test]
fn a_forced_release_tells_of_parts_that_are_free() {
    let force = |three: &Three| three.whole.force_release(&three.lock(0), soon());
    assert!(!force(&Three::new()).unwrap());
    for part in 0..3 {
        let three = Three::new();
        three.give(part, LEASE);
        assert!(force(&three).unwrap(), "{part}");
    }
    let three = Three::new();
    three.set([W, D, W]);
    assert!(matches!(force(&three), Err(Error::Unreachable { .. })));
    // Some part is free, so it is no error after which nothing was done.
    let three = Three::held(1);
    three.set([W, D, W]);
    match force(&three).unwrap_err() {
        Error::Unknown { node, reason, .. } => {
            assert_eq!(&*node, "m1");
            assert!(reason.contains("it is dead"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let three = Three::new();
    three.set([L, D, W]);
    assert!(matches!(force(&three), Err(Error::Unknown { .. })));
}

#[test]
fn the_whole_is_held_as_often_as_the_part_that_is_held_least() {
    let three = Three::held(3);
    let holding = three.inspect().unwrap();
    assert!(holding.is_locked && holding.count == 3);
    three.give(1, LEASE / 2);
    let holding = three.inspect().unwrap();
    assert!(holding.is_locked && holding.count == 0);
    // It is free when the last part is.
    assert!(holding.remaining.unwrap() > LEASE / 2);
    // One of them never is.
    three.set([W, E, W]);
    assert_eq!(three.inspect().unwrap().remaining, None);
    three.set([W; 3]);
    assert!(!Three::new().inspect().unwrap().is_locked);
    let three = Three::new();
    three.give(2, LEASE);
    let holding = three.inspect().unwrap();
    assert!(holding.is_locked && holding.count == 0);
    three.set([W, W, D]);
    assert!(three.inspect().is_err());
}

#[test]
fn tokens_are_counted_by_the_whole() {
    let three = Three::of([Kind::Token; 3]);
    done(three.take(0));
    assert_eq!(three.inspect().unwrap().count, 1);
    done(three.take(1));
    done(three.take(2));
    assert_eq!(three.levels(), [1; 3]);
    assert_eq!(three.inspect().unwrap().count, 3);
    done(three.release(2));
    assert_eq!(three.inspect().unwrap().count, 2);
    three.lose(1);
    assert_eq!(three.inspect().unwrap().count, 0);
    let three = Three::of([Kind::Token; 3]);
    done(three.take(0));
    done(three.take(1));
    done(three.release(0));
    assert_eq!(three.inspect().unwrap().count, 0);
    let counts = three.whole.counts.as_ref().unwrap();
    assert!(counts.lock().is_empty());
    // With another kind among them that counts.
    let three = Three::of([Kind::Token, Kind::Reentrant, Kind::Token]);
    assert!(three.whole.counts.is_none());
    done(three.take(0));
    done(three.take(1));
    assert_eq!(three.inspect().unwrap().count, 2);
    // A token that is silent while its lease is set leaves the whole unknown.
    three.set([D, W, W]);
    assert!(matches!(three.release(1).unwrap(), Outcome::Unknown { .. }));
    three.set([W, W, D]);
    assert!(matches!(three.take(2).unwrap(), Outcome::Unknown { .. }));
}

#[test]
fn a_token_at_a_quorum_may_get_its_lease_late() {
    let world = Arc::default();
    let parts = ["m0", "m1", "m2"].map(|name| Scripted::new(name, &Arc::default(), name == "m1"));
    let three = Three::with(parts, [Kind::Token; 3]);
    assert!(done(three.take(0)).leftover.is_none());
    assert!(done(three.take(1)).leftover.is_some());
    assert!(done(three.release(1)).leftover.is_some());
    let plain = ["m0", "m1", "m2"].map(|name| Scripted::new(name, &world, false));
    drop(plain);
    let three = Three::of([Kind::Token; 3]);
    done(three.take(0));
    assert!(done(three.take(1)).leftover.is_none());
    assert!(done(three.release(1)).leftover.is_none());
}

#[test]
fn two_names_of_one_lock_are_told() {
    let (one, other) = (Arc::default(), Arc::default());
    let parts = [("m0", &one), ("m1", &other), ("m2", &one)];
    let parts = parts.map(|(name, world)| Scripted::new(name, world, false));
    let three = Three::with(parts, [Kind::Token; 3]);
    match three.take(0).unwrap_err() {
        Error::InvalidConfig { reason, .. } => {
            assert!(
                reason.contains("on m2 is the same lock as on m0"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(three.levels(), [0; 3]);
    // Another one has it: no twin.
    three.give(2, LEASE);
    assert!(matches!(three.take(0).unwrap(), Outcome::Refused(_)));
}

#[test]
fn a_part_that_was_in_the_way_is_looked_at_first() {
    let waits = |three: &Three| Claim {
        queueing: Queueing::Waits {
            need: Duration::ZERO,
            memo: None,
            takes_place: true,
            had_place: false,
        },
        ..three.claim(0)
    };
    let three = Three::new();
    three.give(2, LEASE);
    let asks = |three: &Three, claim: &Claim| {
        three.set([W; 3]);
        let outcome = three.whole.acquire(claim, soon()).unwrap();
        let had = [0, 1, 2].map(|part| three.parts[part].had.lock().len());
        (matches!(outcome, Outcome::Refused(_)), had)
    };
    // The first attempt takes the others and gives them back, and asks whether one of them is the same lock.
    assert_eq!(asks(&three, &waits(&three)), (true, [2, 2, 3]));
    assert_eq!(asks(&three, &waits(&three)), (true, [0, 0, 1]));
    // The attempt has the rest of the time, if it comes to that.
    three.set([W; 3]);
    let by = Instant::now() + LEASE * 12;
    three.whole.acquire(&waits(&three), by).unwrap();
    let had = three.parts[2].had.lock()[0];
    assert!(had <= 24_000 && had > 21_000, "a fifth: {had}");
    let left = three.whole.still_in_the_way(soon()).unwrap().retry_after;
    assert!(left.unwrap() > LEASE / 2);
    // One that does not wait asks all.
    assert_eq!(asks(&three, &three.claim(0)), (true, [2, 2, 3]));
    three.lose(2);
    assert!(three.whole.still_in_the_way(soon()).is_none());
    assert_eq!(asks(&three, &waits(&three)), (false, [1, 1, 2]));
    // Where the first one refuses, nothing is taken before it.
    let three = Three::new();
    three.give(0, LEASE);
    assert_eq!(asks(&three, &waits(&three)), (true, [1, 0, 0]));
    assert_eq!(asks(&three, &waits(&three)), (true, [1, 0, 0]));
}

#[test]
fn a_reader_is_kept_out_by_writers_alone() {
    let lock = |kind| LockId {
        kind,
        name: "a".into(),
    };
    let kinds = |kind| {
        let all = obstacle::obstacles(&lock(kind)).into_iter().flatten();
        all.map(|it| it.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(Kind::Reentrant), [Kind::Reentrant]);
    assert_eq!(kinds(Kind::Write), [Kind::Write, Kind::Read]);
    assert_eq!(kinds(Kind::Read), [Kind::Write]);
}

#[test]
fn the_whole_hears_of_each_part_from_sources_of_its_own() {
    let three = Three::new();
    let parker = three.whole.facts().notifier.parker();
    let subscribe = |modes| {
        three.set(modes);
        three.whole.subscribe(&three.lock(0), None, 10, &parker)
    };
    // Each member takes one more than the number of its first one: 11, 23, 47.
    let all = subscribe([W; 3]);
    assert_eq!(
        (all.delivery, all.sources),
        (Delivery::Live, 1 + 12 + 24 + 48)
    );
    assert_eq!(subscribe([W, D, W]).delivery, Delivery::Polling);
    assert_eq!(subscribe([W, W, A]).delivery, Delivery::Pending);
}

#[test]
fn each_part_is_checked() {
    let three = Three::new();
    let found = three.whole.check(soon()).unwrap();
    assert_eq!(found.len(), 3);
    three.set([W, W, D]);
    assert!(three.whole.check(soon()).is_err());
    assert!(format!("{:?}", three.whole).contains("m0 and m1 and m2"));
}
