//! The network: connections of bytes between processes and servers, each segment an event, and what can befall it.
//!
//! What was sent on one connection arrives in order, as TCP has it, or not at all. A server is a machine of states that
//! somebody else wrote; it runs when bytes arrive.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::scheduler::{self, MILLI, Nanos, Wake};

/// A server, as the network sees it. Times are those of its own clock, in microseconds since 1970.
pub trait Machine: Send {
    fn connect(&mut self, connection: u64);

    fn disconnect(&mut self, connection: u64);

    /// Takes bytes in, and returns what goes out to whom.
    fn feed(&mut self, now: i64, connection: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>)>;
}

/// The chances of what befalls a segment or a connection, and how long things take.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// One way, at least and at most.
    pub latency: (Nanos, Nanos),
    /// To be late by up to `longest`.
    pub late: f64,
    pub longest: Nanos,
    /// To be cut before, in and behind a request, and in a reply.
    pub cut: f64,
    /// To be silent from now on, without an end.
    pub silent: f64,
    /// A request that runs when its sender has long seen the connection end; a reply that comes twice.
    pub stray: f64,
    pub surplus: f64,
    /// To come in pieces.
    pub drip: f64,
    /// To be refused, or not answered, when it is opened.
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
    /// How much faster its clock runs, in millionths, and how far it is ahead, in microseconds.
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
    /// What has arrived and was not read.
    inbox: VecDeque<u8>,
    /// How it ended, for the client.
    end: Option<End>,
    /// Whether the client has closed it.
    is_shut: bool,
    /// Whether the server knows it.
    is_known: bool,
    /// Nothing comes through any more, and nobody is told.
    is_silent: bool,
    /// What is sent now arrives no earlier, there and here.
    arrives_there: Nanos,
    arrives_here: Nanos,
}

#[derive(Default)]
struct Net {
    servers: Vec<Server>,
    connections: Vec<Connection>,
    /// By process and server: nothing passes before.
    partitions: BTreeMap<(usize, usize), Nanos>,
    counts: BTreeMap<&'static str, u64>,
}

static NET: Mutex<Net> = Mutex::new(Net {
    servers: Vec::new(),
    connections: Vec::new(),
    partitions: BTreeMap::new(),
    counts: BTreeMap::new(),
});

type Namer = Box<dyn Fn(&[u8]) -> Option<String> + Send>;
static NAMER: Mutex<Option<Namer>> = Mutex::new(None);

/// The keys that readers wait at, beside addresses.
const READERS: usize = 1 << 60;
const POLLERS: usize = 1 << 61;

/// What a clock of a server says when the world begins: a day of 2026.
const EPOCH: i64 = 1_790_000_000_000_000;

/// The time that it takes to learn that a server is not there, or that a connection is gone.
const SHORT: Nanos = MILLI / 5;

fn net() -> MutexGuard<'static, Net> {
    NET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a server. Its clock is ahead by so many microseconds, and faster by so many millionths.
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

/// Describes an argument of a request that says nothing to a reader of traces.
pub fn name_arguments(namer: impl Fn(&[u8]) -> Option<String> + Send + 'static) {
    *NAMER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(namer));
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

pub fn is_up(server: usize) -> bool {
    net().servers[server].is_up
}

/// How often each fault has happened.
pub fn counts() -> BTreeMap<&'static str, u64> {
    net().counts.clone()
}

/// Lets a server do nothing until a moment; what comes meanwhile waits.
pub fn pause(server: usize, until: Nanos) {
    let mut net = net();
    net.count("server paused");
    let server = &mut net.servers[server];
    server.paused_until = server.paused_until.max(until);
}

/// Lets nothing pass between a process and a server until a moment.
pub fn part(process: usize, server: usize, until: Nanos) {
    let mut net = net();
    net.count("partition");
    let ends = net.partitions.entry((process, server)).or_default();
    *ends = (*ends).max(until);
}

/// Takes a server down, with all its connections.
pub fn take_down(server: usize) {
    net().count("server down");
    net().servers[server].is_up = false;
    cut_all(|connection| connection.server == server);
}

pub fn bring_up(server: usize) {
    net().servers[server].is_up = true;
}

