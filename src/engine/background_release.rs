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

/// How long a thread waits for further releases before it ends.
const LINGER: Duration = Duration::from_millis(100);

pub(crate) struct Resolver {
    store: Arc<dyn Store>,
    command_timeout: Duration,
    client: Arc<Counters>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    servers: BTreeMap<Arc<str>, ReleaseQueue>,
    /// The threads that the shutdown joins. Some may have ended already.
    threads: Vec<JoinHandle<()>>,
    last_id: u64,
    /// Set by the shutdown. Until this instant the threads attempt the releases whose `is_owed` is true.
    closes: Option<Instant>,
}

#[derive(Default)]
struct ReleaseQueue {
    /// The releases to attempt, in the order of their due times. The number distinguishes equal due times.
    open: BTreeMap<(Instant, u64), OpenRelease>,
    threads: usize,
    /// How many of the threads wait for a due release.
    idle: usize,
    /// Notified by `queue` and `close`.
    changed: Arc<Condvar>,
}

struct OpenRelease {
    in_doubt: InDoubt,
    backoff: Backoff,
    /// True if the shutdown still attempts this release.
    is_owed: bool,
}

impl State {
    fn add(&mut self, node: &Arc<str>, due: Instant, open: OpenRelease) -> &mut ReleaseQueue {
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
        }
    }

    /// Releases the hold of `in_doubt` in the background. Returns false after the shutdown, or if the server has no thread
    /// and none can be started.
    pub(crate) fn queue(self: &Arc<Self>, in_doubt: InDoubt, is_owed: bool) -> bool {
        let node = self.store.node(Some(&in_doubt.name));
        let open = OpenRelease {
            in_doubt,
            backoff: Backoff::default(),
            is_owed,
        };
        let mut state = self.state.lock();
        if state.closes.is_some() {
            return false;
        }
        let server = state.add(&node, time::now(), open);
        // A request without a reply keeps its thread busy, so each open release needs an idle thread.
        if server.open.len() > server.idle && server.threads < MOST_THREADS {
            let (resolver, at) = (Arc::clone(self), Arc::clone(&node));
            if let Ok(thread) = sync::spawn("redlatch-release", move || resolver.run(&at)) {
                server.threads += 1;
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(thread);
                return true;
            } else if server.threads == 0 {
                state.servers.remove(&node);
                return false;
            }
        }
        server.changed.notify_one();
        true
    }

    pub(crate) fn open(&self) -> u64 {
        let state = self.state.lock();
        let open = state.servers.values().flat_map(|it| it.open.values());
        let open = open.filter(|it| !it.is_owed).count();
        u64::try_from(open).unwrap_or(u64::MAX)
    }

    /// Lets the threads attempt the `is_owed` releases for one `command_timeout`. Then they end. Returns the threads.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.state.lock();
        let now = time::now();
        for server in state.servers.values_mut() {
            let owed = std::mem::take(&mut server.open).into_iter();
            let owed = owed.filter(|(_, it)| it.is_owed);
            server.open = owed.map(|((_, id), it)| ((now, id), it)).collect();
            server.changed.notify_all();
        }
        state.closes = Some(now + self.command_timeout);
        std::mem::take(&mut state.threads)
    }

    fn run(&self, node: &Arc<str>) {
        while let Some((mut open, deadline)) = self.next(node) {
            let resolve = || self.store.resolve(&mut open.in_doubt, deadline);
            let outcome = self.client.request("clear", resolve);
            if matches!(outcome, Ok(true)) {
                continue;
            }
            if let Err(error) = &outcome {
                events::not_settled(&open.in_doubt.name, error);
            }
            let mut state = self.state.lock();
            if state.closes.is_none() || open.is_owed {
                let due = time::now() + open.backoff.next();
                state.add(node, due, open);
            }
        }
    }

    /// Waits for the next due release. Returns the release and the deadline of its attempt, or `None` if this thread is no
    /// longer needed.
    fn next(&self, node: &Arc<str>) -> Option<(OpenRelease, Instant)> {
        let mut lingers = time::now() + LINGER;
        let mut state = self.state.lock();
        loop {
            let (now, closes) = (time::now(), state.closes);
            let server = state.servers.get_mut(node)?;
            if let Some(closes) = closes {
                lingers = now;
                if closes <= now {
                    server.open.clear();
                }
            }
            let first = server.open.first_entry();
            let due = first.as_ref().map(|first| first.key().0);
            if let Some(first) = first.filter(|_| due <= Some(now)) {
                let open = first.remove();
                if BootInstant::now() < open.in_doubt.ends {
                    let deadline = now + self.command_timeout;
                    return Some((open, closes.map_or(deadline, |closes| closes.min(deadline))));
                }
                continue;
            }
            if lingers <= now && server.open.len() <= server.idle {
                server.threads -= 1;
                if server.threads == 0 {
                    state.servers.remove(node);
                }
                return None;
            }
            let lingers = Some(lingers).filter(|it| *it > now);
            let until = due.into_iter().chain(lingers).chain(closes).min();
            let changed = Arc::clone(&server.changed);
            server.idle += 1;
            state = changed.wait(state, until);
            if let Some(server) = state.servers.get_mut(node) {
                server.idle -= 1;
            }
        }
    }
}
