//! How nodes are connected, and their answers waited for.

use std::thread;

use super::distant::*;
use super::*;

#[test]
fn nodes_are_connected_once_and_asked_when_they_are() {
    let three = Three::new();
    assert_eq!(three.attempts(), [1; 3]);
    (0..3).for_each(|index| three.cut(index, Link::Made, 20));
    assert!(!three.inspect().unwrap().is_locked);
    let attempts = three.attempts();
    assert!(
        attempts.iter().filter(|it| **it == 1).count() >= 2,
        "{attempts:?}"
    );
    assert!(attempts.iter().all(|it| *it <= 1), "{attempts:?}");
}

#[test]
fn a_node_that_takes_long_to_connect_is_done_without_and_left_alone_until_it_is() {
    let three = Three::new();
    three.cut(2, Link::Made, 3_000);
    let (outcome, span) = took(|| three.inspect());
    assert!(outcome.is_ok() && span < ms(2_500), "{span:?}");
    let node = &three.quorum.nodes[2];
    assert!(node.is_slow_to_connect(Line::Requests));
    assert!(!node.is_slow_to_connect(Line::Renewals));
    let order = three
        .quorum
        .in_order(three.quorum.all(), &[], Purpose::Request(None));
    assert_eq!((order.first, order.aside), (vec![0, 1], vec![2]));
    // Nobody waits for it now.
    let (outcome, span) = took(|| three.inspect());
    assert!(outcome.is_ok() && span < ms(450), "{span:?}");
    let deadline = Instant::now() + LEASE;
    while node.is_slow_to_connect(Line::Requests) {
        assert!(Instant::now() < deadline);
        thread::sleep(ms(10));
    }
    let order = three
        .quorum
        .in_order(three.quorum.all(), &[], Purpose::Request(None));
    assert!(order.aside.is_empty());
    assert_eq!(three.attempts(), [1, 1, 1]);
}

#[test]
fn connections_are_waited_for_where_too_few_others_answer() {
    let three = Three::new();
    three.cut(1, Link::Made, 900);
    three.cut(2, Link::Made, 900);
    let (outcome, span) = took(|| three.inspect());
    assert!(outcome.is_ok() && span >= ms(900), "{span:?}");
}

#[test]
fn a_dead_node_is_waited_for_no_longer_than_its_time() {
    let three = Three::new();
    three.cut(1, Link::Dead, 0);
    three.cut(2, Link::Dead, 0);
    let said = answers(three.inspect());
    assert_eq!(
        said.iter().filter(|it| *it == "it is dead").count(),
        2,
        "{said:?}"
    );
    // The last attempt failed, so one that hangs has the time of a node.
    three.cut(1, Link::Made, 3_000);
    three.cut(2, Link::Made, 3_000);
    three.quorum.nodes.iter().for_each(|node| node.reset());
    let (outcome, span) = took(|| three.inspect());
    assert!(span < ms(2_500), "{span:?}");
    let said = answers(outcome);
    let late = said
        .iter()
        .filter(|it| it.contains("connecting takes longer"));
    assert_eq!(late.count(), 2, "{said:?}");
}

#[test]
fn a_refused_connection_is_told_as_it_is() {
    let three = Three::new();
    three.cut(1, Link::Refused, 0);
    three.cut(2, Link::Refused, 0);
    assert!(matches!(three.inspect(), Err(Error::WrongType { .. })));
    // It is tried once more, as some requests may be allowed all the same.
    three.cut(1, Link::Made, 0);
    assert!(three.inspect().is_ok());
}

#[test]
fn a_node_without_a_vote_answers_questions() {
    let three = Three::new();
    three.cut(1, Link::NoVote, 0);
    three.cut(2, Link::NoVote, 0);
    let said = answers(three.quorum.acquire(&claim("me", 0), soon()));
    let reasons = said.iter().filter(|it| it.contains("restarted"));
    assert_eq!(reasons.count(), 2, "{said:?}");
    three.cut(1, Link::NoVote, 0);
    three.cut(2, Link::NoVote, 0);
    assert!(three.inspect().is_ok());
}

#[test]
fn connections_that_others_use_are_made_so_often_and_no_more() {
    let three = Three::new();
    three.cut(1, Link::Taken, 0);
    three.cut(2, Link::Taken, 0);
    let said = answers(three.inspect());
    let used = said.iter().filter(|it| it.contains("used by others"));
    assert_eq!(used.count(), 2, "{said:?}");
    assert_eq!(three.attempts()[1..], [64, 64]);
}

#[test]
fn a_node_is_connected_by_a_time_or_is_not() {
    let three = Three::new();
    let node = &three.quorum.nodes[0];
    let connected = |link, takes, within| {
        three.cut(0, link, takes);
        node.is_connected_by(Instant::now() + ms(within))
    };
    assert!(connected(Link::Made, 20, 5_000));
    assert!(node.is_connected_by(Instant::now()), "it is");
    assert!(connected(Link::NoVote, 0, 5_000));
    assert!(!connected(Link::Dead, 0, 5_000));
    assert!(
        connected(Link::Refused, 0, 5_000),
        "the request says what it may"
    );
    let (is_connected, span) = took(|| connected(Link::Made, 1_000, 30));
    assert!(!is_connected && span < ms(900), "{span:?}");
}

#[test]
fn a_majority_waits_for_nobody_and_remembers_whom_it_asked() {
    let three = Three::new();
    *three.nodes[2].answers_in.lock() = Some(ms(3_000));
    let (granted, span) = took(|| three.quorum.acquire(&claim("me", 0), soon()));
    assert!(matches!(granted, Ok(Outcome::Done(_))), "{granted:?}");
    assert!(span < ms(450), "{span:?}");
    let placements = three.quorum.placements.lock();
    let placement = &placements[&claim("me", 0).visitor];
    assert_eq!(placement.nodes, 0b111);
    let open: Vec<_> = placement.open.iter().collect();
    assert_eq!(open.len(), 1);
    assert_eq!(
        (open[0].node, open[0].not_after, open[0].is_behind),
        (2, 9, true)
    );
}

#[test]
fn answers_are_taken_as_they_come_and_given_up_in_time() {
    let three = Three::new();
    for (node, late) in three.nodes.iter().zip([60, 3_000, 20]) {
        *node.answers_in.lock() = Some(ms(late));
    }
    let (outcome, span) = took(|| three.inspect());
    assert!(outcome.is_ok() && span >= ms(60), "{span:?}");
    *three.nodes[0].answers_in.lock() = Some(ms(3_000));
    three.quorum.nodes.iter().for_each(|node| node.reset());
    let (outcome, span) = took(|| three.inspect());
    let said = answers(outcome);
    let silent = said.iter().filter(|it| *it == "no reply in time");
    assert_eq!(silent.count(), 2, "{said:?}");
    assert!(span >= ms(500) && span < ms(2_500), "{span:?}");
}

#[test]
fn the_connections_for_renewals_are_made_once_before_they_are_needed() {
    let three = Three::new();
    (0..3).for_each(|index| three.cut(index, Link::Made, 0));
    three.quorum.prepare_renewal(&lock(), soon());
    let deadline = Instant::now() + LEASE;
    while three.attempts() != [1; 3] {
        assert!(Instant::now() < deadline, "{:?}", three.attempts());
        thread::sleep(ms(5));
    }
    (0..3).for_each(|index| three.cut(index, Link::Made, 0));
    three.quorum.prepare_renewal(&lock(), soon());
    thread::sleep(ms(50));
    assert_eq!(three.attempts(), [0; 3]);
}
