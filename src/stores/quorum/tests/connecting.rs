//! Three nodes that have to be connected first, or whose answers take their time.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;
use crate::ground::poll::Source;
use crate::ground::time;
use crate::stores::quorum::node::{Pending, PendingAnswer};
use crate::stores::quorum::quarantine::QuarantineReason;

/// The end of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Link {
    Made,
    /// It is made, and the node has no vote.
    NoVote,
    /// The node is dead.
    Dead,
    /// The user is unknown there.
    Refused,
    /// It is made, and used by somebody else.
    Taken,
}

struct Distant {
    memory: Memory,
    is_connected: AtomicBool,
    link: Mutex<Link>,
    /// How long it takes to connect, and to answer; `None` if the answer is there at once.
    connects_in: Mutex<Duration>,
    answers_in: Mutex<Option<Duration>>,
    attempts: AtomicUsize,
}

impl Distant {
    fn error(&self, link: Link) -> Error {
        let (lock, node): (Arc<str>, Arc<str>) = ("a".into(), "distant".into());
        match link {
            Link::Refused => Error::WrongType {
                lock,
                node,
                reason: "the user is unknown".to_owned(),
            },
            _ => Error::Unreachable {
                lock,
                node,
                reason: "it is dead".to_owned(),
                source: None,
            },
        }
    }

    fn send<T: Send + 'static>(&self, answer: Result<T>) -> Pending<'_, T> {
        if !self.is_connected.load(Ordering::SeqCst) {
            return Pending::NotConnected;
        }
        let Some(after) = *self.answers_in.lock() else {
            return Pending::Ready(answer);
        };
        let (near, mut far) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            thread::sleep(after);
            drop(far.write_all(b"."));
        });
        Pending::Sent(Box::new(Late { near, answer }))
    }
}

/// An answer that comes when there is something to read.
struct Late<T> {
    near: UnixStream,
    answer: Result<T>,
}

impl<T> PendingAnswer<T> for Late<T> {
    fn source(&self) -> Option<Source<'_>> {
        Some(self.near.as_fd())
    }

    fn not_after(&self) -> Option<i64> {
        Some(9)
    }

    fn receive(mut self: Box<Self>, deadline: Instant) -> Option<Result<T>> {
        let left = deadline.saturating_duration_since(time::now());
        self.near.set_read_timeout(Some(left.max(ms(1)))).unwrap();
        match self.near.read_exact(&mut [0]) {
            Ok(()) => Some(self.answer),
            Err(_) => Some(Err(Error::Unreachable {
                lock: "a".into(),
                node: "distant".into(),
                reason: "no reply in time".to_owned(),
                source: None,
            })),
        }
    }
}

impl Node for Distant {
    fn store(&self) -> &dyn Store {
        &self.memory
    }

    fn is_ready(&self, _: Purpose<'_>) -> bool {
        self.is_connected.load(Ordering::SeqCst)
    }

    fn connect(
        &self,
        _: &NodeHandle,
        _: Purpose<'_>,
        _: Instant,
    ) -> Result<Result<(), Quarantined>> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let (link, takes) = (*self.link.lock(), *self.connects_in.lock());
        thread::sleep(takes);
        if matches!(link, Link::Made | Link::NoVote) {
            self.is_connected.store(true, Ordering::SeqCst);
        }
        match link {
            Link::Made | Link::Taken => Ok(Ok(())),
            Link::NoVote => Ok(Err(Quarantined::For(LEASE, QuarantineReason::Restarted))),
            Link::Dead | Link::Refused => Err(self.error(link)),
        }
    }

    fn send_acquire<'a>(
        &'a self,
        claim: &'a Claim,
        _: bool,
        _: &'a NodeHandle,
        by: Instant,
    ) -> Pending<'a, Outcome<Granted, Refusal>> {
        match self.is_ready(Purpose::Renewal) {
            true => self.send(self.memory.acquire(claim, by)),
            false => Pending::NotConnected,
        }
    }

    fn send_renew<'a>(
        &'a self,
        claims: &'a [Claim],
        _: &'a NodeHandle,
        by: Instant,
    ) -> Pending<'a, Vec<Renewal>> {
        self.send(Ok(self.memory.renew(claims, by)))
    }

    fn send_inspect<'a>(
        &'a self,
        lock: &'a LockId,
        visitor: Option<&'a VisitorId>,
        by: Instant,
    ) -> Pending<'a, Holding> {
        self.send(self.memory.inspect(lock, visitor, by))
    }
}

/// Three nodes, connected so far.
struct Three {
    nodes: Vec<Arc<Distant>>,
    quorum: Quorum,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Three {
    fn new() -> Three {
        let node = |_| {
            Arc::new(Distant {
                memory: Memory::new(Arc::new(World::default())),
                is_connected: AtomicBool::new(false),
                link: Mutex::new(Link::Made),
                connects_in: Mutex::default(),
                answers_in: Mutex::default(),
                attempts: AtomicUsize::new(0),
            })
        };
        let nodes: Vec<Arc<Distant>> = (0..3).map(node).collect();
        let settings = Settings {
            node_timeout: Some(ms(500)),
            max_lease: LEASE,
            max_extensions: None,
            trusts_new_nodes: true,
            connect_timeout: LEASE,
        };
        let stores = nodes.iter().map(|node| {
            let node: Arc<dyn Node> = node.clone();
            (node, Arc::new(()) as _)
        });
        let quorum = Quorum::new(stores.collect(), settings, soon()).unwrap();
        Three { nodes, quorum }
    }

    /// Cuts the connection of a node, which is made again so, in this time.
    fn cut(&self, index: usize, link: Link, connects_in: u64) {
        let node = &self.nodes[index];
        node.is_connected.store(false, Ordering::SeqCst);
        *node.link.lock() = link;
        *node.connects_in.lock() = ms(connects_in);
        node.attempts.store(0, Ordering::SeqCst);
    }

    fn attempts(&self) -> [usize; 3] {
        [0, 1, 2].map(|index| self.nodes[index].attempts.load(Ordering::SeqCst))
    }

    /// Asks for the state of the lock as it is for a visitor, which takes a majority in any case.
    fn inspect(&self) -> Result<Holding> {
        let visitor = claim("me", 0).visitor;
        self.quorum.inspect(&lock(), Some(&visitor), soon())
    }
}

fn lock() -> LockId {
    LockId {
        kind: Kind::Reentrant,
        name: "a".into(),
    }
}

fn took<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    (act(), begun.elapsed())
}

/// What the nodes have answered, where no majority was had.
fn answers<T: fmt::Debug>(outcome: Result<T>) -> Vec<String> {
    match outcome.unwrap_err() {
        Error::NoQuorum { nodes, .. } => nodes.into_iter().map(|it| it.answer).collect(),
        other => panic!("{other:?}"),
    }
}

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
