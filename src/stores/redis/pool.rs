//! The connections of one client to one node.
//!
//! The connection is the affair of whoever has a slot: it takes the one used last, or makes one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use redis::Value;

use super::route::Route;
use super::scripts::Script;
use super::wire::{Fault, Wire};
use crate::stores::slots::{Slot, Slots};
use crate::sync::Mutex;

pub(super) struct Pool {
    slots: Slots,
    /// The sound connections not in use, the one used last on top. Who has a slot may use one, or make one.
    idle: Mutex<Vec<Wire>>,
    route: Arc<dyn Route>,
    /// Whether EVALSHA was found to be switched off on this node.
    evalsha_is_off: AtomicBool,
}

impl Pool {
    pub(super) fn new(route: Arc<dyn Route>, slots: Slots) -> Pool {
        Pool {
            slots,
            idle: Mutex::default(),
            route,
            evalsha_is_off: AtomicBool::new(false),
        }
    }

    pub(super) fn route(&self) -> &dyn Route {
        &*self.route
    }

    fn slot(&self, until: Instant) -> Result<Slot, Fault> {
        self.slots
            .take(until)
            .map_err(|none| Fault::NotSent(none.0))
    }

    /// The connection used last, if there is one that is still good.
    fn pop(&self) -> Option<Wire> {
        let generation = self.route.generation();
        loop {
            let wire = self.idle.lock().pop()?;
            if wire.generation == generation && !wire.is_stale() {
                return Some(wire);
            }
        }
    }

    /// Runs `talk` on a connection. After a fault that leaves its state in doubt the connection is closed.
    pub(super) fn with<T>(
        &self,
        until: Instant,
        mut talk: impl FnMut(&mut Wire) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let _slot = self.slot(until)?;
        let mut place = self.pop();
        let is_fresh = place.is_none();
        let outcome = match on_wire(&mut place, self.route(), until, &mut talk) {
            // The server had closed a connection that lay idle. Nothing was sent, so it is safe to send it again.
            Err(Fault::NotSent(_)) if !is_fresh => {
                on_wire(&mut place, self.route(), until, &mut talk)
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
    route: &dyn Route,
    until: Instant,
    talk: &mut impl FnMut(&mut Wire) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mut wire = match place.take() {
        Some(wire) => wire,
        None => route.connect(until)?,
    };
    let outcome = talk(&mut wire);
    let is_sound = match &outcome {
        Ok(_) => true,
        // A server that turned into a replica stays one: the next connection may find the master.
        Err(Fault::Server(text)) => !text.contains("READONLY"),
        Err(Fault::NotSent(_) | Fault::NoReply { .. } | Fault::Untrusted(_)) => false,
    };
    if is_sound {
        *place = Some(wire);
    }
    outcome
}
