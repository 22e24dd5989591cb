//! Releases in the background: what requests without an answer may have left, and what was given to it to be released, is
//! freed as soon as the store can be told.
//!
//! Each place that keeps locks has a thread of its own for it, while there is something to do, so that a silent one
//! delays neither a renewal nor what is to be released elsewhere. All that is due at one place goes in one call.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::backoff::{Backoff, WaitScope};
use crate::ground::clock::BootInstant;
use crate::ground::events;
use crate::ground::sync::{self, Condvar, JoinHandle, Mutex};
use crate::ground::time;
use crate::store::{InDoubt, Store};

/// How many are released in one call.
const RELEASED_AT_ONCE: usize = 500;

pub(crate) struct Clearing {
    store: Arc<dyn Store>,
    command_timeout: Duration,
    state: Mutex<State>,
    /// Something is due earlier, or it is all over.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By the place that keeps the locks.
    desks: BTreeMap<Arc<str>, Desk>,
    threads: Vec<JoinHandle<()>>,
    is_closed: bool,
}

/// The releases that are due at one place.
#[derive(Default)]
struct Desk {
    open: Vec<OpenDoubt>,
    /// Whether a thread looks after it.
    is_staffed: bool,
    /// After a call without an answer: nothing is asked before this.
    rests_until: Option<Instant>,
    backoff: Backoff,
}

/// A doubt, and when it is worth asking about.
struct OpenDoubt {
    in_doubt: InDoubt,
    due: Instant,
    backoff: Backoff,
    /// Somebody has left it to be done here, and it was not tried yet: that is done even when the client ends.
    is_owed: bool,
}

/// The place of something that is to be released.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Filed {
    Staffed,
    /// There is no thread for it yet, so that [`Clearing::staff`] is to be called again.
    Unstaffed,
    /// Nothing is released any more.
    Closed,
}

impl Clearing {
    pub(crate) fn new(store: Arc<dyn Store>, command_timeout: Duration) -> Clearing {
        Clearing {
            store,
            command_timeout,
            state: Mutex::default(),
            changed: Condvar::default(),
        }
    }

    /// Releases in the background what `in_doubt` is about, now and as long as it may stand; if it `is_owed`, also when the
    /// client ends before.
    pub(crate) fn settle(self: &Arc<Self>, in_doubt: InDoubt, is_owed: bool) -> Filed {
        let open = OpenDoubt {
            in_doubt,
            due: time::now(),
            backoff: Backoff::default(),
            is_owed,
        };
        let mut state = self.state.lock();
        if state.is_closed {
            return Filed::Closed;
        }
        let is_resting = self.file(&mut state, open);
        let is_staffed = self.staff_all(&mut state);
        drop(state);
        if !is_resting {
            self.changed.notify_all();
        }
        match is_staffed {
            true => Filed::Staffed,
            false => Filed::Unstaffed,
        }
    }

    /// Returns whether nothing is asked there at present.
    fn file(&self, state: &mut State, open: OpenDoubt) -> bool {
        let keeper = self.store.node(Some(&open.in_doubt.name));
        let desk = state.desks.entry(keeper).or_default();
        desk.open.push(open);
        desk.rests_until
            .is_some_and(|deadline| time::now() < deadline)
    }

    /// How many doubts are to be cleared up.
    pub(crate) fn open(&self) -> u64 {
        let open: usize = self
            .state
            .lock()
            .desks
            .values()
            .map(|it| it.open.iter().filter(|it| !it.is_owed).count())
            .sum();
        u64::try_from(open).unwrap_or(u64::MAX)
    }

    /// Starts the threads that are missing. Returns whether none is any more.
    pub(crate) fn staff(self: &Arc<Self>) -> bool {
        self.staff_all(&mut self.state.lock())
    }

    fn staff_all(self: &Arc<Self>, state: &mut State) -> bool {
        let State {
            desks,
            threads,
            is_closed,
        } = state;
        if *is_closed {
            return true;
        }
        threads.retain(|thread| !thread.is_finished());
        for (keeper, desk) in desks.iter_mut().filter(|(_, desk)| !desk.is_staffed) {
            match self.start(keeper) {
                Ok(thread) => {
                    desk.is_staffed = true;
                    threads.push(thread);
                }
                Err(_) => return false,
            }
        }
        true
    }

