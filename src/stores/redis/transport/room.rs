//! The line of those who find no room for one more connection, in this process or at the server.
//!
//! A connection of a pool carries a mark for as long as somebody has it, so that it counts as in use whatever becomes of
//! it. The first of the line is woken whenever one comes back or is closed. Where none is in use, none can. One of the line
//! at a time leaves it to try whether there is room again, and does not keep those behind it from what comes back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::sync::{Clock, Condvar, Mutex};
use crate::ground::time;
use crate::stores::redis::transport::call_error::CallError;

/// So long after a try it is tried again whether there is room that nobody here has made.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// The connections of one pool that somebody has or makes, and those who wait for one of them.
#[derive(Default)]
pub(crate) struct Room {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    in_use: u32,
    /// How often one of them came back or was closed, and how often it was closed.
    freed: u64,
    closed: u64,
    /// Those who wait, the next one first: renewals, then requests.
    line: VecDeque<Arc<Waiter>>,
    /// Why there is no room, as it was found last.
    lack: Option<CallError>,
    /// Whether one of them tries to make a connection.
    is_trying: bool,
    /// When a try of them has failed last, and how often one had been closed before.
    tried_at: Option<Instant>,
    tried_behind: u64,
}

struct Waiter {
    wakes: Condvar,
    /// It is a renewal, which has no time for a try that may stall as long as another connection can come back.
    is_urgent: bool,
}

impl State {
    fn is_first(&self, waiter: &Arc<Waiter>) -> bool {
        self.line.front().is_some_and(|it| Arc::ptr_eq(it, waiter))
    }

    /// The first of those that may try whether there is room.
    fn first_to_try(&self) -> Option<&Arc<Waiter>> {
        self.line
            .iter()
            .find(|it| !it.is_urgent || self.in_use == 0)
    }

    /// None of the others has anything to do.
    fn wake(&self) {
        let first_to_try = self.first_to_try().filter(|it| !self.is_first(it));
        for waiter in self.line.front().into_iter().chain(first_to_try) {
            waiter.wakes.notify_one();
        }
    }

    /// How many of the line are renewals, which come first.
    fn urgent(&self) -> usize {
        self.line.iter().take_while(|it| it.is_urgent).count()
    }

    /// When it is worth a try.
    fn next_try(&self) -> Option<Instant> {
        let tried_at = self.tried_at.filter(|_| self.closed == self.tried_behind);
        tried_at.map(|at| at + TRY_AGAIN)
    }

    fn leave(&mut self, waiter: &Arc<Waiter>) {
        self.line.retain(|it| !Arc::ptr_eq(it, waiter));
    }
}

impl Room {
    /// How often a connection was closed; and why others wait for that or for one that comes back, if any do.
    pub(super) fn look(&self) -> (u64, Option<CallError>) {
        let state = self.state.lock();
        (state.closed, state.lack.clone())
    }

    /// Counts one more connection that somebody has or makes.
    pub(super) fn enter(self: &Arc<Room>) -> InUse {
        let mut state = self.state.lock();
        state.in_use += 1;
        if state.in_use == 1 {
            // Now a request may try, too.
            state.wake();
        }
        drop(state);
        InUse {
            room: Arc::clone(self),
            ends: End::Closed,
        }
    }

    /// Whether somebody has or makes one, so that it may come back.
    pub(crate) fn is_used(&self) -> bool {
        self.state.lock().in_use > 0
    }

    /// Joins the line, at its head if it `is_urgent`. A request that has `tried` by itself tells how often connections had
    /// been closed before.
    pub(super) fn join(&self, is_urgent: bool, lack: &CallError, tried: Option<u64>) -> Place<'_> {
        let waiter = Arc::new(Waiter {
            wakes: Condvar::default(),
            is_urgent,
        });
        let mut state = self.state.lock();
        state.lack = Some(lack.clone());
        if let Some(closed) = tried {
            state.tried_at.get_or_insert_with(time::now);
            state.tried_behind = state.tried_behind.max(closed);
        }
        let at = match is_urgent {
            true => state.urgent(),
            false => state.line.len(),
        };
        state.line.insert(at, Arc::clone(&waiter));
        Place {
            room: self,
            waiter,
            seen: None,
            is_trying: false,
        }
    }
}

