//! One connection to one server, on which every call ends by its deadline.
//!
//! Why not the connection of the `redis` crate: its time-outs are per read, so a reply that drips in byte by byte takes
//! as long as it likes; it stays open after a time-out, and gives the next caller the late reply; and it cannot be
//! written by one thread while another one reads, which the subscriber needs. The encoding of commands and the parser
//! of replies are that crate's.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Parser, RedisConnectionInfo, Value,
};
use rustix::net::{RecvFlags, SendFlags};
use smallvec::SmallVec;
use socket2::{Domain, Protocol, SockAddr, SockRef, TcpKeepalive, Type};

use crate::ground::clock::{BootInstant, Offset};
use crate::ground::error::{Error, Reason, Result};
use crate::ground::events;
use crate::store::{EXPIRY_DRIFT, EXPIRY_SLACK};
use crate::stores::quorum::quarantine::Identity;
use crate::stores::redis::Credentials;
use crate::stores::redis::scripts::Script;
use crate::stores::redis::transport::tls::{Peer, Session, TlsConfig};

/// A reply larger than this is none of ours.
const LARGEST_REPLY: usize = 1 << 20;

const USER_ALONE: &str = "it names a user without a password: it is redis://:password@host for the default user, \
                          and any password will do for a user that needs none";

/// How many bytes of what a server says are kept.
const MOST_WORDS: usize = 256;

/// How the words begin about a server that is no Redis.
pub(crate) const STRANGER: &str = "it answered";

/// How much of what is no reply.
const MOST_OF_A_STRANGER: usize = 64;

/// How much memory for replies a connection keeps, about.
const MOST_KEPT: usize = 1 << 16;

/// How much is read from a socket at once.
const READ_AT_ONCE: usize = 4096;

/// An answer that is one small number comes in one integer with the number of its request, because an array costs a
/// server a twentieth of a request. Together they are at most what is exact in Lua.
const SMALL_BITS: u32 = 22;
const LARGEST_SMALL: i64 = (1 << SMALL_BITS) - 1;

/// The largest number of a request; the smallest is 1, which no small number alone can be taken for.
const NUMBERS: i64 = (1 << 30) - 1;

/// Why a connection is not used any more on which something came that nobody asked for.
const UNASKED: &str = "the connection held a reply that nobody had asked for";

/// A connection unused for this long is looked at before it is used: the server may have closed it meanwhile.
const STALE_AFTER: Duration = Duration::from_secs(1);

/// A socket time-out may overshoot the deadline by this much, so that it need not be set anew for every call.
const TIMEOUT_SLACK: Duration = Duration::from_millis(20);

/// A request may run this much later by our clock than it has to arrive: a script takes effect at the time that it reads.
const LATEST: Duration = EXPIRY_SLACK
    .saturating_sub(Duration::from_secs(1))
    .saturating_sub(EXPIRY_DRIFT);

/// Why a call got no answer that it could use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// Nothing of the request can have been executed.
    NotSent(Reason),
    /// None of so many connections became free in time. Nothing was sent, and it says nothing of the server.
    Exhausted(u32),
    /// The request was sent, and may have been executed.
    NoReply { reason: Reason, timed_out: bool },
    /// The server answered with an error.
    Server(String),
    /// TLS does not let the two talk to each other until somebody changes something. Nothing of the request was sent.
    Untrusted(Reason),
    /// The server has no vote in the quorum that asked for it. Nothing of the request was sent.
    NoVote(String),
}

/// The reason of [`CallError::Exhausted`] where there is no room for more.
pub(crate) const EXHAUSTED: &str = "all connections of the pool were in use for the whole time";

impl CallError {
    /// The fault of a request that was no request of a lock: nothing of those can have been executed.
    pub(crate) fn of_a_search(self) -> CallError {
        match self {
            CallError::NoReply { reason, .. } => CallError::NotSent(reason),
            fault => fault,
        }
    }

    /// Whether nothing was executed, and another server may do it in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        const SIGNS: [&str; 5] = [
            "READONLY",
            "LOADING",
            "MASTERDOWN",
            "CLUSTERDOWN",
            "TRYAGAIN",
        ];
        match self {
            CallError::NotSent(_) => true,
            CallError::NoReply { .. }
            | CallError::Untrusted(_)
            | CallError::Exhausted(_)
            | CallError::NoVote(_) => false,
            CallError::Server(text) => SIGNS.iter().any(|sign| text.starts_with(sign)),
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            CallError::NotSent(reason)
            | CallError::NoReply { reason, .. }
            | CallError::Untrusted(reason) => reason,
            CallError::Exhausted(_) => EXHAUSTED,
            CallError::Server(text) | CallError::NoVote(text) => text,
        }
    }

    /// A redirection that is not followed any more: the nodes have to agree first.
    pub(crate) fn of_a_redirection(self) -> CallError {
        match self {
            CallError::Server(text) => {
                CallError::Server(format!("TRYAGAIN redirected too often: {text}"))
            }
            fault => fault,
        }
    }

    /// The same fault, saying where it was met.
    pub(crate) fn at(self, node: &str) -> CallError {
        let is_passing = self.is_passing();
        let at = |reason: &str| format!("{node}: {reason}");
        match self {
            CallError::Server(text) if is_passing => CallError::NotSent(at(&text).into()),
            CallError::NotSent(reason) => CallError::NotSent(reason.reworded(at)),
            CallError::NoReply { reason, timed_out } => CallError::NoReply {
                reason: reason.reworded(at),
                timed_out,
            },
            CallError::Server(text) => CallError::Server(at(&text)),
            CallError::NoVote(text) => CallError::NoVote(at(&text)),
            CallError::Untrusted(reason) => CallError::Untrusted(reason.reworded(at)),
            CallError::Exhausted(of) => CallError::Exhausted(of),
        }
    }
}

