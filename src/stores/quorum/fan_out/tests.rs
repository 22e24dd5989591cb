//! Requests to several nodes whose answers come when a test lets them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod busy;

use std::cell::RefCell;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;

use super::*;
use crate::stores::quorum::tests::distant::{Link, Three, ms};

const LEASE: Duration = Duration::from_secs(10);

const REQUEST: Purpose<'static> = Purpose::Request(None);

/// The answer of a node, its index, which is there when the other end says so.
struct Answer {
    near: UnixStream,
    index: usize,
    log: Rc<Log>,
}

/// The other ends of what was sent, and what was done with the near ones.
#[derive(Default)]
struct Log {
    far: RefCell<Vec<(usize, UnixStream)>>,
    /// How often it was asked where to wait, and until when an answer was to be read.
    waited: RefCell<u32>,
    read_by: RefCell<Vec<Instant>>,
}

impl PendingAnswer<usize> for Answer {
    fn source(&self) -> Option<Source<'_>> {
        *self.log.waited.borrow_mut() += 1;
        Some(self.near.as_fd())
    }

    fn receive(self: Box<Self>, deadline: Instant) -> Option<Result<usize>> {
        self.log.read_by.borrow_mut().push(deadline);
        Some(Ok(self.index))
    }
}

impl Log {
    /// Lets the answers of these nodes come.
    fn answer(&self, nodes: &[usize]) {
        for (index, far) in &mut *self.far.borrow_mut() {
            if nodes.contains(index) {
                far.write_all(b".").unwrap();
            }
        }
    }
}

/// Sends a request to these nodes; one that is connected answers when the log lets it.
fn fan_out<'a>(three: &'a Three, order: Order) -> (FanOut<'a, usize>, Rc<Log>) {
    let log = Rc::new(Log::default());
    let of_requests = Rc::clone(&log);
    let deadline = time::now() + ms(5_000);
    let send = move |node: &'a QuorumNode, _| {
        if !node.node.is_ready(REQUEST) {
            return Pending::NotConnected;
        }
        let (near, far) = UnixStream::pair().unwrap();
        let (index, log) = (node.index, Rc::clone(&of_requests));
        log.far.borrow_mut().push((index, far));
        Pending::Sent(Box::new(Answer { near, index, log }))
    };
    let fan_out = three.quorum.send(order, REQUEST, LEASE, deadline, send);
    (fan_out, log)
}

fn next(fan_out: &mut FanOut<'_, usize>) -> Option<usize> {
    let (index, answer) = fan_out.next()?;
    assert_eq!(answer.unwrap(), index);
    Some(index)
}

fn aside(first: &[usize], aside: &[usize]) -> Order {
    Order {
        first: first.to_vec(),
        aside: aside.to_vec(),
    }
}

fn until(fan_out: &FanOut<'_, usize>, span: Duration) -> Option<Instant> {
    assert!(fan_out.deadline > time::now());
    Some(time::now() + span)
}

#[test]
fn answers_are_told_as_they_come() {
    let three = Three::new();
    let (mut fan_out, log) = fan_out(&three, Order::of(vec![0, 1, 2]));
    assert_eq!((fan_out.bits(), fan_out.len()), (0b111, 3));
    // What takes nothing is in no doubt.
    assert_eq!(fan_out.in_flight[0].in_flight.not_after(), None);
    log.answer(&[1]);
    assert_eq!(next(&mut fan_out), Some(1));
    assert_eq!((fan_out.bits(), fan_out.len()), (0b101, 2));
    let patience = until(&fan_out, ms(20));
    assert!(fan_out.next_within(patience).is_none());
    assert!(time::now() >= patience.unwrap());
    log.answer(&[0, 2]);
    assert_eq!(fan_out.poll(fan_out.deadline), Some(0b11));
    fan_out.wait(fan_out.deadline);
    assert_eq!((fan_out.arrived.len(), fan_out.in_flight.len()), (2, 0));
    assert_eq!((fan_out.bits(), fan_out.len()), (0b101, 2));
    let mut rest = [next(&mut fan_out).unwrap(), next(&mut fan_out).unwrap()];
    rest.sort_unstable();
    assert_eq!(rest, [0, 2]);
    assert_eq!((fan_out.bits(), fan_out.len()), (0, 0));
    assert_eq!(
        (next(&mut fan_out), fan_out.poll(fan_out.deadline)),
        (None, None)
    );
}

