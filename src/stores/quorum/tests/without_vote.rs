//! Nodes that may have lost granted locks, and nodes that may execute an acquire request late.

use super::five::*;
use super::*;
use crate::ground::clock::BootInstant;
use crate::ground::loss::LossCause;
use crate::stores::redis::Identity;

fn start_again(five: &Five, nodes: &[usize]) {
    for index in nodes {
        let node = &five.quorum.nodes[*index];
        for run in ["before", "after"] {
            let identity = Identity {
                run: format!("{run} {index}").into(),
                history: "".into(),
                has_followed: false,
                follows: false,
                is_in_cluster: false,
                age: Duration::ZERO,
                remembers: false,
                asked: BootInstant::now(),
                told: BootInstant::now(),
            };
            let _ = node.handle.admit(&identity);
        }
        let without_vote = five.quorum.without_vote(*index).unwrap();
        assert!(
            without_vote.to_string().contains("restarted"),
            "{without_vote}"
        );
    }
}

#[test]
fn a_node_without_a_vote_cannot_report_a_free_lock() {
    let five = Five::new();
    assert!(five.quorum.without_vote(0).is_none());
    assert!(!five.inspect().unwrap().is_locked);
    start_again(&five, &[0, 1, 2]);
    match five.inspect().unwrap_err() {
        Error::NoQuorum {
            granted,
            refused,
            unreachable,
            needed,
            ..
        } => assert_eq!((granted, refused, unreachable, needed), (2, 0, 3, 3)),
        other => panic!("{other:?}"),
    }
    // Nodes without a vote can report a held lock.
    let five = Five::held(1);
    start_again(&five, &[0, 1, 2]);
    assert!(five.inspect().unwrap().is_locked);
    // Only the two nodes without a vote may have had a hold, and two nodes are no majority.
    let five = Five::new();
    start_again(&five, &[0, 1]);
    assert!(!five.inspect().unwrap().is_locked);
}

#[test]
fn a_node_without_a_vote_that_lost_a_hold_counts_as_released() {
    let release = |lost: &[usize], to, again: &[usize]| {
        let five = Five::held(1);
        five.lose(lost, to);
        start_again(&five, again);
        match five.release(0).unwrap() {
            Outcome::Done(released) => {
                assert!(released.leftover.is_none());
                true
            }
            Outcome::Gone(_) => false,
            other => panic!("{other:?}"),
        }
    };
    assert!(!release(&[0, 1, 2], None, &[]));
    assert!(release(&[0, 1, 2], None, &[0]));
    assert!(release(&[0, 1, 2, 3], None, &[0, 1]));
    assert!(!release(&[0, 1, 2, 3], None, &[0]));
    // Another client now has the lock at the nodes that lost the hold.
    assert!(!release(&[0, 1, 2], Some("other"), &[0]));
    // The nodes that lost the hold have a vote, so they may have granted the lock to another client.
    assert!(!release(&[0, 1, 2], None, &[3]));
    // The hold was at no node, so it was lost.
    assert!(!release(&[0, 1, 2, 3, 4], None, &[0, 1, 2, 3, 4]));
    let forced = |lost: &[usize], again: &[usize]| {
        let five = Five::held(1);
        five.lose(lost, None);
        start_again(&five, again);
        five.quorum.force_release(&lock(), soon()).unwrap()
    };
    assert!(!forced(&[0, 1, 2], &[]));
    assert!(forced(&[0, 1, 2], &[0]));
    assert!(!forced(&[0, 1, 2], &[3]));
    assert!(forced(&[0, 1, 2, 3], &[0, 1]));
    assert!(!forced(&[0, 1, 2, 3], &[0]));
    assert!(!forced(&[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4]));
}

#[test]
fn a_node_with_a_late_acquire_is_in_doubt_at_the_release() {
    let release = |open: &[usize]| {
        let five = Five::held(1);
        five.lose(&[0, 1, 2], None);
        let visitor = claim("me", 1).visitor;
        for index in open {
            let mut placements = five.quorum.placements.lock();
            let placement = placements.get_mut(&visitor).unwrap();
            placement.note(*index, 7);
        }
        match five.release(0).unwrap() {
            Outcome::Unknown { in_doubt, .. } => Some(nodes_of(&in_doubt)),
            Outcome::Gone(LossCause::Gone) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(release(&[]), None);
    assert_eq!(release(&[0]), Some(vec![0]));
    assert_eq!(release(&[0, 1]), Some(vec![0, 1]));
    assert_eq!(release(&[3]), None, "the hold was there");
}

#[test]
fn a_release_of_a_hold_at_no_node_reports_the_loss() {
    let five = Five::held(1);
    five.lose(&[1, 2], None);
    {
        let mut placements = five.quorum.placements.lock();
        let placement = placements.get_mut(&claim("me", 1).visitor).unwrap();
        // The acquire request may arrive late at nodes 3 and 4.
        placement.nodes = 0b00111;
        for index in [3, 4] {
            placement.note(index, 7);
        }
    }
    five.set([D, W, W, W, W]);
    match five.release(0).unwrap() {
        Outcome::Unknown { in_doubt, .. } => assert_eq!(nodes_of(&in_doubt), [0, 3, 4]),
        other => panic!("{other:?}"),
    }
}
