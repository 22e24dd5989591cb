//! The connections of one client to one server: the slots of an `r2d2` pool.
//!
//! A slot is empty at first. Its borrower connects, within its own deadline and with its own typed error, and leaves the
//! connection there for the next one. So the pool does no I/O; it counts, waits, and closes what is idle for long.

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

/// The settings that the pools of one client share, and their thread, which lives as long as there is a pool.
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
        // The pool of threads panics where there is no room for one.
        let _ = sync::spawn("redlatch-pool", || {})?.join();
        let one = ScheduledThreadPool::builder().num_threads(1);
        let named = one.thread_name_pattern("redlatch-pool");
        let discards = OnPoolDropBehavior::DiscardPendingScheduled;
        let started = Arc::new(named.on_drop_behavior(discards).build());
        *thread = Arc::downgrade(&started);
        Ok(started)
    }
}

/// The right to a connection of a server, and that connection once it was made. It goes back when it is dropped.
pub(crate) type Slot<C> = PooledConnection<Empty<C>>;

/// At most so many slots.
pub(crate) struct Slots<C: Send + 'static> {
    size: u32,
    settings: PoolSettings,
    /// It is made when the first slot is borrowed.
    pool: Mutex<Option<r2d2::Pool<Empty<C>>>>,
    is_closed: AtomicBool,
    pid: u32,
}

/// Why there is no slot.
#[derive(Debug)]
pub(crate) enum NoSlot {
    /// Others have all of them, this many.
    Busy(u32),
    /// The thread of the pool cannot be started.
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

    /// Borrows a slot, the one used last rather than another, waiting for it as long as `patience` says, if it has to.
    pub(crate) fn get(&self, patience: impl FnOnce() -> Duration) -> Result<Slot<C>, NoSlot> {
        let pool = self.pool()?;
        if let Some(slot) = pool.try_get() {
            return Ok(slot);
        }
        if let Ok(slot) = pool.get_timeout(patience()) {
            return Ok(slot);
        }
        // One that is being made is there in no time, unless the machine is busy. Those that others have are not waited for.
        for _ in 0..LOOKS {
            if pool.state().connections >= self.size {
                break;
            }
            if let Ok(slot) = pool.get_timeout(LOOK) {
                return Ok(slot);
            }
        }
        pool.try_get().ok_or(NoSlot::Busy(self.size))
    }

    /// Borrows a slot if one is free.
    pub(crate) fn try_get(&self) -> Result<Slot<C>, NoSlot> {
        self.get(|| Duration::ZERO)
    }

    /// Borrows a slot that nobody has and that is such.
    pub(crate) fn idle_where(&self, is_such: fn(&Option<C>) -> bool) -> Option<Slot<C>> {
        let pool = self.pool().ok()?;
        // Those that are not go back when one was found, or all were looked at.
        let mut others = Vec::new();
        while let Some(slot) = pool.try_get() {
            if is_such(&slot) {
                return Some(slot);
            }
            others.push(slot);
        }
        None
    }

    /// How many slots nobody has.
    pub(crate) fn idle(&self) -> u32 {
        let pool = self.pool.lock();
        pool.as_ref()
            .map_or(0, |pool| pool.state().idle_connections)
    }

    /// Whether all slots are gone that there were, because they were idle for long.
    pub(crate) fn are_gone(&self) -> bool {
        let pool = self.pool.lock();
        pool.as_ref()
            .is_some_and(|pool| pool.state().connections == 0)
    }

    /// Closes the connections that nobody has, and the others when they come back. A slot that is borrowed from now on is
    /// one of a pool of its own.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let closed = self.pool.lock().take();
        drop(closed);
    }

    /// Keeps connections again: a quorum goes on with the servers of clients that were shut down.
    pub(crate) fn reopen(&self) {
        self.is_closed.store(false, Ordering::Relaxed);
    }
}

/// How often it is looked for a new slot that the thread of a pool makes, and for how long at a time.
const LOOKS: u32 = 1000;
const LOOK: Duration = Duration::from_millis(1);

impl<C: Send + 'static> Drop for Slots<C> {
    fn drop(&mut self) {
        // To end the thread takes a mutex, which in a forked child nobody may ever unlock.
        if self.pid != process::id() {
            std::mem::forget(std::mem::take(&mut self.pool));
        }
    }
}

/// Makes empty slots.
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
