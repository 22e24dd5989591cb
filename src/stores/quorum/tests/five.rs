//! Five in-process servers with injected faults.

use std::fmt;

use super::*;
use crate::stores::redis::in_memory::World;
use crate::stores::redis::in_memory::tests::store_of;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Well,
    Dead,
    /// The key of the lock has a value of another type.
    Strange,
}

pub(super) fn error(is_strange: bool) -> Error {
    let (lock, node) = ("a".into(), "in memory".into());
    match is_strange {
        true => Error::WrongType {
            lock,
            node,
            reason: "text".to_owned(),
        },
        false => Error::Unreachable {
            lock,
            node,
            reason: "it is dead".to_owned(),
            source: None,
        },
    }
}

pub(super) struct Five {
    worlds: Vec<Arc<World>>,
    nodes: Vec<Arc<RedisNode>>,
    pub(super) quorum: Quorum,
}

impl Five {
    pub(super) fn new() -> Five {
        let worlds: Vec<Arc<World>> = (0..5).map(|_| Arc::default()).collect();
        let nodes = worlds
            .iter()
            .map(|it| Arc::new(store_of(it).as_node().unwrap()));
        let nodes: Vec<_> = nodes.collect();
        let kept = nodes.iter().map(|it| (Arc::clone(it), Arc::new(()) as _));
        let quorum = Quorum::new(kept.collect(), settings(), soon()).unwrap();
        Five {
            worlds,
            nodes,
            quorum,
        }
    }

    pub(super) fn held(count: u32) -> Five {
        let five = Five::new();
        five.done(five.take(0));
        for count in 1..count {
            five.done(five.take(count));
        }
        five
    }

    pub(super) fn set(&self, modes: [Mode; 5]) {
        let text = Claim {
            kind: Kind::Token,
            ..claim("text", 0)
        };
        for (index, mode) in modes.into_iter().enumerate() {
            let node = &self.nodes[index];
            self.worlds[index].fail(|faults| faults.is_silent = false);
            let _ = node.release(&text, Left::Nothing, soon()).unwrap();
            if mode == S {
                node.force_release(&lock(), soon()).unwrap();
                node.acquire(&text, soon()).unwrap();
            }
            self.worlds[index].fail(|faults| faults.is_silent = mode == D);
            self.quorum.nodes[index].reset();
        }
    }

    /// Frees the lock at these nodes. If `to` names a client, this client then acquires the lock at these nodes.
    pub(super) fn lose(&self, nodes: &[usize], to: Option<&str>) {
        let lock = lock();
        for index in nodes {
            let memory = &self.nodes[*index];
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
        let left = match keep {
            0 => Left::Nothing,
            keep => Left::Levels(keep),
        };
        self.quorum.release(&claim("me", 1 + keep), left, soon())
    }

    pub(super) fn done<D: fmt::Debug, R: fmt::Debug>(&self, outcome: Result<Outcome<D, R>>) -> D {
        match outcome.unwrap() {
            Outcome::Done(done) => done,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn levels(&self) -> [u32; 5] {
        let visitor = claim("me", 0).visitor;
        [0, 1, 2, 3, 4].map(|index| {
            self.worlds[index].fail(|faults| faults.is_silent = false);
            let inspected = self.nodes[index].inspect(&lock(), Some(&visitor), soon());
            // `inspect` fails if the key has another type.
            inspected.map_or(0, |it| it.count)
        })
    }

    pub(super) fn inspect(&self) -> Result<Holding> {
        inspect(&self.quorum)
    }
}

pub(super) const W: Mode = Mode::Well;
pub(super) const D: Mode = Mode::Dead;
pub(super) const S: Mode = Mode::Strange;

pub(super) fn nodes_of(in_doubt: &InDoubt) -> Vec<usize> {
    (0..5)
        .filter(|node| in_doubt.not_after(*node).is_some())
        .collect()
}
