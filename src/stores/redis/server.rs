//! One node: the connections for requests, the one for renewals, and the one that listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::ground::backoff::Backoff;
use crate::ground::notify::Notifier;
use crate::ground::sync::Mutex;
use crate::ground::time;
use crate::stores::connection_limit::ConnectionLimit;
use crate::stores::redis::Settings;
use crate::stores::redis::subscriber::{Shards, Subscriber};
use crate::stores::redis::transport::{CallError, Connection, Connector, Pool, share};

pub(super) struct Node {
    pub(super) pool: Pool,
    /// The renewal thread's own connection; renewals never queue up behind other requests.
    renewals: Arc<Mutex<Option<Connection>>>,
    /// For which generation of servers it was made, or was tried to make, before it was needed; one more.
    got_ready: AtomicU64,
    /// Whether it is being made just now.
    is_getting_ready: AtomicBool,
    /// Whether each hold is renewed by a request of its own, because one for several was answered by another server.
    pub(super) renews_alone: AtomicBool,
    pub(super) subscriber: Subscriber,
    notifier: Arc<Notifier>,
}

impl Node {
    /// A node whose unlock messages are sharded if there are `shards`.
    pub(super) fn new(
        connector: Arc<dyn Connector>,
        limit: ConnectionLimit,
        settings: &Settings,
        notifier: &Arc<Notifier>,
        shards: Option<Shards>,
    ) -> Node {
        let notifier = Arc::clone(notifier);
        let heard = (Arc::clone(&notifier), Arc::clone(&settings.traffic));
        let renewals: Arc<Mutex<Option<Connection>>> = Arc::default();
        settings.idle_timeout.add(Arc::downgrade(&renewals) as _);
        let idle = (&settings.idle_timeout, settings.check_idle_after);
        Node {
            pool: Pool::new(Arc::clone(&connector), limit, idle, shards.is_some()),
            renewals,
            got_ready: AtomicU64::new(0),
            is_getting_ready: AtomicBool::new(false),
            renews_alone: AtomicBool::new(false),
            subscriber: Subscriber::new(connector, settings.command_timeout, heard, shards),
            notifier,
        }
    }

    /// Takes the connection for renewals out of its place, if there is one that is still good.
    fn kept_renewing(&self, deadline: Instant) -> Option<Connection> {
        let generation = self.pool.connector().generation();
        let connection = self.renewals.lock().take();
        let mut connection = connection.filter(|connection| {
            connection.generation == generation
                && !connection.has_unread()
                && !connection.is_stale()
        })?;
        connection
            .has_read_replies_due(share(deadline, 2))
            .then_some(connection)
    }

    /// Makes the connection for renewals at the first hold: at the first renewal there may be no descriptor left for it,
    /// or nobody who says where the server is. If it fails, renewals use another one. `prepare` sends what the first renewal
    /// at a distant server would have to wait for, and returns whether that could be sent.
    pub(super) fn get_ready_to_renew(
        &self,
        deadline: Instant,
        prepare: &dyn Fn(&mut Connection) -> bool,
    ) {
        let generation = self.pool.connector().generation().wrapping_add(1);
        if self.got_ready.load(Ordering::Relaxed) == generation
            || self.got_ready.swap(generation, Ordering::Relaxed) == generation
            || self.has_renewing()
        {
            return;
        }
        self.is_getting_ready.store(true, Ordering::Release);
        if let Ok(mut connection) = self.pool.connector().connect(deadline)
            && prepare(&mut connection)
        {
            connection.is_new = false;
            self.keep_renewing(connection);
        }
        self.is_getting_ready.store(false, Ordering::Release);
    }

