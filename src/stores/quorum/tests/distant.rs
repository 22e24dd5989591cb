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
pub(in crate::stores::quorum) enum Link {
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

pub(in crate::stores::quorum) struct Distant {
    pub(in crate::stores::quorum) memory: Arc<RedisNode>,
    pub(in crate::stores::quorum) is_connected: AtomicBool,
    pub(in crate::stores::quorum) link: Mutex<Link>,
    /// How long it takes to connect, and to answer; `None` if the answer is there at once.
    pub(in crate::stores::quorum) connects_in: Mutex<Duration>,
    pub(in crate::stores::quorum) answers_in: Mutex<Option<Duration>>,
    pub(in crate::stores::quorum) attempts: AtomicUsize,
    /// From when until when each attempt to connect took, and when it had to have ended.
    pub(in crate::stores::quorum) connected: Mutex<Vec<[Instant; 3]>>,
    /// When each acquisition was to have its answer.
    pub(in crate::stores::quorum) acquired_by: Mutex<Vec<Instant>>,
}

impl Distant {
    pub(super) fn error(&self, link: Link) -> Error {
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

    pub(super) fn send<T: Send + 'static>(&self, answer: Result<T>) -> Pending<'_, T> {
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
pub(super) struct Late<T> {
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
        &**self.memory
    }

    fn is_ready(&self, _: Purpose<'_>) -> bool {
        self.is_connected.load(Ordering::SeqCst)
    }

    fn connect(
        &self,
        _: &NodeHandle,
        _: Purpose<'_>,
        by: Instant,
    ) -> Result<Result<(), Quarantined>> {
        let begun = Instant::now();
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let (link, takes) = (*self.link.lock(), *self.connects_in.lock());
        thread::sleep(takes);
        self.connected.lock().push([begun, Instant::now(), by]);
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
        self.acquired_by.lock().push(by);
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

    fn send_release<'a>(
        &'a self,
        claim: &'a Claim,
        keep: u32,
        by: Instant,
    ) -> Pending<'a, Outcome<Released>> {
        self.send(self.memory.release(claim, keep, by))
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
pub(in crate::stores::quorum) struct Three {
    pub(in crate::stores::quorum) nodes: Vec<Arc<Distant>>,
    pub(in crate::stores::quorum) quorum: Quorum,
}

pub(in crate::stores::quorum) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Three {
    pub(in crate::stores::quorum) fn new() -> Three {
        Three::with_timeout(ms(500))
    }

    /// Each node has so long for a request.
    pub(super) fn with_timeout(node_timeout: Duration) -> Three {
        let node = |_| {
            Arc::new(Distant {
                memory: node_in_memory(),
                is_connected: AtomicBool::new(false),
                link: Mutex::new(Link::Made),
                connects_in: Mutex::default(),
                answers_in: Mutex::default(),
                attempts: AtomicUsize::new(0),
                connected: Mutex::default(),
                acquired_by: Mutex::default(),
            })
        };
        let nodes: Vec<Arc<Distant>> = (0..3).map(node).collect();
        let quorum = quorum_of(&nodes, Some(node_timeout));
        Three { nodes, quorum }
    }

    /// Cuts the connection of a node, which is made again so, in this time.
    pub(in crate::stores::quorum) fn cut(&self, index: usize, link: Link, connects_in: u64) {
        let node = &self.nodes[index];
        node.is_connected.store(false, Ordering::SeqCst);
        *node.link.lock() = link;
        *node.connects_in.lock() = ms(connects_in);
        node.attempts.store(0, Ordering::SeqCst);
    }

    pub(super) fn attempts(&self) -> [usize; 3] {
        [0, 1, 2].map(|index| self.nodes[index].attempts.load(Ordering::SeqCst))
    }

    pub(super) fn inspect(&self) -> Result<Holding> {
        inspect(&self.quorum)
    }
}

pub(super) fn took<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    (act(), begun.elapsed())
}

/// What the nodes have answered, where no majority was had.
pub(super) fn answers<T: fmt::Debug>(outcome: Result<T>) -> Vec<String> {
    match outcome.unwrap_err() {
        Error::NoQuorum { nodes, .. } => nodes.into_iter().map(|it| it.answer).collect(),
        other => panic!("{other:?}"),
    }
}
