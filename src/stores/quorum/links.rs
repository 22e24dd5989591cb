//! Connections to the nodes of a quorum in the making.
//!
//! The time-out of a node bounds what one request costs. To connect (TCP, TLS, AUTH, who it is) takes a time of its own:
//! it is done aside, so that requests to the other nodes go on, and no request that fails meanwhile puts it off. A call
//! that needs the node waits for it as long as it has time; when that is over, the next call finds the connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::error::Error;
use crate::ground::sync::{self, Condvar, Mutex};
use crate::ground::time;

use crate::stores::quorum::QuorumNode;
use crate::stores::quorum::node::Purpose;

/// The connections in the making, of all nodes.
pub(super) struct Links {
    nodes: Mutex<Vec<[Link; 2]>>,
    /// Some attempt to connect has ended.
    changed: Condvar,
    /// How long an attempt may take.
    timeout: Duration,
}

/// The use of connections to one node: requests and renewals have connections of their own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Line {
    Requests = 0,
    Renewals = 1,
}

/// The connections of one kind to one node.
#[derive(Default)]
struct Link {
    /// How many calls wait for one.
    wanted: usize,
    /// How many are being made: no more than there were calls at once.
    underway: usize,
    /// How many attempts have ended, and the end of the last one; `None` after a panic.
    ended: u64,
    outcome: Option<Linked>,
    /// Whether a call has waited for it for the whole time-out of a node, so that those that can do without it do.
    is_slow: bool,
    /// Whether the last attempt failed, so that the node is rather dead than distant.
    has_failed: bool,
}

/// The outcome of an attempt to connect.
#[derive(Clone, Debug)]
pub(super) enum Linked {
    Ready,
    /// The connection is there, but the node has no vote, for this reason.
    NoVote(String),
    Failed(Error),
}

/// A call that waits for a connection.
pub(super) struct Want<'a> {
    pub(super) node: &'a Arc<QuorumNode>,
    line: Line,
    /// How many attempts had ended when it began to wait.
    seen: u64,
}

/// Notes the end of an attempt.
struct Ending<'a> {
    node: &'a QuorumNode,
    line: Line,
    outcome: Option<Linked>,
}

impl Line {
    pub(super) fn of(purpose: Purpose) -> Line {
        match purpose {
            Purpose::Renewal => Line::Renewals,
            Purpose::Request | Purpose::Vote => Line::Requests,
        }
    }
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
        while time::now() < deadline {
            let has_ended = |want: &'w Want<'n>| {
                let link = link(&nodes, want.node, want.line);
                link.is_none_or(|link| link.ended != want.seen)
            };
            // All of them each time: any may be the one that ends.
            if wants.clone().any(has_ended) {
                return;
            }
            nodes = self.changed.wait(nodes, Some(deadline));
        }
    }
}

fn link<'l>(nodes: &'l [[Link; 2]], node: &QuorumNode, line: Line) -> Option<&'l Link> {
    nodes.get(node.index)?.get(line as usize)
}

impl QuorumNode {
    fn with_link<T>(&self, line: Line, what: impl FnOnce(&mut Link) -> T) -> Option<T> {
        let mut nodes = self.links.nodes.lock();
        let link = nodes.get_mut(self.index)?.get_mut(line as usize)?;
        Some(what(link))
    }

    /// Connects to it aside, unless that is under way already.
    pub(super) fn connect_aside(self: &Arc<QuorumNode>, line: Line) {
        let is_missing = self.with_link(line, |link| {
            // A call that waits for one has begun it, and finds it when it has ended.
            let is_missing = link.underway == 0 && link.wanted == 0;
            link.underway += usize::from(is_missing);
            is_missing
        });
        if is_missing == Some(true) && !self.start(line) {
            // There is no room for a thread: whoever needs the connection makes it.
            drop(Ending::new(self, line));
        }
    }

    /// Waits from now on for a connection, which is made aside; where there is no room for a thread it is made at once,
    /// by `by`.
    pub(super) fn want(self: &Arc<QuorumNode>, line: Line, by: Instant) -> Want<'_> {
        let begun = self.with_link(line, |link| {
            link.wanted += 1;
            let is_missing = link.underway < link.wanted;
            link.underway += usize::from(is_missing);
            (link.ended, is_missing)
        });
        let (seen, is_missing) = begun.unwrap_or_default();
        if is_missing && !self.start(line) {
            self.connect(line, by.min(self.longest()));
        }
        Want {
            node: self,
            line,
            seen,
        }
    }

    /// Whether a connection is being made that calls can do without have waited for long enough.
    pub(super) fn is_slow_to_connect(&self, line: Line) -> bool {
        self.with_link(line, |link| link.is_slow && link.underway > 0) == Some(true)
    }

    /// Until when an attempt that begins now may take.
    fn longest(&self) -> Instant {
        time::now() + self.links.timeout
    }

    fn start(self: &Arc<QuorumNode>, line: Line) -> bool {
        let node = Arc::clone(self);
        let deadline = self.longest();
        sync::spawn("redlatch-connect", move || node.connect(line, deadline)).is_ok()
    }

    fn connect(&self, line: Line, deadline: Instant) {
        let mut ending = Ending::new(self, line);
        let purpose = match line {
            Line::Requests => Purpose::Request,
            Line::Renewals => Purpose::Renewal,
        };
        ending.outcome = Some(match self.node.connect(&self.handle, purpose, deadline) {
            Ok(Ok(())) => {
                self.revive();
                Linked::Ready
            }
            Ok(Err(abstention)) => {
                self.revive();
                Linked::NoVote(abstention.to_string())
            }
            Err(error) => {
                self.trip(&error);
                Linked::Failed(error)
            }
        });
    }
}

impl Want<'_> {
    /// Returns the outcome of the attempt, `None` if it is still under way; `Some(None)` if it ended without a word.
    pub(super) fn outcome(&self) -> Option<Option<Linked>> {
        let seen = self.seen;
        let outcome = self.node.with_link(self.line, |link| {
            (link.ended != seen).then(|| link.outcome.clone())
        });
        outcome.unwrap_or(Some(None))
    }

    /// Whether the attempt before this one failed: it may be a dead node, which is to cost no call more than its time-out.
    pub(super) fn is_doubtful(&self) -> bool {
        let has_failed = |link: &mut Link| link.has_failed;
        self.node.with_link(self.line, has_failed) == Some(true)
    }

    /// Notes that it was waited for in vain for as long as a node may take.
    pub(super) fn note_slow(&self) {
        let _ = self.node.with_link(self.line, |link| link.is_slow = true);
    }
}

impl Drop for Want<'_> {
    fn drop(&mut self) {
        let _ = self.node.with_link(self.line, |link| link.wanted -= 1);
    }
}

impl<'a> Ending<'a> {
    fn new(node: &'a QuorumNode, line: Line) -> Ending<'a> {
        Ending {
            node,
            line,
            outcome: None,
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let _ = self.node.with_link(self.line, |link| {
            link.underway = link.underway.saturating_sub(1);
            link.ended += 1;
            if let Some(outcome) = &outcome {
                link.has_failed = matches!(outcome, Linked::Failed(_));
            }
            link.outcome = outcome;
            link.is_slow = false;
        });
        self.node.links.changed.notify_all();
    }
}
