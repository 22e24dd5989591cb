//! The waiters of one client on one name stand in line; only the first of them asks the store.
//!
//! A thread that unlocks hands its hold to the first in line, in one request (see `raw_lock.rs`). Who comes to a line
//! goes to its end; a re-entry and a try without a wait pass it by.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::ground::notify::Parker;
use crate::ground::sync::{Mutex, planted};

/// So many hand-overs in a row are allowed while others wait in other processes.
const HANDED_IN_A_ROW: u32 = 4;

/// Without anybody known to wait elsewhere the lock is still set free after this time: who polls is known to nobody.
const HANDED_FOR: Duration = Duration::from_millis(100);

/// All lines of a client. `O` is what a waiter offers to be handed a hold by, `G` what it is handed.
#[derive(Debug)]
pub(crate) struct Lines<O, G> {
    lines: Mutex<HashMap<Arc<str>, Line<O, G>>>,
    /// Names without a line that were just set free for others, and until when these are left the way.
    resting: Mutex<HashMap<Arc<str>, Instant>>,
    /// How many wait in all lines, and how many names rest: to see without a mutex that there is nothing to do.
    waiting: AtomicUsize,
    rests: AtomicUsize,
}

#[derive(Debug)]
struct Line<O, G> {
    queue: VecDeque<Arc<Waiter<O, G>>>,
    /// Whether a thread of this client holds the lock, as far as known: then asking the store is of no use.
    is_held_here: bool,
    /// Hand-overs since the lock was free the last time, and since when they go on.
    handed: u32,
    handed_since: Option<Instant>,
    /// Whether somebody is known to wait in another process.
    others_wait: bool,
    /// The lock was just set free for the others; the first in line leaves them the way until then.
    stand_back_until: Option<Instant>,
    /// When the store gave a usable answer last, if it did.
    last_usable: Option<Instant>,
    /// The last answer was of no use.
    is_in_doubt: bool,
}

#[derive(Debug)]
struct Waiter<O, G> {
    offer: O,
    parker: Arc<Parker>,
    state: Mutex<State<G>>,
}

/// | state | entered by | leads to |
/// |---|---|---|
/// | Waiting | the waiter joins; the hand-over came to nothing | Chosen, Left |
/// | Chosen | the releaser | Granted, Waiting, Left |
/// | Granted | the releaser | Left, with the hold |
/// | Left | the waiter, at any time | –: what the releaser has for it stays the releaser's |
#[derive(Debug)]
enum State<G> {
    Waiting,
    Chosen,
    Granted(G),
    Left,
}

/// What one in line may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Ask the store.
    Ask,
    /// Sleep: a thread of this client holds the lock, as was heard at this time, and will hand it over.
    HeldHere(Option<Instant>),
    /// Sleep: others are before.
    Later,
    /// Sleep until then: others were let by.
    StandBack(Instant),
}

impl<O, G> Default for Lines<O, G> {
    fn default() -> Self {
        Lines {
            lines: Mutex::new(HashMap::new()),
            resting: Mutex::new(HashMap::new()),
            waiting: AtomicUsize::new(0),
            rests: AtomicUsize::new(0),
        }
    }
}

