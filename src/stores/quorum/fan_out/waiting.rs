//! Requests that wait for a connection, or for the right to use one.

use std::time::Instant;

use super::{FanOut, LOOK_AGAIN, MOST_TRIES};
use crate::ground::error::Error;
use crate::ground::sync;
use crate::ground::time;
use crate::stores::quorum::links::{Linked, Want};
use crate::stores::quorum::node::Purpose;

/// A request that waits for its connection.
pub(super) struct Connecting<'a> {
    pub(super) index: usize,
    pub(super) want: Want<'a>,
    /// How often a connection that was made was of no use.
    pub(super) tries: u32,
}

/// A request to a node of which others use as many connections as may be in use at once.
pub(super) struct Busy {
    pub(super) index: usize,
    pub(super) tries: u32,
    /// How many connections may be in use.
    pub(super) connections: u32,
    /// When it is given up.
    pub(super) until: Instant,
}

impl<T> FanOut<'_, T> {
    /// Sends the requests whose connections are there.
    pub(super) fn ask_connected(&mut self) {
        for at in (0..self.connecting.len()).rev() {
            let end = self.connecting.get(at).and_then(|it| it.want.end());
            let Some(end) = end else {
                continue;
            };
            let Connecting { index, want, tries } = self.connecting.swap_remove(at);
            match end {
                Linked::NoVote(reason) if self.purpose != Purpose::Request => {
                    let error = Error::Unavailable {
                        lock: "".into(),
                        node: want.node.name(),
                        reason,
                    };
                    self.ready.push((index, Err(error)));
                }
                Linked::Ready | Linked::NoVote(_) => {
                    self.ask(index, tries + 1);
                }
                Linked::Failed(error) if !error.may_pass() => {
                    // Some requests may be allowed all the same.
                    let was_sent = self.ask(index, MOST_TRIES);
                    self.ready
                        .extend((!was_sent).then_some((index, Err(error))));
                }
                Linked::Failed(error) => self.out_of_reach.push((index, error)),
            }
        }
    }

    /// Sends what waits for the right to use a connection, as far as there is one.
    pub(super) fn ask_busy(&mut self) {
        for busy in std::mem::take(&mut self.busy) {
            if time::now() < busy.until {
                self.ask_again(&busy);
            } else {
                self.give_up(&busy);
            }
        }
    }

    fn ask_again(&mut self, busy: &Busy) {
        // It has waited as long as others.
        self.ask(busy.index, busy.tries.max(1));
        if let Some(again) = self.busy.last_mut().filter(|it| it.index == busy.index) {
            again.until = busy.until;
        }
    }

    /// Sends what can be sent soon, without reading any answer.
    pub(in crate::stores::quorum) fn send_rest(&mut self) {
        self.is_needed = false;
        loop {
            self.ask_connected();
            self.ask_busy();
            if !self.in_flight.is_empty() {
                // It does not wait for one with others in hand.
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

    /// Waits no longer for connections, which go on being made.
    pub(super) fn give_up_connecting(&mut self) {
        for Connecting { index, want, .. } in self.connecting.drain(..) {
            if time::now() >= self.soon {
                want.note_slow();
            }
            let reason = "connecting takes longer than there was time";
            self.out_of_reach
                .push((index, want.node.unreachable(reason)));
        }
    }

    pub(super) fn give_up_busy(&mut self) {
        for busy in std::mem::take(&mut self.busy) {
            self.give_up(&busy);
        }
    }

    fn give_up(&mut self, busy: &Busy) {
        if let Some(node) = self.quorum.nodes.get(busy.index) {
            let error = Error::Exhausted {
                lock: "".into(),
                node: node.name(),
                connections: busy.connections,
            };
            self.out_of_reach.push((busy.index, error));
        }
    }

    /// Waits until a connection may be there that it could use, while it has none in hand.
    pub(super) fn wait_for_connections(&mut self, deadline: Instant) {
        let deadline = match self.busy.is_empty() {
            true => deadline,
            false => deadline.min(time::now() + LOOK_AGAIN),
        };
        let wants = self.connecting.iter().map(|it| &it.want);
        if self.connecting.is_empty() {
            sync::sleep(deadline.saturating_duration_since(time::now()));
        }
        self.quorum.links.wait(wants, deadline);
    }
}
