use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ::mysql::prelude::{FromRow, Queryable};
use ::mysql::{Conn, Error as Cause, OptsBuilder, Params, Row};
use rustix::net::RecvFlags;
use socket2::SockRef;

use super::LATEST_EFFECT;
use super::address::Address;
use super::call_error::CallError;
use super::lock_statements::NOW;
use crate::ground::clock::{BootInstant, Offset};
use crate::ground::{events, process, time};
use crate::store::{EXPIRY_DRIFT, EXPIRY_SLACK, Opened};
use crate::stores::host_names;
use crate::stores::redis::{Fault, Tunnel};

/// The socket timeout may exceed the deadline by this much, so that not every request needs a system call to set it.
const TIMEOUT_SLACK: Duration = Duration::from_millis(20);

/// A statement may start this long after its deadline, by the client's clock.
const LATEST: Duration = EXPIRY_SLACK
    .saturating_sub(LATEST_EFFECT)
    .saturating_sub(EXPIRY_DRIFT);

/// In bytes. Without this value, the driver would query the limit, which the server enforces itself.
const MAX_PACKET: usize = 16 << 20;

/// The initial settings of every session, independent of the server's defaults and its `init_connect`:
///
/// - the end of a transaction does not begin another transaction or end the session;
/// - no statement waits for a row or a table for longer than a second;
/// - UTC, because in other time zones the same hour may occur twice;
/// - utf8mb4, so that no conversion makes two names equal;
/// - a result may have any number of rows;
/// - strict mode, so that a version number out of range is an error instead of the largest number.
const SESSION: &str = "SET SESSION autocommit = 1, completion_type = NO_CHAIN, \
                       innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, \
                       time_zone = '+00:00', timestamp = DEFAULT, \
                       character_set_client = utf8mb4, character_set_connection = utf8mb4, \
                       character_set_results = utf8mb4, sql_select_limit = 18446744073709551615, \
                       sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'STRICT_ALL_TABLES')";

pub(super) struct Connection {
    /// `None` only during drop.
    conn: Option<Conn>,
    /// A duplicate of the socket's descriptor, to set timeouts and to peek. `None` if the system cannot duplicate
    /// descriptors.
    socket: Option<OwnedFd>,
    timeout: Duration,
    last_used: Instant,
    check_idle_after: Duration,
    ahead: Offset,
    pid: u32,
    #[expect(dead_code, reason = "its drop is what counts")]
    opened: Opened,
}

impl Connection {
    /// Without a duplicate descriptor, the read timeout cannot change later. So it is at least `longest_answer`, the
    /// longest response time of later statements.
    pub(super) fn connect(
        address: &Address,
        deadline: Instant,
        longest_answer: Duration,
    ) -> Result<Connection, CallError> {
        let began = time::now();
        let outcome = Connection::open(address, deadline, longest_answer);
        let end = match &outcome {
            Ok(_) => "ok",
            Err(CallError::Server { .. }) => "refused",
            Err(CallError::Untrusted(_)) => "untrusted",
            Err(_) => "unreachable",
        };
        let traffic = &address.settings.traffic;
        traffic.connected(&address.node, began, end);
        outcome
    }

    fn open(
        address: &Address,
        deadline: Instant,
        longest_answer: Duration,
    ) -> Result<Connection, CallError> {
        let failed = CallError::of_connecting;
        let mut opts = OptsBuilder::from_opts(address.opts.clone());
        let mut tunnel = None;
        let host = address.opts.get_ip_or_hostname();
        let port = address.opts.get_tcp_port();
        let by = deadline.min(time::now() + address.settings.connect_timeout);
        if let Some(peer) = &address.peer {
            let opened = Tunnel::open(peer, &host, port, by);
            let opened = opened.map_err(|error| failed(Cause::IoError(error)))?;
            opts = opts.socket(opened.path.to_str());
            tunnel = Some(opened);
        } else if address.opts.get_socket().is_none() {
            // The driver resolves names without a timeout, and tries only the first address. So it gets this address.
            let first = |addresses: &[SocketAddr], _| {
                let first = addresses.first().map(SocketAddr::to_string);
                first.ok_or_else(|| io::ErrorKind::NotFound.into())
            };
            let first = host_names::connect(&host, port, by, first);
            let first = first.map_err(|error| failed(Cause::IoError(error)))?;
            opts = opts.ip_or_hostname(first.rsplit_once(':').map(|(ip, _)| ip));
        }
        let left = deadline.saturating_duration_since(time::now());
        if left.is_zero() {
            let reason = "the deadline expired before connecting";
            return Err(CallError::NotSent(reason.into()));
        }
        let connecting = left.min(address.settings.connect_timeout);
        let reading = match has_second_handles() {
            true => connecting,
            false => connecting.max(longest_answer),
        };
        let packet = address.opts.get_max_allowed_packet();
        let opts = OptsBuilder::from_opts(opts)
            // For 127.0.0.1 the driver would switch to the Unix socket that the server announces.
            .prefer_socket(false)
            .max_allowed_packet(packet.or(Some(MAX_PACKET)))
            .tcp_connect_timeout(Some(connecting))
            .tcp_keepalive_time_ms(Some(5000))
            .read_timeout(Some(reading))
            .write_timeout(Some(connecting));
        let conn = Conn::new(opts).map_err(|error| {
            let fault = tunnel.and_then(|tunnel| tunnel.fault.try_recv().ok());
            match fault {
                Some(Fault::Untrusted(reason)) => CallError::Untrusted(reason),
                Some(fault) => CallError::NotSent(fault.into_reason()),
                None => failed(error),
            }
        })?;
        let socket = second_handle(&conn);
        let mut connection = Connection {
            conn: Some(conn),
            socket,
            timeout: reading,
            last_used: time::now(),
            check_idle_after: address.settings.check_idle_after,
            ahead: Offset::told(0, BootInstant::now(), BootInstant::now()),
            pid: process::id(),
            opened: address.settings.traffic.opened(),
        };
        // The handshake has used part of the time, so the timeouts are reduced.
        connection.set_timeouts(deadline.min(by));
        let session = connection.conn()?.query_drop(SESSION);
        session.map_err(|error| CallError::of(error).before_sending())?;
        connection.set_timeouts(deadline);
        connection.read_time().map_err(CallError::before_sending)?;
        events::connected(&address.node);
        Ok(connection)
    }

