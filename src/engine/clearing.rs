//! Releases in the background: what requests without an answer may have left, and what was given to it to be released, is
//! freed as soon as the store can be told.
//!
//! Each server that keeps locks has a thread of its own for it, while there is something to do, so that a silent one
//! delays neither a renewal nor what is to be released elsewhere. All that is due at one server goes in one call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::counters::Counters;
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
    client: Arc<Counters>,
    state: Mutex<State>,
    /// Something is due earlier, or it is all over.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By the server that keeps the locks, each with a thread.
    open: BTreeMap<Arc<str>, Vec<OpenDoubt>>,
    threads: Vec<JoinHandle<()>>,
    is_closed: bool,
}

/// A doubt, and when it is worth asking about.
struct OpenDoubt {
    in_doubt: InDoubt,
    due: Instant,
    backoff: Backoff,
    /// Somebody has left it to be done here, and it was not tried yet: that is done even when the client ends.
    is_owed: bool,
}

impl Clearing {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        command_timeout: Duration,
        client: Arc<Counters>,
    ) -> Clearing {
        Clearing {
            store,
            command_timeout,
            client,
            state: Mutex::default(),
            changed: Condvar::default(),
        }
    }

    /// Releases in the background what `in_doubt` is about, now and as long as it may stand; if it `is_owed`, also when the
    /// client ends before. Returns whether it does: not after the end, nor where there is no room for a thread.
    pub(crate) fn settle(self: &Arc<Self>, in_doubt: InDoubt, is_owed: bool) -> bool {
        let node = self.store.node(Some(&in_doubt.name));
        let open = OpenDoubt {
            in_doubt,
            due: time::now(),
            backoff: Backoff::default(),
            is_owed,
        };
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        if !state.open.contains_key(&node) {
            let (clearing, at) = (Arc::clone(self), Arc::clone(&node));
            let Ok(thread) = sync::spawn("redlatch-release", move || clearing.run(&at)) else {
                return false;
            };
            state.threads.retain(|thread| !thread.is_finished());
            state.threads.push(thread);
        }
        state.open.entry(node).or_default().push(open);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// How many doubts are to be cleared up.
    pub(crate) fn open(&self) -> u64 {
        let state = self.state.lock();
        let open = state.open.values().flatten();
        let open = open.filter(|it| !it.is_owed).count();
        u64::try_from(open).unwrap_or(u64::MAX)
    }

    /// Has the threads end after the call they are in and what is owed, and returns them.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.state.lock();
        for open in state.open.values_mut() {
            open.retain(|it| it.is_owed);
            open.iter_mut().for_each(|it| it.due = time::now());
        }
        state.is_closed = true;
        self.changed.notify_all();
        std::mem::take(&mut state.threads)
    }

    fn run(&self, node: &Arc<str>) {
        let _waiting = WaitScope::begin(None);
        while let Some(mut batch) = self.next(node) {
            let deadline = time::now() + self.command_timeout;
            let mut in_doubts: Vec<&mut InDoubt> =
                batch.iter_mut().map(|it| &mut it.in_doubt).collect();
            let resolve = || self.store.resolve(&mut in_doubts, deadline);
            let mut outcomes = self.client.request("clear", resolve).into_iter();
            let mut is_silent = false;
            let mut state = self.state.lock();
            for mut open in batch {
                let outcome = outcomes.next();
                let was_asked = outcome.is_some();
                open.is_owed &= !was_asked;
                match outcome {
                    Some(Ok(true)) => continue,
                    Some(Err(error)) => {
                        events::not_settled(&open.in_doubt.name, &error);
                        is_silent |= error.may_pass();
                    }
                    Some(Ok(false)) | None => {}
                }
                // One that was not asked for is due at once, unless one before it had no answer.
                if was_asked || is_silent {
                    open.due = time::now() + open.backoff.next();
                }
                if !state.is_closed || open.is_owed {
                    state.open.entry(Arc::clone(node)).or_default().push(open);
                }
            }
            if state.is_closed && is_silent {
                return;
            }
        }
    }

    /// Waits for what is due at this server next; `None` if there is nothing left to do.
    fn next(&self, node: &Arc<str>) -> Option<Vec<OpenDoubt>> {
        let mut state = self.state.lock();
        loop {
            let open = state.open.get_mut(node)?;
            let (moment, now) = (BootInstant::now(), time::now());
            open.retain(|it| moment < it.in_doubt.ends);
            let Some(next) = open.iter().map(|it| it.due).min() else {
                state.open.remove(node);
                return None;
            };
            if next <= now {
                let due = open.extract_if(.., |it| it.due <= now);
                return Some(due.take(RELEASED_AT_ONCE).collect());
            }
            state = self.changed.wait(state, Some(next));
        }
    }
}
