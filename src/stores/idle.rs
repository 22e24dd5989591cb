//! Closes the connections that nobody has used for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::ground::process;
use crate::ground::sync::{self, Condvar, Mutex};
use crate::ground::time;

/// Connections that lie idle.
pub(crate) trait Idle: Send + Sync {
    /// Closes those that were used last before `then`.
    fn close_unused(&self, then: Instant);
}

/// When a connection was used last.
pub(crate) trait LastUsed: Send {
    fn last_used(&self) -> Instant;
}

impl<C: LastUsed> Idle for Mutex<Vec<C>> {
    fn close_unused(&self, then: Instant) {
        let is_old = |it: &mut C| it.last_used() < then;
        let old: Vec<C> = self.lock().extract_if(.., is_old).collect();
        // A connection may say goodbye when it is dropped, and nobody waits for that.
        drop(old);
    }
}

impl<C: LastUsed> Idle for Mutex<Option<C>> {
    fn close_unused(&self, then: Instant) {
        self.lock().take_if(|it| it.last_used() < then);
    }
}

/// The thread that closes the idle connections of one client; it begins with the first one.
pub(crate) struct IdleTimeout {
    shared: Arc<Shared>,
    has_begun: AtomicBool,
    pid: u32,
}

struct Shared {
    timeout: Duration,
    state: Mutex<State>,
    closed: Condvar,
}

#[derive(Default)]
struct State {
    pools: Vec<Weak<dyn Idle>>,
    is_closed: bool,
}

impl IdleTimeout {
    pub(crate) fn new(timeout: Duration) -> Arc<IdleTimeout> {
        Arc::new(IdleTimeout {
            shared: Arc::new(Shared {
                timeout,
                state: Mutex::default(),
                closed: Condvar::default(),
            }),
            has_begun: AtomicBool::new(false),
            pid: process::id(),
        })
    }

    /// Closes the connections of `pool`, too.
    pub(crate) fn add(&self, pool: Weak<dyn Idle>) {
        let mut state = self.shared.state.lock();
        state.pools.retain(|pool| pool.strong_count() > 0);
        state.pools.push(pool);
    }

    /// Begins, now that there is something to close later. Without a thread they stay open.
    pub(crate) fn begin(&self) {
        if !self.has_begun.load(Ordering::Relaxed) && !self.has_begun.swap(true, Ordering::Relaxed)
        {
            self.shared.state.lock().is_closed = false;
            let shared = Arc::clone(&self.shared);
            let begun = sync::spawn("redlatch-idle", move || shared.run());
            self.has_begun.store(begun.is_ok(), Ordering::Relaxed);
        }
    }

    /// Ends the thread, until there is something to close again: a quorum goes on with the connections of a closed client.
    pub(crate) fn close(&self) {
        self.has_begun.store(false, Ordering::Relaxed);
        self.shared.state.lock().is_closed = true;
        self.shared.closed.notify_one();
    }
}

impl Drop for IdleTimeout {
    fn drop(&mut self) {
        // In a forked child nobody may ever unlock the mutex.
        if self.pid == process::id() {
            self.close();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let next = time::now() + self.timeout / 4;
            state = self.closed.wait(state, Some(next));
            let Some(then) = time::now().checked_sub(self.timeout) else {
                continue;
            };
            let pools: Vec<_> = state.pools.iter().filter_map(Weak::upgrade).collect();
            // Whoever has a pool in hand may wait for the state.
            drop(state);
            pools.iter().for_each(|pool| pool.close_unused(then));
            state = self.state.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Connections of which somebody has the mutex, who begins the timeout.
    struct InHand {
        timeout: Weak<IdleTimeout>,
        looks: Arc<Mutex<u32>>,
    }

    impl Idle for InHand {
        fn close_unused(&self, _: Instant) {
            if let Some(timeout) = self.timeout.upgrade() {
                timeout.has_begun.store(false, Ordering::Relaxed);
                timeout.begin();
            }
            *self.looks.lock() += 1;
        }
    }

    #[test]
    fn one_who_begins_with_connections_in_hand_is_not_waited_for() {
        let timeout = IdleTimeout::new(Duration::from_millis(4));
        let looks: Arc<Mutex<u32>> = Arc::default();
        let pool: Arc<dyn Idle> = Arc::new(InHand {
            timeout: Arc::downgrade(&timeout),
            looks: Arc::clone(&looks),
        });
        timeout.add(Arc::downgrade(&pool));
        timeout.begin();
        let until = Instant::now() + Duration::from_secs(10);
        while *looks.lock() < 2 {
            assert!(Instant::now() < until, "it stands still");
            thread::sleep(Duration::from_millis(1));
        }
        timeout.close();
    }
}
