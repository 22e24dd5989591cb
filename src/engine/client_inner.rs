//! The state that a client, its locks and its guards share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::counters::{Answer, CountSettings, Counters};
use crate::engine::hold::{HandOffOffer, Hold};
use crate::engine::loss_notice::OnLost;
use crate::engine::owner::Owner;
use crate::engine::wait_queue::WaitQueues;
use crate::engine::watchdog::{Watchdog, join, poll_until};
use crate::ground::error::{Error, Result};
use crate::ground::{process, sync, time};
use crate::store::{HealthWarning, Severity, Store};

const SHUTDOWN_GRACE: Duration = Duration::from_millis(250);

/// Dropping the last `Arc` of this value shuts the client down.
pub(crate) struct ClientInner {
    /// The client's UUID. It is part of the client's visitor ids, except for token locks and permits with ids.
    pub(crate) id: Arc<str>,
    pub(crate) number: u64,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) timeouts: Timeouts,
    pub(crate) wait_queues: Arc<WaitQueues<HandOffOffer, Arc<Hold>>>,
    pub(crate) key_prefix: KeyPrefix,
    pub(crate) pid: u32,
    holds: AtomicU64,
    is_shut_down: AtomicBool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyPrefix {
    pub(crate) text: String,
    /// If true, a name that already begins with the prefix gets no second prefix.
    pub(crate) is_once: bool,
}

impl KeyPrefix {
    pub(crate) fn before(&self, name: &str) -> Arc<str> {
        match self.is_once && name.starts_with(&self.text) {
            true => name.into(),
            false => [&self.text, name].concat().into(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) watchdog_timeout: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) outage_timeout: Duration,
}

impl Timeouts {
    pub(crate) fn request(&self) -> Duration {
        let margin = (self.command_timeout / 16).max(LEAST_MARGIN);
        self.command_timeout - margin.min(self.command_timeout / 4)
    }
}

/// Between a request's deadline and the end of its call, the thread has at least this time to wake up and clean up. If
/// `command_timeout` is short, this time is a quarter of it.
const LEAST_MARGIN: Duration = Duration::from_millis(50);

impl ClientInner {
    pub(crate) fn new(
        id: Arc<str>,
        store: Arc<dyn Store>,
        timeouts: Timeouts,
        key_prefix: KeyPrefix,
        on_lost: Option<OnLost>,
        count_settings: CountSettings,
    ) -> ClientInner {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let counters = Arc::new(Counters::new(count_settings, &store.facts().timeline));
        let wait_queues = Arc::<WaitQueues<_, _>>::default();
        let watchdog = Watchdog::new(
            Arc::clone(&store),
            Arc::clone(&wait_queues),
            timeouts.command_timeout,
            Arc::clone(&counters),
            on_lost,
        );
        #[cfg(feature = "in-memory")]
        store.facts().timeline.attach(&store.facts().notifier);
        ClientInner {
            id,
            number: CLIENTS.fetch_add(1, Ordering::Relaxed),
            watchdog,
            counters,
            store,
            timeouts,
            wait_queues,
            key_prefix,
            pid: process::id(),
            holds: AtomicU64::new(0),
            is_shut_down: AtomicBool::new(false),
        }
    }

    pub(crate) fn without_prefix<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&*self.key_prefix.text).unwrap_or(name)
    }

    pub(crate) fn next_hold(&self) -> u64 {
        self.holds.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn deadline(&self) -> Instant {
        time::now() + self.timeouts.request()
    }

    pub(crate) fn ask<T: Answer>(
        &self,
        operation: &'static str,
        ask: impl FnOnce(&dyn Store, Instant) -> T,
    ) -> T {
        let deadline = self.deadline();
        self.ask_by(operation, |store| ask(store, deadline))
    }

    pub(crate) fn ask_by<T: Answer>(
        &self,
        operation: &'static str,
        ask: impl FnOnce(&dyn Store) -> T,
    ) -> T {
        self.counters.request(operation, || ask(&*self.store))
    }

    pub(crate) fn thread(&self, lock: &Arc<str>) -> Result<Arc<Owner>> {
        let reason = "the thread is ending and has already dropped its thread-local values, so its holds cannot be \
            identified; lock and unlock earlier, or use a guard";
        Owner::current(self.pid).ok_or_else(|| Error::unsupported(lock, reason))
    }

    pub(crate) fn is_forked(&self) -> bool {
        process::id() != self.pid
    }

    /// Fails in a forked child, which owns no holds and may find mutexes that stay locked.
    pub(crate) fn not_forked(&self, lock: &Arc<str>) -> Result<()> {
        let lock = || Arc::clone(lock);
        let forked = || Error::Forked { lock: lock() };
        (!self.is_forked()).then_some(()).ok_or_else(forked)
    }

    pub(crate) fn check(&self) -> Result<Vec<HealthWarning>> {
        let mut found = self.examine()?;
        found.retain(|it| it.severity > Severity::Ok);
        Ok(found)
    }

    pub(crate) fn examine(&self) -> Result<Vec<HealthWarning>> {
        self.not_forked(&"(client)".into())?;
        self.ask("check", |store, deadline| store.check(deadline))
    }

    /// If this handle is the last one, another thread shuts the client down, so that the caller does not wait.
    pub(crate) fn let_go(self: Arc<Self>) {
        if let Some(last) = Arc::into_inner(self) {
            // If the thread cannot be started, `spawn` drops the closure, and thereby this thread shuts the client down.
            let _ = sync::spawn("redlatch-close", move || drop(last));
        }
    }

    pub(crate) fn shut_down(&self) {
        if self.is_forked() || self.is_shut_down.swap(true, Ordering::AcqRel) {
            return;
        }
        let deadline = self.deadline();
        let at_last = deadline + SHUTDOWN_GRACE;

        self.store.facts().notifier.close();
        // All waits end now. The watchdog removes their queue entries from the store, many with one request.
        poll_until(deadline, || !self.counters.has_waits());
        self.watchdog.stop(deadline, at_last);
        let store = Arc::clone(&self.store);
        // Closing the store may wait for a thread in `getaddrinfo`, which cannot be cancelled.
        match sync::spawn("redlatch-close", move || store.close()) {
            Ok(closing) => join(closing, at_last),
            Err(_) => self.store.close(),
        }
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        self.shut_down();
    }
}

// A panic of the caller leaves no state inconsistent, because user code never runs with a mutex locked.
impl std::panic::RefUnwindSafe for ClientInner {}

impl fmt::Debug for ClientInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id)
            .field("store", &self.store.node(None))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_before_its_call_has_to_return() {
        let request = |command_timeout: u64| {
            let command_timeout = Duration::from_millis(command_timeout);
            let timeouts = Timeouts {
                watchdog_timeout: command_timeout,
                command_timeout,
                outage_timeout: command_timeout,
            };
            timeouts.request().as_millis()
        };
        assert_eq!([16_000, 400, 100].map(request), [15_000, 350, 75]);
    }

    #[test]
    fn a_forked_client_sends_nothing() {
        let mut client = crate::Client::in_memory();
        assert!(!client.inner.is_forked() && client.inner.examine().is_ok());
        let parent = std::mem::take(&mut Arc::get_mut(&mut client.inner).unwrap().pid);
        assert!(client.inner.is_forked());
        let refused = client.inner.examine().unwrap_err();
        assert!(matches!(refused, Error::Forked { .. }), "{refused}");
        client.shutdown();
        assert!(!client.inner.is_shut_down.load(Ordering::Acquire));
        Arc::get_mut(&mut client.inner).unwrap().pid = parent;
    }
}
