//! The connections of one client to one node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::ground::time;
use crate::stores::patience;
use crate::stores::redis::kinds::Dialect;
use crate::stores::redis::transport::call_error::CallError;
use crate::stores::redis::transport::connection::Connection;
use crate::stores::redis::transport::connector::Connector;
use crate::stores::redis::transport::share;
use crate::stores::slots::{NoSlot, PoolSettings, Slot, Slots};

pub(crate) struct Pool {
    /// A slot is moved twice at each use, so the connection in it is a box.
    pub(crate) slots: Slots<Box<Connection>>,
    /// One that was idle for longer is asked whether it lives before it carries a request.
    check_idle_after: Duration,
    pub(crate) connector: Arc<dyn Connector>,
    /// Whether EVALSHA was found to be switched off on this node.
    evalsha_is_off: AtomicBool,
    /// The commands that stand for the scripts of token locks, because this node runs none.
    dialect: AtomicU8,
    /// Whether unlock messages are sharded here.
    pub(crate) is_sharded: bool,
}

/// A connection for one request, and the slot that it goes back to.
pub(crate) struct Borrowed {
    pub(crate) connection: Box<Connection>,
    slot: Slot<Box<Connection>>,
}

/// Why there is no connection on which a request can be sent without waiting for anything first.
pub(crate) enum NotReady {
    NotConnected,
    /// Others use as many as may be in use at once: this many.
    Busy(u32),
    /// The server may not be asked for it, for this reason.
    Unfit(String),
}

impl Pool {
    pub(crate) fn new(
        connector: Arc<dyn Connector>,
        size: u32,
        (settings, check_idle_after): (&PoolSettings, Duration),
        is_sharded: bool,
    ) -> Pool {
        Pool {
            slots: Slots::new(size, settings),
            check_idle_after,
            connector,
            evalsha_is_off: AtomicBool::new(false),
            dialect: AtomicU8::new(0),
            is_sharded,
        }
    }

    pub(crate) fn note_evalsha(&self, is_allowed: bool) {
        self.evalsha_is_off.store(!is_allowed, Ordering::Relaxed);
    }

    pub(crate) fn uses_text(&self) -> bool {
        self.evalsha_is_off.load(Ordering::Relaxed)
    }

