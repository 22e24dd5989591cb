//! The connections of one client to one database.
//!
//! A connection that timed out, broke, or may be inside a transaction is closed and never put back. The pool of the
//! `mysql` crate is not used: a waiter there hangs when the connection that it waits for comes back broken, and each
//! check-out costs two round trips. `r2d2_mysql` is not used either, because it leaks open transactions to the next user.

use std::time::{Duration, Instant};

use super::address::Address;
use super::call_error::CallError;
use super::connection::{Connection, has_second_handles};
use crate::ground::error::{Reason, Result};
use crate::ground::{process, time};
use crate::stores::patience;
use crate::stores::slots::{NoSlot, Slot, Slots};

/// The longest time that the server takes to answer a statement that waits for a row, with a margin.
const LONGEST_ANSWER: Duration = Duration::from_secs(15);

/// The slot of one transaction, which keeps it until it is over.
pub(super) struct TransactionSlot {
    /// `None` only during drop.
    slot: Option<Slot<Connection>>,
    /// Whether the client keeps no connections any more.
    pid: u32,
}

impl TransactionSlot {
    /// Returns whether this process is a fork of the one that borrowed the slot.
    pub(super) fn is_forked(&self) -> bool {
        self.pid != process::id()
    }

    /// Keeps a connection for the next transaction. It must be outside of any transaction.
    pub(super) fn put_back(&mut self, connection: Connection) {
        if let Some(slot) = &mut self.slot {
            **slot = Some(connection);
        }
    }
}

impl Drop for TransactionSlot {
    fn drop(&mut self) {
        // Another thread may have held the lock of the pool at the moment of the fork; in the child it never unlocks.
        if self.is_forked() {
            std::mem::forget(self.slot.take());
        }
    }
}

/// The pools of one client.
pub(super) struct Pools {
    /// For single statements.
    statements: Slots<Connection>,
    /// For transactions. A transaction keeps its slot for as long as the user likes, so these are counted apart: locks can
    /// be released however many transactions are open.
    transactions: Slots<Connection>,
    /// For renewals, which never queue behind other requests: the watchdog's own connection.
    renewals: Slots<Connection>,
    pub(super) address: Address,
}

impl Pools {
    /// Makes the pools without a connection.
    pub(super) fn new(address: Address) -> Pools {
        let settings = &address.settings;
        let new = |size| Slots::new(size, &settings.pool_settings);
        Pools {
            statements: new(settings.pool_size),
            transactions: new(settings.pool_size),
            renewals: new(1),
            address,
        }
    }

    /// Closes all idle connections, and keeps none from now on. Statements still work, each on a connection of its own.
    pub(super) fn close(&self) {
        for slots in [&self.statements, &self.transactions, &self.renewals] {
            slots.close();
        }
    }

    /// How many connections lie idle at most: an idle slot may be empty.
    pub(super) fn idle(&self) -> u32 {
        let all = [&self.statements, &self.transactions, &self.renewals];
        all.map(Slots::idle).iter().sum()
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
            CallError::NoReply { timed_out, .. } => !timed_out,
            error => was_not_sent(error),
        };
        let unfit = Connection::is_stale;
        self.on(&self.statements, deadline, unfit, repeats, call)
    }

    /// Runs `call` on a connection, and repeats it only if nothing of it was sent.
    pub(super) fn once<T>(
        &self,
        deadline: Instant,
        call: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        // The call cannot be repeated, so the connection is checked even if it was used a moment ago.
        let unfit = Connection::is_disconnected;
        self.on(&self.statements, deadline, unfit, was_not_sent, call)
    }

    /// Runs `call` on the connection for renewals.
    pub(super) fn renewing<T>(
        &self,
        deadline: Instant,
        call: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let unfit = Connection::is_stale;
        self.on(&self.renewals, deadline, unfit, was_not_sent, call)
    }

    /// Makes the connection for renewals, unless there is one: at the first renewal the server may be at `max_connections`.
    pub(super) fn prepare_renewals(&self, deadline: Instant) {
        // If the slot is in use, a renewal is connecting or connected.
        if let Ok(mut slot) = self.renewals.try_get()
            && slot.is_none()
        {
            // The renewal itself reports what is wrong.
            *slot = Connection::connect(&self.address, deadline, Duration::ZERO).ok();
        }
    }

    fn on<T>(
        &self,
        slots: &Slots<Connection>,
        deadline: Instant,
        unfit: fn(&Connection) -> bool,
        repeats: fn(&CallError) -> bool,
        mut call: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut slot = slots.get(patience(deadline)).map_err(no_slot)?;
        let idle = slot.take().filter(|connection| !unfit(connection));
        let mut idle = idle.and_then(|connection| connection.timed(deadline));
        loop {
            let is_fresh = idle.is_none();
            let mut connection = match idle.take() {
                Some(connection) => connection,
                None => Connection::connect(&self.address, deadline, Duration::ZERO)?,
            };
            let outcome = call(&mut connection);
            match &outcome {
                Err(error) if repeats(error) && !is_fresh && time::now() < deadline => continue,
                Err(error) if !error.keeps_connection() => {}
                _ => *slot = Some(connection),
            }
            return outcome;
        }
    }

    /// Waits so long for a slot for a transaction.
    pub(super) fn transaction_slot(
        &self,
        patience: Duration,
    ) -> Result<TransactionSlot, CallError> {
        let slot = self.transactions.get(patience).map_err(no_slot)?;
        Ok(TransactionSlot {
            slot: Some(slot),
            pid: process::id(),
        })
    }

    /// Returns the connection of a slot for a transaction, or a new one.
    pub(super) fn connect_transaction(
        &self,
        slot: &mut TransactionSlot,
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        let idle = slot.slot.as_mut().and_then(|slot| slot.take());
        let idle = idle.filter(|connection| !connection.is_disconnected());
        let mut idle = idle.and_then(|connection| connection.alive(deadline));
        if let Some(connection) = &mut idle
            && !connection.set_timeouts(deadline)
            && has_second_handles()
        {
            idle = None;
        }
        match idle {
            Some(connection) => Ok(connection),
            None => Connection::connect(&self.address, deadline, LONGEST_ANSWER),
        }
    }
}

fn was_not_sent(error: &CallError) -> bool {
    matches!(error, CallError::NotSent(_))
}

fn no_slot(none: NoSlot) -> CallError {
    match none {
        NoSlot::Busy(size) => CallError::Exhausted(size),
        NoSlot::NoThread(error) => CallError::NotSent(Reason::of_io(error.to_string(), error)),
    }
}
