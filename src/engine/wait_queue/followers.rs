//! The waiters that pass together, as what one of them has found holds for all that waited then.

use std::sync::Arc;

use super::{QueueNode, State};

impl<O, G> QueueNode<O, G> {
    /// The number of the waiter that joined last.
    pub(crate) fn newest(&self) -> u64 {
        let wait_queues = self.wait_queues.wait_queues.lock();
        wait_queues.get(&self.lock).map_or(0, |queue| queue.joined)
    }

    /// Lets all in that joined before the store was asked: up to that number. One that came later may have changed what
    /// the answer says.
    pub(crate) fn let_in(&self, newest: u64) {
        let mut let_in = Vec::new();
        if let Some(queue) = self.wait_queues.wait_queues.lock().get(&self.lock) {
            for waiter in &queue.nodes {
                let mut state = waiter.state.lock();
                if waiter.number <= newest && matches!(*state, State::Waiting) {
                    *state = State::LetIn;
                    let_in.push(Arc::clone(&waiter.parker));
                }
            }
        }
        for parker in let_in {
            parker.give_permit();
        }
    }

    /// Notes that the answer to a question from then is for all that had joined, up to that number.
    pub(crate) fn tell(&self, newest: u64) {
        if let Some(queue) = self.wait_queues.wait_queues.lock().get_mut(&self.lock) {
            queue.told = queue.told.max(newest);
        }
    }

    pub(crate) fn is_let_in(&self) -> bool {
        matches!(*self.waiter.state.lock(), State::LetIn)
    }
}
