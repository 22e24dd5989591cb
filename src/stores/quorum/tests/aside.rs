//! Nodes that are left alone, and what is told of all of them.

use super::five::*;
use super::*;
use crate::ground::loss::LossCause;
use crate::store::LockKind;
use crate::stores::quorum::placement::Placement;

/// Has the last two nodes left alone, which answer well if they are asked.
fn leave_alone(five: &Five, modes: [Mode; 3]) {
    let [one, two, three] = modes;
    five.set([one, two, three, W, W]);
    for node in &five.quorum.nodes[3..] {
        node.trip(&five.nodes[3].error(false));
    }
}

/// Whether those two were asked, and have answered.
fn were_asked(five: &Five) -> bool {
    let is_back = |index: usize| five.quorum.nodes[index].breaker.lock().pause.is_zero();
    assert_eq!(is_back(3), is_back(4));
    is_back(3)
}

/// Whether an act asks the two: first where the three others answer, then where one of these is dead.
fn asks(held: u32, act: impl Fn(&Five)) -> [bool; 2] {
    [W, D].map(|third| {
        let five = Five::held(held);
        leave_alone(&five, [W, W, third]);
        act(&five);
        were_asked(&five)
    })
}

#[test]
fn a_node_that_is_left_alone_is_asked_where_too_few_others_answer() {
    let only_if_needed = [false, true];
    // A look leaves no note, but it needs three.
    asks(1, |five| assert!(five.inspect().unwrap().is_locked));
    // Nor does a renewal, but a node that has lost the hold gets it back where it is asked.
    for (third, levels) in [(W, [1, 1, 1, 1, 0]), (D, [1, 1, 1, 1, 1])] {
        let five = Five::held(1);
        five.lose(&[4], None);
        leave_alone(&five, [W, W, third]);
        let renewals = five.quorum.renew(&[claim("me", 1)], soon());
        assert_eq!(renewals, [Renewal::Renewed]);
        assert_eq!(five.levels(), levels);
    }
    let levels = asks(2, |five| {
        five.done(five.release(1));
    });
    assert_eq!(levels, only_if_needed);
    let releases = asks(1, |five| {
        let released = five.done(five.release(0));
        assert!(released.leftover.is_some(), "the rest is told later");
    });
    assert_eq!(releases, only_if_needed);
    for (third, levels) in [(W, [0, 0, 0, 1, 1]), (D, [0, 0, 1, 0, 0])] {
        let five = Five::held(1);
        leave_alone(&five, [W, W, third]);
        assert!(five.quorum.force_release(&lock(), soon()).unwrap());
        assert_eq!(five.levels(), levels);
    }
    let entered = asks(1, |five| {
        five.done(five.take(1));
    });
    assert_eq!(entered, only_if_needed);
}

#[test]
fn refusals_of_a_majority_need_no_other_node() {
    for (taken, is_asked) in [(&[0, 1, 2][..], false), (&[0, 1], true)] {
        let five = Five::new();
        five.lose(taken, Some("other"));
        let third = if taken.len() == 3 { W } else { D };
        leave_alone(&five, [W, W, third]);
        let answer = five.take(0).unwrap();
        assert!(matches!(answer, Outcome::Refused(_)), "{answer:?}");
        assert_eq!(were_asked(&five), is_asked);
    }
}

#[test]
fn a_node_that_never_had_a_hold_or_lacks_it_is_as_good_as_free_of_it() {
    let five = Five::new();
    five.set([W, W, W, W, D]);
    five.done(five.take(0));
    five.set([W, W, D, W, W]);
    five.quorum.nodes[3].trip(&five.nodes[3].error(false));
    let released = five.done(five.release(0));
    assert_eq!(five.levels(), [0, 0, 1, 1, 0]);
    assert_eq!(nodes_of(&released.leftover.unwrap()), [2, 3]);
    let five = Five::held(1);
    five.lose(&[0], None);
    leave_alone(&five, [W; 3]);
    let released = five.done(five.release(0));
    assert_eq!(five.levels(), [0, 0, 0, 1, 1]);
    assert_eq!(nodes_of(&released.leftover.unwrap()), [3, 4]);
}

#[test]
fn a_forced_release_counts_those_that_may_have_had_the_lock() {
    for (lost, modes, expected) in [
        (&[0, 1, 2, 3, 4][..], [W; 5], false),
        (&[0, 1, 2, 3], [W; 5], false),
        (&[0, 1], [W, W, W, W, D], true),
        (&[0, 1, 2], [W, W, W, W, D], false),
        (&[0, 1], [W, W, W, D, D], true),
        (&[0, 1, 2, 3, 4], [W, W, W, D, D], false),
    ] {
        let five = Five::held(1);
        five.lose(lost, None);
        five.set(modes);
        let freed = five.quorum.force_release(&lock(), soon()).unwrap();
        assert_eq!(freed, expected, "{lost:?} {modes:?}");
    }
}