/// Where a server is, and as whom to talk to it.
#[derive(Clone)]
pub(crate) struct Address {
    info: ConnectionInfo,
    /// Its name in messages; has no secret in it.
    pub(crate) node: Arc<str>,
    connect_timeout: Duration,
    /// The other end of TLS; without it the connection is plain text.
    peer: Option<Peer>,
    /// A sentinel keeps no keys, and knows few commands.
    is_sentinel: bool,
}

impl Address {
    pub(crate) fn parse(
        url: &str,
        connect_timeout: Duration,
        tls_config: &TlsConfig,
    ) -> Result<Address> {
        let invalid = |reason: String| Error::InvalidConfig {
            setting: "the Redis URL",
            reason,
        };
        // The `redis` crate is built without TLS, and so does not take its scheme.
        let plain = match url.split_once(':') {
            Some((scheme, rest)) if is_tls(scheme) => Some(format!("redis:{rest}")),
            _ => None,
        };
        let info = plain
            .as_deref()
            .unwrap_or(url)
            .into_connection_info()
            // The detail might repeat a part of the URL, and with it the password.
            .map_err(|error| invalid(without_detail(&error)))?;
        let node = match info.addr() {
            ConnectionAddr::Tcp(host, port) => name_of(host, *port),
            ConnectionAddr::Unix(path) => format!("unix:{}", path.display()),
            _ => return Err(invalid("this kind of address is not supported".to_owned())),
        };
        let flaw = flaw_of(plain.as_deref().unwrap_or(url));
        let peer = match (plain, info.addr()) {
            (Some(_), ConnectionAddr::Tcp(host, _)) => {
                let peer = tls_config.toward(host)?;
                if url.contains('#') {
                    let reason =
                        "nothing may follow a # in it: the server's certificate is always checked";
                    return Err(invalid(reason.to_owned()));
                }
                Some(peer)
            }
            _ => {
                tls_config.check_is_unused()?;
                None
            }
        };
        if let Some(flaw) = flaw {
            return Err(invalid(flaw.to_owned()));
        }
        Ok(Address {
            info,
            node: node.into(),
            connect_timeout,
            peer,
            is_sentinel: false,
        })
    }

    /// Another server that is to be talked to in the same way.
    pub(crate) fn elsewhere(&self, host: &str, port: u16) -> Address {
        let place = ConnectionAddr::Tcp(host.to_owned(), port);
        Address {
            info: self.info.clone().set_addr(place),
            node: name_of(host, port).into(),
            peer: self.peer.as_ref().map(|peer| peer.at(host)),
            ..self.clone()
        }
    }

    /// The same server as a sentinel.
    pub(crate) fn of_sentinel(mut self) -> Address {
        self.is_sentinel = true;
        self
    }

    /// The same server, which keeps keys, for another user and another database.
    pub(crate) fn of_data(mut self, credentials: Option<&Credentials>, database: i64) -> Address {
        let mut settings = RedisConnectionInfo::default().set_db(database);
        if let Some(credentials) = credentials {
            settings = settings.set_password(&credentials.password);
            if !credentials.user.is_empty() {
                settings = settings.set_username(&credentials.user);
            }
        }
        self.info = self.info.set_redis_settings(settings);
        self.is_sentinel = false;
        self
    }

    /// Whether connections to it are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.peer.is_some()
    }

    pub(crate) fn database(&self) -> i64 {
        self.info.redis_settings().db()
    }

    /// The host; `None` for a Unix socket.
    pub(crate) fn host(&self) -> Option<&str> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) => Some(host),
            _ => None,
        }
    }
}

/// What in a URL would be passed over in silence. Says nothing of its parts, of which any may be a secret.
fn flaw_of(url: &str) -> Option<&'static str> {
    let url = redis::parse_redis_url(url)?;
    let is_number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if url.scheme().ends_with("unix") {
        let mut options: Vec<_> = url.query_pairs().collect();
        options.sort();
        let has = |name: &str| options.iter().any(|(option, _)| option == name);
        if url.fragment().is_some() {
            Some("nothing may follow a # in it")
        } else if !url.username().is_empty() || url.password().is_some() {
            Some("the user of a Unix socket stands behind the path: ?user=…&pass=…")
        } else if options
            .iter()
            .any(|(name, _)| !matches!(&**name, "db" | "user" | "pass"))
            || options
                .windows(2)
                .any(|two| matches!(two, [one, other] if one.0 == other.0))
        {
            Some(
                "behind the path of a Unix socket only db, user and pass are understood, each once",
            )
        } else if has("user") && !has("pass") {
            Some(USER_ALONE)
        } else if options
            .iter()
            .any(|(name, value)| name == "db" && !is_number(value))
        {
            Some("the database is a number from 0")
        } else {
            None
        }
    } else if url.query().is_some() {
        Some("nothing may follow a ? in it; the database is its path: redis://host/1")
    } else if url.fragment().is_some() {
        Some("nothing may follow a # in it; in a password it is written %23")
    } else if !url.username().is_empty() && url.password().is_none() {
        Some(USER_ALONE)
    } else if !is_number(url.path().trim_matches('/')) {
        Some("the database is a number from 0, alone behind the host: redis://host/1")
    } else if url.port() == Some(0) {
        Some("there is no port 0")
    } else {
        None
    }
}

