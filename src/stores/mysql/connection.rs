//! One connection to one database.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, OptsBuilder, Params, Row};
use rustix::net::RecvFlags;
use socket2::SockRef;

use super::LATEST_EFFECT;
use super::address::Address;
use super::call_error::CallError;
use super::sql::NOW;
use crate::ground::clock::{BootInstant, Offset};
use crate::ground::events;
use crate::store::{EXPIRY_DRIFT, EXPIRY_SLACK};

/// A connection unused for this long is looked at before it is used: the server may have closed it meanwhile.
const STALE_AFTER: Duration = Duration::from_secs(1);

/// A socket time-out may overshoot the deadline by this much, so that it need not be set anew for every call.
const TIMEOUT_SLACK: Duration = Duration::from_millis(20);

/// A statement may be begun this much later by our clock than it has to arrive.
const LATEST: Duration = EXPIRY_SLACK
    .saturating_sub(LATEST_EFFECT)
    .saturating_sub(EXPIRY_DRIFT);

/// The server need not be asked for its limit; a longer packet is refused by it with an error.
const MAX_PACKET: usize = 16 << 20;

/// What every session starts with, whatever the server or its `init_connect` says.
///
/// The end of a transaction neither begins another one nor ends the session. Nothing waits for a row or for a table's
/// definition for the 50 seconds or the day that are the defaults. In UTC a TIMESTAMP column has no hour that comes twice.
/// Text is sent as it is: a character set that lacks a letter would make one name of two. No limit cuts answers: a column
/// of a key that is not told would not be missed. A number that does not fit is an error: cut to the largest that does, a
/// version would never change again and no update would be noticed.
const SESSION: &str = "SET SESSION autocommit = 1, completion_type = NO_CHAIN, \
                       innodb_lock_wait_timeout = 1, lock_wait_timeout = 2, \
                       time_zone = '+00:00', timestamp = DEFAULT, \
                       character_set_client = utf8mb4, character_set_connection = utf8mb4, \
                       character_set_results = utf8mb4, sql_select_limit = 18446744073709551615, \
                       sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'STRICT_ALL_TABLES')";

/// One connection.
pub(super) struct Connection {
    /// `None` only while it is being dropped.
    conn: Option<Conn>,
    /// A second handle of the socket, to set its time-outs by and to look at it; not every system gives one.
    socket: Option<OwnedFd>,
    timeout: Duration,
    last_used: Instant,
    /// How far the server's clock is ahead.
    ahead: Offset,
    /// Whether the server refuses a locked row at once, once it was asked to.
    refuses_at_once: Option<bool>,
    pid: u32,
}

impl Connection {
    /// `patience` is the longest that the server may take for an answer, for where that cannot be changed later.
    pub(super) fn connect(
        address: &Address,
        deadline: Instant,
        patience: Duration,
    ) -> Result<Connection, CallError> {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        if left.is_zero() {
            return Err(CallError::NotSent(
                "there was no time left to connect".into(),
            ));
        }
        // Each read of the handshake may take this long; a silent server is noticed at the first one.
        let connecting = left.min(address.connect_timeout);
        let reading = if has_second_handles() {
            connecting
        } else {
            connecting.max(patience)
        };
        let opts = OptsBuilder::from_opts(address.opts.clone())
            // A URL of 127.0.0.1 means TCP, not whatever socket the server names.
            .prefer_socket(false)
            .max_allowed_packet(Some(
                address.opts.get_max_allowed_packet().unwrap_or(MAX_PACKET),
            ))
            .tcp_connect_timeout(Some(connecting))
            .tcp_keepalive_time_ms(Some(5000))
            .read_timeout(Some(reading))
            .write_timeout(Some(connecting));
        let secret = address.opts.get_pass();
        let failed = |error| CallError::of_connecting(error, secret);
        let conn = Conn::new(opts).map_err(failed)?;
        let socket = second_handle(&conn);
        let mut connection = Connection {
            conn: Some(conn),
            socket,
            timeout: reading,
            last_used: Instant::now(),
            ahead: Offset::told(0, BootInstant::now(), BootInstant::now()),
            refuses_at_once: None,
            pid: std::process::id(),
        };
        connection.tune(deadline);
        connection
            .conn()
            .and_then(|conn| conn.query_drop(SESSION).map_err(CallError::of))
            .map_err(CallError::before_sending)?;
        connection.learn_time().map_err(CallError::before_sending)?;
        events::connected(&address.node);
        Ok(connection)
    }

    fn conn(&mut self) -> Result<&mut Conn, CallError> {
        self.conn
            .as_mut()
            .ok_or_else(|| CallError::NotSent("the connection was closed".into()))
    }

    /// Asks for the server's time, from which the expiry of requests is counted.
    pub(super) fn learn_time(&mut self) -> Result<i64, CallError> {
        let sent = BootInstant::now();
        let now: Option<i64> = self
            .conn()?
            .query_first(format!("SELECT {NOW}"))
            .map_err(CallError::of)?;
        let now = now.unwrap_or_default();
        self.ahead = Offset::told(now, sent, BootInstant::now());
        Ok(now)
    }

