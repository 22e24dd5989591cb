//! Five nodes that answer as told: at once, so that each order of answers is that of the nodes.

use std::fmt;

use super::*;
use crate::stores::quorum::node::Pending;

/// How a node answers from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Well,
    /// It cannot be reached, and does nothing.
    Dead,
    /// It does what it is asked, and the answer is lost; the request may come until its time 9.
    Lost,
    /// The same, and nothing is done.
    Missed,
    /// There is something else under the name.
    Strange,
}

fn left(keep: u32) -> Left<'static> {
    match keep {
        0 => Left::Nothing,
        keep => Left::Levels(keep),
    }
}

pub(super) struct Scripted {
    pub(super) memory: Arc<RedisNode>,
    pub(super) mode: Mutex<Mode>,
    /// The answer to an earlier request, which somebody reads while a release is under way.
    pub(super) read_meanwhile: Mutex<Option<Arc<AtomicBool>>>,
}

impl Scripted {
    pub(super) fn error(&self, strange: bool) -> Error {
        match strange {
            true => Error::WrongType {
                lock: "a".into(),
                node: "in memory".into(),
                reason: "text".to_owned(),
            },
            false => Error::Unreachable {
                lock: "a".into(),
                node: "in memory".into(),
                reason: "it is dead".to_owned(),
                source: None,
            },
        }
    }

    /// Carries a request out, or does not.
    pub(super) fn answer<T>(
        &self,
        lost: impl FnOnce(Error) -> Result<T>,
        run: impl FnOnce() -> Result<T>,
    ) -> Pending<'_, T> {
        let mode = *self.mode.lock();
        let unknown = || Error::unknown(&"a".into(), "in memory", "request", None, "it was lost");
        Pending::Ready(match mode {
            Mode::Well => run(),
            Mode::Dead | Mode::Strange => Err(self.error(mode == Mode::Strange)),
            Mode::Lost => run().and_then(|_| lost(unknown())),
            Mode::Missed => lost(unknown()),
        })
    }
}

impl Node for Scripted {
    fn store(&self) -> &dyn Store {
        &**self.memory
    }

    fn connect(&self, _: &NodeHandle, _: Purpose, _: Instant) -> Result<Result<(), Quarantined>> {
        match *self.mode.lock() {
            Mode::Dead => Err(self.error(false)),
            _ => Ok(Ok(())),
        }
    }

    fn send_acquire<'a>(
        &'a self,
        claim: &'a Claim,
        restored: bool,
        handle: &'a NodeHandle,
        by: Instant,
    ) -> Pending<'a, Outcome<Granted, Refusal>> {
        let lost = |error| Ok(Outcome::unknown(claim.in_doubt(9), error));
        self.answer(lost, || {
            let _ = self.memory.connect(handle, Purpose::Vote, by)?;
            match self.memory.send_acquire(claim, restored, handle, by) {
                Pending::Ready(answer) => answer,
                Pending::Sent(sent) => sent.receive(by).unwrap(),
                _ => panic!("it is connected"),
            }
        })
    }

    fn send_renew<'a>(
        &'a self,
        claims: &'a [Claim],
        _: &'a NodeHandle,
        by: Instant,
    ) -> Pending<'a, Vec<Renewal>> {
        let unknown = vec![Renewal::Unknown("it was lost".to_owned()); claims.len()];
        self.answer(|_| Ok(unknown), || Ok(self.memory.renew(claims, by)))
    }

    fn send_release<'a>(
        &'a self,
        claim: &'a Claim,
        keep: u32,
        by: Instant,
    ) -> Pending<'a, Outcome<Released>> {
        let lost = |error| Ok(Outcome::unknown(claim.in_doubt(9), error));
        if let Some(answered) = &*self.read_meanwhile.lock() {
            answered.store(true, Ordering::Release);
        }
        self.answer(lost, || self.memory.release(claim, left(keep), by))
    }

    fn send_resolve<'a>(&'a self, mut in_doubt: InDoubt, by: Instant) -> Pending<'a, bool> {
        self.answer(Err, || {
            let settled = self.memory.resolve(&mut [&mut in_doubt], by).pop();
            settled.unwrap_or(Ok(false))
        })
    }

    fn send_force_release<'a>(&'a self, lock: &'a LockId, by: Instant) -> Pending<'a, bool> {
        self.answer(Err, || self.memory.force_release(lock, by))
    }

    fn send_inspect<'a>(
        &'a self,
        lock: &'a LockId,
        visitor: Option<&'a VisitorId>,
        by: Instant,
    ) -> Pending<'a, Holding> {
        self.answer(Err, || self.memory.inspect(lock, visitor, by))
    }
}