/// The name of the server at a host and port.
pub(crate) fn name_of(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Whether URLs of this scheme ask for TLS.
fn is_tls(scheme: &str) -> bool {
    ["rediss", "valkeys"]
        .iter()
        .any(|tls| scheme.eq_ignore_ascii_case(tls))
}

fn without_detail(error: &redis::RedisError) -> String {
    let text = error.to_string();
    let first = text.split(':').next().unwrap_or_default();
    format!(
        "{first}; it is redis://[user:password@]host[:port][/database], rediss:// for TLS, or redis+unix:///path"
    )
}

/// One connection.
pub(crate) struct Connection {
    /// Which of the servers of its route it leads to.
    pub(crate) generation: u64,
    /// Which server it leads to, once somebody wanted to know.
    identity: Option<Arc<Identity>>,
    /// The texts of the scripts that the server has got through it.
    loaded_scripts: SmallVec<[usize; 4]>,
    stream: Stream,
    parser: Parser,
    /// What was read and the parser has not got yet.
    read_buffer: ReadBuffer,
    /// Whether the parser has the beginning of a reply.
    is_within: bool,
    /// What is wrong with the other end, if it is no Redis.
    stranger: Option<String>,
    /// The number of the next request, which its answer repeats. Connections begin with random ones.
    next_number: i64,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    last_used: Instant,
    /// How far the server's clock is ahead, from the last reply that told the time.
    ahead: Offset,
    /// Whether the server is to be asked for a slot that it is about to get from another one.
    pub(crate) is_asking: bool,
    /// Whether it cannot be used again: a reply is still to come that nobody will read, or one came that nobody asked for.
    pub(crate) is_spent: bool,
    /// The number of a request whose answer nobody has waited for: it is to be read before anything else is asked.
    pub(crate) owes: Option<i64>,
    /// Whether it is one for requests that is lent for renewals.
    pub(crate) is_lent: bool,
    /// How many connections of its pool the server had cut when this one was used last.
    pub(crate) resets_seen: u64,
}

impl Connection {
    /// Connects, authenticates and learns the server's time, all by `deadline`.
    pub(crate) fn connect(address: &Address, deadline: Instant) -> Result<Connection, CallError> {
        match Connection::open(address, deadline)? {
            Ok(connection) => Ok(connection),
            // A reply came twice, or was changed on its way; on another connection it need not.
            Err(_) => Connection::open(address, deadline)?.map_err(|garbled| {
                CallError::NotSent(format!("while connecting: {garbled}").into())
            }),
        }
    }

    /// As [`Connection::connect`]; else what came for a reply to a request that it was not the reply to.
    fn open(address: &Address, deadline: Instant) -> Result<Result<Connection, String>, CallError> {
        let deadline = deadline.min(Instant::now() + address.connect_timeout);
        let socket = Socket::connect(address.info.addr(), deadline).map_err(|error| {
            let words = match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    "connecting timed out".to_owned()
                }
                _ => format!("connecting failed: {error}"),
            };
            CallError::NotSent(Reason::of_io(words, error))
        })?;
        let session = match &address.peer {
            Some(peer) => Some(Session::open(peer, &socket, deadline)?),
            None => None,
        };
        let stream = Stream { socket, session };
        let mut connection = Connection {
            generation: 0,
            identity: None,
            loaded_scripts: SmallVec::new(),
            stream,
            parser: Parser::new(),
            read_buffer: ReadBuffer::default(),
            is_within: false,
            stranger: None,
            next_number: fastrand::i64(0..NUMBERS),
            read_timeout: None,
            write_timeout: None,
            last_used: Instant::now(),
            ahead: Offset::told(0, BootInstant::now(), BootInstant::now()),
            is_asking: false,
            is_spent: false,
            owes: None,
            is_lent: false,
            resets_seen: 0,
        };
        match connection.shake_hands(address, deadline) {
            Err(_) if connection.stranger.is_some() => Err(CallError::Server(
                connection.stranger.take().unwrap_or_default(),
            )),
            Err(fault) => Err(match (fault, connection.stream.refusal()) {
                (CallError::NoReply { .. } | CallError::NotSent(_), Some(refusal)) => {
                    CallError::Untrusted(refusal.into())
                }
                // What was sent was no request of a lock.
                (CallError::NoReply { reason, .. }, None) => CallError::NotSent(
                    reason.reworded(|reason| format!("while connecting: {reason}")),
                ),
                (fault, _) => fault,
            }),
            Ok(Err(garbled)) => Ok(Err(garbled)),
            Ok(Ok(())) => {
                events::connected(&address.node);
                Ok(Ok(connection))
            }
        }
    }

    fn shake_hands(
        &mut self,
        address: &Address,
        deadline: Instant,
    ) -> Result<Result<(), String>, CallError> {
        let settings = address.info.redis_settings();
        let mut commands: Vec<(Cmd, bool)> = Vec::with_capacity(4);
        if let Some(password) = settings.password() {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = settings.username() {
                auth.arg(user);
            }
            auth.arg(password);
            commands.push((auth, true));
        }
        if settings.db() != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(settings.db());
            commands.push((select, true));
        }
        let mut name = redis::cmd("CLIENT");
        name.arg("SETNAME").arg("redlatch");
        // For whoever looks at CLIENT LIST; not worth failing for.
        commands.push((name, false));
        // A sentinel has no TIME.
        let last = if address.is_sentinel { "PING" } else { "TIME" };
        commands.push((redis::cmd(last), true));
        let mut packed = Vec::new();
        for (command, _) in &commands {
            command.write_packed_command(&mut packed);
        }
        let sent = BootInstant::now();
        self.send(&packed, deadline)?;
        let mut last = Value::Nil;
        for (_, is_needed) in &commands {
            let reply = self
                .receive(deadline)
                .map_err(|fault| discreet(fault, settings.password()));
            last = match reply {
                Err(CallError::Server(text))
                    if !is_needed && !text.contains("max number of clients") =>
                {
                    Value::Nil
                }
                reply => reply?,
            };
        }
        if address.is_sentinel {
            return Ok(Ok(()));
        }
        let Some(now) = time_of(&last) else {
            return Ok(Err(format!("answered TIME with {}", brief(&last))));
        };
        self.note_time(now, sent);
        Ok(Ok(()))
    }

    /// Sends what is packed, and reads one reply.
    pub(crate) fn call(&mut self, packed: &[u8], deadline: Instant) -> Result<Value, CallError> {
        self.ask(packed, deadline)?;
        self.receive(deadline)
    }

    /// Sends what is packed, to be answered before anything else is sent.
    pub(crate) fn ask(&mut self, packed: &[u8], deadline: Instant) -> Result<(), CallError> {
        if self.has_unread() {
            return Err(CallError::NotSent(UNASKED.into()));
        }
        if self.is_asking {
            let packed = [&asking(), packed].concat();
            self.send(&packed, deadline)?;
            self.skip(deadline)
        } else {
            self.send(packed, deadline)
        }
    }

    /// The number for a request that is to be sent next.
    pub(crate) fn number(&mut self) -> i64 {
        self.next_number = self.next_number % NUMBERS + 1;
        self.next_number
    }

    /// Reads the answer to the script that was called with this number. A reply without it was not asked for.
    ///
    /// An error has no number, so it is taken for the answer. It grants nothing.
    pub(crate) fn answer(&mut self, number: i64, deadline: Instant) -> Result<Value, CallError> {
        loop {
            match self.receive(deadline)? {
                Value::Int(both) if both >> SMALL_BITS == number => {
                    return Ok(Value::Int(both & LARGEST_SMALL));
                }
                Value::Array(parts) => {
                    if let Ok([Value::Int(answered), answer]) = <[Value; 2]>::try_from(parts)
                        && answered == number
                    {
                        return Ok(answer);
                    }
                }
                _ => {}
            }
            self.is_spent = true;
        }
    }

    /// Reads one reply that nobody needs.
    pub(crate) fn skip(&mut self, deadline: Instant) -> Result<(), CallError> {
        match self.receive(deadline) {
            Ok(_) | Err(CallError::Server(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Sends what is packed. After an error the server has at most a part of it, which it does not execute.
    pub(crate) fn send(&mut self, packed: &[u8], deadline: Instant) -> Result<(), CallError> {
        let sealed = self.stream.seal(packed);
        let sealed =
            sealed.map_err(|error| CallError::NotSent(Reason::of_io(error.to_string(), error)))?;
        let mut rest = &*sealed;
        while !rest.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(CallError::NotSent("sending timed out".into()));
            }
            if must_set(self.write_timeout, left) {
                let set = self.stream.socket.set_write_timeout(left);
                set.map_err(|error| CallError::NotSent(Reason::of_io(error.to_string(), error)))?;
                self.write_timeout = Some(left);
            }
            match (&self.stream.socket).write(rest) {
                Ok(0) => {
                    return Err(CallError::NotSent(
                        "the server closed the connection".into(),
                    ));
                }
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if passes(&error) => {}
                Err(error) => {
                    return Err(CallError::NotSent(Reason::of_io(
                        format!("sending failed: {error}"),
                        error,
                    )));
                }
            }
        }
        self.last_used = Instant::now();
        Ok(())
    }

    /// Reads one reply. After a time-out the rest of it can still be read by a later call.
    pub(crate) fn receive(&mut self, deadline: Instant) -> Result<Value, CallError> {
        let mut reader = Timed {
            stream: &mut self.stream,
            read_buffer: &mut self.read_buffer,
            timeout: &mut self.read_timeout,
            is_within: &mut self.is_within,
            stranger: &mut self.stranger,
            deadline,
            allowance: LARGEST_REPLY,
        };
        let parsed = self.parser.parse_value(&mut reader);
        let rest = reader.allowance;
        if parsed.is_ok() {
            self.is_within = false;
            if rest < LARGEST_REPLY - MOST_KEPT {
                // It has nothing left, and keeps as much memory as it ever needed.
                self.parser = Parser::new();
            }
        }
        match parsed {
            Ok(Value::ServerError(error)) => Err(CallError::Server(match error.details() {
                Some(details) => cut(&format!("{} {details}", error.code())),
                None => cut(error.code()),
            })),
            Ok(value) => Ok(value),
            Err(_) if self.stranger.is_some() => Err(CallError::NoReply {
                timed_out: false,
                reason: self.stranger.clone().unwrap_or_default().into(),
            }),
            Err(error) => {
                let words = if error.is_timeout() {
                    "no reply in time".to_owned()
                } else if error.is_connection_dropped() {
                    "the connection was closed before the reply".to_owned()
                } else {
                    format!("the reply could not be read: {error}")
                };
                Err(CallError::NoReply {
                    timed_out: error.is_timeout(),
                    reason: match io_error_in(&error) {
                        Some(error) => Reason::of_shared_io(words, error),
                        None => words.into(),
                    },
                })
            }
        }
    }

    /// Whether it is good after it was read what it owes, whatever that says.
    pub(crate) fn has_settled(&mut self, deadline: Instant) -> bool {
        let replies_due = self.owes.take();
        let answer = replies_due.map(|number| self.answer(number, deadline));
        matches!(answer, None | Some(Ok(_) | Err(CallError::Server(_)))) && !self.is_spent
    }

    /// Whether the server has closed the connection, or sent something nobody asked for, since it was used last.
    pub(crate) fn is_stale(&self) -> bool {
        self.owes.is_none() && self.last_used.elapsed() >= STALE_AFTER && self.is_reset()
    }

    /// As [`Connection::is_stale`], however short ago it was used.
    pub(crate) fn is_reset(&self) -> bool {
        if self.has_buffered() {
            return true;
        }
        match &self.stream.session {
            Some(session) => session.is_stale(&self.stream.socket),
            None => match self.stream.socket.receive_now(&mut [0; 1]) {
                Err(error) => !passes(&error),
                Ok(_) => true,
            },
        }
    }

    /// The connection, to wait at.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.socket.as_fd()
    }

    /// Whether something has arrived, the end of the connection included.
    pub(crate) fn has_arrived(&self) -> bool {
        if self.has_buffered() {
            return true;
        }
        let mut byte = [0; 1];
        let peeked = rustix::net::recv(
            self.stream.socket.as_fd(),
            &mut byte,
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        );
        peeked != Err(rustix::io::Errno::AGAIN)
    }

    /// Whether the server surely has had this script.
    pub(crate) fn has_script(&self, script: &Script) -> bool {
        self.loaded_scripts.contains(&script.id())
    }

    /// Notes that the server gets this script with what is sent.
    pub(crate) fn mark_loaded(&mut self, script: &Script) {
        if !self.has_script(script) {
            self.loaded_scripts.push(script.id());
        }
    }

    /// Notes that the server does not have the scripts any more.
    pub(crate) fn has_forgotten_scripts(&mut self) {
        self.loaded_scripts.clear();
    }

    /// Whether it is known which server it leads to.
    pub(crate) fn is_identified(&self) -> bool {
        self.identity.is_some()
    }

    /// Which server it leads to, as far as it was asked.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// Which server it leads to: asked once per connection.
    pub(crate) fn identify(&mut self, deadline: Instant) -> Result<Arc<Identity>, CallError> {
        if let Some(identity) = &self.identity {
            return Ok(Arc::clone(identity));
        }
        let mut packed = Vec::new();
        for section in ["server", "persistence", "replication"] {
            let mut info = redis::cmd("INFO");
            info.arg(section).write_packed_command(&mut packed);
        }
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("*appendfsync*");
        config.write_packed_command(&mut packed);
        let asked = BootInstant::now();
        self.ask(&packed, deadline)?;
        let mut next = || match self.receive(deadline) {
            Err(CallError::NoReply { reason, .. }) => {
                Err(CallError::NotSent(reason.reworded(|reason| {
                    format!("while asking who it is: {reason}")
                })))
            }
            reply => Ok(reply),
        };
        let (server, persistence, replication, fsync) = (next()?, next()?, next()?, next()?);
        let identity = identity_in(
            &server?,
            persistence.ok(),
            &replication?,
            fsync.ok(),
            [asked, BootInstant::now()],
        )?;
        let identity = Arc::new(identity);
        if !identity.follows {
            // Of one that does it is asked again, for it may be made a master at any time.
            self.identity = Some(Arc::clone(&identity));
        }
        Ok(identity)
    }

    /// Forgets which server it leads to, because it was found to have become another one.
    pub(crate) fn forget_identity(&mut self) {
        self.identity = None;
    }

    /// Notes the time that the answer to a request tells, if it does. The request was sent at `sent` and was to be
    /// refused after `not_after`.
    pub(crate) fn note_time_in(&mut self, answer: &Value, not_after: i64, sent: BootInstant) {
        let now = match answer {
            // The rest of its time, or more than can be said.
            Value::Int(left) => (*left < LARGEST_SMALL).then(|| not_after - left),
            Value::Array(items) => match items.get(1) {
                Some(Value::Int(now)) => Some(*now),
                _ => None,
            },
            _ => None,
        };
        if let Some(now) = now.filter(|now| *now > 0) {
            self.note_time(now, sent);
        }
    }

    /// Notes the server's time `now` in ms, told in the reply to a request sent at `sent`.
    pub(crate) fn note_time(&mut self, now: i64, sent: BootInstant) {
        self.ahead = Offset::told(now.saturating_mul(1000), sent, BootInstant::now());
    }

    /// When the server is to refuse a request that has to arrive by `at`, by its clock in ms. `now` is just past.
    pub(crate) fn expiry(&self, at: Instant, now: BootInstant) -> i64 {
        let at = now + at.saturating_duration_since(Instant::now());
        self.ahead.expiry(at, LATEST) / 1000
    }

    /// Whether there is something to read for which the socket need not be waited for: it came together with what was
    /// read before.
    pub(crate) fn has_buffered(&self) -> bool {
        let session = self.stream.session.as_ref();
        self.has_unread() || session.is_some_and(Session::has_buffered)
    }

    /// Whether more came than was read. Where no answer is awaited, nobody asked for it.
    pub(crate) fn has_unread(&self) -> bool {
        !self.read_buffer.rest().is_empty()
    }

    /// A second handle of the same connection, to write to while this one reads.
    pub(crate) fn writer(&self) -> io::Result<Writer> {
        Ok(Writer {
            stream: self.stream.writing_end()?,
            rest: Vec::new(),
        })
    }
}