    fn conn(&mut self) -> Result<&mut Conn, CallError> {
        let closed = || CallError::NotSent("the connection was closed".into());
        self.conn.as_mut().ok_or_else(closed)
    }

    /// Reads the server's time in microseconds, and updates the clock offset.
    pub(super) fn read_time(&mut self) -> Result<i64, CallError> {
        let sent = BootInstant::now();
        let now = self.conn()?.query_first(format!("SELECT {NOW}"));
        let now = now.map_err(CallError::of)?.unwrap_or_default();
        self.ahead = Offset::told(now, sent, BootInstant::now());
        Ok(now)
    }

    /// Returns the server time in microseconds after which the server refuses a statement with this deadline.
    pub(super) fn expiry(&self, deadline: Instant) -> i64 {
        let left = deadline.saturating_duration_since(time::now());
        self.ahead.expiry(BootInstant::now() + left, LATEST)
    }

    /// Sets the socket's timeouts for `deadline`, and returns whether the timeouts suit `deadline`. The driver sets
    /// timeouts only when it connects. Later changes need a duplicate descriptor.
    pub(super) fn set_timeouts(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(time::now());
        let left = left.max(Duration::from_millis(1));
        if self.timeout <= left + TIMEOUT_SLACK && self.timeout >= left / 2 {
            return true;
        }
        let Some(socket) = &self.socket else {
            return false;
        };
        let socket = SockRef::from(socket);
        let is_set = socket.set_read_timeout(Some(left)).is_ok()
            && socket.set_write_timeout(Some(left)).is_ok();
        if is_set {
            self.timeout = left;
        }
        is_set
    }

    /// A firewall may drop an idle connection silently. So after `check_idle_after`, the server has to answer a ping in
    /// a quarter of the remaining time.
    pub(super) fn alive(
        mut self,
        deadline: Instant,
        longest_answer: Duration,
    ) -> Option<Connection> {
        let mut is_alive = !self.is_disconnected();
        if is_alive && time::since(self.last_used) >= self.check_idle_after {
            let left = deadline.saturating_duration_since(time::now());
            self.set_timeouts(time::now() + left / 4);
            is_alive = self.conn().is_ok_and(|conn| conn.ping().is_ok());
        }
        let is_timed =
            self.set_timeouts(deadline) || self.socket.is_none() && !longest_answer.is_zero();
        (is_alive && is_timed).then_some(self)
    }

    /// Returns whether an idle connection was closed by the server, or received unsolicited data.
    pub(super) fn is_disconnected(&self) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let mut byte = [0; 1];
        match rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(error) => error != rustix::io::Errno::AGAIN && error != rustix::io::Errno::INTR,
            Ok(_) => true,
        }
    }

    fn begin_call(&mut self, deadline: Instant) -> Result<&mut Conn, CallError> {
        if time::now() >= deadline {
            let reason = "the deadline expired before sending";
            return Err(CallError::NotSent(reason.into()));
        }
        self.set_timeouts(deadline);
        self.last_used = time::now();
        self.conn()
    }

    /// Runs a statement, and returns its `LAST_INSERT_ID` and the number of affected rows.
    pub(super) fn execute(
        &mut self,
        statement: &str,
        params: Params,
        deadline: Instant,
    ) -> Result<(u64, u64), CallError> {
        let conn = self.begin_call(deadline)?;
        // If the preparation fails, the statement was not executed.
        let prepared = conn.prep(statement);
        let prepared = prepared.map_err(|error| CallError::of(error).before_sending())?;
        conn.exec_drop(prepared, params).map_err(CallError::of)?;
        Ok((conn.last_insert_id(), conn.affected_rows()))
    }

    /// Runs a statement that the server does not accept as a prepared statement.
    pub(super) fn execute_text(&mut self, text: &str, by: Instant) -> Result<(), CallError> {
        let done = self.begin_call(by)?.query_drop(text);
        done.map_err(CallError::of)
    }

    pub(super) fn query<T: FromRow>(
        &mut self,
        statement: &str,
        params: Params,
        deadline: Instant,
    ) -> Result<Vec<T>, CallError> {
        let conn = self.begin_call(deadline)?;
        let rows: Vec<Row> = conn.exec(statement, params).map_err(CallError::of)?;
        rows.into_iter()
            .map(|row| T::from_row_opt(row).map_err(|error| CallError::of(error.into())))
            .collect()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A forked child must not send COM_QUIT, which would end the parent's connection. In the parent, the driver sends
        // COM_QUIT, and a blocked socket must not delay the drop.
        if self.pid != process::id() {
            std::mem::forget(self.conn.take());
        } else if let Some(socket) = &self.socket {
            let _ = SockRef::from(socket).set_write_timeout(Some(Duration::from_millis(10)));
        }
    }
}

/// Returns whether descriptors can be duplicated: only on Linux, and not in all containers.
fn has_second_handles() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| UnixStream::pair().is_ok_and(|(one, _)| second_handle(&one).is_some()))
}

/// Duplicates the connection's descriptor through the kernel. Safe code cannot borrow the raw descriptor that
/// the driver exposes.
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
