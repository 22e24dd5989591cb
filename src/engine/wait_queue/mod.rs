//! The waiting threads of one client, in one queue for each lock. Only the first waiter of a queue makes attempts. Any
//! other waiter attempts only at its own deadline, or after an outage of `outage_timeout`.
//!
//! With one request, an unlock hands the lock off to the first waiter, see `raw_lock/hand_off.rs`. Re-entries and calls
//! that make a single attempt, such as `try_lock`, bypass the queue.

mod run;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::claim::LockId;
use crate::ground::notify::Parker;
use crate::ground::sync::Mutex;
use crate::ground::time;
use run::Run;

/// If this client holds the lock and the last usable reply is younger than this, new waiters queue without an attempt.
const HELD_FOR: Duration = Duration::from_secs(1);

/// `O` is the data that a releaser needs to create a hold for a waiter. `G` is that hold.
#[derive(Debug)]
pub(crate) struct WaitQueues<O, G> {
    /// A queue is removed only when `WaitQueue::is_busy` returns false.
    wait_queues: Mutex<HashMap<LockId, WaitQueue<O, G>>>,
}

#[derive(Debug)]
struct WaitQueue<O, G> {
    nodes: VecDeque<Arc<Waiter<O, G>>>,
    /// True if a thread of this client probably holds the lock alone.
    is_held_locally: bool,
    run: Run,
    /// All waiters share this view, except its `turn`.
    seen: View,
}

#[derive(Debug)]
struct Waiter<O, G> {
    offer: O,
    parker: Arc<Parker>,
    state: Mutex<State<G>>,
}

/// | state | entered when | leads to |
/// |---|---|---|
/// | Waiting | the waiter joins, or a hand-off fails | Successor, Left |
/// | Successor | a releaser picks the waiter | Granted, Waiting, Left |
/// | Granted | the hand-off succeeds | Left, with the hold |
/// | Left | the waiter leaves, at any time | – (a later grant fails, and the releaser frees the hold) |
#[derive(Debug)]
enum State<G> {
    Waiting,
    Successor,
    Granted(G),
    Left,
}

impl<O, G> Default for WaitQueues<O, G> {
    fn default() -> Self {
        WaitQueues {
            wait_queues: Mutex::new(HashMap::new()),
        }
    }
}

impl<O, G> Default for WaitQueue<O, G> {
    fn default() -> Self {
        WaitQueue {
            nodes: VecDeque::new(),
            is_held_locally: false,
            run: Run::default(),
            seen: View::default(),
        }
    }
}

impl<O, G> WaitQueues<O, G> {
    /// Returns whether a new waiter for `lock` has to queue.
    pub(crate) fn is_busy(&self, lock: &LockId) -> bool {
        let wait_queues = self.wait_queues.lock();
        wait_queues.get(lock).is_some_and(WaitQueue::is_busy)
    }

