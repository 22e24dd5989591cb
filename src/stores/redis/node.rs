//! One node: the connections for requests, the one for renewals, and the one that listens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::pool::{Pool, on_wire};
use super::route::Route;
use super::subscriber::{Shards, Subscriber};
use super::wire::{Fault, Wire};
use crate::signals::Signals;
use crate::stores::slots::Slots;
use crate::sync::Mutex;
use crate::wait::Backoff;

pub(super) struct Node {
    pub(super) pool: Pool,
    /// The renewal thread's own connection; renewals never queue up behind other requests.
    renewals: Mutex<Option<Wire>>,
    pub(super) subscriber: Subscriber,
    signals: Arc<Signals>,
}

impl Node {
    pub(super) fn new(
        route: &Arc<dyn Route>,
        slots: Slots,
        command_timeout: Duration,
        signals: &Arc<Signals>,
    ) -> Node {
        Node::with_shards(route, slots, command_timeout, signals, None)
    }

    /// A node whose unlock messages may be sharded.
    pub(super) fn with_shards(
        route: &Arc<dyn Route>,
        slots: Slots,
        command_timeout: Duration,
        signals: &Arc<Signals>,
        shards: Option<Shards>,
    ) -> Node {
        let (route, signals) = (Arc::clone(route), Arc::clone(signals));
        Node {
            pool: Pool::new(Arc::clone(&route), slots, shards.is_some()),
            renewals: Mutex::default(),
            subscriber: Subscriber::new(route, command_timeout, Arc::clone(&signals), shards),
            signals,
        }
    }

    /// Takes the connection for renewals out of its place, if there is one that is still good.
    pub(super) fn kept_renewing(&self) -> Option<Wire> {
        let generation = self.pool.route().generation();
        let wire = self.renewals.lock().take();
        wire.filter(|wire| wire.generation == generation && !wire.has_unread() && !wire.is_stale())
    }

    /// Takes the connection for renewals out, connecting first if need be.
    pub(super) fn take_renewing(&self, until: Instant) -> Result<Wire, Fault> {
        match self.kept_renewing() {
            Some(wire) => Ok(wire),
            None => self.pool.route().connect(until),
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

    /// Puts the connection for renewals back, unless it is spent.
    pub(super) fn put_renewing(&self, wire: Wire) {
        *self.renewals.lock() = Some(wire).filter(|wire| !wire.is_spent);
    }

    /// Whether there is a connection for renewals, good or not.
    pub(super) fn has_renewing(&self) -> bool {
        self.renewals.lock().is_some()
    }

    /// The node's name in messages.
    pub(super) fn name(&self) -> Arc<str> {
        self.pool.route().node()
    }

    /// Runs `talk` on a connection of the pool. Where another server may take over, what was not executed is tried
    /// again until then.
    pub(super) fn with<T>(
        &self,
        until: Instant,
        mut talk: impl FnMut(&mut Wire) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut backoff: Option<Backoff> = None;
        loop {
            match self.pool.with(until, &mut talk) {
                Err(fault)
                    if self.pool.route().may_move()
                        && fault.is_passing()
                        && backoff.get_or_insert_default().pause(until, &self.signals) => {}
                outcome => return outcome,
            }
        }
    }

    /// Runs `talk` on the connection for renewals. After a fault that leaves its state in doubt it is closed.
    pub(super) fn renewing(
        &self,
        until: Instant,
        mut talk: impl FnMut(&mut Wire) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // Taken out, not locked, while it is in use.
        let mut place = self.kept_renewing();
        let talked = on_wire(&mut place, self.pool.route(), until, &mut talk);
        *self.renewals.lock() = place;
        talked
    }

    pub(super) fn close(&self) {
        self.pool.route().close();
        self.subscriber.close();
        *self.renewals.lock() = None;
        self.pool.close();
    }
}
