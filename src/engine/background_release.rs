//! Sends releases in the background. Repeats each release until the store confirms it or the lease has ended. Some releases
//! are for holds that a request without a reply may have acquired.
//!
//! Each server with open releases has a thread. So a silent server delays neither renewals nor releases at other servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::counters::Counters;
use crate::ground::backoff::Backoff;
use crate::ground::clock::BootInstant;
use crate::ground::sync::{self, Condvar, JoinHandle, Mutex};
use crate::ground::{events, time};
use crate::store::{InDoubt, Store};

const RELEASED_AT_ONCE: usize = 500;

pub(crate) struct Resolver {
    store: Arc<dyn Store>,
    command_timeout: Duration,
    client: Arc<Counters>,
    state: Mutex<State>,
    /// Notified when a release was added, and when the client is shut down.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The open releases by server.
    open: BTreeMap<Arc<str>, Vec<OpenRelease>>,
    threads: Vec<JoinHandle<()>>,
    is_closed: bool,
    /// Set by the shutdown. In a composite store, a failed release with `is_owed` is repeated until this instant.
    owed_until: Option<Instant>,
}

struct OpenRelease {
    in_doubt: InDoubt,
    due: Instant,
    backoff: Backoff,
    /// True if the shutdown must not drop this release before an attempt.
    is_owed: bool,
}

impl Resolver {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        command_timeout: Duration,
        client: Arc<Counters>,
    ) -> Resolver {
        Resolver {
            store,
            command_timeout,
            client,
            state: Mutex::default(),
            changed: Condvar::default(),
        }
    }

    /// Releases the hold of `in_doubt` in the background. Attempts are repeated until one succeeds or the lease has ended.
    /// If `is_owed`, the first attempt is made even during the shutdown. Returns false after the shutdown, or if no thread
    /// can be started.
    pub(crate) fn queue(self: &Arc<Self>, in_doubt: InDoubt, is_owed: bool) -> bool {
        let node = self.store.node(Some(&in_doubt.name));
        let open = OpenRelease {
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
            let (resolver, at) = (Arc::clone(self), Arc::clone(&node));
            let Ok(thread) = sync::spawn("redlatch-release", move || resolver.run(&at)) else {
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

    pub(crate) fn open(&self) -> u64 {
        let state = self.state.lock();
        let open = state.open.values().flatten();
        let open = open.filter(|it| !it.is_owed).count();
        u64::try_from(open).unwrap_or(u64::MAX)
    }

    /// Makes each thread end after its current call and its releases with `is_owed`. Returns the threads.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.state.lock();
        for open in state.open.values_mut() {
            open.retain(|it| it.is_owed);
            open.iter_mut().for_each(|it| it.due = time::now());
        }
        state.is_closed = true;
        state.owed_until = Some(time::now() + self.command_timeout);
        self.changed.notify_all();
        std::mem::take(&mut state.threads)
    }

    fn run(&self, node: &Arc<str>) {
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
                let is_over = state.owed_until.is_some_and(|until| time::now() >= until);
                open.is_owed &= !was_asked || self.store.facts().is_composite && !is_over;
                match outcome {
                    Some(Ok(true)) => continue,
                    Some(Err(error)) => {
                        events::not_settled(&open.in_doubt.name, &error);
                        is_silent |= error.may_pass();
                    }
                    Some(Ok(false)) | None => {}
                }
                // A release that was not attempted stays due, unless an earlier release of the batch got no reply.
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

    fn next(&self, node: &Arc<str>) -> Option<Vec<OpenRelease>> {
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