impl<O, G> Lines<O, G> {
    /// Whether anybody stands in line for `name`, or the lock was just set free for others.
    pub(crate) fn is_busy(&self, name: &str) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 && self.lines.lock().contains_key(name)
            || self.rests.load(Ordering::SeqCst) > 0 && self.rest_of(name).is_some()
    }

    /// Until when others are left the way; forgets what is over.
    fn rest_of(&self, name: &str) -> Option<Instant> {
        let mut resting = self.resting.lock();
        let now = Instant::now();
        resting.retain(|_, until| now < *until);
        self.rests.store(resting.len(), Ordering::SeqCst);
        resting.get(name).copied()
    }

    /// Puts a waiter at the end of the line.
    pub(crate) fn join(
        self: &Arc<Self>,
        name: &Arc<str>,
        parker: &Arc<Parker>,
        offer: O,
    ) -> Place<O, G> {
        let waiter = Arc::new(Waiter {
            offer,
            parker: Arc::clone(parker),
            state: Mutex::new(State::Waiting),
        });
        let rest = self.rest_of(name);
        let mut lines = self.lines.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let line = lines.entry(Arc::clone(name)).or_insert_with(|| Line {
            queue: VecDeque::new(),
            is_held_here: false,
            handed: 0,
            handed_since: None,
            others_wait: true,
            stand_back_until: rest,
            last_usable: None,
            is_in_doubt: false,
        });
        line.queue.push_back(Arc::clone(&waiter));
        Place {
            lines: Arc::clone(self),
            name: Arc::clone(name),
            waiter,
        }
    }

    /// Chooses the first in line to be handed the hold that the calling thread is about to give back.
    ///
    /// `None` if nobody waits, or if it is time to set the lock free for others.
    pub(crate) fn choose(self: &Arc<Self>, name: &Arc<str>) -> Option<Chosen<O, G>> {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut lines = self.lines.lock();
        let line = lines.get_mut(name)?;
        let since = *line.handed_since.get_or_insert_with(Instant::now);
        let is_enough = if line.others_wait {
            line.handed >= HANDED_IN_A_ROW
        } else {
            since.elapsed() >= HANDED_FOR
        };
        if is_enough {
            return None;
        }
        let waiter = Arc::clone(line.queue.front()?);
        let mut state = waiter.state.lock();
        if !matches!(*state, State::Waiting) {
            return None;
        }
        *state = State::Chosen;
        drop(state);
        Some(Chosen {
            lines: Arc::clone(self),
            name: Arc::clone(name),
            waiter,
        })
    }

    /// Notes that the lock is free, or at least no longer held by a thread of this client. The first in line goes to
    /// ask for it, after `stand_back` if others have heard that it is free: they get their turn.
    pub(crate) fn freed(&self, name: &Arc<str>, stand_back: Option<Duration>) {
        let until = stand_back.map(|rest| Instant::now() + rest);
        if self.waiting.load(Ordering::SeqCst) > 0
            && let Some(line) = self.lines.lock().get_mut(name)
        {
            line.is_held_here = false;
            line.handed = 0;
            line.handed_since = None;
            line.stand_back_until = until;
            if let Some(first) = line.queue.front() {
                first.parker.give_permit();
            }
        } else if let Some(until) = until {
            let mut resting = self.resting.lock();
            resting.insert(Arc::clone(name), until);
            self.rests.store(resting.len(), Ordering::SeqCst);
        }
    }
}

impl<O, G> Line<O, G> {
    fn heard(&mut self) {
        self.last_usable = Some(Instant::now());
        self.is_in_doubt = false;
    }
}

/// A place in a line.
#[derive(Debug)]
pub(crate) struct Place<O, G> {
    lines: Arc<Lines<O, G>>,
    name: Arc<str>,
    waiter: Arc<Waiter<O, G>>,
}

impl<O, G> Place<O, G> {
    /// What this waiter may do now.
    pub(crate) fn turn(&self) -> Turn {
        let lines = self.lines.lines.lock();
        match lines.get(&self.name) {
            Some(line) if self.is_first(line) => match line.stand_back_until {
                _ if line.is_held_here => Turn::HeldHere(line.last_usable),
                Some(until) if Instant::now() < until => Turn::StandBack(until),
                _ => Turn::Ask,
            },
            Some(_) => Turn::Later,
            None => Turn::Ask,
        }
    }

