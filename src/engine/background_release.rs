//! Sends releases in the background, also for holds that a request without a reply may have acquired. A release is
//! repeated until the store confirms it, the lease has ended or the client is shut down.
//!
//! Each server with open releases has its own threads. So a silent server delays neither renewals nor releases at other
//! servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::counters::Counters;
use crate::ground::backoff::Backoff;
use crate::ground::clock::BootInstant;
use crate::ground::sync::{self, Condvar, JoinHandle, Mutex};
use crate::ground::{events, time};
use crate::store::{InDoubt, Store};

/// A server has at most this many threads. They use at most half of the 32 connections that a pool has by default.
const MOST_THREADS: usize = 16;

/// A thread is added for each further group of this many open releases.
const RELEASES_PER_THREAD: usize = 8;

pub(crate) struct Resolver {
    store: Arc<dyn Store>,
    command_timeout: Duration,
    client: Arc<Counters>,
    state: Mutex<State>,
    /// Notified by `queue` and `close`.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    servers: BTreeMap<Arc<str>, Server>,
    /// The threads that the shutdown joins. Some may have ended already.
    threads: Vec<JoinHandle<()>>,
    last_id: u64,
    is_closed: bool,
    /// Set by the shutdown. In a composite store, a failed release with `is_owed` is repeated until this instant.
    owed_until: Option<Instant>,
}

#[derive(Default)]
struct Server {
    /// The releases to attempt, in the order of their due times. The number distinguishes equal due times.
    open: BTreeMap<(Instant, u64), OpenRelease>,
    threads: usize,
    /// After an attempt without a usable reply, no attempt begins before this instant.
    paused_until: Option<Instant>,
}

struct OpenRelease {
    in_doubt: InDoubt,
    backoff: Backoff,
    /// True if the shutdown must not drop this release before an attempt.
    is_owed: bool,
}

impl State {
    fn add(&mut self, node: &Arc<str>, due: Instant, open: OpenRelease) -> &mut Server {
        self.last_id += 1;
        let server = self.servers.entry(Arc::clone(node)).or_default();
        server.open.insert((due, self.last_id), open);
        server
    }
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

    /// Releases the hold of `in_doubt` in the background. If `is_owed`, the shutdown still makes the first attempt, unless
    /// a release that the shutdown sent earlier to this server got no reply. Returns false after the shutdown, or if the
    /// server has no thread and none can be started.
    pub(crate) fn queue(self: &Arc<Self>, in_doubt: InDoubt, is_owed: bool) -> bool {
        let node = self.store.node(Some(&in_doubt.name));
        let open = OpenRelease {
            in_doubt,
            backoff: Backoff::default(),
            is_owed,
        };
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        let server = state.add(&node, time::now(), open);
        let wanted = server.open.len().div_ceil(RELEASES_PER_THREAD);
        if server.threads < wanted.min(MOST_THREADS) {
            let (resolver, at) = (Arc::clone(self), Arc::clone(&node));
            if let Ok(thread) = sync::spawn("redlatch-release", move || resolver.run(&at)) {
                server.threads += 1;
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(thread);
            } else if server.threads == 0 {
                state.servers.remove(&node);
                return false;
            }
        }
        drop(state);
        self.changed.notify_all();
        true
    }

    pub(crate) fn open(&self) -> u64 {
        let state = self.state.lock();
        let open = state.servers.values().flat_map(|it| it.open.values());
        let open = open.filter(|it| !it.is_owed).count();
        u64::try_from(open).unwrap_or(u64::MAX)
    }

    /// Makes each thread end after its current call and its releases with `is_owed`. Returns the threads.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.state.lock();
        let now = time::now();
        for server in state.servers.values_mut() {
            let owed = std::mem::take(&mut server.open).into_iter();
            let owed = owed.filter(|(_, it)| it.is_owed);
            server.open = owed.map(|((_, id), it)| ((now, id), it)).collect();
            server.paused_until = None;
        }
        state.is_closed = true;
        state.owed_until = Some(now + self.command_timeout);
        self.changed.notify_all();
        std::mem::take(&mut state.threads)
    }

    fn run(&self, node: &Arc<str>) {
        while let Some(mut open) = self.next(node) {
            let deadline = time::now() + self.command_timeout;
            let resolve = || self.store.resolve(&mut open.in_doubt, deadline);
            let outcome = self.client.request("clear", resolve);
            if matches!(outcome, Ok(true)) {
                continue;
            }
            if let Err(error) = &outcome {
                events::not_settled(&open.in_doubt.name, error);
            }
            let mut state = self.state.lock();
            let is_over = state.owed_until.is_some_and(|until| time::now() >= until);
            open.is_owed &= self.store.facts().is_composite && !is_over;
            let due = time::now() + open.backoff.next();
            let is_silent = outcome.is_err_and(|error| error.may_pass());
            if is_silent && state.is_closed {
                state.servers.remove(node);
                return;
            }
            if !state.is_closed || open.is_owed {
                let server = state.add(node, due, open);
                if is_silent {
                    server.paused_until = Some(due);
                }
            }
        }
    }

    /// Waits for the next due release. Returns `None` if this thread is no longer needed.
    fn next(&self, node: &Arc<str>) -> Option<OpenRelease> {
        let mut state = self.state.lock();
        loop {
            let server = state.servers.get_mut(node)?;
            let others = server.threads.saturating_sub(1);
            if server.open.len() <= others * RELEASES_PER_THREAD {
                server.threads = others;
                if others == 0 {
                    state.servers.remove(node);
                }
                return None;
            }
            let first = server.open.first_entry()?;
            let (due, _) = *first.key();
            let due = server.paused_until.map_or(due, |until| due.max(until));
            if due > time::now() {
                state = self.changed.wait(state, Some(due));
                continue;
            }
            let open = first.remove();
            if BootInstant::now() < open.in_doubt.ends {
                return Some(open);
            }
        }
    }
}
