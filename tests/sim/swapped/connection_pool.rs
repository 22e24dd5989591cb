//! The interface of `src/stores/connection_pool.rs` on the scheduler of the world: a pool that counts its slots, without a
//! reaper thread.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::ground::sync::{Condvar, Mutex};
use crate::ground::time;

#[derive(Clone)]
pub(crate) struct PoolSettings {
    pub(crate) idle_timeout: Duration,
    pub(crate) max_lifetime: Option<Duration>,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        PoolSettings {
            idle_timeout: Duration::from_secs(300),
            max_lifetime: None,
        }
    }
}

pub(crate) struct Slots<C: Send + 'static> {
    size: u32,
    pool: Mutex<Arc<Shared<C>>>,
}

struct Shared<C> {
    /// How many were made, and the free ones.
    state: Mutex<(u32, Vec<Option<C>>)>,
    freed: Condvar,
}

pub(crate) struct Slot<C: Send + 'static> {
    content: Option<C>,
    pool: Arc<Shared<C>>,
}

#[derive(Debug)]
pub(crate) enum NoSlot {
    Busy(u32),
    #[expect(dead_code, reason = "the world has room for each thread")]
    NoThread(io::Error),
}

impl<C: Send + 'static> Slots<C> {
    pub(crate) fn new(size: u32, _: &PoolSettings) -> Slots<C> {
        let pool = Mutex::new(new_pool());
        Slots { size, pool }
    }

    pub(crate) fn get(&self, patience: impl FnOnce() -> Duration) -> Result<Slot<C>, NoSlot> {
        let until = time::now() + patience();
        let pool = Arc::clone(&*self.pool.lock());
        let mut state = pool.state.lock();
        loop {
            if state.1.is_empty() && state.0 < self.size {
                state.0 += 1;
                state.1.push(None);
            }
            if let Some(content) = state.1.pop() {
                drop(state);
                return Ok(Slot { content, pool });
            }
            if time::now() >= until {
                return Err(NoSlot::Busy(self.size));
            }
            state = pool.freed.wait(state, Some(until));
        }
    }

    pub(crate) fn try_get(&self) -> Result<Slot<C>, NoSlot> {
        self.get(|| Duration::ZERO)
    }

    pub(crate) fn idle_connected(&self, own: usize) -> Result<Slot<C>, bool> {
        let pool = Arc::clone(&*self.pool.lock());
        let mut state = pool.state.lock();
        let Some(at) = state.1.iter().rposition(Option::is_some) else {
            return Err(state.0 as usize > own + state.1.len());
        };
        let content = state.1.remove(at);
        drop(state);
        Ok(Slot { content, pool })
    }

    pub(crate) fn idle(&self) -> u32 {
        let idle = self.pool.lock().state.lock().1.len();
        u32::try_from(idle).unwrap_or(u32::MAX)
    }

    pub(crate) fn are_none(&self) -> bool {
        self.pool.lock().state.lock().0 == 0
    }

    pub(crate) fn close(&self) {
        let closed = std::mem::replace(&mut *self.pool.lock(), new_pool());
        drop(closed);
    }

    pub(crate) fn reopen(&self) {}
}

fn new_pool<C>() -> Arc<Shared<C>> {
    Arc::new(Shared {
        state: Mutex::new((0, Vec::new())),
        freed: Condvar::default(),
    })
}

impl<C: Send + 'static> Deref for Slot<C> {
    type Target = Option<C>;

    fn deref(&self) -> &Option<C> {
        &self.content
    }
}

impl<C: Send + 'static> DerefMut for Slot<C> {
    fn deref_mut(&mut self) -> &mut Option<C> {
        &mut self.content
    }
}

impl<C: Send + 'static> Drop for Slot<C> {
    fn drop(&mut self) {
        let content = self.content.take();
        self.pool.state.lock().1.push(content);
        self.pool.freed.notify_one();
    }
}