    /// The commands that stand for scripts here, if it runs none.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        Dialect::of(self.dialect.load(Ordering::Relaxed))
    }

    pub(crate) fn note_dialect(&self, dialect: Option<Dialect>) {
        let code = dialect.map_or(0, |dialect| dialect as u8);
        self.dialect.store(code, Ordering::Relaxed);
    }

    /// Runs `talk` on a connection. One that the server had closed meanwhile is made anew, if nothing of the request was
    /// sent.
    pub(crate) fn with<T>(
        &self,
        deadline: Instant,
        mut talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        loop {
            let mut slot = self.slot(deadline)?;
            let (mut connection, is_new) = self.connected(&mut slot, deadline)?;
            let outcome = talk(&mut connection);
            self.give_back(Borrowed { connection, slot }, &outcome);
            if is_new || !matches!(&outcome, Err(fault) if is_unheard(fault)) {
                return outcome;
            }
        }
    }

    /// Borrows a connection, connecting first if need be.
    pub(crate) fn borrow(&self, deadline: Instant) -> Result<Borrowed, CallError> {
        let mut slot = self.slot(deadline)?;
        let (connection, _) = self.connected(&mut slot, deadline)?;
        Ok(Borrowed { connection, slot })
    }

    /// Borrows a connection on which a request can be sent at once, maybe behind others whose answers it owes.
    pub(crate) fn borrow_ready(&self) -> Result<Borrowed, NotReady> {
        let mut slot = match self.slots.try_get() {
            Ok(slot) => slot,
            Err(NoSlot::Busy(size)) => return Err(NotReady::Busy(size)),
            Err(NoSlot::NoThread(_)) => return Err(NotReady::NotConnected),
        };
        if let Some(mut connection) = slot.take() {
            let idle = time::since(connection.last_used);
            // Something between the client and the server may forget one in silence that was idle for long.
            if idle < self.check_idle_after
                && self.is_current(&connection)
                && connection.pays_in_time()
                && !connection.is_stale(idle)
            {
                return Ok(Borrowed { connection, slot });
            }
        }
        Err(NotReady::NotConnected)
    }

    /// Puts a connection back after `outcome`, unless that leaves its state in doubt.
    pub(crate) fn give_back<T>(&self, mut borrowed: Borrowed, outcome: &Result<T, CallError>) {
        let connection = borrowed.connection;
        if let Err(fault) = outcome
            && fault.is_of_no_master()
        {
            self.connector.master().suspect(connection.generation);
        }
        if is_sound(outcome) && !connection.is_spent {
            *borrowed.slot = Some(connection);
        }
    }

    /// Makes a connection for later, unless others have all slots. Whoever needs it tells what is wrong.
    pub(crate) fn prepare(&self, deadline: Instant) {
        if let Ok(mut slot) = self.slots.try_get() {
            let connected = self.connected(&mut slot, deadline);
            *slot = connected.ok().map(|(connection, _)| connection);
        }
    }

    fn slot(&self, deadline: Instant) -> Result<Slot<Box<Connection>>, CallError> {
        let slot = self.slots.get(|| patience(deadline));
        slot.map_err(|none| match none {
            NoSlot::Busy(size) => CallError::Exhausted(size),
            NoSlot::NoThread(error) => CallError::not_sent(error),
        })
    }

    /// The connection of a slot, and whether it was made just now.
    fn connected(
        &self,
        slot: &mut Slot<Box<Connection>>,
        deadline: Instant,
    ) -> Result<(Box<Connection>, bool), CallError> {
        if let Some(connection) = self.usable(slot, deadline) {
            return Ok((connection, false));
        }
        let fault = match self.connector.connect(deadline) {
            Ok(connection) => return Ok((Box::new(connection), true)),
            Err(fault) => fault,
        };
        // There may be no room for one more, and another one that lies idle may do. Where the server was silent instead, there
        // is no time left, and those stay.
        while time::now() < deadline
            && let Some(mut other) = self.slots.idle_where(Option::is_some)
        {
            std::mem::swap(slot, &mut other);
            if let Some(connection) = self.usable(slot, deadline) {
                return Ok((connection, false));
            }
        }
        Err(fault)
    }

    /// Takes the connection of a slot out, if it can carry a request by then. What it owes is read before.
    fn usable(
        &self,
        slot: &mut Slot<Box<Connection>>,
        deadline: Instant,
    ) -> Option<Box<Connection>> {
        let mut connection = slot.take().filter(|it| self.is_current(it))?;
        let idle = time::since(connection.last_used);
        let is_usable = (!connection.is_in_debt() || connection.pay(share(deadline, 2)).is_ok())
            && !connection.is_stale(idle)
            && (idle < self.check_idle_after || connection.answers(share(deadline, 4)))
            && !connection.is_spent;
        is_usable.then_some(connection)
    }

    /// Whether a connection leads to the server that takes writes, as far as known.
    fn is_current(&self, connection: &Connection) -> bool {
        connection.generation == self.connector.master().generation()
    }
}

/// Whether a connection can be used again after this.
fn is_sound<T>(outcome: &Result<T, CallError>) -> bool {
    match outcome {
        Ok(_) | Err(CallError::Unfit(_)) => true,
        // The next connection may find the master.
        Err(fault @ CallError::Server(_)) => !fault.is_of_no_master() && !is_unheard(fault),
        Err(_) => false,
    }
}

/// Whether nothing of a request can have been executed, and it may be on another connection: one that has to authenticate
/// again is of no more use.
fn is_unheard(fault: &CallError) -> bool {
    match fault {
        CallError::NotSent(_) => true,
        CallError::Server(text) => text.starts_with("NOAUTH"),
        _ => false,
    }
}

/// Whether the script has to be sent as text.
pub(crate) fn lacks_script(text: &str) -> bool {
    text.starts_with("NOSCRIPT") || lacks_evalsha(text)
}

/// Whether the server has no EVALSHA, or does not let this user have it; EVAL may be there all the same.
pub(crate) fn lacks_evalsha(text: &str) -> bool {
    lacks(text, "evalsha") || has_no_scripts(text)
}

/// Whether the server does not let this user send scripts; calling them by their hash may be allowed all the same.
pub(crate) fn lacks_eval(text: &str) -> bool {
    lacks(text, "eval") || has_no_scripts(text)
}

/// Whether the server says in words of its own, such as those of Garnet, that it runs no scripts.
fn has_no_scripts(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("scripting") && (text.contains("disabled") || text.contains("not supported"))
}

/// Whether the server has no such command, in lower case, or does not let this user have it.
pub(crate) fn lacks(text: &str, command: &str) -> bool {
    let text = text.to_ascii_lowercase();
    // Before 7.0 a server puts the name of one that it does not know between backticks.
    let is_named = ["'", "`"]
        .iter()
        .any(|sign| text.contains(&[sign, command, sign].concat()));
    // Proxies and services have words of their own.
    const SIGNS: [&str; 4] = [
        "unknown command",
        "unsupported",
        "not supported",
        "disabled",
    ];
    is_named && (text.starts_with("noperm") || SIGNS.iter().any(|sign| text.contains(sign)))
}

#[cfg(test)]
mod tests;
