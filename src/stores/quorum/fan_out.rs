//! One request to several nodes at the same time.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::ground::clock::BootInstant;
use crate::ground::error::{Error, Result};
use crate::ground::poll::{self, Source};
use crate::ground::{sync, time};

use crate::stores::patience;
use crate::stores::quorum::links::{ConnectWait, Linked};
use crate::stores::quorum::node::{Pending, PendingAnswer, Purpose};
use crate::stores::quorum::tally::Vote;
use crate::stores::quorum::{Quorum, QuorumNode, bit};

/// The node timeout of a request starts when the request is sent. The wait for connections ends at `soon`, one node
/// timeout after the start. If `is_needed`, the wait ends at `connected_by` instead, unless the previous attempt to
/// connect has failed at every node that is not connected yet.
pub(super) struct FanOut<'a, T> {
    quorum: &'a Quorum,
    send: Box<dyn Fn(&'a QuorumNode, Instant) -> Pending<'a, T> + 'a>,
    purpose: Purpose,
    timeout: Duration,
    deadline: Instant,
    soon: Instant,
    connected_by: Instant,
    /// Requests wait until this time for nodes whose connections are all in use. Later requests get no reply in time.
    free_by: Instant,
    /// Set by the caller: whether the replies of the connected nodes are too few.
    pub(super) is_needed: bool,
    /// A time before the first request was sent. The validity of a hold counts from here.
    pub(super) first_sent: BootInstant,
    first_sent_at: Instant,
    has_sent: bool,
    ready: Vec<(usize, Result<T>)>,
    pub(super) arrived: Vec<SentRequest<'a, T>>,
    pub(super) in_flight: Vec<SentRequest<'a, T>>,
    connecting: Vec<Connecting<'a>>,
    busy: Vec<Busy>,
    /// The nodes to which the request was sent, or for which `send` has failed, one bit each.
    asked: u64,
    out_of_reach: Vec<(usize, Error)>,
}

pub(super) struct SentRequest<'a, T> {
    pub(super) index: usize,
    by: Instant,
    pub(super) in_flight: Box<dyn PendingAnswer<T> + 'a>,
}

struct Connecting<'a> {
    index: usize,
    want: ConnectWait<'a>,
}

struct Busy {
    index: usize,
    connections: u32,
}

/// How often a wait for replies checks whether a connection has become ready.
const RECHECK_INTERVAL: Duration = Duration::from_millis(1);

impl Quorum {
    pub(super) fn send_to<'a, T>(
        &'a self,
        among: u64,
        purpose: Purpose,
        lease: Duration,
        deadline: Instant,
        send: impl Fn(&'a QuorumNode, Instant) -> Pending<'a, T> + 'a,
    ) -> FanOut<'a, T> {
        let nodes = self.in_order(among, &[], purpose);
        self.send(nodes, purpose, lease, deadline, send)
    }

    /// Sends the request to the connected nodes at once, and to the other nodes when they are connected.
    pub(super) fn send<'a, T>(
        &'a self,
        nodes: Vec<usize>,
        purpose: Purpose,
        lease: Duration,
        deadline: Instant,
        send: impl Fn(&'a QuorumNode, Instant) -> Pending<'a, T> + 'a,
    ) -> FanOut<'a, T> {
        let begun = time::now();
        let timeout = self.node_timeout(lease);
        // A request sent later would get no reply in time, and its connection would be closed.
        let last = begun + patience(deadline);
        let soon = last.min(begun + timeout);
        let mut fan_out = FanOut {
            quorum: self,
            send: Box::new(send),
            purpose,
            timeout,
            deadline,
            soon,
            // A grant that arrives after half of the lease leaves too little validity.
            connected_by: last.min(begun + lease / 2).max(soon),
            free_by: begun + patience(soon),
            is_needed: true,
            first_sent: BootInstant::now(),
            first_sent_at: begun,
            has_sent: false,
            ready: Vec::new(),
            arrived: Vec::new(),
            in_flight: Vec::new(),
            connecting: Vec::new(),
            busy: Vec::new(),
            asked: 0,
            out_of_reach: Vec::new(),
        };
        for index in nodes {
            fan_out.ask(index, true);
        }
        fan_out
    }
}

