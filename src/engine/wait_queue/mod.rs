//! The threads of one client that wait for one lock, in a queue of which only the head asks the store.
//!
//! A thread that unlocks hands its hold off to the head of the queue, in one request (see `raw_lock/hand_off.rs`). A new waiter
//! goes to the end; a re-entry and a try without a wait barge.

mod run;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::claim::LockId;
use crate::ground::notify::Parker;
use crate::ground::sync::Mutex;
use crate::ground::time;
use run::Run;

/// So long a thread of this client is relied on to have the lock: a waiter asks as often at the latest.
const HELD_FOR: Duration = Duration::from_secs(1);

/// The wait queues of a client, by lock. `O` is the data a releaser needs to create a hold for a waiter, `G` that hold.
#[derive(Debug)]
pub(crate) struct WaitQueues<O, G> {
    /// A queue stays while nobody waits if the next waiter has to know of it.
    wait_queues: Mutex<HashMap<LockId, WaitQueue<O, G>>>,
}

#[derive(Debug)]
struct WaitQueue<O, G> {
    nodes: VecDeque<Arc<Waiter<O, G>>>,
    /// Whether a thread of this client holds the lock, as far as known: then asking the store is of no use.
    is_held_locally: bool,
    run: Run,
    /// When the store gave a usable answer last, if it did.
    last_usable: Option<Instant>,
    /// The last answer was of no use.
    is_in_doubt: bool,
    /// When too few replicas acknowledged a hold last.
    unreplicated_at: Option<Instant>,
}

#[derive(Debug)]
struct Waiter<O, G> {
    offer: O,
    parker: Arc<Parker>,
    state: Mutex<State<G>>,
}

/// | state | entered by | leads to |
/// |---|---|---|
/// | Waiting | the waiter joins; the hand-off failed | Successor, Left |
/// | Successor | the releaser | Granted, Waiting, Left |
/// | Granted | the releaser | Left, with the hold |
/// | Left | the waiter, at any time | –: what the releaser has for it stays the releaser's |
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
            last_usable: None,
            is_in_doubt: false,
            unreplicated_at: None,
        }
    }
}

impl<O, G> WaitQueues<O, G> {
    /// Whether a thread is queued for `lock`, or one who comes has to: this client leaves the lock to other processes, or has
    /// it itself while others want it.
    pub(crate) fn is_busy(&self, lock: &LockId) -> bool {
        let wait_queues = self.wait_queues.lock();
        wait_queues.get(lock).is_some_and(WaitQueue::is_busy)
    }

    /// The queue of `lock`, a new one if there is none that is of use.
    fn queue_of<'a>(
        &self,
        wait_queues: &'a mut HashMap<LockId, WaitQueue<O, G>>,
        lock: &LockId,
    ) -> &'a mut WaitQueue<O, G> {
        // Amortised: it is swept when it has doubled.
        if wait_queues.len() == wait_queues.capacity() {
            wait_queues.retain(|_, queue| queue.is_busy());
        }
        let queue = wait_queues.remove(lock).filter(WaitQueue::is_busy);
        wait_queues
            .entry(lock.clone())
            .or_insert(queue.unwrap_or_default())
    }

    /// Puts a waiter at the end of the queue.
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

    /// Chooses the head of the queue as the successor of the calling thread, which is about to release its hold.
    ///
    /// `None` if nobody waits, or if it is time to set the lock free for others, of whom those who poll make pauses of
    /// `poll_pause`.
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

    /// Notes that the lock is free, or at least no longer held by a thread of this client. The head of the queue goes to
    /// ask for it, after `head_start` if so many in other processes have heard that it is free. After a long run it leaves the time
    /// `poll_pause` to those who poll.
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
        // It looks at the queue at once. Should it leave before it is woken, it wakes the next one.
        if let Some(first) = first {
            first.parker.give_permit();
        }
    }
}

impl<O, G> WaitQueue<O, G> {
    /// Whether somebody waits, or one who comes has to.
    fn is_busy(&self) -> bool {
        let now = time::now();
        let is_relied_on = || self.last_usable.is_some_and(|at| now < at + HELD_FOR);
        !self.nodes.is_empty()
            || self.is_held_locally && is_relied_on()
            || self.run.is_left_until(now).is_some()
    }

