//! Calls that may block for any time, each on a thread of its own; at most one at a time for each key.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crate::ground::sync::{self, Condvar, Mutex};
use crate::ground::time;

pub(crate) struct Background<K, V> {
    calls: Mutex<HashMap<K, Call<V>>>,
    returned: Condvar,
}

/// The calls for one key.
struct Call<V> {
    /// When the running one began.
    began: Option<Instant>,
    /// How many have returned.
    count: u64,
    /// What the last one returned.
    result: Option<Result<V, Arc<io::Error>>>,
}

impl<K, V> Default for Background<K, V> {
    fn default() -> Background<K, V> {
        Background {
            calls: Mutex::default(),
            returned: Condvar::default(),
        }
    }
}

impl<K, V> Background<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// Starts `call` unless a call for `key` is running. Returns the number that its result will have, and when it began.
    pub(crate) fn start(
        self: &Arc<Self>,
        key: &K,
        call: impl FnOnce() -> io::Result<V> + Send + 'static,
    ) -> (u64, Instant) {
        let mut calls = self.calls.lock();
        let of_key = calls.entry(key.clone()).or_insert(Call {
            began: None,
            count: 0,
            result: None,
        });
        let number = of_key.count + 1;
        if let Some(began) = of_key.began {
            return (number, began);
        }
        let began = time::now();
        of_key.began = Some(began);
        drop(calls);
        let (shared, of) = (Arc::clone(self), key.clone());
        let run = move || {
            let panicked = |_| Err(io::Error::other("it panicked"));
            shared.note(
                &of,
                catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked),
            );
        };
        if let Err(error) = sync::spawn("redlatch-background", run) {
            self.note(key, Err(error));
        }
        (number, began)
    }

    fn note(&self, key: &K, result: io::Result<V>) {
        if let Some(call) = self.calls.lock().get_mut(key) {
            call.began = None;
            call.count += 1;
            call.result = Some(result.map_err(Arc::new));
        }
        self.returned.notify_all();
    }

    /// Waits for result `number`, and returns the latest one; `None` at `deadline`.
    pub(crate) fn wait(&self, key: &K, number: u64, deadline: Instant) -> Option<io::Result<V>> {
        let mut calls = self.calls.lock();
        loop {
            let call = calls.get(key)?;
            if call.count >= number {
                return Some(match call.result.as_ref()? {
                    Ok(value) => Ok(value.clone()),
                    Err(error) => Err(match error.raw_os_error() {
                        Some(code) => io::Error::from_raw_os_error(code),
                        None => io::Error::new(error.kind(), error.to_string()),
                    }),
                });
            }
            if time::now() >= deadline {
                return None;
            }
            calls = self.returned.wait(calls, Some(deadline));
        }
    }
}