/// The writing end of a connection that another thread reads.
pub(crate) struct Writer {
    stream: Stream,
    /// What the socket has not taken yet, encrypted if it is to be.
    rest: Vec<u8>,
}

impl Writer {
    /// Writes without blocking. What the socket does not take at once is kept for [`Writer::flush`].
    pub(crate) fn send(&mut self, packed: &[u8]) -> io::Result<()> {
        let sealed = self.stream.seal(packed)?;
        self.rest.extend_from_slice(&sealed);
        self.flush()
    }

    /// Writes of the rest what the socket takes now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        while let Some(rest @ [_, ..]) = self.rest.get(written..) {
            match self.stream.socket.send_some(rest) {
                Ok(sent) => written += sent,
                Err(error) if is_timeout(&error) => break,
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.rest.drain(..written);
        Ok(())
    }

    /// Whether there is something to flush.
    pub(crate) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Ends the connection, which wakes its reader.
    pub(crate) fn shut_down(&self) {
        // It may be closed already, which is what is wanted.
        let _ = self.stream.socket.shutdown();
    }
}

/// The packed request that goes before each one for a slot on the move.
pub(crate) fn asking() -> Vec<u8> {
    redis::cmd("ASKING").get_packed_command()
}

/// Takes the password out of what the server says: an error for an unknown command repeats its arguments.
fn discreet(fault: CallError, password: Option<&str>) -> CallError {
    match (fault, password) {
        (CallError::Server(text), Some(password)) => {
            // They may be cut short, so that the password does not stand there as a whole.
            let said = text.split(", with args").next().unwrap_or_default();
            CallError::Server(said.replace(password, "…"))
        }
        (fault, _) => fault,
    }
}