#[test]
fn one_that_has_come_is_taken_out_from_among_those_that_have_not() {
    for index in 0..3 {
        let three = Three::new();
        let (mut fan_out, log) = fan_out(&three, Order::of(vec![0, 1, 2]));
        log.answer(&[index]);
        assert_eq!(fan_out.poll(fan_out.deadline), Some(1 << index));
        fan_out.wait(fan_out.deadline);
        let arrived: Vec<_> = fan_out.arrived.iter().map(|it| it.index).collect();
        assert_eq!(arrived, [index]);
        assert_eq!(fan_out.in_flight.len(), 2);
    }
}

#[test]
fn an_answer_that_has_come_has_a_little_time_for_the_rest_of_it() {
    let three = Three::new();
    let (mut fan_out, log) = fan_out(&three, Order::of(vec![0, 1]));
    log.answer(&[0, 1]);
    fan_out.wait(fan_out.deadline);
    let long_ago = time::now();
    thread::sleep(ms(10));
    let now = time::now();
    assert!(fan_out.next_arrived(long_ago).is_some());
    let read_by = log.read_by.borrow_mut().pop().unwrap();
    assert!(read_by >= now + ms(5), "it is not over yet");
    assert!(fan_out.next_arrived(fan_out.deadline).is_some());
    let read_by = log.read_by.borrow_mut().pop().unwrap();
    assert!(
        read_by > now + ms(5) && read_by < fan_out.deadline,
        "the time of a node"
    );
}

#[test]
fn each_request_has_the_time_of_a_node_and_no_more() {
    let three = Three::new();
    let begun = time::now();
    let (mut fan_out, log) = fan_out(&three, Order::of(vec![0]));
    assert!(fan_out.in_flight[0].by >= begun + ms(500));
    assert!(fan_out.in_flight[0].by < fan_out.deadline);
    assert!(fan_out.soon >= begun + ms(500) && fan_out.soon < fan_out.deadline);
    // Half of the lease is as long as all of the call.
    assert_eq!(fan_out.connected_by, fan_out.deadline);
    assert_eq!(next(&mut fan_out), Some(0));
    assert!(time::since(begun) >= ms(500));
    assert_eq!(log.read_by.borrow().len(), 1);
}

#[test]
fn connections_are_waited_for_up_to_half_of_the_lease() {
    let three = Three::new();
    let by = |lease: Duration| {
        let deadline = time::now() + ms(60_000);
        let order = Order::of(vec![]);
        let send = |_: &QuorumNode, _| Pending::<()>::NotConnected;
        let begun = time::now();
        let fan_out = three.quorum.send(order, REQUEST, lease, deadline, send);
        (fan_out.connected_by - begun + ms(50)).as_millis() / 100
    };
    assert_eq!(by(ms(20_000)), 100);
    assert_eq!(by(ms(600_000)), 600);
    assert_eq!(by(ms(200)), 5, "the time of a node at least");
}

