//! The threads of one client that wait for one lock, in a queue of which only the head asks the store.
//!
//! A thread that unlocks hands its hold off to the head of the queue, in one request (see `raw_lock/hand_off.rs`). A new waiter
//! goes to the end; a re-entry and a try without a wait barge.

mod followers;
mod process_turns;
mod resting;
mod run;
mod successor;
#[cfg(feature = "test-util")]
mod unqueued;
mod view;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::ground::claim::LockId;
use crate::ground::notify::Parker;
use crate::ground::sync::Mutex;
use crate::ground::time;
pub(crate) use process_turns::Yield;
use resting::{Memory, Resting};
use run::Run;
pub(crate) use successor::Successor;
#[cfg(all(feature = "test-util", not(redlatch_shuttle)))]
pub(crate) use unqueued::Unqueued;
pub(crate) use view::{Turn, View};

/// The wait queues of a client, by lock. `O` is the data a releaser needs to create a hold for a waiter, `G` that hold.
#[derive(Debug)]
pub(crate) struct WaitQueues<O, G> {
    wait_queues: Mutex<HashMap<LockId, WaitQueue<O, G>>>,
    /// The state that goes on with the next waiter, of locks without a queue.
    resting: Resting,
    /// The number of waiters in all queues: read without a mutex to see that there is nothing to do.
    waiting: AtomicUsize,
    /// The same, and the number of locks of which something is kept: one that is never 0 in between, whoever joins or leaves.
    known: AtomicUsize,
    /// The threads that wait, and stand in no queue here.
    #[cfg(feature = "test-util")]
    unqueued: unqueued::Threads,
}

#[derive(Debug)]
struct WaitQueue<O, G> {
    nodes: VecDeque<Arc<Waiter<O, G>>>,
    /// How many have joined, and how many of them were there when a question was asked that has its answer.
    joined: u64,
    told: u64,
    /// Whether a thread of this client holds the lock, as far as known: then asking the store is of no use.
    is_held_locally: bool,
    run: Run,
    /// The lock was freed for other processes; the head leaves turns to them.
    yields: Option<Yield>,
    /// When the store gave a usable answer last, if it did.
    last_usable: Option<Instant>,
    /// The last answer was of no use.
    is_in_doubt: bool,
    /// A hold was undone, and nobody else was seen to have the lock for longer.
    is_undone: bool,
}

#[derive(Debug)]
struct Waiter<O, G> {
    offer: O,
    /// It joined as this one, counted from 1.
    number: u64,
    parker: Arc<Parker>,
    state: Mutex<State<G>>,
}

/// | state | entered by | leads to |
/// |---|---|---|
/// | Waiting | the waiter joins; the hand-off failed | Successor, LetIn, Left |
/// | Successor | the releaser | Granted, Waiting, Left |
/// | Granted | the releaser | Left, with the hold |
/// | LetIn | another waiter, who found what holds for all | Left |
/// | Left | the waiter, at any time | –: what the releaser has for it stays the releaser's |
#[derive(Debug)]
enum State<G> {
    Waiting,
    Successor,
    Granted(G),
    LetIn,
    Left,
}

impl<O, G> Default for WaitQueues<O, G> {
    fn default() -> Self {
        WaitQueues {
            wait_queues: Mutex::new(HashMap::new()),
            resting: Resting::default(),
            waiting: AtomicUsize::new(0),
            known: AtomicUsize::new(0),
            #[cfg(feature = "test-util")]
            unqueued: unqueued::Threads::default(),
        }
    }
}

impl<O, G> WaitQueues<O, G> {
    /// Whether a thread is queued for `lock`, or one who comes has to: this client leaves the lock to other processes, or has
    /// it itself while others want it.
    pub(crate) fn is_busy(&self, lock: &LockId) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 && self.wait_queues.lock().contains_key(lock)
            || self.resting.makes_wait(lock)
    }

    /// Notes for how many there is a queue or a memory, before the mutex of the queues is unlocked under which that changed.
    fn note_known(&self) {
        let known = self.waiting.load(Ordering::SeqCst) + self.resting.number();
        self.known.store(known, Ordering::SeqCst);
    }

    /// Puts a waiter at the end of the queue.
    pub(crate) fn join(
        self: &Arc<Self>,
        lock: &LockId,
        parker: &Arc<Parker>,
        offer: O,
    ) -> QueueNode<O, G> {
        let mut wait_queues = self.wait_queues.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let queue = wait_queues.entry(lock.clone()).or_insert_with(|| {
            let Memory {
                yields,
                run,
                held_since,
            } = self.resting.take(lock);
            WaitQueue {
                nodes: VecDeque::new(),
                joined: 0,
                told: 0,
                is_held_locally: held_since.is_some(),
                run,
                yields,
                last_usable: held_since,
                is_in_doubt: false,
                is_undone: false,
            }
        });
        queue.joined += 1;
        let waiter = Arc::new(Waiter {
            offer,
            number: queue.joined,
            parker: Arc::clone(parker),
            state: Mutex::new(State::Waiting),
        });
        queue.nodes.push_back(Arc::clone(&waiter));
        self.note_known();
        QueueNode {
            wait_queues: Arc::clone(self),
            lock: lock.clone(),
            waiter,
        }
    }

    /// Chooses the head of the queue as the successor of the calling thread, which is about to release its hold.
    ///
    /// `None` if nobody waits, or if it is time to set the lock free for others, of whom those who poll need it to be free
    /// for the time `rest`.
    pub(crate) fn choose(
        self: &Arc<Self>,
        lock: &LockId,
        rest: Option<Duration>,
    ) -> Option<Successor<O, G>> {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut wait_queues = self.wait_queues.lock();
        let queue = wait_queues.get_mut(lock)?;
        if queue.run.is_enough(rest) {
            return None;
        }
        let waiter = Arc::clone(queue.nodes.front()?);
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
    /// ask for it, after `yields` if others have heard that it is free: they get their turns. After a long run it leaves
    /// the time `rest` to those who poll.
    pub(crate) fn freed(&self, lock: &LockId, yields: Option<Yield>, rest: Option<Duration>) {
        if yields.is_none() && self.known.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut first = None;
        // Over both looks: what is kept of the lock goes into the queue of one who comes meanwhile, and would rest there.
        let mut wait_queues = self.wait_queues.lock();
        if let Some(queue) = wait_queues.get_mut(lock) {
            queue.is_held_locally = false;
            queue.run.freed(rest);
            queue.yields = yields.map(|yields| yields.after(queue.yields.as_ref()));
            first = queue.nodes.front().map(Arc::clone);
        } else {
            self.resting.freed(lock, yields);
            self.note_known();
        }
        drop(wait_queues);
        // It looks at the queue at once. Should it leave before it is woken, it wakes the next one.
        if let Some(first) = first {
            first.parker.give_permit();
        }
    }
}

