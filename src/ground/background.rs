//! Runs calls that may block for any time, such as host name lookups, in threads of their own. For each key, only one call
//! runs at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ground::sync::{self, Condvar, Mutex};
use crate::ground::time;

/// A caller that has the value of an earlier call waits at most this long for a new value.
const PROMPT: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(crate) struct Background<K, V> {
    calls: Mutex<HashMap<K, Calls<V>>>,
    returned: Condvar,
}

#[derive(Default)]
struct Calls<V> {
    began: Option<Instant>,
    /// The number of calls that have returned.
    count: u64,
    /// The value of the last successful call.
    value: Option<V>,
    /// The error of the last call; `None` if that call succeeded.
    failure: Option<(io::ErrorKind, String)>,
}

impl<K, V> Background<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Default + Send + 'static,
{
    /// Starts `call` unless a call for `key` is running. Returns the number of the running call, and a time. A caller
    /// that has the value of an earlier call should wait until this time at most.
    pub(crate) fn start(
        self: &Arc<Self>,
        key: &K,
        deadline: Instant,
        call: impl FnOnce() -> io::Result<V> + Send + 'static,
    ) -> (u64, Instant) {
        let mut all = self.calls.lock();
        let calls = all.entry(key.clone()).or_default();
        let (number, now) = (calls.count + 1, time::now());
        let prompt = PROMPT.min(deadline.saturating_duration_since(now) / 4);
        if let Some(began) = calls.began {
            return (number, began + prompt);
        }
        calls.began = Some(now);
        drop(all);
        let (shared, of) = (Arc::clone(self), key.clone());
        let run = move || {
            let panicked = |_| Err(io::Error::other("it panicked"));
            let result = catch_unwind(AssertUnwindSafe(call));
            shared.note(&of, result.unwrap_or_else(panicked));
        };
        if let Err(error) = sync::spawn("redlatch-background", run) {
            self.note(key, Err(error));
        }
        (number, now + prompt)
    }

    fn note(&self, key: &K, result: io::Result<V>) {
        let mut all = self.calls.lock();
        let calls = all.entry(key.clone()).or_default();
        calls.began = None;
        calls.count += 1;
        calls.failure = None;
        match result {
            Ok(value) => calls.value = Some(value),
            Err(error) => calls.failure = Some((error.kind(), error.to_string())),
        }
        self.returned.notify_all();
    }

    /// Waits until call `number` has returned, and returns the result of the latest call. Returns `None` at `deadline`.
    pub(crate) fn wait(&self, key: &K, number: u64, deadline: Instant) -> Option<io::Result<V>> {
        let mut all = self.calls.lock();
        loop {
            let calls = all.get(key)?;
            if calls.count >= number {
                return match calls.failure.clone() {
                    Some((kind, words)) => Some(Err(io::Error::new(kind, words))),
                    None => calls.value.clone().map(Ok),
                };
            }
            if time::now() >= deadline {
                return None;
            }
            all = self.returned.wait(all, Some(deadline));
        }
    }

    pub(crate) fn known(&self, key: &K) -> Option<V> {
        self.calls.lock().get(key)?.value.clone()
    }
}