    /// Takes the connection for renewals out, connecting first if need be. Where that fails it is one of those for
    /// requests.
    pub(super) fn take_renewing(&self, deadline: Instant) -> Result<Connection, CallError> {
        if let Some(mut connection) = self.kept_renewing(deadline)
            && self.pool.is_alive(&mut connection, Some(deadline))
        {
            return Ok(connection);
        }
        // To begin with another one would not be quicker.
        if self.is_getting_ready.load(Ordering::Acquire)
            && let Some(mut lent) = self.pool.take(deadline)
        {
            lent.is_lent = true;
            return Ok(lent);
        }
        let is_replaceable = self.pool.has_idle() || self.pool.is_used();
        let connecting = if is_replaceable {
            share(deadline, 2)
        } else {
            deadline
        };
        self.pool.connector().connect(connecting).or_else(|fault| {
            if let Some(mut lent) = self.pool.take(deadline) {
                // The next renewal had no more time to connect to a distant server, so this one stays with them.
                lent.is_lent = time::now() < connecting;
                return Ok(lent);
            }
            // Whatever keeps new ones away, one that works may come back. Requests can wait longer than a hold stands.
            if !self.pool.is_used() {
                return Err(fault);
            }
            let mut lent = self.pool.wait_for_room(true, (fault, None), deadline)?;
            lent.is_lent = true;
            Ok(lent)
        })
    }

    /// Takes a connection for renewals out that leads to a known server, without connecting: where there is none of their
    /// own it is one of those for requests.
    pub(super) fn take_ready_to_renew(&self, deadline: Instant) -> Option<Connection> {
        if let Some(connection) = self.kept_renewing(deadline) {
            if connection.is_identified() {
                return Some(connection);
            }
            self.put_renewing(connection);
        }
        let mut lent = self.pool.take_rather(Connection::is_identified, None)?;
        if !lent.is_identified() {
            self.pool.keep(lent);
            return None;
        }
        lent.is_lent = true;
        Some(lent)
    }

    /// Whether the connection for renewals is there, and the server behind it is known.
    pub(super) fn is_ready_to_renew(&self) -> bool {
        let generation = self.pool.connector().generation();
        let connection = self.renewals.lock();
        connection.as_ref().is_some_and(|connection| {
            connection.generation == generation
                && connection.is_identified()
                && !connection.is_stale()
        })
    }

    /// Puts the connection for renewals back, unless it is spent.
    pub(super) fn put_renewing(&self, mut connection: Connection) {
        if std::mem::take(&mut connection.is_lent) {
            return self.pool.keep(connection);
        }
        connection.is_new &= !connection.replies_due.is_empty();
        if !connection.is_spent {
            self.keep_renewing(connection);
        }
    }

    /// Keeps a connection for renewals, unless there is one, or the client was closed while it was made or used.
    fn keep_renewing(&self, mut connection: Connection) {
        // Nobody waits for this one.
        if let Some(in_use) = connection.in_use.take() {
            in_use.leave_without();
        }
        let mut renewals = self.renewals.lock();
        if self.pool.keeps() {
            renewals.get_or_insert(connection);
        }
    }

    /// Whether there is a connection for renewals, good or not.
    pub(super) fn has_renewing(&self) -> bool {
        self.renewals.lock().is_some()
    }

    /// The node's name in messages.
    pub(super) fn name(&self) -> Arc<str> {
        self.pool.connector().node()
    }

    /// Runs `talk` on a connection of the pool. A request that was surely not executed is sent again until `deadline`; where
    /// no other server can take over, only if a server was reached.
    pub(super) fn with<T>(
        &self,
        deadline: Instant,
        mut talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.again(deadline, || self.pool.with(deadline, &mut talk))
    }

    /// The same for one who looks around, which no request waits for.
    pub(super) fn beside<T>(
        &self,
        deadline: Instant,
        mut talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.again(deadline, || self.pool.beside(deadline, &mut talk))
    }

    fn again<T>(
        &self,
        deadline: Instant,
        mut run: impl FnMut() -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut backoff: Option<Backoff> = None;
        // A request that is sent with little time left is only in doubt.
        let last_try = deadline - deadline.saturating_duration_since(time::now()) / 4;
        loop {
            match run() {
                Err(fault)
                    if fault.is_passing()
                        && (self.pool.connector().can_fail_over() || fault.is_of_a_server())
                        && backoff
                            .get_or_insert_default()
                            .pause(last_try, &self.notifier) => {}
                outcome => return outcome,
            }
        }
    }

    pub(super) fn close(&self) {
        self.pool.connector().close();
        self.subscriber.close();
        // Nothing is kept from here on, so that nothing is put behind what is taken out.
        self.pool.close();
        *self.renewals.lock() = None;
    }
}
