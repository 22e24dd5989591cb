//! The threads that wait for a lock and stand in no queue of their client, for tests that ask how many there are.

use std::collections::HashMap;
use std::sync::Arc;

use super::WaitQueues;
use crate::ground::claim::LockId;
use crate::ground::sync::Mutex;

/// How many there are, by lock.
pub(super) type Threads = Arc<Mutex<HashMap<LockId, usize>>>;

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Unqueued {
    threads: Threads,
    lock: LockId,
}

impl<O, G> WaitQueues<O, G> {
    /// The number of threads that wait for `lock`, in its queue or without one.
    pub(crate) fn length(&self, lock: &LockId) -> usize {
        let unqueued = self.unqueued.lock().get(lock).copied();
        let wait_queues = self.wait_queues.lock();
        let queued = wait_queues.get(lock).map_or(0, |queue| queue.nodes.len());
        queued + unqueued.unwrap_or_default()
    }

    /// Notes that the calling thread waits for `lock`.
    pub(crate) fn unqueued(&self, lock: &LockId) -> Unqueued {
        *self.unqueued.lock().entry(lock.clone()).or_default() += 1;
        Unqueued {
            threads: Arc::clone(&self.unqueued),
            lock: lock.clone(),
        }
    }
}

impl Drop for Unqueued {
    fn drop(&mut self) {
        let mut threads = self.threads.lock();
        if let Some(count) = threads.get_mut(&self.lock) {
            *count -= 1;
            if *count == 0 {
                threads.remove(&self.lock);
            }
        }
    }
}
