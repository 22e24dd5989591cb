//! The connections of one client to one server, in the slots of an `r2d2` pool.
//!
//! A new slot is empty. The borrower opens a connection by the deadline of its request, and leaves the connection in
//! the slot. The pool itself never connects. It counts the slots, queues borrowers and closes idle connections.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use r2d2::{ManageConnection, NopErrorHandler, PooledConnection};
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

use crate::ground::process;
use crate::ground::sync::{self, Mutex};

/// Shared by the pools of one client. `thread` ends with the last of these pools.
#[derive(Clone)]
pub(crate) struct PoolSettings {
    pub(crate) idle_timeout: Duration,
    pub(crate) max_lifetime: Option<Duration>,
    thread: Arc<Mutex<Weak<ScheduledThreadPool>>>,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        PoolSettings {
            idle_timeout: Duration::from_secs(300),
            max_lifetime: None,
            thread: Arc::default(),
        }
    }
}

impl PoolSettings {
    fn thread(&self) -> io::Result<Arc<ScheduledThreadPool>> {
        let mut thread = self.thread.lock();
        if let Some(thread) = thread.upgrade() {
            return Ok(thread);
        }
        // `ScheduledThreadPool` panics if no thread can be started. So one thread is started first, as a test.
        let _ = sync::spawn("redlatch-pool", || {})?.join();
        let one = ScheduledThreadPool::builder().num_threads(1);
        let named = one.thread_name_pattern("redlatch-pool");
        let discards = OnPoolDropBehavior::DiscardPendingScheduled;
        let started = Arc::new(named.on_drop_behavior(discards).build());
        *thread = Arc::downgrade(&started);
        Ok(started)
    }
}

/// A slot may contain a connection. Dropping the slot returns it to the pool.
pub(crate) type Slot<C> = PooledConnection<Empty<C>>;

pub(crate) struct Slots<C: Send + 'static> {
    size: u32,
    settings: PoolSettings,
    /// `None` until the first slot is borrowed, and after [`Slots::close`].
    pool: Mutex<Option<r2d2::Pool<Empty<C>>>>,
    is_closed: AtomicBool,
    pid: u32,
}

#[derive(Debug)]
pub(crate) enum NoSlot {
    /// All slots are in use; this is their number.
    Busy(u32),
    NoThread(io::Error),
}

impl<C: Send + 'static> Slots<C> {
    pub(crate) fn new(size: u32, settings: &PoolSettings) -> Slots<C> {
        Slots {
            size,
            settings: settings.clone(),
            pool: Mutex::default(),
            is_closed: AtomicBool::new(false),
            pid: process::id(),
        }
    }

    fn pool(&self) -> Result<r2d2::Pool<Empty<C>>, NoSlot> {
        let mut pool = self.pool.lock();
        if let Some(pool) = &*pool {
            return Ok(pool.clone());
        }
        let thread = self.settings.thread().map_err(NoSlot::NoThread)?;
        let made = r2d2::Pool::builder()
            .max_size(self.size)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .idle_timeout(Some(self.settings.idle_timeout))
            .max_lifetime(self.settings.max_lifetime)
            .error_handler(Box::new(NopErrorHandler))
            .thread_pool(thread)
            .build_unchecked(Empty(PhantomData));
        if !self.is_closed.load(Ordering::Relaxed) {
            *pool = Some(made.clone());
        }
        Ok(made)
    }

    /// Borrows a slot, preferably the most recently used one. If all slots are in use, waits up to `patience`.
    pub(crate) fn get(&self, patience: impl FnOnce() -> Duration) -> Result<Slot<C>, NoSlot> {
        let pool = self.pool()?;
        if let Some(slot) = pool.try_get() {
            return Ok(slot);
        }
        if let Ok(slot) = pool.get_timeout(patience()) {
            return Ok(slot);
        }
        // The pool's thread may be creating a slot, which takes long on a busy machine.
        for _ in 0..SLOT_POLLS {
            if pool.state().connections >= self.size {
                break;
            }
            if let Ok(slot) = pool.get_timeout(SLOT_POLL) {
                return Ok(slot);
            }
        }
        pool.try_get().ok_or(NoSlot::Busy(self.size))
    }

    pub(crate) fn try_get(&self) -> Result<Slot<C>, NoSlot> {
        self.get(|| Duration::ZERO)
    }

    /// Borrows an idle slot with a connection. If there is none, the error is true if other callers may return a connection
    /// later. This caller has borrowed `own` slots.
    pub(crate) fn idle_connected(&self, own: usize) -> Result<Slot<C>, bool> {
        let pool = self.pool().map_err(|_| false)?;
        // The empty slots stay borrowed until the search ends.
        let mut empty = Vec::new();
        while let Some(slot) = pool.try_get() {
            if slot.is_some() {
                return Ok(slot);
            }
            empty.push(slot);
        }
        // This also counts slots that were returned after the last `try_get`.
        Err(pool.state().connections as usize > own + empty.len())
    }

    fn state(&self) -> Option<r2d2::State> {
        self.pool.lock().as_ref().map(r2d2::Pool::state)
    }

    pub(crate) fn idle(&self) -> u32 {
        self.state().map_or(0, |it| it.idle_connections)
    }

    pub(crate) fn are_none(&self) -> bool {
        self.state().is_none_or(|it| it.connections == 0)
    }

    /// Closes free connections now. Connections in use are closed when their slots are dropped. After this call, each
    /// call of `get` creates a new pool. This pool ends with the borrowed slot, and closes the connection.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let closed = self.pool.lock().take();
        drop(closed);
    }

    /// A quorum reopens its pools, because the clients of its nodes may have been shut down.
    pub(crate) fn reopen(&self) {
        self.is_closed.store(false, Ordering::Relaxed);
    }
}

/// How often, and for how long each time, `get` waits for a slot that the pool's thread is creating.
const SLOT_POLLS: u32 = 1000;
const SLOT_POLL: Duration = Duration::from_millis(1);

impl<C: Send + 'static> Drop for Slots<C> {
    fn drop(&mut self) {
        // In a forked child, the pool is leaked, because the mutex of its thread pool may be locked forever.
        if self.pid != process::id() {
            std::mem::forget(std::mem::take(&mut self.pool));
        }
    }
}

pub(crate) struct Empty<C>(PhantomData<fn() -> C>);

impl<C: Send + 'static> ManageConnection for Empty<C> {
    type Connection = Option<C>;
    type Error = Infallible;

    fn connect(&self) -> Result<Option<C>, Infallible> {
        Ok(None)
    }

    fn is_valid(&self, _: &mut Option<C>) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Option<C>) -> bool {
        false
    }
}
