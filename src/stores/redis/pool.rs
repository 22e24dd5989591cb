//! The connections of one client to one server.
//!
//! r2d2 hands out slots, and makes callers queue up when all are taken. The connection is the caller's own affair: it
//! takes the one used last, or makes one. So a connection is made within the caller's deadline, its failure is the
//! caller's typed error, and there is neither a PING per request nor a retry behind anybody's back.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use scheduled_thread_pool::ScheduledThreadPool;

use super::scripts::Script;
use super::wire::{Address, Fault, Wire};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use redis::Value;

pub(super) struct Pool {
    /// Keeps r2d2's thread where it does no harm; its end lets the thread go.
    _retired: Sender<()>,
    slots: r2d2::Pool<Slots>,
    /// The sound connections not in use, the one used last on top. Who has a slot may use one, or make one.
    idle: Mutex<Vec<Wire>>,
    address: Arc<Address>,
    /// Whether EVALSHA was found to be switched off on this server.
    evalsha_is_off: AtomicBool,
}

/// The right to use one connection.
pub(super) struct Slot;

struct Slots;

impl r2d2::ManageConnection for Slots {
    type Connection = Slot;
    type Error = Infallible;

    fn connect(&self) -> Result<Slot, Infallible> {
        Ok(Slot)
    }

    fn is_valid(&self, _: &mut Slot) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Slot) -> bool {
        // It has no connection in it.
        false
    }
}

impl Pool {
    /// Fails if r2d2's thread cannot be started.
    pub(super) fn new(address: Arc<Address>, size: u32) -> Result<Pool> {
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
        let thread = Arc::new(thread);
        let slots = r2d2::Pool::builder()
            .max_size(size)
            .test_on_check_out(false)
            // Slots cost nothing and live as long as the pool, so r2d2's own threads have nothing to do.
            .idle_timeout(None)
            .max_lifetime(None)
            .thread_pool(Arc::clone(&thread))
            .build_unchecked(Slots);
        // All slots are made by jobs that are queued by now, and r2d2 has no other work for its thread. It would sleep in
        // parking_lot for ever, which a forked child could not bear (see `sync.rs`); so it sleeps in a channel.
        let (_retired, until_dropped) = channel::<()>();
        thread.execute_after(Duration::from_millis(1), move || {
            let _ = until_dropped.recv();
        });
        Ok(Pool {
            _retired,
            slots,
            idle: Mutex::default(),
            address,
            evalsha_is_off: AtomicBool::new(false),
        })
    }

    pub(super) fn node(&self) -> &Arc<str> {
        &self.address.node
    }

    pub(super) fn address(&self) -> &Arc<Address> {
        &self.address
    }

    fn slot(&self, until: Instant) -> Result<r2d2::PooledConnection<Slots>, Fault> {
        if let Some(slot) = self.slots.try_get() {
            return Ok(slot);
        }
        let left = until.saturating_duration_since(Instant::now());
        self.slots.get_timeout(left).map_err(|_| {
            Fault::NotSent(format!(
                "all {} connections of the pool were in use for the whole time",
                self.slots.max_size()
            ))
        })
    }

    /// Runs `talk` on a connection. After a fault that leaves its state in doubt the connection is closed.
    pub(super) fn with<T>(
        &self,
        until: Instant,
        mut talk: impl FnMut(&mut Wire) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let _slot = self.slot(until)?;
        let mut place = self.idle.lock().pop();
        while place.as_ref().is_some_and(Wire::is_stale) {
            place = self.idle.lock().pop();
        }
        let is_fresh = place.is_none();
        let outcome = match on_wire(&mut place, &self.address, until, &mut talk) {
            // The server had closed a connection that lay idle. Nothing was sent, so it is safe to send it again.
            Err(Fault::NotSent(_)) if !is_fresh => {
                on_wire(&mut place, &self.address, until, &mut talk)
            }
            outcome => outcome,
        };
        self.idle.lock().extend(place);
        outcome
    }

    /// Runs a script: by its hash, and with its text if the server does not know it yet.
    pub(super) fn eval(
        &self,
        wire: &mut Wire,
        script: &Script,
        keys: &[&str],
        args: &[&[u8]],
        until: Instant,
    ) -> Result<Value, Fault> {
        if !self.evalsha_is_off.load(Ordering::Relaxed) {
            match wire.call(&script.pack(false, keys, args), until) {
                Err(Fault::Server(text)) if text.starts_with("NOSCRIPT") => {}
                Err(Fault::Server(text)) if lacks_evalsha(&text) => {
                    self.evalsha_is_off.store(true, Ordering::Relaxed)
                }
                outcome => return outcome,
            }
        }
        wire.call(&script.pack(true, keys, args), until)
    }

    pub(super) fn note_evalsha_is_off(&self) {
        self.evalsha_is_off.store(true, Ordering::Relaxed);
    }

    pub(super) fn uses_text(&self) -> bool {
        self.evalsha_is_off.load(Ordering::Relaxed)
    }
}

/// Whether the server has no EVALSHA, or does not let this user have it; EVAL may be there all the same.
pub(super) fn lacks_evalsha(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("'evalsha'") && (text.contains("unknown command") || text.starts_with("noperm"))
}

/// Runs `talk` on what is in `place`, connecting first if need be, and empties the place after a fault.
pub(super) fn on_wire<T>(
    place: &mut Option<Wire>,
    address: &Address,
    until: Instant,
    talk: &mut impl FnMut(&mut Wire) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut wire = match place.take() {
        Some(wire) => wire,
        None => Wire::connect(address, until)?,
    };
    let outcome = talk(&mut wire);
    let is_sound = match &outcome {
        Ok(_) => true,
        // A server that turned into a replica stays one: the next connection may find the master.
        Err(Fault::Server(text)) => !text.contains("READONLY"),
        Err(Fault::NotSent(_) | Fault::NoReply { .. }) => false,
    };
    if is_sound {
        *place = Some(wire);
    }
    outcome
}
