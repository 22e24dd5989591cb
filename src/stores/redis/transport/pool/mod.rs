//! The connections of one client to one node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::ground::time;
use crate::stores::connection_pool::{NoSlot, PoolSettings, Slot, Slots};
use crate::stores::redis::kinds::Dialect;
use crate::stores::redis::transport::{CallError, Connection, Connector, share};
use crate::stores::{borrow_connected, patience};

pub(crate) struct Pool {
    /// Boxed, because each use moves the slot twice.
    pub(crate) slots: Slots<Box<Connection>>,
    check_idle_after: Duration,
    pub(crate) connector: Arc<dyn Connector>,
    evalsha_is_off: AtomicBool,
    /// On a node that runs no scripts: which commands replace the scripts of token locks.
    dialect: AtomicU8,
    pub(crate) is_sharded: bool,
}

pub(crate) struct Borrowed {
    pub(crate) connection: Box<Connection>,
    slot: Slot<Box<Connection>>,
}

pub(crate) enum NotReady {
    NotConnected,
    /// The value is the size of the pool.
    Busy(u32),
    /// The server has no vote in the Redlock. The value is the reason.
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

    pub(crate) fn dialect(&self) -> Option<Dialect> {
        Dialect::of(self.dialect.load(Ordering::Relaxed))
    }

    pub(crate) fn note_dialect(&self, dialect: Option<Dialect>) {
        let code = dialect.map_or(0, |dialect| dialect as u8);
        self.dialect.store(code, Ordering::Relaxed);
    }

    /// If an idle connection fails before the server executed the request, `talk` runs again on another connection.
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
            if is_new || !matches!(&outcome, Err(fault) if may_use_another_connection(fault)) {
                return outcome;
            }
        }
    }

    pub(crate) fn borrow(&self, deadline: Instant) -> Result<Borrowed, CallError> {
        let mut slot = self.slot(deadline)?;
        let (connection, _) = self.connected(&mut slot, deadline)?;
        Ok(Borrowed { connection, slot })
    }

    /// Waits neither for a server nor for a slot. The connection may have unread replies to earlier requests.
    pub(crate) fn borrow_ready(&self) -> Result<Borrowed, NotReady> {
        let mut slot = match self.slots.try_get() {
            Ok(slot) => slot,
            Err(NoSlot::Busy(size)) => return Err(NotReady::Busy(size)),
            Err(NoSlot::NoThread(_)) => return Err(NotReady::NotConnected),
        };
        // A firewall may drop an idle connection without a notice. So only a recently used connection is returned.
        let is_recent =
            |it: &mut Box<Connection>| time::since(it.last_used) < self.check_idle_after;
        if let Some(mut connection) = slot.take_if(is_recent)
            && self.is_current(&connection)
            && connection.is_ready()
            && !connection.is_stale(time::since(connection.last_used))
        {
            return Ok(Borrowed { connection, slot });
        }
        Err(NotReady::NotConnected)
    }

    pub(crate) fn give_back<T>(&self, mut borrowed: Borrowed, outcome: &Result<T, CallError>) {
        let connection = borrowed.connection;
        if let Err(fault) = outcome
            && fault.is_not_master()
        {
            self.connector.master().suspect(connection.generation);
        }
        if is_sound(outcome) && !connection.is_unusable {
            *borrowed.slot = Some(connection);
        }
    }

    /// An error is ignored, because the next use connects again.
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

    /// Also returns whether the connection is new.
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
        while time::now() < deadline
            && let Some(mut other) = borrow_connected(&self.slots, 1, fault.is_at_limit(), deadline)
        {
            std::mem::swap(slot, &mut other);
            if let Some(connection) = self.usable(slot, deadline) {
                return Ok((connection, false));
            }
        }
        Err(fault)
    }

    fn usable(
        &self,
        slot: &mut Slot<Box<Connection>>,
        deadline: Instant,
    ) -> Option<Box<Connection>> {
        let mut connection = slot.take().filter(|it| self.is_current(it))?;
        let idle = time::since(connection.last_used);
        let is_usable = (!connection.has_deferred()
            || connection.read_deferred(share(deadline, 2)).is_ok())
            && !connection.is_stale(idle)
            && (idle < self.check_idle_after || connection.answers(share(deadline, 4)))
            && !connection.is_unusable;
        is_usable.then_some(connection)
    }

    fn is_current(&self, connection: &Connection) -> bool {
        connection.generation == self.connector.master().generation()
    }
}

fn is_sound<T>(outcome: &Result<T, CallError>) -> bool {
    match outcome {
        Ok(_) | Err(CallError::Unfit(_)) => true,
        // A connection to a former master is not reused, because a new connection may reach the current master.
        Err(fault @ CallError::Server(_)) => {
            !fault.is_not_master() && !may_use_another_connection(fault)
        }
        Err(_) => false,
    }
}

/// True only if the request was not executed. After `NOAUTH`, a new connection authenticates again.
fn may_use_another_connection(fault: &CallError) -> bool {
    match fault {
        CallError::NotSent(_) => true,
        CallError::Server(text) => text.starts_with("NOAUTH"),
        _ => false,
    }
}

/// Returns whether the error `text` means that the client must send the script's source with `EVAL`.
pub(crate) fn lacks_script(text: &str) -> bool {
    text.starts_with("NOSCRIPT") || lacks_evalsha(text)
}

/// A server without `EVALSHA` may accept `EVAL`.
pub(crate) fn lacks_evalsha(text: &str) -> bool {
    lacks(text, "evalsha") || has_no_scripts(text)
}

/// A server without `EVAL` may accept `EVALSHA`.
pub(crate) fn lacks_eval(text: &str) -> bool {
    lacks(text, "eval") || has_no_scripts(text)
}

/// The texts are those of Garnet and other servers.
fn has_no_scripts(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("scripting") && (text.contains("disabled") || text.contains("not supported"))
}

/// Returns whether the error `text` says that `command`, in lower case, is unknown or forbidden to the user.
pub(crate) fn lacks(text: &str, command: &str) -> bool {
    let text = text.to_ascii_lowercase();
    // Redis before 7.0 quotes unknown commands with backticks.
    let names = |sign| text.contains(&[sign, command, sign].concat());
    let is_named = names("'") || names("`");
    // Redis replies `unknown command`. The other texts are from proxies and managed services.
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
