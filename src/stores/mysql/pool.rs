//! The connections of one client to one database.
//!
//! A connection that timed out, broke, or may be inside a transaction is closed, never put back. Why not the pool of
//! the `mysql` crate: a waiter there hangs when the connection it waits for comes back broken, and a check-out costs two
//! round trips. Why not `r2d2_mysql`: it leaks open transactions to the next user.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder, Params, Row};
use rustix::net::RecvFlags;
use socket2::SockRef;

use super::LATEST_EFFECT;
use super::fault::CallError;
use super::sql::NOW;
use crate::ground::clock::{BootInstant, Offset};
use crate::ground::error::{Error, Result};
use crate::ground::events;
use crate::ground::sync::Mutex;
use crate::store::{EXPIRY_DRIFT, EXPIRY_SLACK};
use crate::stores::permits::{Permit, PermitSource, Permits};

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

/// The server may take this long to answer a statement that waits for a row, and then some.
const LONGEST_ANSWER: Duration = Duration::from_secs(15);

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

/// Where a database is, and as whom to talk to it.
pub(super) struct Address {
    opts: Opts,
    /// Its name in messages; has no secret in it.
    pub(super) node: Arc<str>,
    connect_timeout: Duration,
}

impl Address {
    pub(super) fn parse(url: &str, connect_timeout: Duration) -> Result<Address> {
        const FORM: &str = "it is mysql://user:password@host[:port]/database";
        let invalid = |reason: String| Error::InvalidConfig {
            setting: "the MySQL URL",
            reason: format!("{reason}; {FORM}"),
        };
        // The crate's own words may repeat a part of the URL, and with it the password.
        let opts = Opts::from_url(url).map_err(|error| {
            use ::mysql::UrlError;
            invalid(match error {
                UrlError::ParseError(error) => error.to_string(),
                UrlError::UnknownParameter(_) => "it has an unknown parameter".to_owned(),
                UrlError::InvalidValue(..) => "a parameter has an unusable value".to_owned(),
                UrlError::FeatureRequired(..) => {
                    "a parameter asks for what is not built in".to_owned()
                }
                _ => "it cannot be read".to_owned(),
            })
        })?;
        if url.contains('#') {
            let reason = "nothing may follow a # in it; in a password it is written %23";
            return Err(invalid(reason.to_owned()));
        }
        let path = url.split_once("://").map_or(url, |(_, path)| path);
        let path = path.split('?').next().unwrap_or_default();
        if path.trim_end_matches('/').matches('/').count() > 1 {
            return Err(invalid("it names more than a database".to_owned()));
        }
        let Some(database) = opts.get_db_name().filter(|name| !name.is_empty()) else {
            return Err(invalid("it names no database".to_owned()));
        };
        let node = match opts.get_socket() {
            Some(socket) => format!("unix:{socket}/{database}"),
            None => format!(
                "{}:{}/{database}",
                opts.get_ip_or_hostname(),
                opts.get_tcp_port()
            ),
        };
        Ok(Address {
            node: node.into(),
            opts,
            connect_timeout,
        })
    }
}

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
    fn connect(
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
    fn tune(&mut self, deadline: Instant) -> bool {
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
fn has_second_handles() -> bool {
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

/// The connections for one purpose.
pub(super) struct Lane {
    permits: Permits,
    /// The sound connections not in use, the one used last on top. Who has a slot may use one, or make one.
    idle: Mutex<Vec<Connection>>,
}

impl Lane {
    fn new(size: u32, permit_source: &PermitSource) -> Arc<Lane> {
        Arc::new(Lane {
            permits: permit_source.permits(size),
            idle: Mutex::default(),
        })
    }

    /// Keeps a sound connection for the next one who needs one.
    fn keep(&self, connection: Option<Connection>) {
        let mut idle = self.idle.lock();
        if !self.permits.is_closed() {
            idle.extend(connection);
        }
    }

    fn close(&self) {
        self.permits.close();
        self.idle.lock().clear();
    }

    fn permit(&self, deadline: Instant) -> Result<Permit, CallError> {
        self.permits
            .take(deadline)
            .map_err(|none| CallError::Exhausted(none.of))
    }

    /// A connection that lies idle and is not `unfit`; those that are get closed.
    fn pop(&self, unfit: fn(&Connection) -> bool) -> Option<Connection> {
        loop {
            let connection = self.idle.lock().pop()?;
            if !unfit(&connection) {
                return Some(connection);
            }
        }
    }
}

/// A connection that one transaction has to itself.
pub(super) struct Lent {
    /// `None` once its state is in doubt.
    pub(super) connection: Option<Connection>,
    lane: Arc<Lane>,
    /// `None` only once it is over.
    permit: Option<Permit>,
    pid: u32,
}

impl Lent {
    /// Whether this process is a fork of the one that it was lent to.
    pub(super) fn is_forked(&self) -> bool {
        self.pid != std::process::id()
    }

    /// The right to a connection, for another one than this, which is closed.
    pub(super) fn take_slot(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Gives the connection back, outside of any transaction.
    pub(super) fn give_back(&self, connection: Connection) {
        self.lane.keep(Some(connection));
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A thread that a fork lacks may have been at the slots at that moment, and would never let go of them.
        if self.is_forked() {
            std::mem::forget(self.permit.take());
        }
    }
}

pub(super) struct Pool {
    permit_source: PermitSource,
    /// For single statements.
    statements: Arc<Lane>,
    /// For transactions, which keep theirs for as long as the user likes; counted apart, so that they cannot keep the
    /// locks from being released.
    transactions: Arc<Lane>,
    address: Arc<Address>,
}

impl Pool {
    /// Fails if r2d2's thread cannot be started.
    pub(super) fn new(address: Arc<Address>, size: u32) -> Result<Pool> {
        let permit_source = PermitSource::new()?;
        Ok(Pool {
            statements: Lane::new(size, &permit_source),
            transactions: Lane::new(size, &permit_source),
            permit_source,
            address,
        })
    }

    /// Closes what lies idle, and keeps no connection from now on. Statements go on working, each on one of its own.
    pub(super) fn close(&self) {
        self.statements.close();
        self.transactions.close();
        self.permit_source.close();
    }

    pub(super) fn node(&self) -> &Arc<str> {
        &self.address.node
    }

    /// The server and the database.
    pub(super) fn place(&self) -> String {
        let database = self.address.opts.get_db_name().unwrap_or_default();
        format!("{}/{database}", self.address.node)
    }

    pub(super) fn address(&self) -> &Arc<Address> {
        &self.address
    }

    /// Runs `talk` on a connection. After a fault that leaves its state in doubt the connection is closed.
    ///
    /// `talk` must be something that may be done twice: it is done again, on a new connection, if the one that lay in
    /// the pool turns out to be broken.
    pub(super) fn with<T>(
        &self,
        deadline: Instant,
        mut talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let _slot = self.statements.permit(deadline)?;
        let mut place = self.statements.pop(Connection::is_stale);
        let is_fresh = place.is_none();
        let outcome = match on_link(&mut place, &self.address, deadline, &mut talk) {
            Err(
                CallError::NotSent(_)
                | CallError::NoReply {
                    timed_out: false, ..
                },
            ) if !is_fresh && Instant::now() < deadline => {
                on_link(&mut place, &self.address, deadline, &mut talk)
            }
            outcome => outcome,
        };
        self.statements.keep(place);
        outcome
    }

    /// Runs `talk`, which must not be done twice: it is done again only if nothing of it was sent.
    pub(super) fn once<T>(
        &self,
        deadline: Instant,
        mut talk: impl FnMut(&mut Connection) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let _slot = self.statements.permit(deadline)?;
        // It cannot be sent again, so it had better arrive.
        let mut place = self.statements.pop(Connection::has_ended);
        let is_fresh = place.is_none();
        let outcome = match on_link(&mut place, &self.address, deadline, &mut talk) {
            Err(CallError::NotSent(_)) if !is_fresh && Instant::now() < deadline => {
                on_link(&mut place, &self.address, deadline, &mut talk)
            }
            outcome => outcome,
        };
        self.statements.keep(place);
        outcome
    }

    /// The right to a connection for a transaction.
    pub(super) fn transaction_slot(&self, deadline: Instant) -> Result<Permit, CallError> {
        self.transactions.permit(deadline)
    }

    /// A connection for a transaction. Nothing gives it back but the transaction's good end.
    pub(super) fn lend(
        &self,
        permit: Option<Permit>,
        deadline: Instant,
    ) -> Result<Lent, CallError> {
        let mut idle = self.transactions.pop(Connection::has_ended);
        if idle
            .as_mut()
            .is_some_and(|connection| !connection.tune(deadline))
            && has_second_handles()
        {
            idle = None;
        }
        let connection = match idle {
            Some(connection) => connection,
            None => Connection::connect(&self.address, deadline, LONGEST_ANSWER)?,
        };
        Ok(Lent {
            connection: Some(connection),
            lane: Arc::clone(&self.transactions),
            permit,
            pid: std::process::id(),
        })
    }
}

/// The connection given, if its time-outs can be made to suit, or a new one.
fn suited(
    connection: Option<Connection>,
    address: &Address,
    deadline: Instant,
) -> Result<Connection, CallError> {
    if let Some(mut connection) = connection
        && connection.tune(deadline)
    {
        return Ok(connection);
    }
    Connection::connect(address, deadline, Duration::ZERO)
}

/// Runs `talk` on what is in `place`, connecting first if need be, and empties the place after a fault.
pub(super) fn on_link<T>(
    place: &mut Option<Connection>,
    address: &Address,
    deadline: Instant,
    talk: &mut impl FnMut(&mut Connection) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let connection = place.take().filter(|connection| !connection.is_stale());
    let mut connection = suited(connection, address, deadline)?;
    let outcome = talk(&mut connection);
    if outcome.as_ref().err().is_none_or(CallError::leaves_sound) {
        *place = Some(connection);
    }
    outcome
}