/// The error of the operating system behind an error of the client library.
fn io_error_in(error: &redis::RedisError) -> Option<&io::Error> {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<Shared>()?.downcast_ref()
}

/// What a server says, as much of it as a message may have, on one line.
fn cut(text: &str) -> String {
    let mut end = text.len().min(MOST_WORDS);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (kept, rest) = text.split_at(end);
    let visible = |sign: char| if sign.is_control() { '\u{fffd}' } else { sign };
    let mut kept: String = kept.chars().map(visible).collect();
    if !rest.is_empty() {
        kept.push('…');
    }
    kept
}

/// What a reply is, shortened for a message.
pub(crate) fn brief(value: &Value) -> String {
    let mut text = String::new();
    describe(value, &mut text);
    cut(&text)
}

fn describe(value: &Value, into: &mut String) {
    let bytes = match value {
        Value::Array(items) => {
            into.push('[');
            for (index, item) in items.iter().enumerate() {
                if into.len() > MOST_WORDS {
                    break;
                }
                if index > 0 {
                    into.push_str(", ");
                }
                describe(item, into);
            }
            into.push(']');
            return;
        }
        Value::Nil => return into.push_str("nothing"),
        Value::Okay => b"OK",
        Value::Int(number) => return into.push_str(&number.to_string()),
        Value::BulkString(bytes) => &**bytes,
        Value::SimpleString(text) => text.as_bytes(),
        Value::ServerError(error) => return into.push_str(&cut(&error.to_string())),
        // Nobody has asked for a later version of the protocol.
        _ => return into.push_str("a reply of another protocol"),
    };
    let bytes = bytes.get(..MOST_WORDS).unwrap_or(bytes);
    into.push_str(&format!("{:?}", String::from_utf8_lossy(bytes)));
}

