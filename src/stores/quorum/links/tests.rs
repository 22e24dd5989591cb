//! Attempts to connect, and the calls that wait for them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;

use super::*;
use crate::stores::quorum::tests::distant::{Link as Way, Three, ms};

const LINE: Line = Line::Requests;

fn soon() -> Instant {
    time::now() + ms(5_000)
}

/// How many calls wait, how many attempts are under way, and how many have ended.
fn counts(node: &QuorumNode) -> (usize, usize, u64) {
    let counts = |link: &mut Link| (link.wanted, link.underway, link.ended);
    node.with_link(LINE, counts).unwrap()
}

fn until_ended(node: &QuorumNode, attempts: u64) {
    let patience = soon();
    while counts(node).2 < attempts {
        assert!(time::now() < patience, "{:?}", counts(node));
        thread::sleep(ms(1));
    }
}

/// Three nodes of which the first takes so long to connect, or does not.
fn connecting(way: Way, takes: u64) -> Three {
    let three = Three::new();
    three.cut(0, way, takes);
    three
}

#[test]
fn a_connection_is_made_aside_once_at_a_time() {
    let three = connecting(Way::Made, 100);
    let node = &three.quorum.nodes[0];
    node.connect_aside(LINE);
    node.connect_aside(LINE);
    assert_eq!(counts(node), (0, 1, 0));
    until_ended(node, 1);
    assert_eq!(counts(node), (0, 0, 1));
    node.connect_aside(LINE);
    assert_eq!(counts(node), (0, 1, 1));
    until_ended(node, 2);
}

#[test]
fn as_many_connections_are_made_as_calls_wait_for() {
    let three = connecting(Way::Made, 100);
    let node = &three.quorum.nodes[0];
    node.connect_aside(LINE);
    let first = node.want(LINE, soon());
    assert_eq!(
        counts(node),
        (1, 1, 0),
        "it waits for the one in the making"
    );
    let second = node.want(LINE, soon());
    assert_eq!(counts(node), (2, 2, 0));
    assert!(first.outcome().is_none() && second.outcome().is_none());
    until_ended(node, 2);
    // The call that waits takes it, so nobody makes another one.
    node.connect_aside(LINE);
    assert_eq!(counts(node), (2, 0, 2));
    assert!(matches!(first.outcome(), Some(Some(Linked::Ready))));
    drop((first, second));
    assert_eq!(counts(node), (0, 0, 2));
}

#[test]
fn an_attempt_that_was_waited_for_in_vain_is_slow_until_it_ends() {
    let three = connecting(Way::Made, 100);
    let node = &three.quorum.nodes[0];
    let want = node.want(LINE, soon());
    assert!(!node.is_slow_to_connect(LINE));
    want.note_slow();
    assert!(node.is_slow_to_connect(LINE));
    assert!(!node.is_slow_to_connect(Line::Renewals));
    until_ended(node, 1);
    assert!(!node.is_slow_to_connect(LINE));
    // Nothing is under way that could be.
    want.note_slow();
    assert!(!node.is_slow_to_connect(LINE));
}

#[test]
fn a_node_is_doubtful_after_an_attempt_that_failed() {
    let three = connecting(Way::Dead, 0);
    let node = &three.quorum.nodes[0];
    let want = node.want(LINE, soon());
    until_ended(node, 1);
    assert!(want.is_doubtful());
    assert!(matches!(want.outcome(), Some(Some(Linked::Failed(_)))));
    drop(want);
    three.cut(0, Way::NoVote, 0);
    let want = node.want(LINE, soon());
    until_ended(node, 2);
    assert!(!want.is_doubtful());
    assert!(matches!(want.outcome(), Some(Some(Linked::NoVote(_)))));
}

#[test]
fn the_end_of_any_attempt_ends_the_wait_for_several() {
    let three = connecting(Way::Made, 2_000);
    three.cut(1, Way::Made, 50);
    let wants = [0, 1].map(|index| three.quorum.nodes[index].want(LINE, soon()));
    let begun = time::now();
    three.quorum.links.wait(wants.iter(), soon());
    let took = time::since(begun);
    assert!(took >= ms(40) && took < ms(1_900), "{took:?}");
    assert!(wants[0].outcome().is_none() && wants[1].outcome().is_some());
    let begun = time::now();
    three.quorum.links.wait(wants[..1].iter(), begun + ms(60));
    assert!(time::since(begun) >= ms(60));
    three.quorum.links.wait([].iter(), soon());
}

#[test]
fn requests_and_renewals_have_connections_of_their_own() {
    let visitor = crate::ground::claim::VisitorId::new("client", 1, 1);
    let is_of_renewals = |purpose| matches!(Line::of(purpose), Line::Renewals);
    assert!(is_of_renewals(Purpose::Renewal));
    assert!(!is_of_renewals(Purpose::Request(None)));
    assert!(!is_of_renewals(Purpose::Vote(&visitor)));
}