#[test]
fn doubts_are_settled_at_nodes_that_are_not_left_alone() {
    for alone in [false, true] {
        let five = Five::held(1);
        if alone {
            leave_alone(&five, [W; 3]);
        }
        let mut mine = claim("me", 1).in_doubt(0);
        let settled = five.quorum.resolve(&mut [&mut mine], soon());
        assert!(
            matches!(settled[..], [Ok(is)] if is != alone),
            "{settled:?}"
        );
        let left = if alone { [0, 0, 0, 1, 1] } else { [0; 5] };
        assert_eq!(five.levels(), left);
        let five = Five::held(1);
        if alone {
            leave_alone(&five, [W; 3]);
        }
        let (mut mine, mut other) = (claim("me", 1).in_doubt(0), claim("b", 1).in_doubt(0));
        let settled = five.quorum.resolve(&mut [&mut mine, &mut other], soon());
        let is_settled = |it: &Result<bool>| matches!(it, Ok(is) if *is != alone);
        assert!(settled.iter().all(is_settled), "{settled:?}");
        assert_eq!(five.levels(), left);
    }
    // Where nothing is left, nobody is asked.
    let five = Five::held(1);
    let (mut none, mut mine) = (claim("b", 1).in_doubt(0), claim("me", 1).in_doubt(0));
    for in_doubt in [&mut none, &mut mine] {
        in_doubt.list(5);
        (1..5).for_each(|index| in_doubt.set(index, None));
    }
    five.quorum.resolve(&mut [&mut none, &mut mine], soon());
    assert_eq!(five.levels(), [0, 1, 1, 1, 1]);
}

#[test]
fn what_may_still_come_is_kept_for_each_node_and_each_way() {
    let mut placement = Placement::default();
    placement.note_unknown(&[(1, 0), (2, 5), (2, 9), (2, 7), (3, -1)]);
    placement.note(2, 4, true);
    placement.note(1, 6, false);
    let open: Vec<_> = placement
        .open
        .iter()
        .map(|open| (open.node, open.not_after, open.is_behind))
        .collect();
    assert_eq!(open, [(2, 9, false), (2, 4, true), (1, 6, false)]);
}

/// The quorum of so many nodes in memory.
fn of(nodes: usize) -> Quorum {
    let node = |_| node_in_memory();
    quorum_of(&(0..nodes).map(node).collect::<Vec<_>>(), None)
}

#[test]
fn a_number_of_nodes_that_makes_a_poor_quorum_is_told() {
    let told = |nodes: usize| of(nodes).flaws().map(|flaw| flaw.message);
    for nodes in [1, 2] {
        let message = told(nodes).unwrap();
        assert!(message.contains("no quorum that survives"), "{message}");
    }
    assert_eq!([3, 5, 7].map(|nodes| told(nodes).is_none()), [true; 3]);
    let message = told(4).unwrap();
    assert!(message.contains("of 4 nodes 3 have to agree"), "{message}");
    assert!(message.ends_with("than 3 would"), "{message}");
    let message = told(6).unwrap();
    assert!(message.contains("of 6 nodes 4 have to agree"), "{message}");
    let warnings = of(4).check(soon()).unwrap();
    let of_number = warnings
        .iter()
        .filter(|it| it.message.contains("have to agree"));
    assert_eq!(of_number.count(), 1);
}

#[test]
fn nodes_that_nothing_replaces_are_not_warned_of() {
    let warnings = of(3).check(soon()).unwrap();
    let is_ok = |it: &&HealthWarning| it.severity == Severity::Ok;
    assert_eq!(
        warnings.iter().filter(is_ok).count(),
        warnings.len(),
        "{warnings:?}"
    );
    let quorum = of(3);
    assert!(quorum.nodes.iter().all(|it| !it.node.can_fail_over()));
    let name = quorum.node(None);
    assert_eq!(name.split(", ").count(), 3);
    assert!(format!("{quorum:?}").contains(&*name));
}

#[test]
fn a_lock_is_described_by_a_majority() {
    let five = Five::held(1);
    let told = five.quorum.describe(&lock(), soon()).unwrap();
    assert_eq!((told.nodes, told.kind), (Some((5, 5)), LockKind::Reentrant));
    five.lose(&[0, 1], None);
    let told = five.quorum.describe(&lock(), soon()).unwrap();
    assert_eq!(told.nodes, Some((3, 5)));
    let free = Five::new();
    let told = free.quorum.describe(&lock(), soon()).unwrap();
    assert_eq!(told.nodes, Some((0, 5)));
    assert!(told.holders.is_empty());
}

#[test]
fn a_survey_asks_node_after_node_and_tells_each_lock_once() {
    let five = Five::held(1);
    five.lose(&[4], None);
    let scope = Scope {
        prefix: "".into(),
        has_tokens: false,
        has_counters: false,
    };
    let mut position = Position::default();
    let mut pages = Vec::new();
    while !position.is_over {
        assert!(pages.len() < 100, "it ends");
        pages.push(five.quorum.survey(&scope, &mut position, soon()).unwrap());
    }
    let locks: Vec<_> = pages.into_iter().flatten().collect();
    assert_eq!(locks.len(), 1, "{locks:?}");
    assert_eq!((&*locks[0].name, locks[0].nodes), ("a", Some((4, 5))));
    assert_eq!(position.node, 5);
}

#[test]
fn a_hold_is_lost_where_more_than_the_spare_nodes_lack_it() {
    let mut tally = crate::stores::quorum::tally::Tally::new(5);
    use crate::stores::quorum::tally::Vote;
    assert_eq!((tally.answered(), tally.lacking(0)), (0, None));
    tally.note(0, Vote::Lacks(LossCause::Gone));
    assert_eq!((tally.answered(), tally.lacking(1)), (1, None));
    assert_eq!(tally.lacking(0), Some(LossCause::Gone));
    tally.note(1, Vote::Lacks(LossCause::HeldBy("b".to_owned())));
    tally.note(2, Vote::Silent);
    tally.note(3, Vote::Granted);
    assert_eq!(tally.answered(), 3);
    // The one that has it now says more than that it is gone.
    assert_eq!(tally.lacking(1), Some(LossCause::HeldBy("b".to_owned())));
    assert_eq!(tally.lacking(2), None);
}
