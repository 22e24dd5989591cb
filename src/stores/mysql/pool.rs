//! The connections of one client to one database.
//!
//! A connection that timed out, broke, or may be inside a transaction is closed and never put back. The pool of the
//! `mysql` crate is not used: a waiter there hangs when the connection that it waits for comes back broken, and each
//! check-out costs two round trips. `r2d2_mysql` is not used either, because it leaks open transactions to the next user.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::address::Address;
use super::call_error::CallError;
use super::connection::{Connection, has_second_handles};
use crate::ground::error::Result;
use crate::ground::process;
use crate::ground::sync::{self, Mutex};
use crate::ground::time;
use crate::stores::connection_limit::{ConnectionLimit, Permit};
use crate::stores::idle::IdleTimeout;

/// The longest time that the server takes to answer a statement that waits for a row, with a margin.
const LONGEST_ANSWER: Duration = Duration::from_secs(15);

/// The pause between two looks for an idle connection where none can be opened.
const SPARE_POLL: Duration = Duration::from_millis(2);

/// A bounded number of connections for one purpose.
pub(super) struct Pool {
    limit: ConnectionLimit,
    /// The usable connections that nobody has, the one used last on top. A permit holder reuses one or opens one.
    idle: Arc<Mutex<Vec<Connection>>>,
    idle_timeout: Arc<IdleTimeout>,
}

impl Pool {
    fn new(size: u32, idle_timeout: &Arc<IdleTimeout>) -> Arc<Pool> {
        let idle: Arc<Mutex<Vec<Connection>>> = Arc::default();
        idle_timeout.add(Arc::downgrade(&idle) as _);
        Arc::new(Pool {
            limit: ConnectionLimit::new(size),
            idle,
            idle_timeout: Arc::clone(idle_timeout),
        })
    }

    /// Keeps a usable connection for the next caller, unless the pool was closed.
    fn check_in(&self, connection: Option<Connection>) {
        let mut idle = self.idle.lock();
        if !self.limit.is_closed() {
            idle.extend(connection);
            self.idle_timeout.begin();
        }
    }

    fn close(&self) {
        self.limit.close();
        self.idle_timeout.close();
        self.idle.lock().clear();
    }

    fn permit(&self, deadline: Instant) -> Result<Permit, CallError> {
        self.limit
            .take(deadline)
            .map_err(|none| CallError::Exhausted(none.of))
    }

    /// Takes the first idle connection that is not `unfit`, and closes the unfit ones before it.
    fn take_idle(&self, unfit: fn(&Connection) -> bool) -> Option<Connection> {
        loop {
            let connection = self.idle.lock().pop()?;
            if !unfit(&connection) {
                return Some(connection);
            }
        }
    }
}

/// A connection for the exclusive use of one transaction.
pub(super) struct CheckedOut {
    /// `None` once its state is in doubt.
    pub(super) connection: Option<Connection>,
    pool: Arc<Pool>,
    /// `None` only after the permit was taken for another connection.
    permit: Option<Permit>,
    pid: u32,
}

impl CheckedOut {
    /// Returns whether this process is a fork of the one that checked the connection out.
    pub(super) fn is_forked(&self) -> bool {
        self.pid != process::id()
    }

    /// Takes the permit, to open another connection in place of this one.
    pub(super) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Puts the connection back, which must be outside of any transaction.
    pub(super) fn check_in(&self, connection: Connection) {
        self.pool.check_in(Some(connection));
    }
}

impl Drop for CheckedOut {
    fn drop(&mut self) {
        // Another thread may have held the lock of the permits at the moment of the fork; in the child it never unlocks.
        if self.is_forked() {
            std::mem::forget(self.permit.take());
        }
    }
}

/// The pools of one client.
pub(super) struct Pools {
    /// For single statements.
    statements: Arc<Pool>,
    /// For transactions. A transaction keeps its connection for as long as the user likes, so these are counted apart:
    /// locks can be released however many transactions are open.
    transactions: Arc<Pool>,
    /// For renewals, which never queue behind other requests: the watchdog's own connection.
    renewals: Arc<Pool>,
    /// How many connections single statements and renewals use now.
    in_use: AtomicUsize,
    /// How many requests could open none, and wait for one of those.
    waiting: AtomicUsize,
    pub(super) address: Address,
}

impl Pools {
    /// Makes the pools without a connection.
    pub(super) fn new(address: Address) -> Pools {
        let settings = &address.settings;
        let new = |size| Pool::new(size, &settings.idle_timeout);
        Pools {
            statements: new(settings.pool_size),
            transactions: new(settings.pool_size),
            renewals: new(1),
            in_use: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            address,
        }
    }

    /// Closes all idle connections, and keeps none from now on. Statements still work, each on a connection of its own.
    pub(super) fn close(&self) {
        self.statements.close();
        self.transactions.close();
        self.renewals.close();
    }

    /// How many connections lie idle.
    pub(super) fn idle(&self) -> usize {
        [&self.statements, &self.transactions, &self.renewals]
            .map(|pool| pool.idle.lock().len())
            .iter()
            .sum()
    }

    /// Runs `call` on a connection, which is closed after an error that leaves its state in doubt.
    ///
    /// `call` may run twice: if a pooled connection turns out to be broken, `call` is repeated on a new one.
    pub(super) fn with_retry<T>(
        &self,
        deadline: Instant,
        call: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let repeats = |error: &CallError| match error {
            CallError::NotSent(_) => true,
            CallError::NoReply { timed_out, .. } => !timed_out,
            _ => false,
        };
        self.on_statements(deadline, Connection::is_stale, repeats, call)
    }