/// The mark of a connection that somebody has or makes.
pub(crate) struct InUse {
    room: Arc<Room>,
    ends: End,
}

enum End {
    /// There is room for another one.
    Closed,
    /// Another one can use it.
    GivenBack,
    /// It was never made.
    NotMade,
}

impl InUse {
    /// It lies where another one finds it.
    pub(super) fn give_back(mut self) {
        self.ends = End::GivenBack;
    }

    /// It was not made, or is none of the pool any more, so that there is no more room than before.
    pub(crate) fn leave_without(mut self) {
        self.ends = End::NotMade;
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        state.in_use -= 1;
        let is_closed = matches!(self.ends, End::Closed);
        state.closed += u64::from(is_closed);
        state.freed += u64::from(is_closed || matches!(self.ends, End::GivenBack));
        state.wake();
    }
}

/// A place in the line.
pub(super) struct Place<'r> {
    room: &'r Room,
    waiter: Arc<Waiter>,
    /// How many had come back or were closed by its last turn.
    seen: Option<u64>,
    is_trying: bool,
}

/// The thing to do for the first of the line.
pub(super) enum Turn {
    /// To take a connection that has come back.
    Take,
    /// To make one, outside of the line; whether any other one is in use.
    Try { are_others: bool },
}

impl Place<'_> {
    /// Waits until it is the first, of all or of those that may try, and has something to do: at once, when another
    /// connection comes back or is closed, or at `look_at`. `None` if none is in use, or at `until`.
    pub(super) fn turn(&mut self, look_at: Instant, until: Instant) -> Option<Turn> {
        let mut state = self.room.state.lock();
        loop {
            let clock = Clock::look();
            if clock.has_passed(until) {
                return None;
            }
            let is_first = state.is_first(&self.waiter);
            if is_first && self.seen != Some(state.freed) {
                self.seen = Some(state.freed);
                return Some(Turn::Take);
            }
            let first_to_try = state.first_to_try();
            let may_try = first_to_try.is_some_and(|it| Arc::ptr_eq(it, &self.waiter));
            let is_due = state.next_try().is_none_or(|at| clock.has_passed(at));
            if may_try && is_due && !state.is_trying {
                state.is_trying = true;
                state.tried_behind = state.closed;
                self.is_trying = true;
                state.leave(&self.waiter);
                state.wake();
                return Some(Turn::Try {
                    are_others: state.in_use > 0,
                });
            }
            if is_first && !state.is_trying && state.in_use == 0 {
                return None;
            }
            if is_first && clock.has_passed(look_at) {
                return Some(Turn::Take);
            }
            let wake_at = match state.next_try() {
                _ if is_first => until.min(look_at),
                Some(at) if may_try && !state.is_trying => until.min(at),
                _ => until,
            };
            state = self.waiter.wakes.wait(state, Some(wake_at));
        }
    }

    /// Goes back to where it was in the line, behind renewals that came meanwhile, as the try has failed.
    pub(super) fn go_back(&mut self, lack: &CallError) {
        let mut state = self.room.state.lock();
        self.is_trying = false;
        state.is_trying = false;
        state.tried_at = Some(time::now());
        state.lack = Some(lack.clone());
        let at = match self.waiter.is_urgent {
            true => 0,
            false => state.urgent(),
        };
        state.line.insert(at, Arc::clone(&self.waiter));
        state.wake();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        state.leave(&self.waiter);
        if self.is_trying {
            // There may be room for more.
            state.is_trying = false;
            state.tried_at = None;
        }
        if state.line.is_empty() && !state.is_trying {
            state.lack = None;
            state.tried_at = None;
        }
        state.wake();
    }
}
