//! Arrivals: requests at servers, replies at clients.

use std::sync::{Arc, PoisonError};

use super::shown::{requests, shown};
use super::{Net, chance, cut, net, wake};
use crate::events;
use crate::scheduler;

/// Bytes of a client reach its server.
pub(super) fn arrive(id: usize, bytes: Vec<u8>) {
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
    send(&mut net, replies);
}

/// A request reaches its server after the end of its connection, and its reply is dropped.
pub(super) fn arrive_stray(server: usize, bytes: Vec<u8>) {
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
    // Published messages go to other connections.
    deliver(replies);
}

/// Sends what servers send without a request.
pub fn deliver(bytes: Vec<(u64, Vec<u8>)>) {
    let mut net = net();
    send(&mut net, bytes);
}

fn send(net: &mut Net, replies: Vec<(u64, Vec<u8>)>) {
    for (to, bytes) in replies {
        if let Ok(to) = usize::try_from(to)
            && to < net.connections.len()
        {
            reply(net, to, bytes);
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
    let has_error = || bytes.starts_with(b"-") || bytes.windows(2).any(|two| two == b"\n-");
    if chance(faults.surplus) && !(faults.spares_errors && has_error()) {
        events::count("reply twice");
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
        events::count("reply in pieces");
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
