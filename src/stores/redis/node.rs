//! One node: the connections for requests, the one for renewals, and the one that listens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::pool::{Pool, on_wire};
use super::route::Route;
use super::subscriber::Subscriber;
use super::wire::{Fault, Wire};
use crate::signals::Signals;
use crate::stores::slots::Slots;
use crate::sync::Mutex;

pub(super) struct Node {
    pub(super) pool: Pool,
    /// The renewal thread's own connection; renewals never queue up behind other requests.
    renewals: Mutex<Option<Wire>>,
    pub(super) subscriber: Subscriber,
}

impl Node {
    pub(super) fn new(
        route: &Arc<dyn Route>,
        slots: Slots,
        command_timeout: Duration,
        signals: &Arc<Signals>,
    ) -> Node {
        Node {
            pool: Pool::new(Arc::clone(route), slots),
            renewals: Mutex::default(),
            subscriber: Subscriber::new(Arc::clone(route), command_timeout, Arc::clone(signals)),
        }
    }

    /// The node's name in messages.
    pub(super) fn name(&self) -> Arc<str> {
        self.pool.route().node()
    }

    /// Takes the connection for renewals out, connecting first if need be.
    pub(super) fn take_renewing(&self, until: Instant) -> Result<Wire, Fault> {
        let route = self.pool.route();
        let wire = self.renewals.lock().take();
        match wire.filter(|wire| wire.generation == route.generation() && !wire.is_stale()) {
            Some(wire) => Ok(wire),
            None => route.connect(until),
        }
    }

    /// Whether the connection for renewals is there, and the server behind it is known.
    pub(super) fn is_ready_to_renew(&self) -> bool {
        let generation = self.pool.route().generation();
        let wire = self.renewals.lock();
        wire.as_ref().is_some_and(|wire| {
            wire.generation == generation && wire.is_identified() && !wire.is_stale()
        })
    }

    /// Puts the connection for renewals back.
    pub(super) fn put_renewing(&self, wire: Wire) {
        *self.renewals.lock() = Some(wire);
    }

    /// Runs `talk` on the connection for renewals. After a fault that leaves its state in doubt it is closed.
    pub(super) fn renewing(
        &self,
        until: Instant,
        mut talk: impl FnMut(&mut Wire) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let route = self.pool.route();
        // Taken out, not locked, while it is in use.
        let mut place = self.renewals.lock().take();
        place = place.filter(|wire| wire.generation == route.generation() && !wire.is_stale());
        let talked = on_wire(&mut place, route, until, &mut talk);
        *self.renewals.lock() = place;
        talked
    }

    pub(super) fn close(&self) {
        self.subscriber.close();
        *self.renewals.lock() = None;
    }
}