#[test]
fn the_age_counts_from_the_first_request_that_was_sent() {
    let three = Three::new();
    three.cut(0, Link::Made, 100);
    let begun = time::now();
    let (mut fan_out, log) = fan_out(&three, Order::of(vec![0]));
    let created = fan_out.first_sent;
    assert_eq!((fan_out.bits(), fan_out.len()), (0, 1));
    let patience = until(&fan_out, ms(300));
    while fan_out.bits() == 0 {
        assert!(fan_out.next_within(patience).is_none());
        assert!(time::since(begun) < LEASE);
    }
    thread::sleep(ms(5));
    let age = fan_out.age();
    assert!(age >= ms(5), "{age:?}");
    assert!(time::since(begun) - age >= ms(100), "{age:?}");
    assert!(fan_out.first_sent > created);
    // A second one begins nothing anew.
    let first = fan_out.first_sent;
    assert!(fan_out.ask(1, 0));
    assert_eq!(fan_out.first_sent, first);
    assert_eq!(fan_out.asked, 0b11);
    assert!(!fan_out.ask(7, 0), "there is no such node");
    log.answer(&[0, 1]);
}

#[test]
fn the_rest_is_told_apart_by_whether_it_was_asked() {
    let three = Three::new();
    three.cut(2, Link::Made, 2_000);
    let (mut fan_out, log) = fan_out(&three, Order::of(vec![0, 1, 2]));
    log.answer(&[0]);
    assert_eq!(next(&mut fan_out), Some(0));
    let mut said = [Some(Vote::Granted), None, None];
    fan_out.note_rest(&mut said);
    let [
        Some(Vote::Granted),
        Some(Vote::Silent),
        Some(Vote::Failed(error)),
    ] = said
    else {
        panic!("one has answered, one is silent, and one was not asked");
    };
    assert!(error.to_string().contains("connecting takes longer"));
}

#[test]
fn nodes_left_alone_are_asked_once_the_others_do_not_do() {
    let three = Three::new();
    let (mut fan_out, log) = fan_out(&three, aside(&[0], &[1, 2]));
    assert_eq!((fan_out.bits(), fan_out.len()), (0b1, 3));
    // One may still answer.
    let patience = until(&fan_out, ms(20));
    assert!(fan_out.next_within(patience).is_none());
    assert_eq!(fan_out.bits(), 0b1);
    log.answer(&[0]);
    assert_eq!(next(&mut fan_out), Some(0));
    let patience = until(&fan_out, ms(20));
    assert!(fan_out.next_within(patience).is_none());
    assert_eq!((fan_out.bits(), fan_out.len()), (0b110, 2));
}

#[test]
fn nodes_left_alone_are_not_asked_where_they_are_not_needed() {
    let three = Three::new();
    let (mut fan_out, log) = fan_out(&three, aside(&[0], &[1]));
    fan_out.is_needed = false;
    log.answer(&[0]);
    assert_eq!(next(&mut fan_out), Some(0));
    assert_eq!(next(&mut fan_out), None);
    assert_eq!(fan_out.asked, 0b1);
}

#[test]
fn a_node_left_alone_has_the_time_of_a_node_to_be_connected_in() {
    let three = Three::new();
    let (mut fan_out, log) = fan_out(&three, aside(&[0], &[1]));
    thread::sleep(ms(550));
    log.answer(&[0]);
    assert_eq!(next(&mut fan_out), Some(0));
    // The last attempt failed, so it is rather dead, and has no longer than that.
    three.cut(1, Link::Dead, 0);
    assert!(!three.quorum.nodes[1].is_connected_by(time::now() + LEASE));
    three.cut(1, Link::Made, 50);
    let patience = until(&fan_out, ms(2_000));
    while fan_out.bits() == 0 && time::now() < patience.unwrap() {
        fan_out.next_within(until(&fan_out, ms(20)));
    }
    assert_eq!(fan_out.bits(), 0b10);
}

#[test]
fn a_refused_node_has_an_answer_and_a_dead_one_has_none() {
    let three = Three::new();
    three.cut(1, Link::Refused, 0);
    three.cut(2, Link::Dead, 0);
    let (mut fan_out, _log) = fan_out(&three, Order::of(vec![1, 2]));
    let (index, answer) = fan_out.next().unwrap();
    assert_eq!(index, 1);
    assert!(matches!(answer, Err(Error::WrongType { .. })), "{answer:?}");
    assert!(fan_out.next().is_none());
    let dead = fan_out.out_of_reach.iter().filter(|(index, _)| *index == 2);
    assert_eq!(dead.count(), 1);
    assert_eq!(fan_out.asked, 0);
}