/// The ms since 1970 in a reply to TIME.
fn time_of(value: &Value) -> Option<i64> {
    let Value::Array(parts) = value else {
        return None;
    };
    let [seconds, micros] = parts.as_slice() else {
        return None;
    };
    let number = |part: &Value| match part {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse::<i64>().ok(),
        Value::Int(number) => Some(*number),
        _ => None,
    };
    Some(
        number(seconds)?
            .saturating_mul(1000)
            .saturating_add(number(micros)? / 1000),
    )
}

fn text_in(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

/// Who a server is, by its answers to INFO and to the question how it writes its file.
fn identity_in(
    server: &Value,
    persistence: Option<Value>,
    replication: &Value,
    fsync: Option<Value>,
    [asked, told]: [BootInstant; 2],
) -> Result<Identity, CallError> {
    let (server, replication) = (text_in(server), text_in(replication));
    let run = info_field(&server, "run_id");
    // Below zero if its clock was set back since.
    let up = info_field(&server, "uptime_in_seconds").and_then(|up| up.parse::<i64>().ok());
    let up = up.map(|up| u64::try_from(up).unwrap_or_default());
    let (Some(run), Some(up)) = (run, up) else {
        return Err(CallError::Server("INFO server has no run_id".to_owned()));
    };
    // Who may not look is as careful as if it forgot.
    let persistence = persistence.map(|reply| text_in(&reply));
    let persistence = persistence.unwrap_or_default();
    let settings: Vec<String> = match fsync {
        Some(Value::Array(items)) => items.iter().map(text_in).collect(),
        _ => Vec::new(),
    };
    let is_set = |name: &str, to: &str| {
        let mut pairs = settings.chunks(2);
        pairs.any(|pair| matches!(pair, [key, value] if key == name && value == to))
    };
    let says = |field, what| info_field(&persistence, field) == Some(what);
    let remembers = says("aof_enabled", "1")
        && is_set("appendfsync", "always")
        // While the file is written anew nothing is synced, or not all keys are in it yet.
        && is_set("no-appendfsync-on-rewrite", "no")
        && !says("aof_rewrite_in_progress", "1")
        && !says("aof_rewrite_scheduled", "1");
    let id_before = info_field(&replication, "master_replid2").unwrap_or_default();
    Ok(Identity {
        run: run.into(),
        history: info_field(&replication, "master_replid")
            .unwrap_or_default()
            .into(),
        has_followed: id_before.bytes().any(|digit| digit != b'0'),
        follows: info_field(&replication, "role").is_some_and(|role| role != "master"),
        is_in_cluster: info_field(&server, "redis_mode") == Some("cluster"),
        // Both ends of that time are whole seconds, so it may be one less.
        age: Some(Duration::from_secs(up.saturating_sub(1))),
        remembers,
        asked,
        told,
    })
}

/// The value of a field in what INFO tells.
fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Whether what failed may go well when it is tried again at once.
pub(crate) fn passes(error: &io::Error) -> bool {
    is_timeout(error) || error.kind() == io::ErrorKind::Interrupted
}

/// Whether a socket's time-out has to be set anew: it would overshoot the deadline, or wake its thread too often.
fn must_set(current: Option<Duration>, left: Duration) -> bool {
    current.is_none_or(|current| current > left + TIMEOUT_SLACK || current < left / 8)
}

/// A reader that keeps one deadline over all its reads.
struct Timed<'a> {
    stream: &'a mut Stream,
    read_buffer: &'a mut ReadBuffer,
    timeout: &'a mut Option<Duration>,
    is_within: &'a mut bool,
    stranger: &'a mut Option<String>,
    deadline: Instant,
    allowance: usize,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read_buffer.rest().is_empty() {
            let read = self.fill()?;
            self.allowance = self.allowance.checked_sub(read).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "the reply is larger than 1 MiB")
            })?;
        }
        if !*self.is_within && self.read_buffer.is_strange() {
            *self.stranger = Some(self.read_buffer.stranger());
            return Err(io::ErrorKind::InvalidData.into());
        }
        let taken = self.read_buffer.take_line(buffer);
        *self.is_within |= taken > 0;
        Ok(taken)
    }
}

