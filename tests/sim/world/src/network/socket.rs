//! The end of a connection at its client.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};

use super::delivery::{arrive, arrive_stray};
use super::shown::requests;
use super::{Connection, End, POLLERS, READERS, Server, chance, cut, hang_up, net, wake};
use crate::events;
use crate::scheduler::{self, Nanos, Wake};

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
    let net = net();
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
        events::count("connect hangs");
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
    let mut net = super::net();
    if is_refused || !net.servers[server].is_up {
        events::count("refused");
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
    scheduler::at(at, move || hang_up(&mut super::net(), id));
}

impl Socket {
    fn id(&self) -> usize {
        self.0.0
    }

    /// Sends what the connection accepts without waiting.
    ///
    /// # Errors
    ///
    /// If the connection is known to be closed.
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
            events::count("silent");
            hang_up(&mut net, id);
            drop(net);
            scheduler::note(|| format!("#{id} is silent from now on, ~> {}", requests(bytes)));
            return Ok(bytes.len());
        }
        let taken = if chance(faults.drip) {
            events::count("request in pieces");
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
            events::count("stray request");
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

    /// Reads received bytes, and waits for them until `deadline`.
    ///
    /// # Errors
    ///
    /// `WouldBlock` at the deadline; if the connection was reset.
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

    /// Reads received bytes, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there are none; if the connection was reset.
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
