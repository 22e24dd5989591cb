//! The permits to use connections, which r2d2 hands out and makes callers queue up for.
//!
//! A permit has no connection in it. Its holder reuses an idle connection or opens one, within its own deadline and
//! with its own typed error: there is neither a PING per request nor a hidden retry.

use std::convert::Infallible;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use scheduled_thread_pool::ScheduledThreadPool;

use crate::ground::error::{Error, Result};
use crate::ground::sync::Mutex;

/// Makes the slots of one client, and keeps r2d2's thread where it does no harm.
pub(super) struct PermitSource {
    /// `None` once the client was shut down.
    running: Mutex<Option<Running>>,
}

struct Running {
    thread: Arc<ScheduledThreadPool>,
    /// Its end lets the thread go.
    retired: Option<Sender<()>>,
}

/// A number of slots; `None` once the client was shut down: what is still unlocked then is not counted.
pub(super) struct Permits(RwLock<Option<r2d2::Pool<NoConnection>>>);

/// The right to use one connection, given back when it is dropped.
pub(super) struct Permit {
    _counted: Option<r2d2::PooledConnection<NoConnection>>,
}

/// None of so many slots became free in time.
pub(super) struct NoPermit {
    pub(super) of: u32,
}

/// Slots as r2d2 sees them: connections that cost nothing and never break.
#[derive(Debug)]
pub(super) struct NoConnection;

impl r2d2::ManageConnection for NoConnection {
    type Connection = ();
    type Error = Infallible;

    fn connect(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn is_valid(&self, (): &mut ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, (): &mut ()) -> bool {
        false
    }
}

impl PermitSource {
    /// Fails if r2d2's thread cannot be started.
    pub(super) fn new() -> Result<PermitSource> {
        // Its own way to say so is a panic.
        let thread = std::panic::catch_unwind(|| {
            ScheduledThreadPool::builder()
                .num_threads(1)
                .thread_name_pattern("redlatch-pool-{}")
                .build()
        });
        let thread = thread
            .map_err(|_| Error::config("the connection pool", "its thread cannot be started"))?;
        Ok(PermitSource {
            running: Mutex::new(Some(Running {
                thread: Arc::new(thread),
                retired: None,
            })),
        })
    }

    /// Lets the thread end, as soon as no slots count on it.
    pub(super) fn close(&self) {
        *self.running.lock() = None;
    }

    pub(super) fn permits(&self, size: u32) -> Permits {
        let mut running = self.running.lock();
        let Some(Running { thread, retired }) = &mut *running else {
            return Permits(RwLock::new(None));
        };
        *retired = None;
        let pool = r2d2::Pool::builder()
            .max_size(size)
            .test_on_check_out(false)
            // Slots live as long as the pool, so r2d2's own threads have nothing to do.
            .idle_timeout(None)
            .max_lifetime(None)
            .thread_pool(Arc::clone(thread))
            .build_unchecked(NoConnection);
        // All slots are made by jobs that are queued by now, and r2d2 has no other work for its thread. It would sleep in
        // parking_lot for ever, which a forked child could not bear (see `ground/sync.rs`); so it sleeps in a channel.
        let (sender, until_dropped) = channel::<()>();
        thread.execute_after(Duration::from_millis(1), move || {
            let _ = until_dropped.recv();
        });
        *retired = Some(sender);
        Permits(RwLock::new(Some(pool)))
    }
}

impl Permits {
    /// Takes a slot for a request that has to be over by `deadline`, waiting for one for most of that time.
    pub(super) fn take(&self, deadline: Instant) -> Result<Permit, NoPermit> {
        let permit = |counted| Permit {
            _counted: Some(counted),
        };
        let pool = match &*self.open() {
            None => return Ok(Permit { _counted: None }),
            Some(pool) => match pool.try_get() {
                Some(counted) => return Ok(permit(counted)),
                None => pool.clone(),
            },
        };
        // A request that is sent at the last moment is only in doubt.
        let left = deadline.saturating_duration_since(Instant::now()) * 4 / 5;
        pool.get_timeout(left).map(permit).map_err(|_| NoPermit {
            of: pool.max_size(),
        })
    }

    fn open(&self) -> RwLockReadGuard<'_, Option<r2d2::Pool<NoConnection>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts no more: whoever takes a slot from now on gets one at once.
    pub(super) fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open().is_none()
    }
}