    fn queue_of<'a>(
        &self,
        wait_queues: &'a mut HashMap<LockId, WaitQueue<O, G>>,
        lock: &LockId,
    ) -> &'a mut WaitQueue<O, G> {
        // Sweeping only a full map keeps the amortised cost constant.
        if wait_queues.len() == wait_queues.capacity() {
            wait_queues.retain(|_, queue| queue.is_busy());
        }
        let queue = wait_queues.remove(lock).filter(WaitQueue::is_busy);
        wait_queues
            .entry(lock.clone())
            .or_insert(queue.unwrap_or_default())
    }

    pub(crate) fn join(
        self: &Arc<Self>,
        lock: &LockId,
        parker: &Arc<Parker>,
        offer: O,
    ) -> QueueNode<O, G> {
        let mut wait_queues = self.wait_queues.lock();
        let queue = self.queue_of(&mut wait_queues, lock);
        let waiter = Arc::new(Waiter {
            offer,
            parker: Arc::clone(parker),
            state: Mutex::new(State::Waiting),
        });
        queue.nodes.push_back(Arc::clone(&waiter));
        QueueNode {
            wait_queues: Arc::clone(self),
            lock: lock.clone(),
            waiter,
        }
    }

    /// Chooses a successor for the calling thread, which is about to release its hold. Returns `None` if no waiter can
    /// be chosen, or if the client must now yield the lock to other processes. `poll_pause` is the longest time between
    /// two polls by another process, or `None` for a lock without pollers.
    pub(crate) fn choose(
        self: &Arc<Self>,
        lock: &LockId,
        poll_pause: Option<Duration>,
    ) -> Option<Successor<O, G>> {
        let mut wait_queues = self.wait_queues.lock();
        let queue = wait_queues.get_mut(lock)?;
        let waiter = Arc::clone(queue.nodes.front()?);
        if queue.run.is_over(poll_pause) {
            return None;
        }
        let mut state = waiter.state.lock();
        if !matches!(*state, State::Waiting) {
            return None;
        }
        *state = State::Successor;
        drop(state);
        Some(Successor {
            wait_queues: Arc::clone(self),
            lock: lock.clone(),
            waiter,
        })
    }

    /// `head_start`: how long the client yields the lock, and the number of notified waiters in other processes.
    pub(crate) fn freed(
        &self,
        lock: &LockId,
        head_start: Option<(Duration, u32)>,
        poll_pause: Option<Duration>,
    ) {
        let mut wait_queues = self.wait_queues.lock();
        if head_start.is_none() && !wait_queues.contains_key(lock) {
            return;
        }
        let queue = self.queue_of(&mut wait_queues, lock);
        queue.is_held_locally = false;
        queue.run.freed(head_start, poll_pause);
        let first = queue.nodes.front().map(Arc::clone);
        if !queue.is_busy() {
            wait_queues.remove(lock);
        }
        drop(wait_queues);
        // If this waiter leaves the queue without the lock, `QueueNode::drop` wakes the next waiter.
        if let Some(first) = first {
            first.parker.give_permit();
        }
    }
}

impl<O, G> WaitQueue<O, G> {
    fn is_busy(&self) -> bool {
        let now = time::now();
        let is_relied_on = || self.seen.last_usable.is_some_and(|at| now < at + HELD_FOR);
        !self.nodes.is_empty()
            || self.is_held_locally && is_relied_on()
            || self.run.is_left_until(now).is_some()
    }

    fn note_usable_reply(&mut self) {
        self.seen = View::default();
        self.seen.last_usable = Some(time::now());
    }
}

/// The waiter chosen for a hand-off. The waiter can leave the queue before the grant. The releaser must call
/// [`Successor::grant`], or free the lock and call [`WaitQueues::freed`].
#[derive(Debug)]
pub(crate) struct Successor<O, G> {
    wait_queues: Arc<WaitQueues<O, G>>,
    lock: LockId,
    waiter: Arc<Waiter<O, G>>,
}

impl<O, G> Successor<O, G> {
    pub(crate) fn offer(&self) -> &O {
        &self.waiter.offer
    }

    /// Returns the hold as an error if the waiter has left. `others_wait`: other processes have subscribed waiters.
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
            queue.note_usable_reply();
        }
        drop(wait_queues);
        self.waiter.parker.give_permit();
        Ok(())
    }
}