    fn heard(&mut self) {
        self.last_usable = Some(time::now());
        self.is_in_doubt = false;
        self.unreplicated_at = None;
    }
}

/// A waiter that is about to be handed a hold, unless it leaves before that. Its releaser tells the queue in the end:
/// with [`Successor::grant`], or with [`WaitQueues::freed`].
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

/// The turn of a queued waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Ask the store.
    #[default]
    Attempt,
    /// Sleep: a thread of this client holds the lock, as was heard when the queue heard last, and will hand it over.
    HeldLocally,
    /// Sleep: others are before.
    NotFirst,
    /// Sleep until then: the lock is left to other processes.
    Yield(Instant),
}

/// A queue as one of its waiters sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    pub(crate) turn: Turn,
    /// When the store gave a usable answer to anybody in this queue last: it refused the lock, or gave it to one of them.
    pub(crate) last_usable: Option<Instant>,
    /// The last answer was of no use.
    pub(crate) is_in_doubt: bool,
    /// When too few replicas acknowledged a hold last.
    pub(crate) unreplicated_at: Option<Instant>,
}

/// The node of one waiter in a queue.
#[derive(Debug)]
pub(crate) struct QueueNode<O, G> {
    wait_queues: Arc<WaitQueues<O, G>>,
    lock: LockId,
    waiter: Arc<Waiter<O, G>>,
}

impl<O, G> QueueNode<O, G> {
    /// Tells whose turn it is, and what the queue knows.
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
        View {
            turn,
            last_usable: queue.last_usable,
            is_in_doubt: queue.is_in_doubt,
            unreplicated_at: queue.unreplicated_at,
        }
    }

    fn is_first(&self, queue: &WaitQueue<O, G>) -> bool {
        let first = queue.nodes.front();
        first.is_some_and(|first| Arc::ptr_eq(first, &self.waiter))
    }

    /// Whether this waiter has what it waits for.
    pub(crate) fn is_granted(&self) -> bool {
        matches!(*self.waiter.state.lock(), State::Granted(_))
    }

    /// Takes what this waiter was handed, if it was.
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

    /// Notes a message that woke this waiter: somebody has set the lock free.
    pub(crate) fn heard_of_unlock(&self) {
        self.note(|queue| queue.run.heard_of_unlock());
    }

    /// Notes that the store has refused the lock, by a holder that may be relied on or may not.
    pub(crate) fn note_refused(&self, is_usable: bool) {
        self.note(|queue| {
            if is_usable {
                queue.heard();
            }
            queue.run.somebody_has_it();
            // A refused waiter no longer relies on a holder of this client.
            queue.is_held_locally = false;
        });
    }

    /// Notes that the store had refused the lock before this waiter joined, which says nothing of later holders here.
    pub(crate) fn note_refused_before_joining(&self) {
        self.note(WaitQueue::heard);
    }

    /// Notes that the store gave no usable answer, or a hold that was undone.
    pub(crate) fn note_trouble(&self, is_undone: bool) {
        self.note(|queue| {
            queue.is_in_doubt = true;
            if is_undone {
                queue.unreplicated_at = Some(time::now());
            }
        });
    }

    /// Leaves the queue at once. Returns what this waiter was handed before; a chosen waiter does not wait for what
    /// comes of it. With a lock that is shared it keeps nobody out: the next one asks.
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
                queue.heard();
                queue.run.somebody_has_it();
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
            queue
                .nodes
                .retain(|other| !Arc::ptr_eq(other, &self.waiter));
            match queue.nodes.front() {
                None if !queue.is_busy() => drop(wait_queues.remove(&self.lock)),
                // The next one takes over what this one did: it asks, and listens for messages.
                Some(next) if was_first && !queue.is_held_locally => {
                    takes_over = Some(Arc::clone(next));
                }
                _ => {}
            }
        }
        drop(wait_queues);
        // It looks at the queue at once.
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
    fn queues_of_no_more_use_are_swept() {
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