impl Timed<'_> {
    /// Reads from the socket. Nothing at its end.
    fn fill(&mut self) -> io::Result<usize> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if must_set(*self.timeout, left) {
                self.stream.socket.set_read_timeout(left)?;
                *self.timeout = Some(left);
            }
            match self.read_buffer.fill(self.stream) {
                Err(error) if passes(&error) => {}
                read => return read,
            }
        }
    }
}

/// What was read from a connection and is no part yet of what the parser knows.
///
/// The parser gets it line by line. Every reply ends with a line, so the parser never has more than the one it reads, and
/// what came behind it can be seen here.
#[derive(Default)]
struct ReadBuffer {
    block: Vec<u8>,
    begin: usize,
    end: usize,
}

impl ReadBuffer {
    fn rest(&self) -> &[u8] {
        self.block.get(self.begin..self.end).unwrap_or_default()
    }

    /// Reads once from the stream, when all was taken.
    fn fill(&mut self, stream: &mut Stream) -> io::Result<usize> {
        self.block.resize(READ_AT_ONCE, 0);
        (self.begin, self.end) = (0, 0);
        self.end = stream.read(&mut self.block)?;
        Ok(self.end)
    }

    /// Whether no reply begins so.
    fn is_strange(&self) -> bool {
        const KINDS: &[u8] = b"+-:$*_,#!=(%~>|";
        self.rest()
            .first()
            .is_some_and(|kind| !KINDS.contains(kind))
    }

    /// What is to be said of whoever begins a reply so.
    fn stranger(&self) -> String {
        const TLS: [[u8; 2]; 2] = [[0x15, 3], [0x16, 3]];
        let rest = self.rest();
        if TLS.iter().any(|record| rest.starts_with(record)) {
            return format!("{STRANGER} with TLS; use rediss:// to talk to it");
        }
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.get(..MOST_OF_A_STRANGER).unwrap_or(line);
        let line = cut(String::from_utf8_lossy(line).trim());
        format!("{STRANGER} {line}, so it is no Redis server; look at the host and the port")
    }

    /// Takes out what there is of the next line.
    fn take_line(&mut self, buffer: &mut [u8]) -> usize {
        let rest = self.rest();
        let line = rest.iter().position(|byte| *byte == b'\n');
        let length = line.map_or(rest.len(), |end| end + 1).min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest.iter().take(length)) {
            *to = *from;
        }
        self.begin += length;
        length
    }
}

/// A socket, and what encrypts the bytes on it.
struct Stream {
    socket: Socket,
    session: Option<Session>,
}

impl Stream {
    /// What has to be written to the socket so that `plain` arrives.
    fn seal<'a>(&self, plain: &'a [u8]) -> io::Result<Cow<'a, [u8]>> {
        match &self.session {
            Some(session) => session.seal(plain).map(Cow::Owned),
            None => Ok(Cow::Borrowed(plain)),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            Some(session) => session.read(&self.socket, buffer),
            None => (&self.socket).read(buffer),
        }
    }

    /// After a failure: why the other end refuses TLS with us, if it does.
    fn refusal(&mut self) -> Option<String> {
        self.session.as_mut()?.refusal(&self.socket)
    }

    /// A second handle of the same connection, to write to.
    fn writing_end(&self) -> io::Result<Stream> {
        Ok(Stream {
            socket: self.socket.try_clone()?,
            session: self.session.as_ref().map(Session::writing_end),
        })
    }
}

pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(address: &ConnectionAddr, deadline: Instant) -> io::Result<Socket> {
        match address {
            ConnectionAddr::Tcp(host, port) => {
                let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
                connect_to_one_of(&addresses, deadline).map(Socket::Tcp)
            }
            ConnectionAddr::Unix(path) => {
                // std's connect has no time-out, and blocks when the server's backlog is full.
                let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None::<Protocol>)?;
                let left = deadline
                    .saturating_duration_since(Instant::now())
                    .max(Duration::from_millis(1));
                socket.connect_timeout(&SockAddr::unix(path)?, left)?;
                Ok(Socket::Unix(socket.into()))
            }
            _ => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kind of address is not supported",
            )),
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Socket::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    pub(crate) fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_write_timeout(Some(timeout)),
            Socket::Unix(stream) => stream.set_write_timeout(Some(timeout)),
        }
    }

    fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Tcp(stream) => stream.try_clone().map(Socket::Tcp),
            Socket::Unix(stream) => stream.try_clone().map(Socket::Unix),
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        }
    }

    /// Writes what the socket's buffer takes, without blocking.
    pub(crate) fn send_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(self.as_fd(), bytes, flags)?)
    }

    /// Reads without blocking.
    pub(crate) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (received, _) = rustix::net::recv(self.as_fd(), buffer, RecvFlags::DONTWAIT)?;
        Ok(received)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Connects to the first of the addresses of one name that answers.
fn connect_to_one_of(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (tried, address) in addresses.iter().enumerate() {
        // A dead address must leave time for those behind it.
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        if share.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(address, share).and_then(tuned) {
            Ok(stream) => return Ok(stream),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

/// Sets what bounds the life of a connection whose other end is gone without a word.
fn tuned(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(2));
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read(buffer),
            Socket::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write(buffer),
            Socket::Unix(stream) => (&mut &*stream).write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// An address that refuses: nobody listens there without being root.
    fn refusing() -> SocketAddr {
        "127.0.0.1:1".parse().unwrap()
    }

    /// An address that does not answer, as long as what is returned with it lives.
    fn silent() -> (SocketAddr, Vec<socket2::Socket>) {
        let listener = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut held = vec![listener];
        // Once its backlog is full the kernel drops who comes next.
        for _ in 0..4 {
            let waiting = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            waiting.set_nonblocking(true).unwrap();
            let _ = waiting.connect(&address.into());
            held.push(waiting);
        }
        (address, held)
    }

    /// A connection to a server that says `replies` behind those of the handshake.
    fn talking(replies: Vec<u8>) -> (Connection, thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream
                .write_all(b"+OK\r\n*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n")
                .unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(&replies).unwrap();
        });
        let address = Address::parse(&url, Duration::from_secs(5), &TlsConfig::default()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        (Connection::connect(&address, deadline).unwrap(), server)
    }

    #[test]
    fn a_server_that_says_much_is_cut_short() {
        let deadline = Instant::now() + Duration::from_secs(5);
        let error = [
            "-ERR \x1b[1m".to_owned(),
            "ä".repeat(400_000),
            "\r\n".to_owned(),
        ]
        .concat();
        let mut replies = error.into_bytes();
        replies.extend(b":7\r\n");
        let (mut connection, server) = talking(replies);
        let Err(CallError::Server(text)) = connection.call(b"*1\r\n$4\r\nPING\r\n", deadline)
        else {
            panic!("an error was sent");
        };
        assert!(
            text.starts_with("ERR \u{fffd}[1mää") && text.ends_with('…'),
            "{text}"
        );
        assert!(text.len() < MOST_WORDS + 8, "{}", text.len());
        assert_eq!(connection.receive(deadline), Ok(Value::Int(7)));
        assert!(!connection.has_unread());
        server.join().unwrap();
    }

    #[test]
    fn a_reply_that_nobody_asked_for_is_seen() {
        let deadline = Instant::now() + Duration::from_secs(5);
        let answers = format!(":0\r\n*2\r\n:8\r\n:1\r\n:{}\r\n:5\r\n", 9 << SMALL_BITS | 3);
        let (mut connection, server) = talking(answers.into_bytes());
        connection.ask(b"*1\r\n$4\r\nPING\r\n", deadline).unwrap();
        assert_eq!(connection.answer(9, deadline), Ok(Value::Int(3)));
        assert!(connection.is_spent && connection.has_unread());
        let refused = connection.ask(b"*1\r\n$4\r\nPING\r\n", deadline);
        assert!(matches!(refused, Err(CallError::NotSent(_))), "{refused:?}");
        server.join().unwrap();
    }

    #[test]
    fn a_reply_in_a_message_is_short_and_plain() {
        let long = Value::BulkString(vec![b'x'; 1 << 20]);
        let many = Value::Array(vec![long; 8]);
        assert!(brief(&many).len() < MOST_WORDS + 8);
        let few = [
            Value::Int(1),
            Value::Nil,
            Value::BulkString(b"a\n".to_vec()),
        ];
        assert_eq!(brief(&Value::Array(few.to_vec())), r#"[1, nothing, "a\n"]"#);
    }

    #[test]
    fn a_dead_address_leaves_time_for_those_behind_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let alive = listener.local_addr().unwrap();
        let (silent, _held) = silent();
        for dead in [vec![refusing()], vec![silent], vec![silent, refusing()]] {
            let addresses = [dead.clone(), vec![alive]].concat();
            let start = Instant::now();
            let stream = connect_to_one_of(&addresses, start + Duration::from_secs(3)).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), alive, "behind {dead:?}");
            if dead.contains(&silent) {
                assert!(start.elapsed() >= Duration::from_secs(1), "it is silent");
            }
        }
        let start = Instant::now();
        let dead = [silent, silent];
        connect_to_one_of(&dead, start + Duration::from_millis(400)).unwrap_err();
        assert!(start.elapsed() >= Duration::from_millis(400));
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "{:?}",
            start.elapsed()
        );
        connect_to_one_of(&[], start + Duration::from_secs(1)).unwrap_err();
    }
}