    /// Asks the server to refuse locked rows at once from now on. Returns whether it does.
    pub(super) fn refuse_at_once(&mut self, deadline: Instant) -> Result<bool, CallError> {
        if let Some(does) = self.refuses_at_once {
            return Ok(does);
        }
        // MariaDB knows a wait of no time. MySQL makes a second of it, or an error where its mode is strict.
        match self.say("SET SESSION innodb_lock_wait_timeout = 0", deadline) {
            Ok(()) | Err(CallError::Server { .. }) => {}
            Err(fault) => return Err(fault),
        }
        let wait: Option<u64> = self
            .ready(deadline)?
            .query_first("SELECT @@SESSION.innodb_lock_wait_timeout")
            .map_err(CallError::of)?;
        let does = wait == Some(0);
        self.refuses_at_once = Some(does);
        Ok(does)
    }

    /// When the server is to refuse a statement that has to arrive by `at`, by its clock in microseconds.
    pub(super) fn expiry(&self, at: Instant) -> i64 {
        let left = at.saturating_duration_since(Instant::now());
        self.ahead.expiry(BootInstant::now() + left, LATEST)
    }

    /// Sets the socket's time-outs to what is left until `deadline`. Returns whether they are right now.
    ///
    /// The `mysql` crate sets them once, when it connects; where there is no second handle of the socket, a connection
    /// whose time-outs do not suit is replaced by one whose do.
    pub(super) fn tune(&mut self, deadline: Instant) -> bool {
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let is_right = self.timeout <= left + TIMEOUT_SLACK && self.timeout >= left / 2;
        if is_right {
            return true;
        }
        let Some(socket) = &self.socket else {
            return false;
        };
        let socket = SockRef::from(socket);
        let set = socket
            .set_read_timeout(Some(left))
            .and_then(|()| socket.set_write_timeout(Some(left)));
        if set.is_ok() {
            self.timeout = left;
        }
        set.is_ok()
    }

    /// Whether the server has closed the connection, or said something nobody asked for, since it was used last.
    pub(super) fn is_stale(&self) -> bool {
        if self.last_used.elapsed() < STALE_AFTER {
            return false;
        }
        self.has_ended()
    }

    /// As [`Connection::is_stale`], however short ago it was used.
    pub(super) fn has_ended(&self) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let mut byte = [0; 1];
        match rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
            Ok(_) => true,
        }
    }

    fn ready(&mut self, deadline: Instant) -> Result<&mut Conn, CallError> {
        if Instant::now() >= deadline {
            return Err(CallError::NotSent(
                "there was no time left to send it".into(),
            ));
        }
        self.tune(deadline);
        self.last_used = Instant::now();
        self.conn()
    }

    /// Runs a statement, and returns what it put into `LAST_INSERT_ID` and how many rows it touched.
    pub(super) fn run(
        &mut self,
        statement: &str,
        params: Params,
        deadline: Instant,
    ) -> Result<(u64, u64), CallError> {
        let conn = self.ready(deadline)?;
        // A statement that could not be prepared has not been sent yet.
        let prepared = conn
            .prep(statement)
            .map_err(|error| CallError::of(error).before_sending())?;
        conn.exec_drop(prepared, params).map_err(CallError::of)?;
        Ok((conn.last_insert_id(), conn.affected_rows()))
    }

    /// Runs a statement without parameters as text: what cannot be prepared.
    pub(super) fn say(&mut self, statement: &str, deadline: Instant) -> Result<(), CallError> {
        self.ready(deadline)?
            .query_drop(statement)
            .map_err(CallError::of)
    }

    /// Runs a statement and returns its rows.
    pub(super) fn rows(
        &mut self,
        statement: &str,
        params: Params,
        deadline: Instant,
    ) -> Result<Vec<Row>, CallError> {
        self.ready(deadline)?
            .exec(statement, params)
            .map_err(CallError::of)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A fork has a copy of a connection that belongs to its parent: the goodbye of the `mysql` crate would end it
        // there. And on a socket that is silent the goodbye is not worth waiting for.
        if self.pid != std::process::id() {
            std::mem::forget(self.conn.take());
        } else if let Some(socket) = &self.socket {
            let _ = SockRef::from(socket).set_write_timeout(Some(Duration::from_millis(10)));
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// Whether connections get a second handle here. Some containers forbid it, and only Linux has it.
pub(super) fn has_second_handles() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        std::os::unix::net::UnixStream::pair()
            .is_ok_and(|(socket, _)| second_handle(&socket).is_some())
    })
}

/// A handle of the connection's socket that is ours. The `mysql` crate lends only the number of its own, which safe
/// code cannot use; the kernel copies it for us.
#[cfg(target_os = "linux")]
fn second_handle(conn: &impl AsRawFd) -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let this_process = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    pidfd_getfd(this_process, conn.as_raw_fd(), PidfdGetfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn second_handle(conn: &impl AsRawFd) -> Option<OwnedFd> {
    let _ = conn.as_raw_fd();
    None
}
