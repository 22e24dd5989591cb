//! The network: connections between processes and servers, each segment an event, and their faults.
//!
//! Bytes of one connection arrive in order, as in TCP, or not at all. A server is a state machine supplied by the
//! user; it runs when bytes arrive.

mod delivery;
mod shown;
mod socket;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::events;
use crate::scheduler::{self, MILLI, Nanos};
pub use delivery::deliver;
pub use shown::name_arguments;
pub use socket::{Socket, connect, wait_readable};

/// A server, as the network sees it. Times are by its own clock, in microseconds since 1970.
pub trait Machine: Send {
    fn connect(&mut self, connection: u64);

    fn disconnect(&mut self, connection: u64);

    /// Feeds bytes, and returns the output by connection.
    fn feed(&mut self, now: i64, connection: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>)>;
}

/// The probabilities of faults of a segment or a connection, and durations.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// One way, at least and at most.
    pub latency: (Nanos, Nanos),
    /// That it is late by up to `longest`.
    pub late: f64,
    pub longest: Nanos,
    /// That it is cut before, in or after a request, or in a reply.
    pub cut: f64,
    /// That it is silent from now on, without an end.
    pub silent: f64,
    /// The chance that a request runs after its sender has seen the connection end, or that a reply comes twice.
    pub stray: f64,
    pub surplus: f64,
    /// Whether only replies that are not errors are repeated.
    pub spares_errors: bool,
    /// That it arrives in pieces.
    pub drip: f64,
    /// That opening it is refused, or gets no reply.
    pub refuse: f64,
    pub hang: f64,
}

struct Server {
    name: String,
    host: String,
    port: u16,
    machine: Arc<Mutex<dyn Machine>>,
    is_up: bool,
    paused_until: Nanos,
    /// The clock's excess rate, in millionths, and its offset, in microseconds.
    rate: i64,
    ahead: i64,
    faults: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

struct Connection {
    server: usize,
    process: usize,
    /// Received bytes that were not read yet.
    inbox: VecDeque<u8>,
    /// How it ended, for the client.
    end: Option<End>,
    /// Whether the client has closed it.
    is_shut: bool,
    /// Whether the server knows it.
    is_known: bool,
    /// All packets are dropped, without notice.
    is_silent: bool,
    /// Bytes sent now arrive no earlier, there and here.
    arrives_there: Nanos,
    arrives_here: Nanos,
}

#[derive(Default)]
struct Net {
    servers: Vec<Server>,
    connections: Vec<Connection>,
    /// By process and server: when the partition ends.
    partitions: BTreeMap<(usize, usize), Nanos>,
}

static NET: Mutex<Net> = Mutex::new(Net {
    servers: Vec::new(),
    connections: Vec::new(),
    partitions: BTreeMap::new(),
});

/// The keys at which readers wait, beside addresses.
const READERS: usize = 1 << 60;
const POLLERS: usize = 1 << 61;

/// The clock of a server at the start of the world: a day of 2026.
const EPOCH: i64 = 1_790_000_000_000_000;

/// The time until a closed port or a closed connection is noticed.
const SHORT: Nanos = MILLI / 5;

fn net() -> MutexGuard<'static, Net> {
    NET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a server, with the offset of its clock in microseconds and its excess rate in millionths.
pub fn add_server(
    name: &str,
    host: &str,
    port: u16,
    machine: Arc<Mutex<dyn Machine>>,
    (ahead, rate): (i64, i64),
) -> usize {
    let mut net = net();
    net.servers.push(Server {
        name: name.to_owned(),
        host: host.to_owned(),
        port,
        machine,
        is_up: true,
        paused_until: 0,
        rate,
        ahead,
        faults: Faults::default(),
    });
    net.servers.len() - 1
}

pub fn set_faults(server: usize, faults: Faults) {
    net().servers[server].faults = faults;
}

/// The time of the clock of a server.
pub fn time_of(server: usize) -> i64 {
    net().time_of(server)
}

/// Sets the clock of a server ahead, or back.
pub fn step_clock(server: usize, micros: i64) {
    net().servers[server].ahead += micros;
}

/// Whether a server is paused.
pub fn is_paused(server: usize) -> bool {
    net().servers[server].paused_until > scheduler::now()
}

pub fn is_up(server: usize) -> bool {
    net().servers[server].is_up
}

/// Pauses a server until a moment; requests wait meanwhile.
pub fn pause(server: usize, until: Nanos) {
    let mut net = net();
    events::count("server paused");
    let server = &mut net.servers[server];
    server.paused_until = server.paused_until.max(until);
}

/// Partitions a process from a server until a moment.
pub fn part(process: usize, server: usize, until: Nanos) {
    let mut net = net();
    events::count("partition");
    let ends = net.partitions.entry((process, server)).or_default();
    *ends = (*ends).max(until);
}

/// Stops a server, with all its connections.
pub fn take_down(server: usize) {
    events::count("server down");
    net().servers[server].is_up = false;
    cut_all(|connection| connection.server == server);
}

pub fn bring_up(server: usize) {
    net().servers[server].is_up = true;
}

/// Closes the connections of a killed process, as its kernel does.
pub fn bury(process: usize) {
    cut_all(|connection| connection.process == process);
}

fn cut_all(which: impl Fn(&Connection) -> bool) {
    let ids = {
        let net = net();
        let ids = 0..net.connections.len();
        ids.filter(|id| which(&net.connections[*id]))
            .collect::<Vec<_>>()
    };
    for id in ids {
        cut(id);
    }
}

/// How many connections are open at their clients.
pub fn open_connections(process: usize) -> usize {
    let net = net();
    let mine = net.connections.iter();
    mine.filter(|it| it.process == process && !it.is_shut)
        .count()
}

impl Net {
    fn time_of(&self, server: usize) -> i64 {
        let server = &self.servers[server];
        let micros = i64::try_from(scheduler::now() / 1_000).unwrap_or(i64::MAX / 2);
        EPOCH + server.ahead + micros + micros / 1_000 * server.rate / 1_000
    }

