//! The rights to use connections, which r2d2 hands out and makes callers queue up for.
//!
//! A slot has no connection in it. Who has a slot takes a connection that lies idle, or makes one: within its own
//! deadline, and its failure is its own typed error; there is neither a PING per request nor a retry behind anybody's
//! back.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use scheduled_thread_pool::ScheduledThreadPool;

use crate::error::{Error, Result};
use crate::sync::Mutex;

/// Makes the slots of one client, and keeps r2d2's thread where it does no harm.
pub(super) struct SlotMaker {
    thread: Arc<ScheduledThreadPool>,
    /// Its end lets the thread go.
    retired: Mutex<Option<Sender<()>>>,
}

/// A number of slots.
pub(super) struct Slots(r2d2::Pool<Rights>);

/// The right to use one connection, given back when it is dropped.
pub(super) type Slot = r2d2::PooledConnection<Rights>;

/// No slot became free in time; says so.
pub(super) struct NoSlot(pub(super) String);

/// Slots as r2d2 sees them: connections that cost nothing and never break.
#[derive(Debug)]
pub(super) struct Rights;

impl r2d2::ManageConnection for Rights {
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

impl SlotMaker {
    /// Fails if r2d2's thread cannot be started.
    pub(super) fn new() -> Result<SlotMaker> {
        // Its own way to say so is a panic.
        let thread = std::panic::catch_unwind(|| {
            ScheduledThreadPool::builder()
                .num_threads(1)
                .thread_name_pattern("redlatch-pool-{}")
                .build()
        });
        let thread = thread.map_err(|_| Error::InvalidConfig {
            setting: "the connection pool",
            reason: "its thread cannot be started".to_owned(),
        })?;
        Ok(SlotMaker {
            thread: Arc::new(thread),
            retired: Mutex::default(),
        })
    }

    pub(super) fn slots(&self, size: u32) -> Slots {
        let mut retired = self.retired.lock();
        *retired = None;
        let pool = r2d2::Pool::builder()
            .max_size(size)
            .test_on_check_out(false)
            // Slots live as long as the pool, so r2d2's own threads have nothing to do.
            .idle_timeout(None)
            .max_lifetime(None)
            .thread_pool(Arc::clone(&self.thread))
            .build_unchecked(Rights);
        // All slots are made by jobs that are queued by now, and r2d2 has no other work for its thread. It would sleep in
        // parking_lot for ever, which a forked child could not bear (see `sync.rs`); so it sleeps in a channel.
        let (sender, until_dropped) = channel::<()>();
        self.thread
            .execute_after(Duration::from_millis(1), move || {
                let _ = until_dropped.recv();
            });
        *retired = Some(sender);
        Slots(pool)
    }
}

impl Slots {
    /// Takes a slot, waiting for one until `until`.
    pub(super) fn take(&self, until: Instant) -> Result<Slot, NoSlot> {
        if let Some(slot) = self.0.try_get() {
            return Ok(slot);
        }
        let left = until.saturating_duration_since(Instant::now());
        self.0.get_timeout(left).map_err(|_| {
            NoSlot(format!(
                "all {} connections of the pool were in use for the whole time",
                self.0.max_size()
            ))
        })
    }
}
