//! The line of those who find no room for one more connection, in this process or at the server.
//!
//! A connection of a pool carries a mark for as long as somebody has it, so that it counts as in use whatever becomes of
//! it. The first of the line is woken whenever one comes back or is closed. Where none is in use, none can.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::ground::sync::{Condvar, Mutex};
use crate::ground::time;
use crate::stores::redis::transport::call_error::CallError;

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
    /// Why there is no room, as the last one found that came to wait.
    lack: Option<CallError>,
}

impl State {
    /// Nobody else does anything.
    fn wake_first(&self) {
        if let Some(first) = self.line.front() {
            first.notify_all();
        }
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

    /// Joins the line, at its head if `is_first`.
    pub(super) fn join(&self, is_first: bool, lack: &CallError) -> Place<'_> {
        let wakes = Arc::new(Condvar::default());
        let mut state = self.state.lock();
        state.lack = Some(lack.clone());
        if is_first {
            state.line.push_front(Arc::clone(&wakes));
        } else {
            state.line.push_back(Arc::clone(&wakes));
        }
        Place {
            room: self,
            wakes,
            seen: None,
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

    pub(super) fn leave_without(mut self) {
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
        state.wake_first();
    }
}

/// A place in the line.
pub(super) struct Place<'r> {
    room: &'r Room,
    wakes: Arc<Condvar>,
    /// How many had come back or were closed by its last turn.
    seen: Option<u64>,
}

impl Place<'_> {
    /// Waits until it is the first and has something to look at: at once, or when another connection comes back or is closed,
    /// or at `look_at`. Returns how often one was closed; `None` if none is in use, or at `until`.
    pub(super) fn turn(&mut self, look_at: Instant, until: Instant) -> Option<u64> {
        let mut state = self.room.state.lock();
        loop {
            let now = time::now();
            if now >= until {
                return None;
            }
            let mut wake_at = until;
            if state
                .line
                .front()
                .is_some_and(|first| Arc::ptr_eq(first, &self.wakes))
            {
                if self.seen != Some(state.freed) {
                    self.seen = Some(state.freed);
                    return Some(state.closed);
                }
                if state.in_use == 0 {
                    return None;
                }
                if now >= look_at {
                    return Some(state.closed);
                }
                wake_at = wake_at.min(look_at);
            }
            state = self.wakes.wait(state, Some(wake_at));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        state.line.retain(|wakes| !Arc::ptr_eq(wakes, &self.wakes));
        if state.line.is_empty() {
            state.lack = None;
        }
        state.wake_first();
    }
}