#[test]
fn a_refused_node_that_takes_requests_all_the_same_is_asked() {
    let three = Three::new();
    three.cut(1, Link::Refused, 50);
    let (mut fan_out, log) = fan_out(&three, Order::of(vec![1]));
    three.nodes[1]
        .is_connected
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let patience = until(&fan_out, ms(2_000));
    while fan_out.bits() == 0 && time::now() < patience.unwrap() {
        fan_out.next_within(until(&fan_out, ms(20)));
    }
    log.answer(&[1]);
    assert_eq!(next(&mut fan_out), Some(1));
    assert!(fan_out.next().is_none(), "that is its answer");
}

#[test]
fn the_rest_is_sent_as_soon_as_it_is_connected() {
    let three = Three::new();
    three.cut(1, Link::Made, 50);
    let (mut fan_out, _log) = fan_out(&three, Order::of(vec![0, 1]));
    assert_eq!(fan_out.bits(), 0b1);
    fan_out.send_rest();
    assert_eq!(fan_out.bits(), 0b11);
    assert!(fan_out.out_of_reach.is_empty() && !fan_out.is_needed);
}

#[test]
fn the_rest_is_not_waited_for_longer_than_a_node_may_take() {
    let three = Three::new();
    three.cut(1, Link::Made, 4_000);
    let begun = time::now();
    let (mut fan_out, _log) = fan_out(&three, Order::of(vec![0, 1]));
    fan_out.send_rest();
    let took = time::since(begun);
    assert!(took >= ms(500) && took < ms(3_500), "{took:?}");
    assert_eq!(fan_out.bits(), 0b1);
    assert_eq!(fan_out.out_of_reach.len(), 1);
    assert!(three.quorum.nodes[1].is_slow_to_connect(Line::Requests));
}

#[test]
fn a_connection_that_nobody_needs_has_the_time_of_a_node() {
    let three = Three::new();
    three.cut(1, Link::Made, 4_000);
    let begun = time::now();
    let (mut fan_out, _log) = fan_out(&three, Order::of(vec![1]));
    fan_out.is_needed = false;
    assert_eq!(next(&mut fan_out), None);
    let took = time::since(begun);
    assert!(took >= ms(500) && took < ms(3_500), "{took:?}");
}

#[test]
fn one_that_is_given_up_in_time_is_not_called_slow() {
    let three = Three::new();
    three.cut(1, Link::Made, 4_000);
    let (fan_out, _log) = fan_out(&three, Order::of(vec![0, 1]));
    fan_out.note_rest(&mut [None, None, None]);
    assert!(!three.quorum.nodes[1].is_slow_to_connect(Line::Requests));
}

#[test]
fn answers_and_connections_are_waited_for_without_work() {
    let three = Three::new();
    three.cut(1, Link::Made, 4_000);
    let (mut fan_out, log) = fan_out(&three, Order::of(vec![0, 1]));
    let begun = time::now();
    assert!(fan_out.next_within(until(&fan_out, ms(200))).is_none());
    let looks = *log.waited.borrow();
    let most = u32::try_from(time::since(begun).as_millis()).unwrap() + 20;
    assert!((2..=most).contains(&looks), "{looks} of {most}");
    // Without answers to come, the connection alone is waited for.
    log.answer(&[0]);
    assert_eq!(next(&mut fan_out), Some(0));
    let worked = || {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(
            spent.tv_sec.unsigned_abs(),
            u32::try_from(spent.tv_nsec).unwrap(),
        )
    };
    let before = worked();
    assert!(fan_out.next_within(until(&fan_out, ms(250))).is_none());
    let work = worked() - before;
    assert!(work < ms(100), "{work:?}");
}