impl<O, G> WaitQueue<O, G> {
    fn heard(&mut self) {
        self.last_usable = Some(time::now());
        self.is_in_doubt = false;
        self.is_undone = false;
    }
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
        let now = time::now();
        let ends = |rest: &mut Yield| Some((rest.ends(now)?, rest.lets_by()));
        let yields = || queue.yields.as_mut().and_then(ends);
        let rests = queue.run.rests(now).map(|until| (until, 0));
        let (turn, lets_by) = match rests.or_else(yields) {
            _ if !is_first => (Turn::NotFirst, 0),
            _ if queue.is_held_locally => (Turn::HeldLocally, 0),
            Some((deadline, lets_by)) => (Turn::Yield(deadline), lets_by),
            None => (Turn::Attempt, 0),
        };
        View {
            turn,
            lets_by,
            last_usable: queue.last_usable,
            is_in_doubt: queue.is_in_doubt,
            is_undone: queue.is_undone,
            is_told: self.waiter.number <= queue.told,
        }
    }

    fn is_first(&self, queue: &WaitQueue<O, G>) -> bool {
        let first = queue.nodes.front();
        first.is_some_and(|first| Arc::ptr_eq(first, &self.waiter))
    }

    /// Whether this waiter has what it waits for.
    pub(crate) fn is_granted(&self) -> bool {
        matches!(*self.waiter.state.lock(), State::Granted(_) | State::LetIn)
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

    /// Notes that the store has refused the lock, by a holder that may be relied on or may not.
    pub(crate) fn note_refused(&self, is_usable: bool) {
        if let Some(queue) = self.wait_queues.wait_queues.lock().get_mut(&self.lock) {
            if is_usable {
                queue.heard();
            }
            if let Some(yields) = &mut queue.yields {
                yields.refused(time::now());
            }
            queue.run.refused();
            // A refused waiter no longer relies on a holder of this client.
            queue.is_held_locally = false;
        }
    }

    /// Notes that the store had refused the lock before this waiter joined, which says nothing of later holders here.
    pub(crate) fn note_refused_before_joining(&self) {
        if let Some(queue) = self.wait_queues.wait_queues.lock().get_mut(&self.lock) {
            queue.heard();
            if let Some(yields) = &mut queue.yields {
                yields.somebody_has_it();
            }
        }
    }

    /// Notes that the store gave no usable answer, or a hold that was undone.
    pub(crate) fn note_trouble(&self, is_undone: bool) {
        if let Some(queue) = self.wait_queues.wait_queues.lock().get_mut(&self.lock) {
            queue.is_in_doubt = true;
            queue.is_undone |= is_undone;
        }
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
        let mut wait_queues = self.wait_queues.wait_queues.lock();
        if let Some(queue) = wait_queues.get_mut(&self.lock)
            && has_the_lock
        {
            queue.is_held_locally = !is_shared;
            queue.heard();
            queue.run.granted();
            if let Some(yields) = &mut queue.yields {
                yields.granted();
            }
        }
        drop(wait_queues);
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
                None => {
                    if let Some(queue) = wait_queues.remove(&self.lock) {
                        let held_since = queue.last_usable.filter(|_| queue.is_held_locally);
                        let memory = Memory {
                            yields: queue.yields,
                            run: queue.run,
                            held_since,
                        };
                        self.wait_queues.resting.keep(&self.lock, memory);
                    }
                }
                // The next one takes over what this one did: it asks, and listens for messages.
                Some(next) if was_first && !queue.is_held_locally => {
                    takes_over = Some(Arc::clone(next));
                }
                Some(_) => {}
            }
        }
        self.wait_queues.waiting.fetch_sub(1, Ordering::SeqCst);
        self.wait_queues.note_known();
        drop(wait_queues);
        // It looks at the queue at once.
        if let Some(next) = takes_over {
            next.parker.give_permit();
        }
    }
}