    /// Runs `call` on a connection, and repeats it only if nothing of it was sent.
    pub(super) fn once<T>(
        &self,
        deadline: Instant,
        call: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let repeats = |error: &CallError| matches!(error, CallError::NotSent(_));
        // The call cannot be repeated, so the connection is checked even if it was used a moment ago.
        self.on_statements(deadline, Connection::is_disconnected, repeats, call)
    }

    /// Runs `call` for renewals, without a permit.
    pub(super) fn renewing<T>(
        &self,
        deadline: Instant,
        mut call: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let idle = self.take(&self.renewals, Connection::is_stale);
        self.run(&self.renewals, idle, deadline, &mut call)
    }

    fn on_statements<T>(
        &self,
        deadline: Instant,
        unfit: fn(&Connection) -> bool,
        repeats: fn(&CallError) -> bool,
        mut call: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let _permit = self.statements.permit(deadline)?;
        let idle = self.take(&self.statements, unfit);
        let is_fresh = idle.is_none();
        match self.run(&self.statements, idle, deadline, &mut call) {
            Err(error) if repeats(&error) && !is_fresh && time::now() < deadline => {
                self.run(&self.statements, None, deadline, &mut call)
            }
            outcome => outcome,
        }
    }

    /// Takes an idle connection, which counts as in use from before it is gone from the idle ones.
    fn take(&self, pool: &Pool, unfit: fn(&Connection) -> bool) -> Option<Connection> {
        self.in_use.fetch_add(1, Ordering::SeqCst);
        let connection = pool.take_idle(unfit);
        if connection.is_none() {
            self.in_use.fetch_sub(1, Ordering::SeqCst);
        }
        connection
    }

    /// Runs `call` on the connection given if its time-outs can be set for this deadline, else on a new one, which `pool`
    /// keeps; if none can be opened, on another connection of this client.
    fn run<T>(
        &self,
        pool: &Pool,
        idle: Option<Connection>,
        deadline: Instant,
        call: &mut impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let is_taken = idle.is_some();
        let idle = idle.and_then(|connection| connection.timed(deadline));
        if is_taken && idle.is_none() {
            self.in_use.fetch_sub(1, Ordering::SeqCst);
        }
        let (mut connection, pool) = match idle {
            Some(connection) => (connection, pool),
            None => {
                let has_others = self.idle() > 0 || self.in_use.load(Ordering::SeqCst) > 0;
                let left = deadline.saturating_duration_since(time::now());
                let connecting = if has_others { left / 2 } else { left };
                let connecting = time::now() + connecting;
                match Connection::connect(&self.address, connecting, Duration::ZERO) {
                    Ok(connection) => {
                        self.in_use.fetch_add(1, Ordering::SeqCst);
                        (connection, pool)
                    }
                    Err(error) => {
                        self.waiting.fetch_add(1, Ordering::SeqCst);
                        let spare = self.spare(deadline);
                        self.waiting.fetch_sub(1, Ordering::SeqCst);
                        spare.ok_or(error)?
                    }
                }
            }
        };
        let outcome = call(&mut connection);
        if outcome
            .as_ref()
            .err()
            .is_none_or(CallError::keeps_connection)
        {
            pool.check_in(Some(connection));
        }
        self.in_use.fetch_sub(1, Ordering::SeqCst);
        // Else the thread that has just used the connection would take it again and again.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            sync::sleep(SPARE_POLL * 2);
        }
        outcome
    }

    /// Takes an idle connection of any pool, for a request that could not open one. While single statements or renewals use
    /// connections, waits until `deadline` for one of those.
    fn spare(&self, deadline: Instant) -> Option<(Connection, &Pool)> {
        loop {
            // It changes from one to the other at any moment, so it is read before and behind.
            let was_used = self.in_use.load(Ordering::SeqCst) > 0;
            for pool in [&self.statements, &self.transactions, &self.renewals] {
                if let Some(connection) = self.take(pool, Connection::is_disconnected) {
                    match connection.timed(deadline) {
                        Some(connection) => return Some((connection, pool)),
                        None => self.in_use.fetch_sub(1, Ordering::SeqCst),
                    };
                }
            }
            let is_used = was_used || self.in_use.load(Ordering::SeqCst) > 0;
            if !is_used || time::now() >= deadline {
                return None;
            }
            sync::sleep(SPARE_POLL);
        }
    }

    /// Waits until `deadline` for the permit to use a connection for a transaction.
    pub(super) fn transaction_permit(&self, deadline: Instant) -> Result<Permit, CallError> {
        self.transactions.permit(deadline)
    }

    /// Returns a connection for a transaction. Only a transaction that ended well puts it back.
    pub(super) fn check_out(
        &self,
        permit: Option<Permit>,
        deadline: Instant,
    ) -> Result<CheckedOut, CallError> {
        let mut idle = self.transactions.take_idle(Connection::is_disconnected);
        idle = idle.and_then(|connection| connection.alive(deadline));
        if idle
            .as_mut()
            .is_some_and(|connection| !connection.set_timeouts(deadline))
            && has_second_handles()
        {
            idle = None;
        }
        let connection = match idle {
            Some(connection) => connection,
            None => Connection::connect(&self.address, deadline, LONGEST_ANSWER)?,
        };
        Ok(CheckedOut {
            connection: Some(connection),
            pool: Arc::clone(&self.transactions),
            permit,
            pid: process::id(),
        })
    }
}
