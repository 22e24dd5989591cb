//! The waiter that gets a hold from the thread before it.

use std::sync::Arc;

use super::{State, WaitQueues, Waiter};
use crate::ground::claim::LockId;

/// A waiter that is about to be handed a hold, unless it leaves before that. Its releaser tells the queue in the end:
/// with [`Successor::grant`], or with [`WaitQueues::freed`].
#[derive(Debug)]
pub(crate) struct Successor<O, G> {
    pub(super) wait_queues: Arc<WaitQueues<O, G>>,
    pub(super) lock: LockId,
    pub(super) waiter: Arc<Waiter<O, G>>,
}

impl<O, G> Successor<O, G> {
    pub(crate) fn offer(&self) -> &O {
        &self.waiter.offer
    }

    /// Hands it over, or gives it back if the waiter has left. `others_wait` tells whether somebody listens for the lock
    /// in another process.
    pub(crate) fn grant(self, grant: G, others_wait: bool) -> Result<(), G> {
        let mut wait_queues = self.wait_queues.wait_queues.lock();
        let mut state = self.waiter.state.lock();
        if !matches!(*state, State::Successor) {
            return Err(grant);
        }
        *state = State::Granted(grant);
        drop(state);
        if let Some(queue) = wait_queues.get_mut(&self.lock) {
            queue.is_held_locally = true;
            queue.run.handed(others_wait);
            queue.heard();
        }
        drop(wait_queues);
        self.waiter.parker.give_permit();
        Ok(())
    }
}

impl<O, G> Drop for Successor<O, G> {
    fn drop(&mut self) {
        // Nobody is woken: nothing is free yet.
        let mut state = self.waiter.state.lock();
        if matches!(*state, State::Successor) {
            *state = State::Waiting;
        }
    }
}
