//! How the whole is taken, entered again and given back.

use super::*;

#[test]
fn parts_are_taken_in_one_order_and_each_has_its_share_of_the_time() {
    let three = Three::new();
    let names: Vec<_> = three
        .whole
        .members
        .iter()
        .map(|it| it.store.node(None))
        .collect();
    assert_eq!(names, ["m0", "m1", "m2"].map(Arc::from));
    assert_eq!(&*three.whole.node(None), "m0 and m1 and m2");
    assert_eq!(three.whole.facts().longest_lease, LEASE * 2);
    assert!(done(three.take(0)).leftover.is_none());
    // A fourth share is kept for the way back.
    let least = |part: usize, least: u128| {
        let had = three.parts[part].had.lock().clone();
        assert!(had[0] <= least && had[0] > least - 900, "{part}: {had:?}");
    };
    least(0, 3_000);
    least(1, 4_000);
    least(2, 6_000);
    three.set([W; 3]);
    done(three.release(0));
    least(2, 4_000);
    least(1, 6_000);
    least(0, 12_000);
}

#[test]
fn what_was_taken_is_given_back_where_a_part_is_refused_or_silent() {
    for part in 0..3 {
        let three = Three::new();
        three.give(part, LEASE);
        match three.take(0).unwrap() {
            Outcome::Refused(refusal) => {
                assert!(refusal.leftover.is_none(), "{part}");
                assert!(refusal.retry_after.unwrap() > LEASE / 2);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(three.levels(), [0; 3]);
        let three = Three::new();
        let mut modes = [W; 3];
        modes[part] = D;
        three.set(modes);
        assert!(matches!(three.take(0), Err(Error::Unreachable { .. })));
        assert_eq!(three.levels(), [0; 3]);
    }
}

#[test]
fn what_may_stand_in_some_part_is_told() {
    let three = Three::new();
    three.set([W, L, W]);
    match three.take(0).unwrap() {
        // The withdrawal is lost, too.
        Outcome::Unknown { mut in_doubt, .. } => {
            assert_eq!(parts_of(&in_doubt), [1]);
            assert_eq!(in_doubt.not_after(1), Some(7));
            three.set([W; 3]);
            let settled = three.whole.resolve(&mut [&mut in_doubt], soon());
            assert!(matches!(settled[..], [Ok(true)]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(three.levels(), [0; 3]);
    // A part that is refused may have left something, too.
    let three = Three::new();
    three.give(1, LEASE);
    three.set([L, A, W]);
    match three.take(0).unwrap() {
        Outcome::Unknown { in_doubt, .. } => assert_eq!(parts_of(&in_doubt), [0]),
        other => panic!("{other:?}"),
    }
    let three = Three::new();
    three.give(2, LEASE);
    three.set([W, W, A]);
    assert!(matches!(three.take(0).unwrap(), Outcome::Refused(_)));
    // And so may one that has granted.
    let three = Three::new();
    three.set([A, W, A]);
    let leftover = done(three.take(0)).leftover;
    assert!(leftover.is_some());
}

#[test]
fn a_re_entry_that_fails_is_put_back() {
    let three = Three::held(1);
    done(three.take(1));
    assert_eq!(three.levels(), [2; 3]);
    // The first one fails: nothing was touched.
    three.set([D, W, W]);
    assert!(matches!(three.take(2), Err(Error::Unreachable { .. })));
    three.set([W, W, D]);
    assert!(matches!(three.take(2).unwrap(), Outcome::Unknown { .. }));
    assert_eq!(three.levels(), [2; 3]);
    three.set([L, W, W]);
    assert!(matches!(three.take(2).unwrap(), Outcome::Unknown { .. }));
    // Lost in one part, it is given back in all.
    for part in 0..3 {
        let three = Three::held(2);
        three.lose(part);
        match three.take(2).unwrap() {
            Outcome::Gone(cause) => assert_eq!(cause, LossCause::Gone),
            other => panic!("{other:?}"),
        }
        assert_eq!(three.levels(), [0; 3]);
    }
}

#[test]
fn a_release_says_what_became_of_each_part() {
    let three = Three::held(1);
    assert!(done(three.release(0)).leftover.is_none());
    assert_eq!(three.levels(), [0; 3]);
    let three = Three::held(1);
    three.set([W, D, L]);
    match three.release(0).unwrap() {
        Outcome::Unknown { in_doubt, .. } => assert_eq!(parts_of(&in_doubt), [1, 2]),
        other => panic!("{other:?}"),
    }
    let three = Three::held(1);
    three.set([A, W, W]);
    let leftover = done(three.release(0)).leftover.unwrap();
    assert_eq!(parts_of(&leftover), [0]);
    let three = Three::held(1);
    three.give(1, LEASE);
    three.set([W, W, D]);
    match three.release(0).unwrap() {
        Outcome::Gone(cause) => assert!(matches!(cause, LossCause::HeldBy(_))),
        other => panic!("{other:?}"),
    }
    // Others wait for any of them.
    for part in 0..3 {
        let three = Three::held(1);
        let others = store_of(three.parts[part].memory.world.as_ref().unwrap());
        let parker = others.facts().notifier.parker();
        let _place = others.subscribe(&three.lock(part), None, 0, &parker);
        assert!(done(three.release(0)).others_wait, "{part}");
    }
    assert!(!done(Three::held(1).release(0)).others_wait);
}

#[test]
fn a_level_is_given_back_by_each_part() {
    let end = |modes, lost: Option<usize>| {
        let three = Three::held(2);
        lost.iter().for_each(|part| three.lose(*part));
        three.set(modes);
        match three.release(1).unwrap() {
            Outcome::Done(released) if released.leftover.is_some() => "done, and late",
            Outcome::Done(_) => {
                assert_eq!(three.levels(), [1; 3]);
                "done"
            }
            Outcome::Gone(_) => "gone",
            _ => "unknown",
        }
    };
    assert_eq!(end([W; 3], None), "done");
    assert_eq!(end([A, W, W], None), "done, and late");
    assert_eq!(end([W, W, A], None), "done, and late");
    assert_eq!(end([W, D, W], None), "unknown");
    assert_eq!(end([W, L, W], None), "unknown");
    assert_eq!(end([D, W, W], Some(2)), "gone");
}

#[test]
fn a_refusal_tells_what_could_not_be_taken_back() {
    let three = Three::new();
    three.give(1, LEASE);
    three.set([K, W, W]);
    match three.take(0).unwrap() {
        Outcome::Refused(refusal) => assert_eq!(parts_of(&refusal.leftover.unwrap()), [0]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_level_is_put_back_from_the_one_above() {
    let three = Three::held(1);
    three.set([W, W, D]);
    assert!(matches!(three.take(1).unwrap(), Outcome::Unknown { .. }));
    for part in 0..2 {
        assert_eq!(*three.parts[part].given_back.lock(), [(2, 1)]);
    }
}

#[test]
fn a_doubt_is_settled_in_all_parts_each_with_its_share_of_the_time() {
    let three = Three::held(1);
    three.set([W; 3]);
    let mut in_doubt = three.claim(1).in_doubt(0);
    let by = Instant::now() + LEASE * 12;
    let settled = three.whole.resolve(&mut [&mut in_doubt], by);
    assert!(matches!(settled[..], [Ok(true)]), "{settled:?}");
    assert_eq!(three.levels(), [0; 3]);
    // The last one first.
    for (part, most) in [(2, 40_000), (1, 60_000), (0, 120_000)] {
        let had = three.parts[part].had.lock()[0];
        assert!(had <= most && had > most - 5_000, "{part}: {had}");
    }
    // Where nothing is done nothing is said to be.
    let three = Three::held(1);
    three.set([W, K, W]);
    let mut in_doubt = three.claim(1).in_doubt(0);
    let settled = three.whole.resolve(&mut [&mut in_doubt], by);
    assert!(matches!(settled[..], [Ok(false)]), "{settled:?}");
}
