//! A TCP proxy that loses, delays, cuts and repeats what passes through it.
//!
//! It knows just enough of the protocol to tell where a request or a reply ends, so a fault hits whole messages however
//! the bytes were split or joined on their way. What it cannot read, such as TLS, passes as it comes.
//!
//! ```text
//! client -> requests() -> server      one thread, applies the request faults, notes the action of the reply
//! client <- replies()  <- server      one thread, applies the action
//! ```

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::frames::{Frames, hash_of_text, is_push, replies_to};

/// The effect on a message that a rule matches.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The server executes the request, the reply is lost.
    SwallowReply(End),
    /// The request is lost before the server sees it.
    SwallowRequest(End),
    /// The client gets this many bytes of the reply, then a reset.
    TruncateReply(usize),
    /// The client gets the reply byte by byte, with a pause before each.
    Drip(Duration),
    /// The reply, and everything after it on this connection, is delayed.
    DelayReply(Duration),
    /// The request, and everything after it on this connection, is forwarded later, even if the client has left.
    DelayRequest(Duration),
    /// The server gets the request twice and executes both at once; the client gets only the first reply.
    DuplicateRequest,
    /// The client gets the reply, and after this time once more: together with the first one if it is zero, else
    /// before the next bytes on this connection.
    RepeatReply(Duration),
    /// A published message is lost while replies pass.
    DropPush,
    /// The request waits for [`Rule::release`], even if the client has gone; the server sees an open connection.
    Hold,
}

/// How a connection ends after a message on it was swallowed.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Open but dead in both directions, as behind a router that dropped the connection.
    Silent,
    /// A reset.
    Reset,
}

/// A proxy in front of one address; drop cuts all its connections.
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

/// A handle on one fault set with [`Proxy::next`]; dropping it leaves the fault in force.
pub struct Rule {
    id: usize,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Pass,
    BlackHole,
    Refuse,
    Closed,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    target: SocketAddr,
    mode: Mode,
    rules: Vec<RuleState>,
    next_rule: usize,
    connections: Vec<Arc<Connection>>,
    counters: Counters,
}

struct RuleState {
    id: usize,
    left: usize,
    hits: usize,
    needle: Option<Vec<u8>>,
    fault: Fault,
}

/// The messages that have passed through a proxy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Connections accepted since the start, refused ones included.
    pub accepted: usize,
    /// Connections open now.
    pub open: usize,
    /// Bytes read from clients, whether sent on or not.
    pub bytes_up: u64,
    /// Bytes read from the server, whether sent on or not.
    pub bytes_down: u64,
}