    fn latency(&self, server: usize) -> Nanos {
        let (least, most) = self.servers[server].faults.latency;
        scheduler::draw(|draw| draw.u64(least..=most.max(least)))
    }

    /// When bytes sent now arrive at the other end, after those sent before.
    fn arrival(&mut self, id: usize, is_here: bool) -> Nanos {
        let (server, process) = (self.connections[id].server, self.connections[id].process);
        let mut at = scheduler::now() + self.latency(server);
        let faults = &self.servers[server].faults;
        if chance(faults.late) {
            at += scheduler::draw(|draw| draw.u64(..faults.longest.max(1)));
            events::count("late");
        }
        if let Some(parted) = self.partitions.get(&(process, server))
            && *parted > scheduler::now()
        {
            at = at.max(*parted + self.latency(server));
        }
        let connection = &mut self.connections[id];
        let before = if is_here {
            &mut connection.arrives_here
        } else {
            &mut connection.arrives_there
        };
        *before = at.max(*before);
        *before
    }
}

fn chance(chance: f64) -> bool {
    chance > 0.0 && scheduler::draw(|draw| draw.f64()) < chance
}

fn wake(id: usize) {
    scheduler::wake_all(READERS + id);
    scheduler::wake_all(POLLERS);
}

/// Ends a connection on both sides: at once at the server, soon at the client.
fn cut(id: usize) {
    let mut net = net();
    if net.connections[id].end.is_some() || net.connections[id].is_silent {
        return;
    }
    events::count("cut");
    hang_up(&mut net, id);
    drop(net);
    scheduler::note(|| format!("cut #{id}"));
    let how = scheduler::draw(|draw| draw.choice([End::Closed, End::Reset]));
    scheduler::at(scheduler::now() + SHORT, move || {
        end(id, how.unwrap_or(End::Reset));
    });
}

/// Notifies the server of a closed connection.
fn hang_up(net: &mut Net, id: usize) {
    let connection = &mut net.connections[id];
    connection.is_silent = true;
    if std::mem::take(&mut connection.is_known) {
        let machine = Arc::clone(&net.servers[connection.server].machine);
        machine
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .disconnect(id as u64);
    }
}

fn end(id: usize, how: End) {
    net().connections[id].end.get_or_insert(how);
    wake(id);
}
