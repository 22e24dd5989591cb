//! The times when the store last said of a lock that another one has it, for waits that end without an answer of their own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::ground::claim::LockId;
use crate::ground::sync::Mutex;
use crate::ground::time;

/// An older refusal may be forgotten.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The last refusal of each lock to any thread of the client.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    locks: Mutex<HashMap<LockId, Instant>>,
}

impl Refusals {
    /// Notes that the lock was refused, or went to a thread of this client.
    pub(crate) fn note(&self, lock: &LockId) {
        let now = time::now();
        let mut locks = self.locks.lock();
        if let Some(last) = locks.get_mut(lock) {
            *last = now;
            return;
        }
        // Amortised: it is swept when it has doubled.
        if locks.len() == locks.capacity() {
            locks.retain(|_, at| now.saturating_duration_since(*at) < KEPT_FOR);
        }
        locks.insert(lock.clone(), now);
    }

    /// Returns whether the lock was refused at that time or later.
    pub(crate) fn is_refused_since(&self, lock: &LockId, since: Instant) -> bool {
        self.locks.lock().get(lock).is_some_and(|at| since <= *at)
    }
}