    fn is_first(&self, line: &Line<O, G>) -> bool {
        let first = line.queue.front();
        first.is_some_and(|first| Arc::ptr_eq(first, &self.waiter))
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

    /// Notes that the store has refused the lock.
    pub(crate) fn note_usable(&self) {
        if let Some(line) = self.lines.lines.lock().get_mut(&self.name) {
            line.heard();
            line.stand_back_until = None;
            // Who asks and is refused no longer relies on a holder of this client.
            line.is_held_here = false;
        }
    }

    /// Notes what this waiter heard before it came: whether the store has refused the lock.
    pub(crate) fn note_news(&self) {
        if let Some(line) = self.lines.lines.lock().get_mut(&self.name) {
            line.heard();
        }
    }

    /// Notes that the store gave no usable answer.
    pub(crate) fn note_trouble(&self) {
        if let Some(line) = self.lines.lines.lock().get_mut(&self.name) {
            line.is_in_doubt = true;
        }
    }

    /// When the store was last known to refuse the lock, or to have given it to somebody of this line.
    pub(crate) fn last_news(&self) -> Option<Instant> {
        let lines = self.lines.lines.lock();
        let line = lines.get(&self.name)?;
        line.last_usable.filter(|_| !line.is_in_doubt)
    }

    /// When the store gave a usable answer to anybody in this line last.
    pub(crate) fn last_usable(&self) -> Option<Instant> {
        let lines = self.lines.lines.lock();
        lines.get(&self.name)?.last_usable
    }

    /// Leaves the line at once. Returns what this waiter was handed before; one that was chosen does not wait for what
    /// comes of it.
    pub(crate) fn leave(self, has_the_lock: bool) -> Option<G> {
        let mut state = self.waiter.state.lock();
        let grant = match std::mem::replace(&mut *state, State::Left) {
            State::Granted(grant) => Some(grant),
            _ => None,
        };
        drop(state);
        let mut lines = self.lines.lines.lock();
        if let Some(line) = lines.get_mut(&self.name)
            && has_the_lock
        {
            line.is_held_here = true;
            line.heard();
        }
        drop(lines);
        grant
    }
}

impl<O, G> Drop for Place<O, G> {
    fn drop(&mut self) {
        let mut lines = self.lines.lines.lock();
        if let Some(line) = lines.get_mut(&self.name) {
            let was_first = self.is_first(line);
            line.queue.retain(|other| !Arc::ptr_eq(other, &self.waiter));
            match line.queue.front() {
                None => {
                    lines.remove(&self.name);
                }
                // The next one takes over what this one did: it asks, and listens for messages.
                Some(next) if was_first && !line.is_held_here && !planted("nobody takes over") => {
                    next.parker.give_permit();
                }
                Some(_) => {}
            }
        }
        self.lines.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A waiter that is about to be handed a hold, unless it leaves before that. Its releaser tells the line in the end:
/// with [`Chosen::grant`], or with [`Lines::freed`].
#[derive(Debug)]
pub(crate) struct Chosen<O, G> {
    lines: Arc<Lines<O, G>>,
    name: Arc<str>,
    waiter: Arc<Waiter<O, G>>,
}

impl<O, G> Chosen<O, G> {
    pub(crate) fn offer(&self) -> &O {
        &self.waiter.offer
    }

    /// Hands it over, or gives it back if the waiter has left. `others_wait` tells whether somebody listens for the lock
    /// in another process.
    pub(crate) fn grant(self, grant: G, others_wait: bool) -> Result<(), G> {
        let mut lines = self.lines.lines.lock();
        let mut state = self.waiter.state.lock();
        if !matches!(*state, State::Chosen) && !planted("one who left is handed a hold") {
            return Err(grant);
        }
        *state = State::Granted(grant);
        drop(state);
        if let Some(line) = lines.get_mut(&self.name) {
            line.is_held_here = true;
            line.handed += 1;
            line.others_wait = others_wait;
            line.heard();
        }
        drop(lines);
        self.waiter.parker.give_permit();
        Ok(())
    }
}

impl<O, G> Drop for Chosen<O, G> {
    fn drop(&mut self) {
        // Nobody is woken: nothing is free yet.
        let mut state = self.waiter.state.lock();
        if matches!(*state, State::Chosen) {
            *state = State::Waiting;
        }
    }
}