    fn start(self: &Arc<Self>, keeper: &Arc<str>) -> io::Result<JoinHandle<()>> {
        let (clearing, keeper) = (Arc::clone(self), Arc::clone(keeper));
        sync::spawn("redlatch-release", move || {
            let _waiting = WaitScope::begin(None);
            clearing.run(&keeper);
        })
    }

    /// Has the threads end after the call they are in and what is owed, and returns them.
    pub(crate) fn close(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let mut state = self.state.lock();
        state.desks.retain(|_, desk| {
            desk.open.retain(|it| it.is_owed);
            desk.rests_until = None;
            !desk.open.is_empty()
        });
        // If there is no room for a thread even now, a lease ends what is owed.
        self.staff_all(&mut state);
        state.is_closed = true;
        self.changed.notify_all();
        std::mem::take(&mut state.threads)
    }

    fn run(self: Arc<Self>, keeper: &Arc<str>) {
        while let Some(mut batch) = self.next(keeper) {
            let deadline = time::now() + self.command_timeout;
            let mut in_doubts: Vec<&mut InDoubt> =
                batch.iter_mut().map(|it| &mut it.in_doubt).collect();
            let outcomes = self.store.resolve(&mut in_doubts, deadline);
            let mut outcomes = outcomes.into_iter();
            let (mut is_silent, mut has_answered) = (false, false);
            let mut state = self.state.lock();
            for mut open in batch {
                let outcome = outcomes.next();
                open.is_owed &= outcome.is_none();
                match outcome {
                    Some(Ok(true)) => {
                        has_answered = true;
                        continue;
                    }
                    Some(Ok(false)) => {
                        has_answered = true;
                        open.due = time::now() + open.backoff.next();
                    }
                    Some(Err(error)) => {
                        events::not_settled(&open.in_doubt.name, &error);
                        is_silent |= error.may_pass();
                        open.due = time::now() + open.backoff.next();
                    }
                    // It was not asked for, because one before it had no answer or there was no time left.
                    None => open.due = time::now(),
                }
                if !state.is_closed || open.is_owed {
                    self.file(&mut state, open);
                }
            }
            if state.is_closed && is_silent {
                return;
            }
            if let Some(desk) = state.desks.get_mut(keeper) {
                if is_silent {
                    desk.rests_until = Some(time::now() + desk.backoff.next());
                } else if has_answered {
                    desk.backoff = Backoff::default();
                }
            }
            // Some may belong elsewhere by now.
            if !self.staff_all(&mut state) {
                let mut homeless: Vec<OpenDoubt> = Vec::new();
                state.desks.retain(|_, desk| {
                    if !desk.is_staffed {
                        homeless.append(&mut desk.open);
                    }
                    desk.is_staffed
                });
                if let Some(desk) = state.desks.get_mut(keeper) {
                    desk.open.extend(homeless);
                }
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for what is due at this place next; `None` if there is nothing left to do.
    fn next(&self, keeper: &Arc<str>) -> Option<Vec<OpenDoubt>> {
        let mut state = self.state.lock();
        loop {
            let desk = state.desks.get_mut(keeper)?;
            let (moment, now) = (BootInstant::now(), time::now());
            desk.open.retain(|it| moment < it.in_doubt.ends);
            let rests_until = desk.rests_until.filter(|deadline| now < *deadline);
            let due = |it: &OpenDoubt| rests_until.unwrap_or(it.due).max(it.due);
            let Some(next) = desk.open.iter().map(due).min() else {
                state.desks.remove(keeper);
                return None;
            };
            if next <= now {
                let batch = desk.open.extract_if(.., |it| it.due <= now);
                return Some(batch.take(RELEASED_AT_ONCE).collect());
            }
            state = self.changed.wait(state, Some(next));
        }
    }
}