/// Closes what a process that was killed has open, as its kernel does.
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
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn time_of(&self, server: usize) -> i64 {
        let server = &self.servers[server];
        let micros = i64::try_from(scheduler::now() / 1_000).unwrap_or(i64::MAX / 2);
        EPOCH + server.ahead + micros + micros / 1_000 * server.rate / 1_000
    }

    fn latency(&self, server: usize) -> Nanos {
        let (least, most) = self.servers[server].faults.latency;
        scheduler::draw(|draw| draw.u64(least..=most.max(least)))
    }

    /// When what is sent now arrives at the other end, in order behind what was sent before.
    fn arrival(&mut self, id: usize, is_here: bool) -> Nanos {
        let (server, process) = (self.connections[id].server, self.connections[id].process);
        let mut at = scheduler::now() + self.latency(server);
        let faults = &self.servers[server].faults;
        if chance(faults.late) {
            at += scheduler::draw(|draw| draw.u64(..faults.longest.max(1)));
            self.count("late");
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

/// Ends a connection on both sides: at once there, soon here.
fn cut(id: usize) {
    let mut net = net();
    if net.connections[id].end.is_some() || net.connections[id].is_silent {
        return;
    }
    net.count("cut");
    hang_up(&mut net, id);
    drop(net);
    scheduler::note(|| format!("cut #{id}"));
    let how = scheduler::draw(|draw| draw.choice([End::Closed, End::Reset]));
    scheduler::at(scheduler::now() + SHORT, move || {
        end(id, how.unwrap_or(End::Reset));
    });
}

/// Tells the server that a connection is gone.
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

/// The end of a connection at its client. All clones are the same end; the last one closes it.
#[derive(Clone, Debug)]
pub struct Socket(Arc<ClientEnd>);

#[derive(Debug)]
struct ClientEnd(usize);

impl Drop for ClientEnd {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Connects to a server until a moment of the world.
///
/// # Errors
///
/// As `TcpStream::connect_timeout`.
pub fn connect(host: &str, port: u16, deadline: Nanos) -> io::Result<Socket> {
    scheduler::step();
    let process = scheduler::process();
    let mut net = net();
    let is_meant = |server: &Server| server.host == host && server.port == port;
    let Some(server) = net.servers.iter().position(is_meant) else {
        return Err(io::ErrorKind::ConnectionRefused.into());
    };
    let now = scheduler::now();
    let mut there = now + net.latency(server);
    let back = net.latency(server);
    let faults = net.servers[server].faults.clone();
    if let Some(parted) = net.partitions.get(&(process, server)) {
        there = there.max(*parted);
    }
    if chance(faults.hang) {
        net.count("connect hangs");
        there = Nanos::MAX / 2;
    }
    let is_refused = chance(faults.refuse);
    drop(net);
    if there + back > deadline {
        scheduler::sleep_until(deadline);
        scheduler::note(|| "connecting took too long".to_owned());
        return Err(io::ErrorKind::TimedOut.into());
    }
    scheduler::sleep_until(there);
    let mut net = self::net();
    if is_refused || !net.servers[server].is_up {
        net.count("refused");
        drop(net);
        scheduler::sleep_until(there + back);
        scheduler::note(|| "was refused a connection".to_owned());
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let id = net.connections.len();
    net.connections.push(Connection {
        server,
        process,
        inbox: VecDeque::new(),
        end: None,
        is_shut: false,
        is_known: true,
        is_silent: false,
        arrives_there: 0,
        arrives_here: 0,
    });
    let machine = Arc::clone(&net.servers[server].machine);
    machine
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .connect(id as u64);
    let name = net.servers[server].name.clone();
    drop(net);
    let socket = Socket(Arc::new(ClientEnd(id)));
    scheduler::sleep_until(there + back);
    scheduler::note(|| format!("#{id} connected to {name}"));
    Ok(socket)
}

fn close(id: usize) {
    let mut net = net();
    let connection = &mut net.connections[id];
    if std::mem::replace(&mut connection.is_shut, true) || connection.is_silent {
        return;
    }
    let at = net.arrival(id, false);
    drop(net);
    scheduler::note(|| format!("#{id} closed"));
    scheduler::at(at, move || hang_up(&mut self::net(), id));
}

impl Socket {
    fn id(&self) -> usize {
        self.0.0
    }

    /// Sends what the connection takes at once.
    ///
    /// # Errors
    ///
    /// If the connection is known to be gone.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        scheduler::step();
        let id = self.id();
        let mut net = net();
        let connection = &net.connections[id];
        if connection.is_shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        match connection.end {
            Some(End::Reset) => return Err(io::ErrorKind::ConnectionReset.into()),
            Some(End::Closed) => return Err(io::ErrorKind::BrokenPipe.into()),
            None => {}
        }
        let server = connection.server;
        if connection.is_silent {
            drop(net);
            scheduler::note(|| format!("#{id} ~> {}", requests(bytes)));
            return Ok(bytes.len());
        }
        let faults = net.servers[server].faults.clone();
        if chance(faults.silent) {
            net.count("silent");
            hang_up(&mut net, id);
            drop(net);
            scheduler::note(|| format!("#{id} is silent from now on, ~> {}", requests(bytes)));
            return Ok(bytes.len());
        }
        let taken = if chance(faults.drip) {
            net.count("request in pieces");
            scheduler::draw(|draw| draw.usize(1..=bytes.len()))
        } else {
            bytes.len()
        };
        let mut sent = bytes.get(..taken).unwrap_or_default().to_vec();
        let stray = chance(faults.stray);
        let how_cut = (!stray && chance(faults.cut)).then(|| scheduler::draw(|draw| draw.u8(..3)));
        match how_cut {
            // Before it, or in it.
            Some(0) => sent.clear(),
            Some(1) => sent.truncate(scheduler::draw(|draw| draw.usize(..=taken))),
            _ => {}
        }
        let at = net.arrival(id, false);
        if stray {
            net.count("stray request");
            let at = at + scheduler::draw(|draw| draw.u64(..faults.longest.max(1)));
            drop(net);
            scheduler::note(|| {
                format!("#{id} -> {} (cut, and there all the same)", requests(&sent))
            });
            cut(id);
            scheduler::at(at, move || arrive_stray(server, sent));
            return Ok(taken);
        }
        drop(net);
        scheduler::note(|| {
            let at = (at - scheduler::now()) / 1_000;
            let fate = match how_cut {
                Some(0) => ", lost in a cut",
                Some(1) => ", cut inside",
                Some(_) => ", cut behind it",
                None => "",
            };
            format!("#{id} -> {} (there in {at} us{fate})", requests(&sent))
        });
        scheduler::at(at, move || {
            arrive(id, sent);
            if how_cut.is_some() {
                cut(id);
            }
        });
        Ok(taken)
    }

    /// Reads what has arrived, and waits for it until a moment.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the time is over; if the connection was reset.
    pub fn read(&self, buffer: &mut [u8], deadline: Option<Nanos>) -> io::Result<usize> {
        scheduler::step();
        loop {
            match self.read_now(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if scheduler::block(READERS + self.id(), deadline) == Wake::TimedOut {
                return self.read_now(buffer);
            }
        }
    }

    /// Reads what has arrived, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing has; if the connection was reset.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut net = net();
        let connection = &mut net.connections[self.id()];
        if connection.is_shut {
            return Ok(0);
        }
        if connection.inbox.is_empty() {
            return match connection.end {
                Some(End::Closed) => Ok(0),
                Some(End::Reset) => Err(io::ErrorKind::ConnectionReset.into()),
                None => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let count = buffer.len().min(connection.inbox.len());
        for (to, from) in buffer.iter_mut().zip(connection.inbox.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    /// Whether there is something to read, the end included.
    pub fn has_arrived(&self) -> bool {
        let net = net();
        let connection = &net.connections[self.id()];
        !connection.inbox.is_empty() || connection.end.is_some() || connection.is_shut
    }

    /// Closes it for all its clones.
    pub fn shut_down(&self) {
        scheduler::step();
        close(self.id());
        wake(self.id());
    }
}

/// Waits until something can be read at some of the sockets, until a moment.
pub fn wait_readable(sockets: &[&Socket], deadline: Nanos) -> Option<Vec<bool>> {
    scheduler::step();
    loop {
        let readable: Vec<bool> = sockets.iter().map(|socket| socket.has_arrived()).collect();
        if readable.contains(&true) {
            return Some(readable);
        }
        if scheduler::now() >= deadline {
            return None;
        }
        scheduler::block(POLLERS, Some(deadline));
    }
}

/// Bytes of a client reach its server.
fn arrive(id: usize, bytes: Vec<u8>) {
    let mut net = net();
    let server = net.connections[id].server;
    let paused_until = net.servers[server].paused_until;
    if paused_until > scheduler::now() {
        scheduler::at(paused_until, move || arrive(id, bytes));
        return;
    }
    if !net.connections[id].is_known || bytes.is_empty() {
        return;
    }
    let machine = Arc::clone(&net.servers[server].machine);
    let now = net.time_of(server);
    let replies = machine
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .feed(now, id as u64, &bytes);
    for (to, bytes) in replies {
        if let Ok(to) = usize::try_from(to)
            && to < net.connections.len()
        {
            reply(&mut net, to, bytes);
        }
    }
}

/// A request reaches its server behind the end of its connection, and nobody hears the answer.
fn arrive_stray(server: usize, bytes: Vec<u8>) {
    const NOBODY: u64 = 1 << 40;
    let net = net();
    if !net.servers[server].is_up {
        return;
    }
    scheduler::note(|| format!("a stray request runs: {}", requests(&bytes)));
    let machine = Arc::clone(&net.servers[server].machine);
    let now = net.time_of(server);
    drop(net);
    let mut machine = machine.lock().unwrap_or_else(PoisonError::into_inner);
    machine.connect(NOBODY);
    let replies = machine.feed(now, NOBODY, &bytes);
    machine.disconnect(NOBODY);
    drop(machine);
    let mut net = self::net();
    for (to, bytes) in replies {
        // What it publishes reaches others.
        if let Ok(to) = usize::try_from(to)
            && to < net.connections.len()
        {
            reply(&mut net, to, bytes);
        }
    }
}

/// Sends bytes of a server to a client.
fn reply(net: &mut Net, id: usize, mut bytes: Vec<u8>) {
    let connection = &net.connections[id];
    if connection.is_silent {
        return;
    }
    let server = connection.server;
    let faults = net.servers[server].faults.clone();
    let at = net.arrival(id, true);
    if chance(faults.surplus) {
        net.count("reply twice");
        bytes.extend_from_within(..);
    }
    scheduler::note(|| {
        let after = (at - scheduler::now()) / 1_000;
        let name = &net.servers[server].name;
        format!("{name} -> #{id} {} (here in {after} us)", shown(&bytes))
    });
    let is_cut = chance(faults.cut);
    if is_cut {
        bytes.truncate(scheduler::draw(|draw| draw.usize(..=bytes.len())));
    }
    if chance(faults.drip) && bytes.len() > 1 {
        net.count("reply in pieces");
        let rest = bytes.split_off(scheduler::draw(|draw| draw.usize(1..bytes.len())));
        scheduler::at(at, move || land(id, bytes));
        let later = at + scheduler::draw(|draw| draw.u64(..faults.longest.max(1)));
        net.connections[id].arrives_here = later;
        scheduler::at(later, move || land(id, rest));
    } else {
        scheduler::at(at, move || land(id, bytes));
    }
    if is_cut {
        let at = net.connections[id].arrives_here;
        scheduler::at(at, move || cut(id));
    }
}

/// Bytes of a server reach their client.
fn land(id: usize, bytes: Vec<u8>) {
    let mut net = net();
    let connection = &mut net.connections[id];
    if connection.is_silent || connection.is_shut {
        return;
    }
    connection.inbox.extend(bytes);
    drop(net);
    wake(id);
}

/// The requests in bytes, for a reader.
fn requests(bytes: &[u8]) -> String {
    let namer = NAMER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = String::new();
    let mut rest = bytes;
    while !rest.is_empty() && text.len() < 300 {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
        rest = behind;
        let line = line.trim_ascii_end();
        match line.split_first() {
            Some((b'*', _)) if !text.is_empty() => text.push_str("| "),
            Some((b'*', _)) | None => {}
            Some((b'$', length)) => {
                let length = std::str::from_utf8(length)
                    .ok()
                    .and_then(|it| it.parse().ok());
                let length = length.unwrap_or(0).min(rest.len());
                let (argument, behind) = rest.split_at(length);
                rest = behind.get(2..).unwrap_or_default();
                let named = namer.as_ref().and_then(|namer| namer(argument));
                text += &named.unwrap_or_else(|| shown(argument));
                text.push(' ');
            }
            Some(_) => {
                text += &shown(line);
                text += "… ";
            }
        }
    }
    text.trim_end().to_owned()
}

fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 90;
    let text = bytes.get(..bytes.len().min(MOST)).unwrap_or_default();
    let text = text.escape_ascii().to_string().replace("\\r\\n", " ");
    if bytes.len() > MOST {
        format!("{}…", text.trim_end())
    } else {
        text.trim_end().to_owned()
    }
}
