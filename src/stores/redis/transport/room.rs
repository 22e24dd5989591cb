//! The line of those who find no room for one more connection, in this process or at the server.
//!
//! A connection of a pool carries a mark for as long as somebody has it, so that it counts as in use whatever becomes of
//! it. The first of the line is woken whenever one comes back or is closed. Where none is in use, none can. One of the line
//! at a time leaves it to try whether there is room again, and does not keep those behind it from what comes back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::sync::{Clock, Condvar, Mutex, mutant};
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
    /// Those who wait, the next one first, each with what wakes it.
    line: VecDeque<Arc<Condvar>>,
    /// Why there is no room, as it was found last.
    lack: Option<CallError>,
    /// Whether one of them tries to make a connection.
    is_trying: bool,
    /// When a try of them has failed last, and how often one had been closed before.
    tried_at: Option<Instant>,
    tried_behind: u64,
}

impl State {
    /// None of the others has anything to do.
    fn wake_first(&self) {
        if let Some(first) = self.line.front() {
            first.notify_one();
        }
    }

    /// When it is worth a try.
    fn next_try(&self) -> Option<Instant> {
        let tried_at = self.tried_at.filter(|_| self.closed == self.tried_behind);
        tried_at.map(|at| at + TRY_AGAIN)
    }

    fn leave(&mut self, wakes: &Arc<Condvar>) {
        self.line.retain(|it| !Arc::ptr_eq(it, wakes));
    }
}

impl Room {
    /// How often a connection was closed; and why others wait for that or for one that comes back, if any do.
    pub(super) fn look(&self) -> (u64, Option<CallError>) {
        let state = self.state.lock();
        (state.closed, state.lack.clone())
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().line.len()
    }

    /// Counts one more connection that somebody has or makes.
    pub(super) fn enter(self: &Arc<Room>) -> InUse {
        self.state.lock().in_use += 1;
        InUse {
            room: Arc::clone(self),
            ends: End::Closed,
        }
    }

    /// Joins the line, at its head if `is_first`. A request that has `tried` by itself tells how often connections had been
    /// closed before.
    pub(super) fn join(&self, is_first: bool, lack: &CallError, tried: Option<u64>) -> Place<'_> {
        let wakes = Arc::new(Condvar::default());
        let mut state = self.state.lock();
        state.lack = Some(lack.clone());
        if let Some(closed) = tried {
            state.tried_at.get_or_insert_with(time::now);
            state.tried_behind = state.tried_behind.max(closed);
        }
        if is_first {
            state.line.push_front(Arc::clone(&wakes));
        } else {
            state.line.push_back(Arc::clone(&wakes));
        }
        Place {
            room: self,
            wakes,
            seen: None,
            is_urgent: is_first,
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
        if !mutant("a connection that comes back wakes nobody") {
            state.wake_first();
        }
    }
}

/// A place in the line.
pub(super) struct Place<'r> {
    room: &'r Room,
    wakes: Arc<Condvar>,
    /// How many had come back or were closed by its last turn.
    seen: Option<u64>,
    /// It has no time for a try that may stall, as long as another connection can come back.
    is_urgent: bool,
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
    /// Waits until it is the first and has something to do: at once, when another connection comes back or is closed, or at
    /// `look_at`. `None` if none is in use, or at `until`.
    pub(super) fn turn(&mut self, look_at: Instant, until: Instant) -> Option<Turn> {
        let mut state = self.room.state.lock();
        loop {
            let clock = Clock::look();
            if clock.has_passed(until) {
                return None;
            }
            let mut wake_at = until;
            let first = state.line.front();
            if first.is_some_and(|first| Arc::ptr_eq(first, &self.wakes)) {
                if self.seen != Some(state.freed) {
                    self.seen = Some(state.freed);
                    return Some(Turn::Take);
                }
                let is_due = state.next_try().is_none_or(|at| clock.has_passed(at));
                let may_try = !state.is_trying && (!self.is_urgent || state.in_use == 0);
                if may_try && is_due {
                    state.is_trying = true;
                    state.tried_behind = state.closed;
                    self.is_trying = true;
                    state.leave(&self.wakes);
                    state.wake_first();
                    return Some(Turn::Try {
                        are_others: state.in_use > 0,
                    });
                }
                if !state.is_trying && state.in_use == 0 {
                    return None;
                }
                if clock.has_passed(look_at) {
                    return Some(Turn::Take);
                }
                wake_at = wake_at.min(look_at);
            }
            state = self.wakes.wait(state, Some(wake_at));
        }
    }

    /// Goes back to the head of the line, as the try has failed.
    pub(super) fn go_back(&mut self, lack: &CallError) {
        let mut state = self.room.state.lock();
        self.is_trying = false;
        state.is_trying = false;
        state.tried_at = Some(time::now());
        state.lack = Some(lack.clone());
        state.line.push_front(Arc::clone(&self.wakes));
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        state.leave(&self.wakes);
        if self.is_trying {
            // There may be room for more.
            state.is_trying = false;
            state.tried_at = None;
        }
        if state.line.is_empty() && !state.is_trying {
            state.lack = None;
            state.tried_at = None;
        }
        if !mutant("one that leaves the line wakes nobody") {
            state.wake_first();
        }
    }
}