impl<'a, T> FanOut<'a, T> {
    /// Returns false if the node has no connection for the request now. If `may_wait`, the request then waits for one.
    fn ask(&mut self, index: usize, may_wait: bool) -> bool {
        let Some(node) = self.quorum.nodes.get(index) else {
            return false;
        };
        let (sent, now) = (BootInstant::now(), time::now());
        let by = self.deadline.min(now + self.timeout);
        match (self.send)(node, by) {
            Pending::Ready(answer) => self.ready.push((index, answer)),
            Pending::Sent(in_flight) => {
                self.in_flight.push(SentRequest {
                    index,
                    by,
                    in_flight,
                });
            }
            Pending::Busy(connections) => {
                let busy = Busy { index, connections };
                self.busy.extend(may_wait.then_some(busy));
                return false;
            }
            Pending::NotConnected => {
                // Another call may have taken the connection that was made for this request.
                let connecting = || Connecting {
                    index,
                    want: node.connect_aside(self.purpose),
                };
                self.connecting.extend(may_wait.then(connecting));
                return false;
            }
        }
        self.asked |= bit(index);
        if !self.has_sent {
            self.has_sent = true;
            (self.first_sent, self.first_sent_at) = (sent, now);
        }
        true
    }

    /// Notes in `votes` why each remaining node has not voted: no reply, or no connection.
    pub(super) fn note_rest(mut self, votes: &mut [Option<Vote>]) {
        self.give_up_connecting();
        self.give_up_busy();
        for (index, vote) in votes.iter_mut().enumerate() {
            if vote.is_none() && self.asked & bit(index) != 0 {
                *vote = Some(Vote::Silent);
            }
        }
        for (index, error) in std::mem::take(&mut self.out_of_reach) {
            if let Some(place @ None) = votes.get_mut(index) {
                *place = Some(Vote::Failed(error));
            }
        }
    }

    pub(super) fn age(&self) -> Duration {
        time::since(self.first_sent_at)
    }

    pub(super) fn len(&self) -> usize {
        let under_way = self.ready.len() + self.arrived.len() + self.in_flight.len();
        under_way + self.connecting.len() + self.busy.len()
    }

    /// The nodes whose replies were not read yet, one bit each.
    pub(super) fn bits(&self) -> u64 {
        let unread = self.in_flight.iter().chain(&self.arrived);
        let unread = unread.map(|request| request.index);
        let ready = self.ready.iter().map(|(index, _)| *index);
        unread.chain(ready).fold(0, |bits, index| bits | bit(index))
    }

    /// Returns the next reply; `None` after the last. For a missing reply, returns an error or an unknown outcome.
    pub(super) fn next(&mut self) -> Option<(usize, Result<T>)> {
        self.next_within(None)
    }

    /// Like [`FanOut::next`], but returns `None` also if no reply arrives before the time `patience`.
    pub(super) fn next_within(&mut self, patience: Option<Instant>) -> Option<(usize, Result<T>)> {
        loop {
            self.ask_connected();
            self.ask_busy();
            if let Some(next) = self.next_arrived(patience.unwrap_or(self.deadline)) {
                return Some(next);
            }
            let now = time::now();
            if let Some(at) = self.in_flight.iter().position(|it| it.by <= now) {
                let request = self.in_flight.swap_remove(at);
                return Some((request.index, request.in_flight.receive(request.by)));
            }
            if patience.is_some_and(|patience| patience <= now) {
                return None;
            }
            let is_hopeful = || !self.connecting.iter().all(|it| it.want.is_doubtful());
            let connected_by = if self.is_needed && is_hopeful() {
                self.connected_by
            } else {
                self.soon
            };
            if !self.connecting.is_empty() && connected_by <= now {
                self.give_up_connecting();
            }
            let ends = self.in_flight.iter().map(|it| it.by);
            let ends = ends.chain((!self.connecting.is_empty()).then_some(connected_by));
            let ends = ends.chain((!self.busy.is_empty()).then_some(self.free_by));
            let wake_at = ends.min()?;
            self.wait(patience.map_or(wake_at, |patience| patience.min(wake_at)));
        }
    }

    /// If only a part of the next reply has arrived, the read waits for the rest for at least 5 ms.
    pub(super) fn next_arrived(&mut self, deadline: Instant) -> Option<(usize, Result<T>)> {
        if let Some(next) = self.ready.pop() {
            return Some(next);
        }
        let request = self.arrived.pop()?;
        let least = time::now() + Duration::from_millis(5);
        let whole_by = deadline.min(request.by).max(least);
        Some((request.index, request.in_flight.receive(whole_by)))
    }

