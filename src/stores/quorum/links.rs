//! Attempts to connect to the nodes of a quorum in the background.
//!
//! Connecting may take longer than the node timeout, which limits one request. So each attempt has its own timeout and
//! its own thread. If a connection is ready only after the quorum's call has returned, the next call uses it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::error::Error;
use crate::ground::sync::{self, Condvar, Mutex};
use crate::ground::time;

use crate::stores::quorum::QuorumNode;
use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::quarantine::Quarantined;

pub(super) struct Links {
    /// For each node, a link for requests and a link for renewals.
    nodes: Mutex<Vec<[Link; 2]>>,
    changed: Condvar,
    timeout: Duration,
}

#[derive(Default)]
struct Link {
    is_under_way: bool,
    /// The number of ended attempts.
    ended: u64,
    last: Option<Linked>,
}

#[derive(Clone, Debug)]
pub(super) enum Linked {
    Ready,
    /// The connection is ready, but the grants of the node do not count.
    NoVote(Quarantined),
    Failed(Error),
}

pub(super) struct ConnectWait<'a> {
    pub(super) node: &'a Arc<QuorumNode>,
    purpose: Purpose,
    /// The value of `Link::ended` when the wait began.
    seen: u64,
}

impl Links {
    pub(super) fn new(nodes: usize, timeout: Duration) -> Links {
        Links {
            nodes: Mutex::new((0..nodes).map(|_| Default::default()).collect()),
            changed: Condvar::default(),
            timeout,
        }
    }

    pub(super) fn wait<'w, 'n: 'w>(
        &self,
        wants: impl Iterator<Item = &'w ConnectWait<'n>> + Clone,
        deadline: Instant,
    ) {
        if wants.clone().next().is_none() {
            return;
        }
        let mut nodes = self.nodes.lock();
        let has_ended = |nodes: &mut Vec<[Link; 2]>, want: &ConnectWait<'_>| {
            let link = link(nodes, want.node, want.purpose);
            link.is_none_or(|link| link.ended != want.seen)
        };
        while time::now() < deadline && !wants.clone().any(|want| has_ended(&mut nodes, want)) {
            nodes = self.changed.wait(nodes, Some(deadline));
        }
    }
}

fn link<'l>(
    nodes: &'l mut [[Link; 2]],
    node: &QuorumNode,
    purpose: Purpose,
) -> Option<&'l mut Link> {
    let use_of_it = usize::from(purpose == Purpose::Renewal);
    nodes.get_mut(node.index)?.get_mut(use_of_it)
}

impl QuorumNode {
    fn with_link<T: Default>(&self, purpose: Purpose, what: impl FnOnce(&mut Link) -> T) -> T {
        let mut nodes = self.links.nodes.lock();
        let link = link(&mut nodes, self, purpose);
        link.map(what).unwrap_or_default()
    }

    /// Starts an attempt to connect in the background, unless one is running.
    pub(super) fn connect_aside(self: &Arc<QuorumNode>, purpose: Purpose) -> ConnectWait<'_> {
        let (seen, is_under_way) = self.with_link(purpose, |link| {
            (link.ended, std::mem::replace(&mut link.is_under_way, true))
        });
        if !is_under_way {
            let node = Arc::clone(self);
            let by = time::now() + self.links.timeout;
            let connect = move || node.note_end(purpose, node.connect(purpose, by));
            if sync::spawn("redlatch-connect", connect).is_err() {
                let error = self.unreachable("no thread could be started to connect");
                self.note_end(purpose, Linked::Failed(error));
            }
        }
        ConnectWait {
            node: self,
            purpose,
            seen,
        }
    }

    fn note_end(&self, purpose: Purpose, end: Linked) {
        self.with_link(purpose, |link| {
            *link = Link {
                ended: link.ended + 1,
                last: Some(end),
                ..Link::default()
            };
        });
        self.links.changed.notify_all();
    }

    fn connect(&self, purpose: Purpose, deadline: Instant) -> Linked {
        let end = match self.node.connect(&self.handle, purpose, deadline) {
            Ok(Ok(())) => Linked::Ready,
            Ok(Err(abstention)) => Linked::NoVote(abstention),
            Err(error) => {
                self.trip(&error);
                return Linked::Failed(error);
            }
        };
        self.revive();
        end
    }
}

impl ConnectWait<'_> {
    pub(super) fn end(&self) -> Option<Linked> {
        let ended = |link: &mut Link| link.last.clone().filter(|_| link.ended != self.seen);
        self.node.with_link(self.purpose, ended)
    }

    /// Whether the previous attempt failed.
    pub(super) fn is_doubtful(&self) -> bool {
        let has_failed = |link: &mut Link| matches!(link.last, Some(Linked::Failed(_)));
        self.node.with_link(self.purpose, has_failed)
    }
}
