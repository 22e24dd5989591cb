//! The contenders: each acquires and releases the lock in its own way.

use std::path::Path;
use std::time::{Duration, Instant};

use redlatch::{Client, Lock, Redlock};

use crate::harness::bare::Bare;
use crate::harness::{Part, cpu_time};

/// The result of a turn.
#[derive(Default)]
pub(crate) struct Turn {
    /// The duration of each pair of lock and unlock, in ns.
    pub(crate) pairs: Vec<u64>,
    pub(crate) failed: u64,
    pub(crate) hangs: bool,
    /// CPU time of the whole process, in ns.
    pub(crate) cpu: u64,
}

pub(crate) enum Contender {
    Redlatch(Lock),
    /// The minimal requests of a quorum, sent to one node after another.
    InTurn(Vec<Bare>),
    /// The minimal requests, sent to all nodes at once; the replies of a majority are awaited.
    AtOnce(Vec<Bare>),
    /// A crate of the peers' package: its process, and the name.
    Peer(Part, &'static str),
}

/// Redlatch's lock on these nodes.
pub(crate) fn quorum(urls: &[String], lease: Duration) -> Redlock {
    let clients = urls.iter().map(|url| Client::open(url).expect("a client"));
    Redlock::builder()
        .nodes(clients)
        .max_lease(lease)
        .node_timeout(crate::NODE_TIMEOUT)
        .trust_new_nodes()
        .build()
        .expect("a quorum")
}

fn bare(urls: &[String], name: &str) -> Vec<Bare> {
    urls.iter().map(|url| Bare::new(url, name, 1)).collect()
}

impl Contender {
    pub(crate) fn five(urls: &[String]) -> Contender {
        Contender::Redlatch(quorum(urls, crate::LEASE).lock("five"))
    }

    pub(crate) fn one(url: &str) -> Contender {
        let client = Client::builder()
            .watchdog_timeout(crate::LEASE)
            .open(url)
            .expect("a client");
        Contender::Redlatch(client.lock("one"))
    }

    pub(crate) fn in_turn(urls: &[String]) -> Contender {
        Contender::InTurn(bare(urls, "in-turn"))
    }

    pub(crate) fn at_once(urls: &[String]) -> Contender {
        Contender::AtOnce(bare(urls, &format!("at-once-{}", urls.len())))
    }

    pub(crate) fn peer(program: &Path, name: &'static str, urls: &[String]) -> Contender {
        let program = program.to_str().expect("a path of plain characters");
        let mut args = vec![program, "quorum", name];
        args.extend(urls.iter().map(String::as_str));
        let mut part = Part::start("peers", &args);
        part.receive();
        Contender::Peer(part, name)
    }

    /// Acquires and releases the lock repeatedly for this time.
    pub(crate) fn turn(&mut self, slice: Duration) -> Turn {
        match self {
            Contender::Redlatch(lock) => turn_of(slice, || {
                matches!(lock.try_lock(), Ok(true)) && lock.unlock().is_ok()
            }),
            Contender::InTurn(nodes) => turn_of(slice, || {
                nodes.iter_mut().for_each(Bare::lock);
                nodes.iter_mut().for_each(Bare::unlock);
                true
            }),
            Contender::AtOnce(nodes) => turn_of(slice, || {
                let majority = nodes.len() / 2 + 1;
                nodes.iter_mut().for_each(Bare::send_lock);
                nodes.iter_mut().take(majority).for_each(Bare::receive);
                nodes.iter_mut().for_each(Bare::send_unlock);
                nodes.iter_mut().take(majority).for_each(Bare::receive);
                true
            }),
            Contender::Peer(part, name) => {
                let (lease, slice) = (crate::LEASE.as_millis(), slice.as_millis());
                part.send(&format!("pairs {name} {lease} {slice}"));
                match &part.receive()[..] {
                    [cpu, failed, hangs, pairs @ ..] => Turn {
                        pairs: pairs.to_vec(),
                        failed: *failed,
                        hangs: *hangs == 1,
                        cpu: *cpu,
                    },
                    other => panic!("half an answer: {other:?}"),
                }
            }
        }
    }
}

fn turn_of(slice: Duration, mut pair: impl FnMut() -> bool) -> Turn {
    let mut turn = Turn::default();
    let before = cpu_time();
    let end = Instant::now() + slice;
    let mut start = Instant::now();
    while start < end {
        let granted = pair();
        let now = Instant::now();
        if granted {
            turn.pairs.push((now - start).as_nanos() as u64);
        } else {
            turn.failed += 1;
        }
        start = now;
    }
    turn.cpu = cpu_time() - before;
    turn
}