    pub(super) fn wait(&mut self, deadline: Instant) {
        if self.in_flight.is_empty() {
            return self.wait_for_connections(deadline);
        }
        let deadline = match self.connecting.is_empty() && self.busy.is_empty() {
            true => deadline,
            false => deadline.min(time::now() + RECHECK_INTERVAL),
        };
        let arrived = self.poll(deadline);
        for at in (0..self.in_flight.len()).rev() {
            let has_come = arrived & bit(at) != 0;
            let request = self.in_flight.get_mut(at);
            if has_come && request.is_some_and(|it| it.in_flight.is_next()) {
                let in_flight = self.in_flight.swap_remove(at);
                self.arrived.push(in_flight);
            }
        }
    }

    /// Returns requests of `in_flight` whose replies can be read, one bit each. The result may lack some such requests.
    fn poll(&self, deadline: Instant) -> u64 {
        let mut sources: SmallVec<[Source<'_>; 8]> = SmallVec::new();
        for (at, request) in self.in_flight.iter().enumerate() {
            match request.in_flight.source() {
                Some(source) => sources.push(source),
                None => return bit(at),
            }
        }
        match poll::wait(sources.into_iter(), deadline) {
            Ok(readable) => {
                let readable = readable.iter().flatten().enumerate();
                let arrived = readable.filter(|(_, is)| **is);
                arrived.fold(0, |bits, (at, _)| bits | bit(at))
            }
            // `poll` failed for lack of memory. The caller then reads the reply to the first request, and may block.
            Err(_) => bit(0),
        }
    }

    fn ask_connected(&mut self) {
        for at in (0..self.connecting.len()).rev() {
            let end = self.connecting.get(at).and_then(|it| it.want.end());
            let Some(end) = end else {
                continue;
            };
            let Connecting { index, .. } = self.connecting.swap_remove(at);
            match end {
                Linked::NoVote(reason) if self.purpose != Purpose::Request => {
                    let error = self.quorum.unavailable(index, &reason.to_string());
                    self.ready.push((index, Err(error)));
                }
                Linked::Ready | Linked::NoVote(_) => {
                    self.ask(index, true);
                }
                Linked::Failed(error) if !error.may_pass() => {
                    // The server may have refused a set-up command of the connection, and still permit this request.
                    let was_sent = self.ask(index, false);
                    let failed = (!was_sent).then_some((index, Err(error)));
                    self.ready.extend(failed);
                }
                Linked::Failed(error) => self.out_of_reach.push((index, error)),
            }
        }
    }

    fn ask_busy(&mut self) {
        if time::now() >= self.free_by {
            return self.give_up_busy();
        }
        for Busy { index, .. } in std::mem::take(&mut self.busy) {
            self.ask(index, true);
        }
    }

    /// Waits for connections until `soon`, and sends the requests that wait for them. Reads no replies.
    pub(super) fn send_rest(&mut self) {
        self.is_needed = false;
        loop {
            self.ask_connected();
            self.ask_busy();
            if !self.in_flight.is_empty() {
                // A wait for a busy node would delay reading the replies of the other nodes.
                self.give_up_busy();
            }
            if self.connecting.is_empty() && self.busy.is_empty() {
                return;
            }
            if time::now() >= self.soon {
                self.give_up_busy();
                return self.give_up_connecting();
            }
            self.wait_for_connections(self.soon);
        }
    }

    /// The attempts to connect continue in the background.
    fn give_up_connecting(&mut self) {
        for Connecting { index, want, .. } in self.connecting.drain(..) {
            let reason = "connecting took longer than the deadline allows";
            let error = want.node.unreachable(reason);
            if time::now() >= self.soon {
                // Later calls skip the node until it is connected.
                want.node.trip(&error);
            }
            self.out_of_reach.push((index, error));
        }
    }

    fn give_up_busy(&mut self) {
        for busy in self.busy.drain(..) {
            let node = self.quorum.nodes.get(busy.index).map(|node| node.name());
            let error = Error::Exhausted {
                lock: "".into(),
                node: node.unwrap_or_default(),
                connections: busy.connections,
            };
            self.out_of_reach.push((busy.index, error));
        }
    }

    fn wait_for_connections(&mut self, deadline: Instant) {
        let deadline = match self.busy.is_empty() {
            true => deadline,
            false => deadline.min(time::now() + RECHECK_INTERVAL),
        };
        let wants = self.connecting.iter().map(|it| &it.want);
        if self.connecting.is_empty() {
            sync::sleep(deadline.saturating_duration_since(time::now()));
        }
        self.quorum.links.wait(wants, deadline);
    }
}
