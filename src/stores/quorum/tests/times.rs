//! Who is waited for, until when, and who is asked at the same time.

use super::distant::*;
use super::*;

/// Has each node answer after so many ms.
fn answer_in(three: &Three, times: [u64; 3]) {
    for (node, after) in three.nodes.iter().zip(times) {
        *node.answers_in.lock() = Some(ms(after));
    }
}

/// Three nodes that have a hold and answer so late from now on, and what is left of it when it is released.
fn release(times: [u64; 3]) -> Vec<usize> {
    let three = Three::with_timeout(ms(20_000));
    let granted = three.quorum.acquire(&claim("me", 0), soon()).unwrap();
    assert!(matches!(granted, Outcome::Done(_)), "{granted:?}");
    answer_in(&three, times);
    let by = Instant::now() + ms(30_000);
    match three.quorum.release(&claim("me", 1), 0, by).unwrap() {
        Outcome::Done(released) => {
            let left = |index: &usize| {
                let leftover = released.leftover.as_ref();
                leftover.is_some_and(|it| it.not_after(*index).is_some())
            };
            (0..3).filter(left).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_release_waits_for_the_rest_half_as_long_as_a_majority_took() {
    assert!(release([600, 600, 620]).is_empty());
    assert_eq!(release([300, 300, 800]), [2]);
    let (left, span) = took(|| release([0, 60, 9_000]));
    assert_eq!(left, [2]);
    assert!(span < ms(8_000), "{span:?}");
}

#[test]
fn an_acquisition_keeps_time_to_take_back_what_too_few_have_granted() {
    let three = Three::with_timeout(ms(10_000));
    let deadline = Instant::now() + ms(8_000);
    let granted = three.quorum.acquire(&claim("me", 0), deadline);
    assert!(matches!(granted, Ok(Outcome::Done(_))), "{granted:?}");
    for node in &three.nodes {
        let by = node.acquired_by.lock()[0];
        // An eighth of what was left.
        assert!(by < deadline && by + ms(1_000) >= deadline, "{by:?}");
    }
}

#[test]
fn a_look_needs_no_third_answer_where_two_say_that_a_lock_is_free() {
    let three = Three::with_timeout(ms(9_000));
    answer_in(&three, [0, 0, 20_000]);
    let by = Instant::now() + ms(9_000);
    let (holding, span) = took(|| three.quorum.inspect(&lock(), None, by).unwrap());
    assert!(!holding.is_locked && span < ms(8_000), "{span:?}");
}

#[test]
fn an_attempt_to_connect_aside_has_its_own_time() {
    let three = Three::new();
    three.cut(0, Link::Made, 0);
    let begun = Instant::now();
    three.quorum.nodes[0].connect_aside(Line::Requests);
    while three.attempts()[0] == 0 || three.nodes[0].connected.lock().len() < 2 {
        assert!(begun.elapsed() < LEASE);
    }
    let [_, _, by] = three.nodes[0].connected.lock()[1];
    assert!(by >= begun + LEASE, "{by:?}");
}

#[test]
fn nodes_that_are_looked_at_one_by_one_share_the_time() {
    let three = Three::new();
    let begun = Instant::now();
    three.quorum.check(begun + ms(90_000)).unwrap();
    let spent = begun.elapsed();
    for (node, share) in three.nodes.iter().zip([30_000, 45_000, 90_000]) {
        let [_, _, by] = *node.connected.lock().last().unwrap();
        assert!(by >= begun + ms(share) && by <= begun + ms(share) + spent);
    }
}

#[test]
fn several_nodes_are_connected_at_the_same_time() {
    for cold in [&[0][..], &[0, 1], &[0, 1, 2]] {
        let three = Three::new();
        (0..3).for_each(|index| three.cut(index, Link::Made, 500));
        let enlisted = three.quorum.enlist(cold, soon());
        assert_eq!(enlisted.len(), cold.len());
        assert!(enlisted.iter().all(|it| matches!(it, Ok(Ok(())))));
        let spans = cold.iter().map(|index| {
            let attempts = three.nodes[*index].connected.lock();
            *attempts.last().unwrap()
        });
        let spans: Vec<_> = spans.collect();
        let last_begun = spans.iter().map(|span| span[0]).max().unwrap();
        assert!(spans.iter().all(|span| span[1] > last_begun), "{cold:?}");
    }
}

#[test]
fn several_doubts_wait_for_a_connection() {
    let three = Three::with_timeout(ms(5_000));
    let granted = three.quorum.acquire(&claim("me", 0), soon()).unwrap();
    assert!(matches!(granted, Outcome::Done(_)), "{granted:?}");
    three.cut(0, Link::Made, 100);
    let (mut mine, mut other) = (claim("me", 1).in_doubt(0), claim("b", 1).in_doubt(0));
    let settled = three
        .quorum
        .resolve(&mut [&mut mine, &mut other], Instant::now() + LEASE);
    assert!(matches!(settled[..], [Ok(true), Ok(true)]), "{settled:?}");
}

#[test]
fn messages_come_as_a_majority_sends_them() {
    use Delivery::{Live, Pending, Polling};
    for (each, expected) in [
        ([Live, Live, Live, Pending, Polling], Live),
        ([Live, Live, Pending, Polling, Polling], Pending),
        ([Live, Live, Polling, Polling, Polling], Polling),
        ([Pending; 5], Pending),
        ([Polling; 5], Polling),
    ] {
        assert_eq!(joint_delivery(&each, 3), expected, "{each:?}");
    }
}

#[test]
fn a_node_that_has_just_started_is_to_be_waited_for() {
    let three = Three::new();
    three.cut(0, Link::NoVote, 0);
    let found = three.quorum.check(soon()).unwrap();
    let told = found.iter().find(|it| it.message.contains("restarted"));
    let told = told.unwrap();
    assert_eq!(told.severity, Severity::Note);
    assert!(told.advice.starts_with("wait"), "{told}");
}