/// Five nodes and the quorum of them.
pub(super) struct Five {
    pub(super) nodes: Vec<Arc<Scripted>>,
    pub(super) quorum: Quorum,
}

impl Five {
    pub(super) fn new() -> Five {
        let nodes: Vec<Arc<Scripted>> = (0..5)
            .map(|_| {
                Arc::new(Scripted {
                    memory: node_in_memory(),
                    mode: Mutex::new(Mode::Well),
                    read_meanwhile: Mutex::default(),
                })
            })
            .collect();
        let quorum = quorum_of(&nodes, None);
        Five { nodes, quorum }
    }

    /// With a hold of so many levels everywhere.
    pub(super) fn held(count: u32) -> Five {
        let five = Five::new();
        five.done(five.take(0));
        for count in 1..count {
            five.done(five.take(count));
        }
        five
    }

    /// Has these nodes answer so; all are asked again.
    pub(super) fn set(&self, modes: [Mode; 5]) {
        for ((node, scripted), mode) in self.quorum.nodes.iter().zip(&self.nodes).zip(modes) {
            *scripted.mode.lock() = mode;
            node.reset();
        }
    }

    /// Takes the hold away from these nodes, for another one that is there, if one is.
    pub(super) fn lose(&self, nodes: &[usize], to: Option<&str>) {
        let lock = lock();
        for index in nodes {
            let memory = &self.nodes[*index].memory;
            memory.force_release(&lock, soon()).unwrap();
            if let Some(other) = to {
                let other = Claim {
                    lease: Duration::from_secs(1 + *index as u64),
                    ..claim(other, 0)
                };
                memory.acquire(&other, soon()).unwrap();
            }
        }
    }

    pub(super) fn take(&self, count: u32) -> Result<Outcome<Granted, Refusal>> {
        self.quorum.acquire(&claim("me", count), soon())
    }

    pub(super) fn release(&self, keep: u32) -> Result<Outcome<Released>> {
        self.quorum
            .release(&claim("me", 1 + keep), left(keep), soon())
    }

    pub(super) fn done<D: fmt::Debug, R: fmt::Debug>(&self, outcome: Result<Outcome<D, R>>) -> D {
        match outcome.unwrap() {
            Outcome::Done(done) => done,
            other => panic!("{other:?}"),
        }
    }

    /// The levels that the nodes have of the hold.
    pub(super) fn levels(&self) -> [u32; 5] {
        let visitor = claim("me", 0).visitor;
        let mut levels = [0; 5];
        for (levels, node) in levels.iter_mut().zip(&self.nodes) {
            *levels = node
                .memory
                .inspect(&lock(), Some(&visitor), soon())
                .unwrap()
                .count;
        }
        levels
    }

    pub(super) fn inspect(&self) -> Result<Holding> {
        inspect(&self.quorum)
    }
}

pub(super) const W: Mode = Mode::Well;
pub(super) const D: Mode = Mode::Dead;
pub(super) const L: Mode = Mode::Lost;
pub(super) const M: Mode = Mode::Missed;
pub(super) const S: Mode = Mode::Strange;

/// The nodes that a doubt is about.
pub(super) fn nodes_of(in_doubt: &InDoubt) -> Vec<usize> {
    (0..5)
        .filter(|node| in_doubt.not_after(*node).is_some())
        .collect()
}
