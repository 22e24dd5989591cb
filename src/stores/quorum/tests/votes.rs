use super::five::*;
use super::*;
use crate::ground::error::NodeAnswer;
use crate::ground::loss::LossCause;

#[test]
fn a_majority_grants_a_lock_and_a_minority_releases_it() {
    for (modes, is_granted) in [
        ([W; 5], true),
        ([D, D, W, W, W], true),
        ([W, S, W, D, W], true),
        ([D, D, D, W, W], false),
        ([W, W, S, S, D], false),
    ] {
        let five = Five::new();
        five.set(modes);
        let outcome = five.take(0);
        if is_granted {
            assert!(five.done(outcome).leftover.is_none(), "{modes:?}");
            continue;
        }
        let well = modes.iter().filter(|mode| **mode == W).count();
        match outcome.unwrap_err() {
            Error::NoQuorum {
                granted,
                refused,
                unreachable,
                needed,
                nodes,
                ..
            } => {
                assert_eq!((granted, refused, needed), (well, 0, 3));
                assert_eq!(unreachable, 5 - well);
                assert_eq!(nodes.len(), 5);
                let granted = |it: &&NodeAnswer| it.answer == "granted";
                assert_eq!(nodes.iter().filter(granted).count(), well);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(five.levels(), [0; 5], "{modes:?}");
    }
}

#[test]
fn a_permanent_error_of_a_majority_is_returned() {
    let five = Five::new();
    five.set([S, S, S, W, W]);
    assert!(matches!(five.take(0), Err(Error::WrongType { .. })));
    five.set([S, S, W, D, W]);
    assert!(matches!(five.take(0), Err(Error::NoQuorum { .. })));
}

#[test]
fn an_in_doubt_request_is_resolved_at_all_nodes() {
    let five = Five::held(1);
    let mut in_doubt = claim("me", 1).in_doubt(0);
    let resolved = five.quorum.resolve(&mut in_doubt, soon());
    assert!(matches!(resolved, Ok(true)), "{resolved:?}");
    assert_eq!(five.levels(), [0; 5]);
    assert!(five.quorum.placements.lock().is_empty());
}

#[test]
fn a_node_that_never_had_the_hold_is_not_in_doubt() {
    let five = Five::new();
    five.set([W, W, W, W, D]);
    five.quorum.nodes[4].trip(&error(false));
    five.done(five.take(0));
    let mut in_doubt = claim("me", 1).in_doubt(0);
    let resolved = five.quorum.resolve(&mut in_doubt, soon());
    assert!(matches!(resolved, Ok(true)), "{resolved:?}");
}

#[test]
fn a_refusal_says_when_a_majority_may_be_free() {
    // The holds of the other client end after 1 to 5 s.
    for (taken, seconds) in [(3, 1), (4, 2), (5, 3)] {
        let five = Five::new();
        let taken: Vec<usize> = (0..taken).collect();
        five.lose(&taken, Some("other"));
        match five.take(0).unwrap() {
            Outcome::Refused(refusal) => {
                let wait = refusal.retry_after.unwrap();
                assert!(wait <= Duration::from_secs(seconds), "{wait:?}");
                assert!(wait > Duration::from_secs(seconds - 1), "{wait:?}");
                assert_eq!(refusal.split, None, "one has a majority");
                assert!(refusal.leftover.is_none());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(five.levels(), [0; 5]);
    }
}

#[test]
fn a_refusal_reports_split_votes() {
    for (others, modes, is_split) in [
        (["b", "c", "d", "", ""], [W; 5], true),
        (["b", "b", "c", "d", ""], [W; 5], true),
        (["b", "b", "b", "", ""], [W; 5], false),
        // Silent nodes may have granted the lock to the client with the most votes.
        (["b", "c", "d", "", ""], [W, W, W, D, D], false),
        (["b", "c", "d", "e", ""], [W, W, W, W, D], true),
        (["b", "b", "d", "e", ""], [W, W, W, W, D], false),
    ] {
        let five = Five::new();
        for (index, other) in others.into_iter().enumerate().filter(|it| !it.1.is_empty()) {
            five.lose(&[index], Some(other));
        }
        five.set(modes);
        match five.take(0).unwrap() {
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.split.is_some(), is_split, "{others:?} {modes:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_re_entry_has_a_majority_or_is_unknown() {
    let five = Five::held(1);
    assert!(five.done(five.take(1)).leftover.is_none());
    assert_eq!(five.levels(), [2; 5]);

    let five = Five::held(1);
    five.set([W, W, D, D, D]);
    assert!(matches!(five.take(1).unwrap(), Outcome::Unknown { .. }));
    assert_eq!(five.levels(), [2, 2, 1, 1, 1]);
    five.set([W; 5]);
    five.done(five.release(0));
    assert_eq!(five.levels(), [0; 5], "the last release frees any count");

    // A majority lost the hold. The engine later releases the hold at the other nodes.
    let five = Five::held(1);
    five.lose(&[0, 1, 2], None);
    match five.take(1).unwrap() {
        Outcome::Gone(cause) => assert_eq!(cause, LossCause::Gone),
        other => panic!("{other:?}"),
    }
    assert_eq!(five.levels(), [0, 0, 0, 2, 2]);
    // A minority lost the hold, so the hold continues.
    let five = Five::held(1);
    five.lose(&[0, 1], Some("other"));
    five.done(five.take(1));
    assert_eq!(five.levels(), [0, 0, 2, 2, 2]);
    // A minority lost the hold and one more node is silent, so the outcome is unknown.
    let five = Five::held(1);
    five.lose(&[0, 1], Some("other"));
    five.set([W, W, D, W, W]);
    assert!(matches!(five.take(1).unwrap(), Outcome::Unknown { .. }));
    assert_eq!(five.levels(), [0, 0, 1, 2, 2]);
}

#[test]
fn a_release_needs_a_majority_free_of_the_hold() {
    #[derive(Debug, PartialEq)]
    enum End {
        Done(Vec<usize>),
        Gone,
        Unknown(Vec<usize>),
    }
    use End::*;
    for (lost, modes, expected) in [
        (&[][..], [W; 5], Done(vec![])),
        (&[], [W, D, W, W, W], Done(vec![1])),
        (&[], [D, D, D, W, W], Unknown(vec![0, 1, 2])),
        (&[0, 1], [W; 5], Done(vec![])),
        (&[0, 1, 2], [W; 5], Gone),
        (&[0, 1, 2, 3, 4], [W; 5], Gone),
        (&[0, 1], [W, W, D, W, W], Done(vec![2])),
        (&[0, 1], [W, W, D, D, W], Done(vec![2, 3])),
        (&[0, 1], [W, W, D, D, D], Unknown(vec![2, 3, 4])),
        (&[0, 1, 2], [W, W, W, D, W], Gone),
        (&[0], [W, D, D, D, W], Unknown(vec![1, 2, 3])),
    ] {
        let five = Five::held(1);
        five.lose(lost, None);
        five.set(modes);
        let end = match five.release(0).unwrap() {
            Outcome::Done(released) => {
                assert_eq!(released.others, 0);
                Done(released.leftover.iter().flat_map(nodes_of).collect())
            }
            Outcome::Gone(_) => Gone,
            Outcome::Unknown { in_doubt, .. } => Unknown(nodes_of(&in_doubt)),
            Outcome::Refused(never) => match never {},
        };
        assert_eq!(end, expected, "{lost:?} {modes:?}");
        assert!(five.quorum.placements.lock().is_empty());
    }
}

#[test]
fn a_release_names_the_present_holder() {
    let five = Five::held(1);
    five.lose(&[0, 1, 2], Some("other"));
    let holder = claim("other", 0).visitor.to_string();
    match five.release(0).unwrap() {
        Outcome::Gone(cause) => assert_eq!(cause, LossCause::HeldBy(holder)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_level_is_released_by_a_majority() {
    for (lost, modes, expected) in [
        (&[][..], [W; 5], "done"),
        (&[], [D, D, W, W, W], "done"),
        (&[], [D, D, D, W, W], "unknown"),
        (&[0, 1], [W; 5], "done"),
        (&[0, 1, 2], [W; 5], "gone"),
        (&[0, 1], [W, W, D, W, W], "unknown"),
    ] {
        let five = Five::held(2);
        five.lose(lost, None);
        five.set(modes);
        let end = match five.release(1).unwrap() {
            Outcome::Done(_) => "done",
            Outcome::Gone(_) => "gone",
            _ => "unknown",
        };
        assert_eq!(end, expected, "{lost:?} {modes:?}");
    }
}