impl<O, G> Drop for Successor<O, G> {
    fn drop(&mut self) {
        let mut state = self.waiter.state.lock();
        if matches!(*state, State::Successor) {
            *state = State::Waiting;
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    #[default]
    Attempt,
    HeldLocally,
    NotFirst,
    /// Sleep until this instant: the client yields the lock to other processes.
    Yield(Instant),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    pub(crate) turn: Turn,
    /// When the store last gave a usable reply to a waiter of this queue: a refusal or a grant.
    pub(crate) last_usable: Option<Instant>,
    pub(crate) is_in_doubt: bool,
    /// The last time at which too few replicas acknowledged a hold; `None` again after a usable reply.
    pub(crate) unreplicated_at: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct QueueNode<O, G> {
    wait_queues: Arc<WaitQueues<O, G>>,
    lock: LockId,
    waiter: Arc<Waiter<O, G>>,
}

impl<O, G> QueueNode<O, G> {
    pub(crate) fn view(&self) -> View {
        let mut wait_queues = self.wait_queues.wait_queues.lock();
        let Some(queue) = wait_queues.get_mut(&self.lock) else {
            return View::default();
        };
        let is_first = self.is_first(queue);
        let turn = match queue.run.is_left_until(time::now()) {
            _ if !is_first => Turn::NotFirst,
            _ if queue.is_held_locally => Turn::HeldLocally,
            Some(until) => Turn::Yield(until),
            None => Turn::Attempt,
        };
        View { turn, ..queue.seen }
    }

    fn is_first(&self, queue: &WaitQueue<O, G>) -> bool {
        let first = queue.nodes.front();
        first.is_some_and(|first| Arc::ptr_eq(first, &self.waiter))
    }

    pub(crate) fn is_granted(&self) -> bool {
        matches!(*self.waiter.state.lock(), State::Granted(_))
    }

    pub(crate) fn take(&self) -> Option<G> {
        let mut state = self.waiter.state.lock();
        match std::mem::replace(&mut *state, State::Left) {
            State::Granted(grant) => Some(grant),
            other => {
                *state = other;
                None
            }
        }
    }

    fn note(&self, note: impl FnOnce(&mut WaitQueue<O, G>)) {
        let mut wait_queues = self.wait_queues.wait_queues.lock();
        if let Some(queue) = wait_queues.get_mut(&self.lock) {
            note(queue);
        }
    }

    pub(crate) fn note_unlock(&self) {
        self.note(|queue| queue.run.note_unlock());
    }

    /// `is_usable`: whether the refusal shows that the holder keeps the lock, as `Waiting::is_usable` decides.
    pub(crate) fn note_refused(&self, is_usable: bool) {
        self.note(|queue| {
            if is_usable {
                queue.note_usable_reply();
            }
            queue.run.note_holder();
            // From now on, the first waiter makes attempts instead of waiting for a hand-off.
            queue.is_held_locally = false;
        });
    }

    /// A thread of this client may have acquired the lock since the refusal, so `is_held_locally` is not changed.
    pub(crate) fn note_refused_before_joining(&self) {
        self.note(WaitQueue::note_usable_reply);
    }

    pub(crate) fn note_trouble(&self, is_undone: bool) {
        self.note(|queue| {
            queue.seen.is_in_doubt = true;
            if is_undone {
                queue.seen.unreplicated_at = Some(time::now());
            }
        });
    }

    /// Returns the hold if a hand-off granted one. While a shared lock is held, the next waiter still makes attempts.
    pub(crate) fn leave(self, has_the_lock: bool, is_shared: bool) -> Option<G> {
        let mut state = self.waiter.state.lock();
        let grant = match std::mem::replace(&mut *state, State::Left) {
            State::Granted(grant) => Some(grant),
            _ => None,
        };
        drop(state);
        if has_the_lock {
            self.note(|queue| {
                queue.is_held_locally = !is_shared;
                queue.note_usable_reply();
                queue.run.note_holder();
            });
        }
        grant
    }
}

impl<O, G> Drop for QueueNode<O, G> {
    fn drop(&mut self) {
        let mut wait_queues = self.wait_queues.wait_queues.lock();
        let mut takes_over = None;
        if let Some(queue) = wait_queues.get_mut(&self.lock) {
            let was_first = self.is_first(queue);
            let nodes = &mut queue.nodes;
            nodes.retain(|other| !Arc::ptr_eq(other, &self.waiter));
            match queue.nodes.front() {
                None if !queue.is_busy() => drop(wait_queues.remove(&self.lock)),
                Some(next) if was_first && !queue.is_held_locally => {
                    takes_over = Some(Arc::clone(next));
                }
                _ => {}
            }
        }
        drop(wait_queues);
        if let Some(next) = takes_over {
            next.parker.give_permit();
        }
    }
}

#[cfg(all(test, not(redlatch_shuttle)))]
mod tests {
    use super::*;
    use crate::ground::claim::Kind;

    #[test]
    fn idle_queues_are_swept() {
        let queues = WaitQueues::<(), ()>::default();
        let mut most = 0;
        for number in 0..20_000 {
            let lock = LockId {
                kind: Kind::Reentrant,
                name: number.to_string().into(),
            };
            queues.freed(&lock, Some((Duration::from_millis(1), 1)), None);
            most = most.max(queues.wait_queues.lock().len());
        }
        assert!((2..19_000).contains(&most), "{most}");
    }
}
