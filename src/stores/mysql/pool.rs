//! The connections of one client to one database.
//!
//! A connection that timed out, broke, or may be inside a transaction is closed. The driver's own pool is not used: its
//! waiters hang if a connection comes back broken, and each check-out costs two round trips. `r2d2_mysql` is not used,
//! because it leaks open transactions to the next user.

use std::time::{Duration, Instant};

use super::address::Address;
use super::call_error::CallError;
use super::connection::Connection;
use crate::ground::error::{Reason, Result};
use crate::ground::time;
use crate::stores::connection_pool::{NoSlot, Slot, Slots};
use crate::stores::{borrow_connected, patience};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// The statements of the request may run twice.
    Repeatable,
    /// The request is repeated only if nothing was sent.
    Once,
    /// Like [`Request::Once`], on the connection for renewals.
    Renewal,
}

pub(super) struct Pools {
    /// For requests without a transaction.
    statements: Slots<Connection>,
    /// Users decide how long transactions last. Separate connections ensure that transactions do not delay unlocks.
    pub(super) transactions: Slots<Connection>,
    /// One separate connection, so that a renewal never queues behind other requests.
    renewals: Slots<Connection>,
    pub(super) address: Address,
}

impl Pools {
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

    fn all(&self) -> [&Slots<Connection>; 3] {
        [&self.statements, &self.transactions, &self.renewals]
    }

    pub(super) fn close(&self) {
        self.all().into_iter().for_each(Slots::close);
    }

    /// An upper bound of the number of idle connections, because an idle slot may be empty.
    pub(super) fn idle(&self) -> u32 {
        self.all().map(Slots::idle).iter().sum()
    }

    /// If an idle connection was broken, and `request` permits a repetition, `call` runs again on a new connection.
    pub(super) fn run<T>(
        &self,
        request: Request,
        deadline: Instant,
        call: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let slots = match request {
            Request::Repeatable | Request::Once => &self.statements,
            Request::Renewal => &self.renewals,
        };
        let may_repeat = request == Request::Repeatable;
        let mut slot = borrow(slots, patience(deadline))?;
        if slot.is_none() {
            match Connection::connect(&self.address, deadline, Duration::ZERO) {
                Ok(connection) => *slot = Some(connection),
                Err(error) => {
                    let own = usize::from(request != Request::Renewal);
                    let is_full = error.is_at_limit();
                    let other = borrow_connected(&self.statements, own, is_full, deadline);
                    slot = other.ok_or(error)?;
                }
            }
        }
        self.on(&mut slot, deadline, Duration::ZERO, may_repeat, call)
    }

    /// [`Connection::connect`] explains `longest_answer`.
    pub(super) fn on<T>(
        &self,
        slot: &mut Slot<Connection>,
        deadline: Instant,
        longest_answer: Duration,
        may_repeat: bool,
        mut call: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let idle = slot.take();
        let mut idle = idle.and_then(|connection| connection.alive(deadline, longest_answer));
        loop {
            let is_fresh = idle.is_none();
            let mut connection = match idle.take() {
                Some(connection) => connection,
                None => Connection::connect(&self.address, deadline, longest_answer)?,
            };
            let outcome = call(&mut connection);
            match &outcome {
                Err(error)
                    if error.was_broken(may_repeat) && !is_fresh && time::now() < deadline => {}
                Err(error) if !error.keeps_connection() => return outcome,
                _ => {
                    **slot = Some(connection);
                    return outcome;
                }
            }
        }
    }
}

pub(super) fn borrow(
    slots: &Slots<Connection>,
    patience: Duration,
) -> Result<Slot<Connection>, CallError> {
    slots.get(|| patience).map_err(|none| match none {
        NoSlot::Busy(size) => CallError::Exhausted(size),
        NoSlot::NoThread(error) => CallError::NotSent(Reason::of_io(error.to_string(), error)),
    })
}
