//! One node: the connections for requests, the one for renewals, and the one that listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::ground::backoff::Backoff;
use crate::ground::notify::Notifier;
use crate::ground::sync::Mutex;
use crate::stores::permits::Slots;
use crate::stores::redis::Chunk;
use crate::stores::redis::scripts::Script;
use crate::stores::redis::subscriber::{Shards, Subscriber};
use crate::stores::redis::topology::connector::{Route, share};
use crate::stores::redis::transport::connection::{Fault, Wire};
use crate::stores::redis::transport::pool::{Pool, on_wire};

pub(super) struct Node {
    pub(super) pool: Pool,
    /// The renewal thread's own connection; renewals never queue up behind other requests.
    renewals: Mutex<Option<Wire>>,
    /// For which generation of servers it was made, or was tried to make, before it was needed; one more.
    got_ready: AtomicU64,
    /// Whether it is being made just now.
    is_getting_ready: AtomicBool,
    pub(super) subscriber: Subscriber,
    notifier: Arc<Notifier>,
}

impl Node {
    pub(super) fn new(
        route: &Arc<dyn Route>,
        slots: Slots,
        command_timeout: Duration,
        notifier: &Arc<Notifier>,
    ) -> Node {
        Node::with_shards(route, slots, command_timeout, notifier, None)
    }

    /// A node whose unlock messages may be sharded.
    pub(super) fn with_shards(
        route: &Arc<dyn Route>,
        slots: Slots,
        command_timeout: Duration,
        notifier: &Arc<Notifier>,
        shards: Option<Shards>,
    ) -> Node {
        let (route, notifier) = (Arc::clone(route), Arc::clone(notifier));
        Node {
            pool: Pool::new(Arc::clone(&route), slots, shards.is_some()),
            renewals: Mutex::default(),
            got_ready: AtomicU64::new(0),
            is_getting_ready: AtomicBool::new(false),
            subscriber: Subscriber::new(route, command_timeout, Arc::clone(&notifier), shards),
            notifier,
        }
    }

    /// Takes the connection for renewals out of its place, if there is one that is still good.
    fn kept_renewing(&self, until: Instant) -> Option<Wire> {
        let generation = self.pool.route().generation();
        let wire = self.renewals.lock().take();
        let mut wire = wire.filter(|wire| {
            wire.generation == generation && !wire.has_unread() && !wire.is_stale()
        })?;
        wire.has_settled(share(until, 2)).then_some(wire)
    }

    /// Makes the connection for renewals at the first hold: at the first renewal there may be no descriptor left for it,
    /// or nobody who says where the server is. If it fails, renewals use another one. The text of `script` goes along, so
    /// that the first renewal at a distant server costs one round trip.
    pub(super) fn get_ready_to_renew(&self, script: &Script, until: Instant) {
        let generation = self.pool.route().generation().wrapping_add(1);
        if self.got_ready.load(Ordering::Relaxed) == generation
            || self.got_ready.swap(generation, Ordering::Relaxed) == generation
            || self.has_renewing()
        {
            return;
        }
        self.is_getting_ready.store(true, Ordering::Release);
        if let Ok(mut wire) = self.pool.route().connect(until)
            && Chunk::makes_known(script, &mut wire, until)
            && self.pool.keeps()
        {
            self.renewals.lock().get_or_insert(wire);
        }
        self.is_getting_ready.store(false, Ordering::Release);
    }

    /// Takes the connection for renewals out, connecting first if need be. Where that fails it is one of those for
    /// requests.
    pub(super) fn take_renewing(&self, until: Instant) -> Result<Wire, Fault> {
        if let Some(wire) = self.kept_renewing(until) {
            return Ok(wire);
        }
        // To begin with another one would not be quicker.
        if self.is_getting_ready.load(Ordering::Acquire)
            && let Some(mut lent) = self.pool.lend()
        {
            lent.is_lent = true;
            return Ok(lent);
        }
        let is_replaceable = self.pool.has_idle();
        let connecting = if is_replaceable {
            share(until, 2)
        } else {
            until
        };
        self.pool.route().connect(connecting).or_else(|fault| {
            let mut lent = self.pool.lend().ok_or(fault)?;
            lent.is_lent = true;
            Ok(lent)
        })
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
    pub(super) fn put_renewing(&self, mut wire: Wire) {
        if std::mem::take(&mut wire.is_lent) {
            return self.pool.keep(wire);
        }
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
                        && backoff.get_or_insert_default().pause(until, &self.notifier) => {}
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
        let mut place = Some(self.take_renewing(until)?);
        let talked = on_wire(&mut place, self.pool.route(), until, &mut talk);
        if let Some(wire) = place {
            self.put_renewing(wire);
        }
        talked
    }

    pub(super) fn close(&self) {
        self.pool.route().close();
        self.subscriber.close();
        *self.renewals.lock() = None;
        self.pool.close();
    }
}
