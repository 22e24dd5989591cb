//! Connections to the nodes of a quorum in the making.
//!
//! The time-out of a node bounds what one request costs. To connect (TCP, TLS, AUTH, who it is) takes a time of its own:
//! it is done aside, one attempt at a time for each node, so that requests to the other nodes go on, and no request that
//! fails meanwhile puts it off. A call that needs the node waits for the attempt as long as it has time; when that is
//! over, the next call finds the connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::error::Error;
use crate::ground::sync::{self, Condvar, Mutex};
use crate::ground::time;

use crate::stores::quorum::QuorumNode;
use crate::stores::quorum::node::Purpose;
use crate::stores::quorum::quarantine::Quarantined;

/// The attempts to connect, of all nodes.
pub(super) struct Links {
    /// Requests and renewals of a node have connections of their own.
    nodes: Mutex<Vec<[Link; 2]>>,
    /// Some attempt has ended.
    changed: Condvar,
    /// How long an attempt may take.
    timeout: Duration,
}

/// The connections to one node for one use.
#[derive(Default)]
struct Link {
    is_under_way: bool,
    /// How many attempts have ended, and how the last one did.
    ended: u64,
    last: Option<Linked>,
}

/// The end of an attempt to connect.
#[derive(Clone, Debug)]
pub(super) enum Linked {
    Ready,
    /// The connection is there, but the node has no vote, for this reason.
    NoVote(Quarantined),
    Failed(Error),
}

/// A call that waits for the end of an attempt.
pub(super) struct Want<'a> {
    pub(super) node: &'a Arc<QuorumNode>,
    purpose: Purpose,
    /// How many attempts had ended when it began to wait.
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

    /// Waits until an attempt of one of `wants` has ended, at most until `deadline`.
    pub(super) fn wait<'w, 'n: 'w>(
        &self,
        wants: impl Iterator<Item = &'w Want<'n>> + Clone,
        deadline: Instant,
    ) {
        if wants.clone().next().is_none() {
            return;
        }
        let mut nodes = self.nodes.lock();
        let has_ended = |nodes: &mut Vec<[Link; 2]>, want: &Want<'_>| {
            let link = link(nodes, want.node, want.purpose);
            link.is_none_or(|link| link.ended != want.seen)
        };
        // Any may be the one that ends.
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
        link(&mut nodes, self, purpose)
            .map(what)
            .unwrap_or_default()
    }

    /// Connects to it aside, unless that is under way already, and returns who waits for that.
    pub(super) fn connect_aside(self: &Arc<QuorumNode>, purpose: Purpose) -> Want<'_> {
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
        Want {
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

impl Want<'_> {
    /// The end of the attempt, unless it is still under way.
    pub(super) fn end(&self) -> Option<Linked> {
        let ended = |link: &mut Link| link.last.clone().filter(|_| link.ended != self.seen);
        self.node.with_link(self.purpose, ended)
    }

    /// Whether the attempt before this one failed: it may be a dead node, which is to cost no call more than its time-out.
    pub(super) fn is_doubtful(&self) -> bool {
        let has_failed = |link: &mut Link| matches!(link.last, Some(Linked::Failed(_)));
        self.node.with_link(self.purpose, has_failed)
    }
}
