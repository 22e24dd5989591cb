//! Requests to nodes of which others use as many connections as may be in use at once.

use std::cell::Cell;

use super::*;

/// Sends a request to these nodes; the second one is busy until the answer of the first was read, or for ever.
fn beside_others<'a>(
    three: &'a Three,
    nodes: &[usize],
    for_ever: bool,
) -> (FanOut<'a, usize>, Rc<Log>, Rc<Cell<u32>>) {
    let (log, tries) = (Rc::new(Log::default()), Rc::new(Cell::new(0)));
    let (of_requests, counted) = (Rc::clone(&log), Rc::clone(&tries));
    let deadline = time::now() + ms(5_000);
    let send = move |node: &'a QuorumNode, _| {
        let is_read = !of_requests.read_by.borrow().is_empty();
        if node.index == 1 && (for_ever || !is_read) {
            counted.set(counted.get() + 1);
            return Pending::Busy(4);
        }
        let (near, far) = UnixStream::pair().unwrap();
        let (index, log) = (node.index, Rc::clone(&of_requests));
        log.far.borrow_mut().push((index, far));
        Pending::Sent(Box::new(Answer { near, index, log }))
    };
    let order = Order::of(nodes.to_vec());
    let fan_out = three.quorum.send(order, REQUEST, LEASE, deadline, send);
    (fan_out, log, tries)
}

#[test]
fn an_answer_is_read_while_another_node_is_busy() {
    let three = Three::new();
    let (mut fan_out, log, tries) = beside_others(&three, &[0, 1], false);
    assert_eq!((fan_out.bits(), fan_out.len()), (0b1, 2));
    assert!(fan_out.next_within(until(&fan_out, ms(50))).is_none());
    // Once in a millisecond.
    assert!((3..=60).contains(&tries.get()), "{}", tries.get());
    log.answer(&[0]);
    assert_eq!(next(&mut fan_out), Some(0));
    assert!(fan_out.next_within(until(&fan_out, ms(20))).is_none());
    assert_eq!((fan_out.bits(), fan_out.len()), (0b10, 1));
    log.answer(&[1]);
    assert_eq!(next(&mut fan_out), Some(1));
    assert_eq!((next(&mut fan_out), fan_out.len()), (None, 0));
}

#[test]
fn a_node_that_stays_busy_is_given_up() {
    for nodes in [&[1][..], &[0, 1]] {
        let three = Three::new();
        let (mut fan_out, log, _) = beside_others(&three, nodes, true);
        let begun = time::now();
        log.answer(&[0]);
        for _ in 1..nodes.len() {
            assert_eq!(next(&mut fan_out), Some(0));
        }
        assert_eq!(next(&mut fan_out), None);
        let took = time::since(begun);
        assert!((ms(300)..ms(4_000)).contains(&took), "{took:?}");
        let mut said: Vec<Option<Vote>> = (0..3).map(|_| None).collect();
        fan_out.note_rest(&mut said);
        assert!(
            matches!(&said[1], Some(Vote::Failed(error)) if error.to_string().contains("in use"))
        );
    }
}

#[test]
fn what_is_left_to_send_does_not_wait_for_a_busy_node_with_others_in_hand() {
    let three = Three::new();
    let (mut fan_out, log, _) = beside_others(&three, &[0, 1], true);
    let begun = time::now();
    fan_out.send_rest();
    assert!(time::since(begun) < ms(300));
    assert_eq!((fan_out.bits(), fan_out.len()), (0b1, 1));
    log.answer(&[0]);
    assert_eq!((next(&mut fan_out), next(&mut fan_out)), (Some(0), None));
    // With nothing in hand it does.
    let (mut fan_out, log, _) = beside_others(&three, &[1], false);
    log.read_by.borrow_mut().push(begun);
    fan_out.send_rest();
    assert_eq!((fan_out.bits(), fan_out.len()), (0b10, 1));
}