impl Proxy {
    /// Listens on a loopback port of its own and sends on to `target`.
    pub fn to(target: SocketAddr) -> Self {
        let listener = super::free_listener();
        let addr = listener.local_addr().expect("a bound address");
        let state = State {
            target,
            mode: Mode::Pass,
            rules: Vec::new(),
            next_rule: 0,
            connections: Vec::new(),
            counters: Counters::default(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let accepting = shared.clone();
        thread::spawn(move || accepting.accept(&listener));
        Self { addr, shared }
    }

    /// The URL to give to a client.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// The address the proxy listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Applies `fault` to the next `times` requests that contain `needle` or the hash of the script `needle`, and to
    /// any request if it is `None`.
    ///
    /// The handshake of a new connection consists of requests, too. [`Fault::DropPush`] applies to messages from the
    /// server instead. The oldest matching rule applies, and only one rule per message.
    pub fn next(&self, times: usize, needle: Option<&[u8]>, fault: Fault) -> Rule {
        let mut state = self.shared.state();
        let id = state.next_rule;
        state.next_rule += 1;
        state.rules.push(RuleState {
            id,
            left: times,
            hits: 0,
            needle: needle.map(<[u8]>::to_vec),
            fault,
        });
        Rule {
            id,
            shared: self.shared.clone(),
        }
    }

    /// Delays all bytes of all connections, also new ones, until [`heal`](Self::heal) delivers them, as TCP does after
    /// a partition.
    pub fn black_hole(&self) {
        self.shared.set_mode(Mode::BlackHole);
    }

    /// Resets new connections at once; open connections stay.
    pub fn refuse(&self) {
        self.shared.set_mode(Mode::Refuse);
    }

    /// Routes new connections to `target`, like a changed DNS entry; open connections stay.
    pub fn lead_to(&self, target: SocketAddr) {
        self.shared.state().target = target;
    }

    /// Makes the present connections silently dead forever, while new ones work.
    pub fn mute(&self) {
        let state = self.shared.state();
        state
            .connections
            .iter()
            .for_each(|connection| connection.set(Life::Mute));
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Resets the present connections, and returns when that is done.
    pub fn cut(&self) {
        let mut state = self.shared.state();
        let doomed = state.connections.clone();
        doomed.iter().for_each(|connection| connection.reset());
        self.shared.changed.notify_all();
        let limit = Instant::now() + Duration::from_secs(2);
        while doomed.iter().any(|one| {
            state
                .connections
                .iter()
                .any(|other| Arc::ptr_eq(one, other))
        }) {
            let left = limit.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "a connection of the proxy does not end");
            state = self.shared.wait(state, Some(left));
        }
    }

    /// Ends every fault and forwards held requests; muted connections stay dead.
    pub fn heal(&self) {
        self.shared.state().rules.clear();
        self.shared.set_mode(Mode::Pass);
    }

    /// The messages that have passed so far.
    pub fn counters(&self) -> Counters {
        self.shared.state().counters
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.set_mode(Mode::Closed);
        self.shared
            .state()
            .connections
            .iter()
            .for_each(|connection| connection.reset());
        self.shared.changed.notify_all();
        // Wakes the accepting thread, which then sees the mode and closes the listener.
        let _ = TcpStream::connect(self.addr);
    }
}

impl Rule {
    /// How many messages have met the fault so far.
    pub fn hits(&self) -> usize {
        self.shared
            .state()
            .rules
            .iter()
            .find(|rule| rule.id == self.id)
            .map_or(0, |rule| rule.hits)
    }

    /// Lifts this fault; requests it holds are sent on.
    pub fn lift(self) {
        self.shared.state().rules.retain(|rule| rule.id != self.id);
        self.shared.changed.notify_all();
    }

    /// Forwards the requests held by this rule, which then holds none.
    pub fn release(self) {
        self.lift();
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Life {
    Open,
    Mute,
    Dead,
}

struct Connection {
    client: TcpStream,
    server: Mutex<Option<TcpStream>>,
    life: Mutex<Life>,
    /// The actions on the pending replies, oldest first.
    pending_replies: Mutex<VecDeque<Option<ReplyAction>>>,
}

#[derive(Clone, Copy)]
enum ReplyAction {
    Fault(Fault),
    /// The reply to a duplicate.
    Drop,
}

impl Connection {
    fn life(&self) -> Life {
        *lock(&self.life)
    }

    fn set(&self, life: Life) {
        *lock(&self.life) = life;
    }

    /// Closes both directions; the client gets a reset when the last handle of its socket closes, in its threads.
    fn reset(&self) {
        self.set(Life::Dead);
        let _ = SockRef::from(&self.client).set_linger(Some(Duration::ZERO));
        // Wakes the reading thread without the regular close that a shutdown of the other half would send first.
        let _ = self.client.shutdown(Shutdown::Read);
        if let Some(server) = &*lock(&self.server) {
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            let Ok(client) = client else { continue };
            let mut state = self.state();
            if state.mode == Mode::Closed {
                return;
            }
            state.counters.accepted += 1;
            if state.mode == Mode::Refuse {
                let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
                continue;
            }
            let (server, life, pending_replies) =
                (Mutex::new(None), Mutex::new(Life::Open), Mutex::default());
            let connection = Arc::new(Connection {
                client,
                server,
                life,
                pending_replies,
            });
            state.connections.push(connection.clone());
            state.counters.open += 1;
            let shared = self.clone();
            thread::spawn(move || shared.serve(connection));
        }
    }

    /// Runs both directions of one connection until they have ended.
    fn serve(&self, connection: Arc<Connection>) {
        self.wait_open(&connection);
        let target = self.state().target;
        match TcpStream::connect(target) {
            Ok(server) => {
                let _ = connection.client.set_nodelay(true);
                let _ = server.set_nodelay(true);
                *lock(&connection.server) = server.try_clone().ok();
                // A cut between the connect and the line above found no server socket to close.
                if connection.life() == Life::Dead {
                    connection.reset();
                }
                thread::scope(|scope| {
                    scope.spawn(|| self.requests(&connection, &server));
                    self.replies(&connection, &server);
                });
            }
            Err(_) => connection.reset(),
        }
        let mut state = self.state();
        state
            .connections
            .retain(|other| !Arc::ptr_eq(other, &connection));
        state.counters.open -= 1;
        // Closes the socket before the waiting test continues.
        drop(connection);
        drop(state);
        self.changed.notify_all();
    }

    fn requests(&self, connection: &Connection, server: &TcpStream) {
        let mut frames = Frames::of(&connection.client);
        while let Some(frame) = frames.next(|bytes| self.state().counters.bytes_up += bytes) {
            let rule = self.matching(&frame, |fault| !matches!(fault, Fault::DropPush));
            match rule {
                Some((_, Fault::SwallowRequest(end))) => self.end(connection, end),
                Some((_, Fault::DelayRequest(delay))) => self.pause(connection, delay),
                Some((id, Fault::Hold)) => self.hold(connection, id),
                _ => {}
            }
            self.wait_open(connection);
            if connection.life() != Life::Open {
                continue;
            }
            let action = rule.map(|(_, fault)| ReplyAction::Fault(fault));
            let replies = replies_to(&frame);
            let mut server = server;
            lock(&connection.pending_replies)
                .extend((0..replies).map(|reply| action.filter(|_| reply == 0)));
            let sent = if let Some((_, Fault::DuplicateRequest)) = rule {
                lock(&connection.pending_replies)
                    .extend((0..replies).map(|_| Some(ReplyAction::Drop)));
                // In one piece, so that both run before the client gets the first reply and sends another request.
                server.write_all(&frame.repeat(2))
            } else {
                server.write_all(&frame)
            };
            if sent.is_err() {
                break;
            }
        }
        // The client's close is forwarded after its last request.
        self.wait_open(connection);
        let _ = server.shutdown(Shutdown::Write);
        if connection.life() != Life::Open {
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    fn replies(&self, connection: &Connection, server: &TcpStream) {
        let mut frames = Frames::of(server);
        while let Some(mut frame) = frames.next(|bytes| self.state().counters.bytes_down += bytes) {
            let push = is_push(&frame);
            let action = if push {
                self.matching(&frame, |fault| matches!(fault, Fault::DropPush))
                    .map(|_| ReplyAction::Drop)
            } else {
                lock(&connection.pending_replies).pop_front().flatten()
            };
            let mut drip = None;
            let mut reset = false;
            let mut again = None;
            match action {
                Some(ReplyAction::Drop) => continue,
                Some(ReplyAction::Fault(Fault::SwallowReply(end))) => self.end(connection, end),
                Some(ReplyAction::Fault(Fault::DelayReply(delay))) => self.pause(connection, delay),
                Some(ReplyAction::Fault(Fault::Drip(per_byte))) => drip = Some(per_byte),
                Some(ReplyAction::Fault(Fault::RepeatReply(Duration::ZERO))) => {
                    frame = frame.repeat(2)
                }
                Some(ReplyAction::Fault(Fault::RepeatReply(after))) => {
                    again = Some((after, frame.clone()))
                }
                Some(ReplyAction::Fault(Fault::TruncateReply(bytes))) => {
                    frame.truncate(bytes);
                    reset = true;
                }
                _ => {}
            }
            // A closed client does not end this loop: its last requests may still be in flight.
            let chunk = if drip.is_some() {
                1
            } else {
                frame.len().max(1)
            };
            for piece in frame.chunks(chunk) {
                drip.into_iter()
                    .for_each(|per_byte| self.pause(connection, per_byte));
                self.wait_open(connection);
                if connection.life() != Life::Open || (&connection.client).write_all(piece).is_err()
                {
                    break;
                }
            }
            if let Some((after, frame)) = again {
                self.pause(connection, after);
                self.wait_open(connection);
                let _ = (&connection.client).write_all(&frame);
            }
            if reset {
                self.end(connection, End::Reset);
            }
        }
        self.wait_open(connection);
        if connection.life() == Life::Open {
            let _ = connection.client.shutdown(Shutdown::Both);
        }
    }

    /// The first rule for this message, counted as hit.
    fn matching(&self, frame: &[u8], applies: impl Fn(Fault) -> bool) -> Option<(usize, Fault)> {
        let mut state = self.state();
        let hash = hash_of_text(frame).unwrap_or_default();
        let contains = |needle: &Vec<u8>| {
            let is_in = |message: &[u8]| message.windows(needle.len()).any(|part| part == needle);
            needle.is_empty() || is_in(frame) || is_in(hash.as_bytes())
        };
        let fits = |rule: &&mut RuleState| {
            rule.left > 0 && applies(rule.fault) && rule.needle.as_ref().is_none_or(contains)
        };
        let rule = state.rules.iter_mut().find(fits)?;
        rule.left -= 1;
        rule.hits += 1;
        Some((rule.id, rule.fault))
    }

    fn end(&self, connection: &Connection, end: End) {
        // Waiters check the life under this lock, so none of them can miss the change.
        let _state = self.state();
        match end {
            End::Silent => connection.set(Life::Mute),
            End::Reset => connection.reset(),
        }
        self.changed.notify_all();
    }

    /// Waits for the end of a black hole, unless the connection is dead or mute for other reasons.
    fn wait_open(&self, connection: &Connection) {
        let mut state = self.state();
        while state.mode == Mode::BlackHole && connection.life() == Life::Open {
            state = self.wait(state, None);
        }
    }

    fn hold(&self, connection: &Connection, id: usize) {
        let mut state = self.state();
        while state.rules.iter().any(|rule| rule.id == id) && connection.life() == Life::Open {
            state = self.wait(state, None);
        }
    }

    fn pause(&self, connection: &Connection, pause: Duration) {
        let end = Instant::now() + pause;
        let mut state = self.state();
        while connection.life() == Life::Open {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.wait(state, Some(left));
        }
    }

    fn set_mode(&self, mode: Mode) {
        self.state().mode = mode;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match limit {
            Some(limit) => {
                self.changed
                    .wait_timeout(state, limit)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
            None => self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
